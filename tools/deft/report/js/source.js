// SPDX-License-Identifier: Apache-2.0
// Source: lines with what they cost; a line's ops, kernels and machine code.

const fileNames = () => [...grouped(lineList.filter((l) => l.file), (l) => l.file)]
  .map(([name, list]) => ({ name, list, ns: sum(list, (l) => l.ns) })).sort((a, b) => b.ns - a.ns);

function linesOfFile(name) {
  const known = lineList.filter((l) => l.file === name);
  const byLine = new Map(known.map((l) => [l.line, l]));
  const text = D.files[name];
  if (text === undefined) return { text: null, rows: known.sort((a, b) => a.line - b.line).map((l) => [l.line, null, l]) };
  return { text, rows: text.replace(/\n$/, "").split("\n").map((t, i) => [i + 1, t, byLine.get(i + 1) || null]) };
}

const marks = (line) => {
  const kinds = new Set(line.notes.map(([kind, row]) => (kind === "why" && row.severity !== "warning" ? "" : kind)));
  return [["error", "✕"], ["sync", "⇣"], ["recompute", "↻"], ["why", "▲"]].filter(([k]) => kinds.has(k))
    .map(([k, sign]) => el("abbr", { title: { error: "failed here", sync: "a read computed here", recompute: "computed again here", why: "a warning" }[k], class: "mark-" + k }, sign));
};

function sourceRow(row, most, selected) {
  const [number, text, line] = row;
  const key = line && line.key;
  const attributes = { class: (line ? "has" : "") + (key === selected ? " on" : ""), "data-line": number };
  if (line) Object.assign(attributes, { tabindex: -1, role: "button", "aria-label": `line ${number}, ${fmt.time(line.ns)}`, onclick: () => go("source", key) });
  return el("div", attributes, el("span", { class: "sn" }, number),
    el("span", { class: "st" }, line && line.ns ? fmt.time(line.ns) : ""),
    el("span", { class: "sb" }, line && line.ns ? bar(line.ns / most) : null),
    el("span", { class: "sk" }, line ? [...line.units].slice(0, 2).map((u) => el("i", {}, unitName(u))) : null,
      line && line.units.size > 2 ? el("i", {}, `+${line.units.size - 2}`) : null, line ? marks(line) : null),
    el("span", { class: "sx" }, text === null ? el("em", { class: "dim" }, sites[line.site].func || "") : text || " "));
}

function sourceKeys(e, box) {
  const rows = [...box.querySelectorAll(".has")];
  const at = rows.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
  if (step && rows.length) {
    rows[Math.max(0, Math.min(rows.length - 1, at + step))].focus();
    e.preventDefault();
  } else if ((e.key === "Enter" || e.key === " ") && at >= 0) {
    rows[at].click();
    e.preventDefault();
  }
}

function sourceText(file, selected) {
  const { text, rows } = linesOfFile(file.name);
  const most = Math.max(1, ...file.list.map((l) => l.ns));
  const box = el("div", { class: "source", tabindex: 0, role: "group", "aria-label": `Lines of ${file.name}` }, rows.map((r) => sourceRow(r, most, selected)));
  box.addEventListener("keydown", (e) => sourceKeys(e, box));
  return [text === null ? el("p", { class: "hint" }, `The text of ${file.name} was not found when this report was made: deft report --source=DIR`) : null, box];
}

// ---- what a line became ----

function recordRows(line) {
  return [...grouped(line.records, ([plan, r]) => (recordsOf(plan)[r] || {}).text || "?")].slice(0, 200)
    .map(([, list]) => ({ plan: list[0][0], r: list[0][1], n: list.length, about: recordsOf(list[0][0])[list[0][1]] }))
    .filter((x) => x.about && !["num", "cst"].includes(x.about.op));
}

const unitOfRecord = (line, plan, r) => [...line.units].find((u) => u.places.some((p) => p.plan === plan && p.seg.records.includes(r)));

function opsTable(line) {
  return table([
    { name: "op", of: (x) => el("code", {}, x.about.op) },
    { name: "result", of: (x) => el("code", {}, typeText(x.about)), wide: true },
    { name: "kernel", of: (x) => { const u = unitOfRecord(line, x.plan, x.r); return u ? unitLink(u) : el("span", { class: "dim", title: "simplified away, a view, or a number" }, "none"); } },
    { name: "in", of: (x) => [planLink(x.plan), el("span", { class: "dim" }, ` %${x.r}`)] },
  ], recordRows(line), { most: 12, none: "No records of this line are in the log." });
}

