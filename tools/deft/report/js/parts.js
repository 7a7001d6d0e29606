// SPDX-License-Identifier: Apache-2.0
// What the pages are built from: links, bars, tables, code.

const go = (...parts) => { location.hash = "#/" + parts.map(encodeURIComponent).join("/"); };
const link = (parts, attributes, ...text) =>
  el("a", { href: "#/" + parts.map(encodeURIComponent).join("/"), ...attributes }, ...text);

const siteLink = (at) => (at === null || at === undefined
  ? el("span", { class: "dim" }, "unknown place")
  : link(["source", lineKey(at)], { class: "site" }, siteText(at)));
const unitLink = (u) => link(["kernels", u.key], { class: "unit" }, unitName(u));
const planLink = (p) => (p ? link(["graph", String(p.at)], { class: "planref" }, `plan ${p.name}`)
  : el("span", { class: "dim" }, "–"));

const bar = (share, kind) => el("span", { class: "bar " + (kind || ""), "aria-hidden": "true" },
  el("i", { style: { width: Math.max(0, Math.min(100, 100 * share)) + "%" } }));

const panel = (title, note, ...children) => el("section", { class: "panel" },
  el("h2", {}, title, note ? el("small", {}, note) : null), ...children);
const empty = (...text) => el("p", { class: "empty" }, ...text);
const shownNote = (name, what) => {
  const [x, y] = D.shown[name] || [0, 0];
  return x < y ? `showing ${fmt.count(x)} of ${fmt.count(y)} ${what}` : "";
};

// columns: {name, of: row -> node or text, sort: row -> number or text, right, wide, title}. open: row -> parts of
// a link, for Enter and click. The first column with sort that has `first` orders the rows at the start.
function table(columns, rows, options = {}) {
  const most = options.most || 100;
  let order = columns.findIndex((c) => c.first), up = false, shown = most;
  const body = el("tbody");
  const head = el("tr");
  const more = el("button", { type: "button", class: "more" });
  const sorted = () => {
    if (order < 0) return rows;
    const f = columns[order].sort;
    return [...rows].sort((a, b) => {
      const x = f(a), y = f(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
    });
  };
  const rowOf = (row, at) => {
    const cells = columns.map((c) => el("td", { class: (c.right ? "num " : "") + (c.wide ? "wide" : "") }, c.of(row)));
    const tr = el("tr", { tabindex: at === 0 ? 0 : -1, class: options.open ? "opens" : null }, ...cells);
    if (options.open) tr.addEventListener("click", (e) => {
      if (!e.target.closest("a,button") && !String(getSelection())) go(...options.open(row));
    });
    tr.addEventListener("keydown", (e) => rowKey(e, tr, options.open && (() => go(...options.open(row)))));
    return tr;
  };
  const draw = () => {
    body.replaceChildren(...sorted().slice(0, shown).map(rowOf));
    [...head.children].forEach((th, k) => th.setAttribute("aria-sort",
      k !== order ? "none" : up ? "ascending" : "descending"));
    more.hidden = rows.length <= shown;
    more.textContent = `Show ${fmt.count(Math.min(most * 5, rows.length - shown))} more of ${fmt.count(rows.length)}`;
  };
  columns.forEach((c, k) => {
    const th = el("th", { scope: "col", class: (c.right ? "num" : "") + (c.wide ? " wide" : ""), title: c.title });
    if (c.sort) th.append(el("button", { type: "button", onclick: () => {
      up = order === k ? !up : false;
      order = k;
      draw();
    } }, c.name, el("span", { class: "arrow", "aria-hidden": "true" })));
    else th.append(c.name);
    head.append(th);
  });
  more.addEventListener("click", () => { shown += most * 5; draw(); });
  draw();
  if (!rows.length) return empty(options.none || "Nothing of this in the log.");
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), body), more);
}

function rowKey(e, tr, open) {
  const next = { ArrowDown: tr.nextElementSibling, ArrowUp: tr.previousElementSibling,
    Home: tr.parentNode.firstElementChild, End: tr.parentNode.lastElementChild }[e.key];
  if (next) {
    tr.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    e.preventDefault();
  } else if (e.key === "Enter" && open && e.target === tr) {
    open();
    e.preventDefault();
  }
}

