// SPDX-License-Identifier: Apache-2.0
// Pages, search, keys, light and dark.

const PAGES = [
  ["overview", "Overview", overviewPage], ["timeline", "Timeline", timelinePage], ["source", "Source", sourcePage], ["graph", "Graph", graphPage],
  ["kernels", "Kernels", kernelPage], ["memory", "Memory", memoryPage], ["recompiles", "Recompiles", recompilesPage],
  ["trees", "Graph trees", treesPage], ["compare", "Compare", comparePage],
];

function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map((x) => {
    try { return decodeURIComponent(x); } catch { return ""; }
  });
  const page = PAGES.find(([id]) => id === parts[0]) || PAGES[0];
  hideTip();
  for (const tab of $("tabs").children) {
    const on = tab.dataset.page === page[0];
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
  }
  $("main").replaceChildren(page[2](...parts.slice(1)));
  $("main").dataset.page = page[0];
  document.title = `${page[1]} · deft report`;
}

function makeTabs() {
  $("tabs").append(...PAGES.map(([id, name], i) => el("a", { href: `#/${id}`, role: "tab", "data-page": id, title: `key ${i + 1}` }, name)));
  $("tabs").addEventListener("keydown", (e) => {
    const all = [...$("tabs").children], at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[e.key];
    if (to === undefined) return;
    const tab = all[(to + all.length) % all.length];
    tab.focus();
    tab.click();
    e.preventDefault();
  });
}

function makeFacts() {
  const p = D.processes[0] || {};
  const made = new Date(D.made_unix_s * 1000).toISOString().slice(0, 16).replace("T", " ");
  const parts = [el("b", {}, [...new Set(D.processes.map((x) => x.program || "?"))].slice(0, 4).join(", ")),
    D.processes.length > 1 ? `${D.processes.length} processes` : p.process_id ? `pid ${p.process_id}` : null,
    p.compiler, p.threads ? fmt.plural(p.threads, "thread") : null, `deft ${p.library_version || D.version}`, `report of ${made} UTC`];
  const partial = Object.keys(D.shown).map((k) => shownNote(k, { cuts: "cuts one by one", plan_texts: "plans with their text", kernel_codes: "kernels with their code", nodes: "nodes of graph trees", trees: "graph trees" }[k] || k)).filter(Boolean);
  $("facts").append(...parts.filter(Boolean).map((x) => el("span", {}, x)), partial.length ? el("span", { class: "dim" }, partial.join(", ")) : "");
}

// ---- search ----

const haystack = () => [
  ...lineList.map((l) => ({ kind: "line", text: siteText(l.site), note: fmt.time(l.ns), to: ["source", l.key] })),
  ...unitList.map((u) => ({ kind: "kernel", text: `${unitName(u)} ${unitTitle(u)}`, note: fmt.time(u.ns), also: u.key, to: ["kernels", u.key] })),
  ...D.plans.map((p) => ({ kind: "plan", text: `plan ${p.name} at ${siteText(p.site)}`, note: `${p.records} records`, also: p.key, to: ["graph", String(p.at)] })),
  ...Object.keys(D.reasons).map((r) => ({ kind: "reason", text: r.replaceAll("_", " "), note: "", also: r, to: ["recompiles"] })),
];

function makeSearch() {
  const input = $("search"), hits = $("hits");
  let all = null, at = -1;
  const close = () => { hits.hidden = true; input.setAttribute("aria-expanded", "false"); at = -1; };
  const show = () => {
    all = all || haystack();
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return close();
    const found = all.filter((x) => words.every((w) => `${x.kind} ${x.text} ${x.also || ""}`.toLowerCase().includes(w)));
    hits.replaceChildren(...found.slice(0, 14).map((x, i) => el("div", { role: "option", id: `hit${i}`, onmousedown: (e) => { e.preventDefault(); open(x); } },
      el("small", {}, x.kind), el("span", {}, clip(x.text, 90)), el("small", {}, x.note))), el("p", {}, found.length ? `${fmt.plural(found.length, "hit")}` : "nothing found"));
    hits.hidden = false;
    input.setAttribute("aria-expanded", "true");
    hits.found = found;
    mark(found.length ? 0 : -1);
  };
  const mark = (k) => {
    at = k;
    [...hits.querySelectorAll("[role=option]")].forEach((x, i) => x.setAttribute("aria-selected", i === k));
    input.setAttribute("aria-activedescendant", k < 0 ? "" : `hit${k}`);
  };
  const open = (x) => { input.value = ""; close(); input.blur(); go(...x.to); };
  input.addEventListener("input", show);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (e) => {
    const n = hits.querySelectorAll("[role=option]").length;
    if (e.key === "ArrowDown" && n) mark((at + 1) % n);
    else if (e.key === "ArrowUp" && n) mark((at + n - 1) % n);
    else if (e.key === "Enter" && at >= 0) open(hits.found[at]);
    else if (e.key === "Escape") { input.value = ""; close(); input.blur(); }
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
}

// ---- keys, theme ----

const HELP = [["1 – 9", "pages"], ["/", "search"], ["Tab, arrows", "move within a page: tabs, lines, rows, the graph"], ["Enter", "open what has the focus"], ["+  −  0", "graph and timeline: zoom, show everything"], ["Esc", "close, leave, clear"], ["t", "light, dark"], ["?", "this"]];

function makeKeys() {
  const dialog = $("keys");
  dialog.append(el("h2", {}, "Keys"), el("dl", {}, HELP.map(([k, what]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, what)])),
    el("button", { type: "button", class: "pill", onclick: () => dialog.close() }, "close"));
  dialog.setAttribute("aria-label", "Keys");
  $("help").addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || dialog.open) return;
    const typing = e.target.closest("input,select,textarea");
    if (e.key === "Escape") {
      hideTip();
      if (typing) typing.blur();
      return;
    }
    if (typing) return;
    const page = PAGES[Number(e.key) - 1];
    if (page && /^[1-9]$/.test(e.key)) go(page[0]);
    else if (e.key === "/") $("search").focus();
    else if (e.key === "?") dialog.showModal();
    else if (e.key === "t") nextTheme();
    else return;
    e.preventDefault();
  });
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
const tellTheme = () => {
  $("theme").textContent = isDark() ? "☀" : "☾";
  $("theme").setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
};
function nextTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  tellTheme();
}

makeTabs();
makeFacts();
makeSearch();
makeKeys();
$("theme").addEventListener("click", nextTheme);
dark.addEventListener("change", tellTheme);
tellTheme();
addEventListener("hashchange", () => {
  route();
  if (!$("tabs").contains(document.activeElement)) $("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
route();