function unitBlock(u, line, open) {
  const box = el("details", { class: "unitbox", open });
  box.append(el("summary", {}, el("b", {}, unitName(u)), " ", el("code", {}, clip(unitTitle(u), 70)),
    el("span", { class: "right" }, fmt.time(u.sites.get(line.key) || 0), el("span", { class: "dim" }, ` of ${fmt.time(u.ns)}`))));
  const others = [...u.sites].filter(([key]) => key !== line.key).sort((a, b) => b[1] - a[1]);
  const make = () => {
    if (box.childElementCount > 1 || !box.open) return;
    box.append(el("div", { class: "places" }, link(["kernels", u.key], {}, "kernel page"),
      others.length ? [el("span", { class: "dim" }, "fused with"), others.slice(0, 8).map(([key]) => link(["source", key], { class: "site" }, key))] : null),
    codeTabs(u, 2));
  };
  box.addEventListener("toggle", make);
  make();
  return box;
}

function notesOf(line) {
  const text = {
    why: (w) => [sentence(w), w.n > 1 ? ` (${fmt.count(w.n)} times)` : "", adviceOf(w) && !/^none needed/.test(adviceOf(w)) ? el("div", { class: "advice" }, adviceOf(w)) : null],
    sync: (s) => [`${s.reason || "a read"} had to compute ${fmt.plural(s.records, "record")} in ${fmt.plural(s.n, "read")}`, s.step_site !== null ? [", within the step of ", siteLink(s.step_site)] : ""],
    error: (e) => [e.message || e.status || ""],
    recompute: (r) => [`computed ${fmt.plural(r.records, "record")} again, first at `, siteLink(r.first_site)],
  };
  return el("ul", { class: "notes" }, line.notes.slice(0, 30).map(([kind, row]) => el("li", {}, el("b", {}, kind === "why" ? row.reason.replaceAll("_", " ") : kind), ": ", ...text[kind](row))));
}

function lineDetail(line) {
  const us = [...line.units].sort((a, b) => (b.sites.get(line.key) || 0) - (a.sites.get(line.key) || 0));
  const s = sites[line.site];
  return el("div", { class: "detail", "aria-live": "polite" },
    el("h2", {}, line.key, el("small", {}, [s.func, s.label && `in ${s.label}`].filter(Boolean).join(" · "))),
    el("div", { class: "figures small" }, number("time ≈", fmt.time(line.ns), totalNs ? `${fmt.percent(line.ns / totalNs)} of launches` : ""),
      number("kernels", fmt.count(us.length)), number("records", fmt.count(line.records.length), "in all plans")),
    line.notes.length ? panel("Told of this line", "", notesOf(line)) : null,
    panel("Kernels", us.length ? "slowest first" : "", us.length ? us.map((u, i) => unitBlock(u, line, i === 0)) : empty("Nothing of this line runs by itself: views and numbers become part of what uses them.")),
    panel("Ops", "records of the traces that name this line", opsTable(line)));
}

function sourcePage(key) {
  const files = fileNames();
  const line = lines.get(key) || (key && files.some((f) => f.name === key) ? null : files[0]?.list[0]) || null;
  const name = line ? line.file : key;
  const file = files.find((f) => f.name === name);
  const elsewhere = lineList.filter((l) => !l.file);
  const side = el("nav", { class: "side", "aria-label": "Files" },
    files.map((f) => link(["source", f.name], { class: f.name === name ? "on" : null, "aria-current": f.name === name ? "true" : null }, el("span", {}, f.name), el("small", {}, fmt.time(f.ns)))),
    elsewhere.length ? el("h3", {}, "Places without a line") : null,
    elsewhere.slice(0, 60).map((l) => link(["source", l.key], { class: l === line ? "on" : null }, el("span", {}, clip(l.key, 60)), el("small", {}, fmt.time(l.ns)))));
  if (!files.length && !elsewhere.length) return el("div", { class: "page" }, empty("No call site is in the log."));
  const page = el("div", { class: "page split3" }, side,
    el("div", { class: "middle" }, file ? sourceText(file, line && line.key) : el("p", { class: "hint" }, "This place has no source line: build with -g and install the plug-in for call sites.")),
    line ? lineDetail(line) : el("div", { class: "detail" }, empty("Pick a line with a time to see what became of it.")));
  requestAnimationFrame(() => {
    const on = page.querySelector(".source .on") || page.querySelector(".source .has");
    const box = page.querySelector(".source");
    if (on) {
      on.tabIndex = 0;
      box.scrollTop = on.offsetTop - box.clientHeight / 3;
    }
  });
  return page;
}