// Tabs within a page: names -> functions that make what they show.
function tabs(label, entries, first) {
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": label });
  const pane = el("div", { class: "pane", role: "tabpanel", tabindex: -1 });
  const buttons = entries.map(([name, make]) => el("button", { type: "button", role: "tab", onclick: (e) => pick(e.currentTarget, make) }, name));
  const pick = (button, make) => {
    for (const b of buttons) {
      b.setAttribute("aria-selected", b === button);
      b.tabIndex = b === button ? 0 : -1;
    }
    pane.replaceChildren(make());
  };
  list.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    const b = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    b.focus();
    b.click();
    e.preventDefault();
  });
  list.append(...buttons);
  const at = Math.max(0, first || 0);
  if (entries.length) pick(buttons[at], entries[at][1]);
  return el("div", { class: "tabbed" }, list, pane);
}

// ---- code ----


// One line of code, its comment and its first word set apart.
function codeLine(text, kind) {
  const mark = kind === "asm" ? /(#.*)$/ : /(;.*)$/;
  const m = kind === "kernel" ? null : mark.exec(text);
  const code = m ? text.slice(0, m.index) : text;
  const nodes = [];
  if (kind === "asm") {
    const w = /^(\s+)(\.?[A-Za-z][\w.]*)(.*)$/s.exec(code);
    if (w) nodes.push(w[1], el("span", { class: w[2].startsWith(".") ? "cd" : "cw" }, w[2]), w[3]);
    else nodes.push(/^[\w.]+:/.test(code) ? el("span", { class: "cl" }, code) : code);
  } else {
    const w = /^(\s*(?:%?[\w.]+ = )?)([a-z_]+)(.*)$/s.exec(code);
    if (w) nodes.push(w[1], el("span", { class: "cw" }, w[2]), w[3]);
    else nodes.push(code);
  }
  if (m) nodes.push(el("span", { class: "cc" }, m[1]));
  return nodes;
}

function codeView(text, kind) {
  if (!text) return empty("The log holds no code. Run with DEFT_TRACE_CODE=1 to have it here.");
  const all = text.replace(/\n+$/, "").split("\n");
  const isNoise = (l) => /^\s*\.(p2align|section|type|size|globl|file|text|cfi|ident|addrsig|long|quad|byte|short|zero)/.test(l) || /^\.LCPI/.test(l);
  const noisy = kind === "asm" && all.some(isNoise);
  const box = el("div", { class: "code", tabindex: 0, role: "region", "aria-label": "Code" });
  const draw = (whole) => {
    const kept = whole ? all : all.filter((l) => !isNoise(l));
    const rows = kept.slice(0, 6000).map((l) => el("div", {}, ...codeLine(l, kind)));
    if (kept.length > 6000) rows.push(el("div", { class: "cc" }, `… ${fmt.count(kept.length - 6000)} more lines`));
    box.replaceChildren(...rows);
  };
  draw(!noisy);
  if (!noisy) return box;
  const check = el("input", { type: "checkbox", onchange: () => draw(check.checked) });
  return el("div", {}, el("label", { class: "option" }, check, " directives and constants"), box);
}

const codeTabs = (u, first) => {
  const k = u.code;
  if (!k) return empty(u.kind === "kernel"
    ? "No compile of this kernel is in the log: it was found compiled, or is interpreted."
    : `A ${u.kind} is done by the library itself: there is no generated code.`);
  return tabs("Code of the kernel", [["Kernel IR", () => codeView(unpack(k.kernel_ir), "kernel")],
    ["Compiler IR", () => codeView(unpack(k.compiler_ir), "llvm")],
    ["Machine code", () => codeView(unpack(k.assembly), "asm")]], first);
};

// Limits as bars: what was reached of what can be.
function limitBar(name, value, most, unit) {
  const share = most ? value / most : 0;
  const words = most ? `${fmt.percent(share)} of ${fmt.rate(most, unit)}` : "limit unknown";
  return el("div", { class: "limit" }, el("span", {}, name), el("b", {}, value ? fmt.rate(value, unit) : "–"),
    bar(share), el("span", { class: "dim" }, value ? words : ""));
}

const limitsNote = () => (D.limits.gbytes || D.limits.gflops
  ? (D.limits.measured
    ? `Limits: measured where and when this report was made, ${fmt.plural(D.limits.threads, "thread")}: a sum of arrays, the library's own matrix product in cache`
    : "Limits: given by --limits")
  : "Limits: unknown");
