// SPDX-License-Identifier: Apache-2.0
// Overview: what ran, where its time went, what is worth a look.

// A change of shape or number that makes so many plans at one line is worth a look.
const MANY_PLANS = 4;

const PHASES = [
  ["launches", "Launches", "kernels, products, routines at work"],
  ["bind", "Run, beside launches", "buffers, binding, hand-over"],
  ["plan", "Finding and making plans", "with compiles that were waited for"],
  ["extract", "Cutting traces", "from the call to a closed trace"],
];

function phaseTimes(p) {
  const t = p.totals;
  return { launches: t.launches_ns, bind: Math.max(0, t.run_ns - t.launches_ns), plan: t.plan_ns, extract: t.extract_ns };
}

function whereTimeWent(p) {
  const wall = Math.max(1, p.last_ns - p.first_ns);
  const ns = phaseTimes(p);
  const rest = Math.max(0, wall - sum(Object.values(ns)));
  const each = D.limits.record_ns || 0, recording = Math.min(rest, p.totals.records * each);
  const rows = [...PHASES.map(([id, name, note]) => ({ id, name, note, ns: ns[id] })),
    { id: "record", name: "≈ Recording", note: each ? `${fmt.count(p.totals.records)} records at ${each.toFixed(1)} ns, as measured when this report was made` : "not measured", ns: recording },
    { id: "own", name: "The program itself", note: "reading data, all that is not deft; waiting", ns: rest - recording }];
  const all = sum(rows, (r) => r.ns);
  const stack = el("div", { class: "stack", role: "img", "aria-label": rows.map((r) => `${r.name} ${fmt.percent(r.ns / all)}`).join(", ") },
    rows.filter((r) => r.ns > 0).map((r) => withTip(
      el("span", { class: "ph ph-" + r.id, style: { "flex-grow": String(r.ns / all) } },
        r.ns / all > 0.09 ? el("em", {}, r.ns / all > 0.2 ? r.name : r.name.split(/[ ,]/)[0]) : null),
      `${r.name}: ${fmt.time(r.ns)}, ${fmt.percent(r.ns / all)}\n${r.note}`)));
  const list = el("div", { class: "phases" }, rows.map((r) => el("div", {}, el("i", { class: "key ph-" + r.id }),
    el("span", { class: "pn" }, r.name), el("span", { class: "num" }, fmt.time(r.ns)),
    el("span", { class: "num dim" }, fmt.percent(r.ns / all)), el("span", { class: "dim note" }, r.note))));
  return [stack, list];
}

// Columns over time, stacked from below in the order of PHASES; above them a line: bytes that live.
function timeline(p) {
  const b = p.buckets, n = b.launches.length, W = 960, H = 96, M = 34;
  const ids = [...PHASES.map((x) => x[0])];
  const step = W / n;
  const g = svg("svg", { viewBox: `0 0 ${W} ${H + M + 18}`, class: "timeline", preserveAspectRatio: "none", role: "img",
    "aria-label": "Time in deft over the run, and live memory" });
  const most = Math.max(b.width_ns, ...b.launches.map((_, i) => sum(ids, (id) => b[id][i])));
  for (let i = 0; i < n; i++) {
    let y = H + M;
    for (const id of ids) {
      const h = (b[id][i] / most) * H;
      if (h < 0.2) continue;
      y -= h;
      g.append(svg("rect", { class: "ph-" + id, x: i * step, y, width: Math.max(0.6, step - 0.6), height: h }));
    }
    if (b.compile[i]) g.append(svg("rect", { class: "tick", x: i * step, y: H + M + 3, width: Math.max(1.4, step - 0.6),
      height: 5 }));
  }
  const top = Math.max(1, ...b.live);
  let last = 0;
  const points = b.live.map((v, i) => { last = v || last; return `${(i + 0.5) * step},${M - 4 - (last / top) * (M - 10)}`; });
  if (top > 1) g.append(svg("polyline", { class: "live", points: points.join(" ") }));
  withTip(g, (e) => {
    const box = g.getBoundingClientRect();
    const i = Math.min(n - 1, Math.max(0, Math.floor(((e.clientX - box.left) / box.width) * n)));
    const parts = PHASES.filter(([id]) => b[id][i]).map(([id, name]) => `${name}: ${fmt.time(b[id][i])}`);
    if (b.compile[i]) parts.push(`Compiling, in the background or waited for: ${fmt.time(b.compile[i])}`);
    if (b.live[i]) parts.push(`Live: ${fmt.bytes(b.live[i])}`);
    return [`${fmt.time(i * b.width_ns)} – ${fmt.time((i + 1) * b.width_ns)}`, ...parts].join("\n");
  });
  return el("figure", {}, g, el("figcaption", {}, el("span", {}, "0"),
    el("span", { class: "dim" }, `columns: time in deft per ${fmt.time(b.width_ns)} · `,
      "line: live memory, up to ", fmt.bytes(top > 1 ? top : 0), " · ticks: compiling"),
    el("span", {}, fmt.time(n * b.width_ns))));
}

// ---- worth a look ----

function findings() {
  const out = [];
  const add = (level, title, text, advice, places) => out.push({ level, title, text, advice, places });
  for (const e of D.errors.slice(-5)) add("error", "Failed", `${e.reason || "a call"}: ${e.message || e.status}`, "", [e.site]);
  for (const p of D.plans) if (p.retreat) add("warning", "Not fused", `plan ${p.name} runs one kernel per op: ${p.retreat}`,
    "nothing in the program is wrong: please report it", [p.site]);
  for (const [reason, group] of grouped(D.whys.filter((w) => w.severity === "warning"), (w) => w.reason))
    add("warning", reason.replaceAll("_", " "), sentence(group.at(-1)) + more(group), adviceOf(group[0]), group.map((w) => w.site));
  for (const s of D.syncs.filter((s) => s.step_site !== null))
    add("warning", "Reads within a step", `${s.reason || "a read"} computed ${fmt.plural(s.records, "record")} in ${fmt.plural(s.n, "read")}, while a step was open`,
      "read after the step, so that its work is fused and run as one", [s.site]);
  for (const p of D.processes) {
    const t = p.totals;
    if (t.interpreted_segments) add("note", "Interpreted", `${fmt.plural(t.interpreted_segments, "segment")} of ${fmt.count(t.segments)} ran in the interpreter`,
      /^llvm/.test(p.compiler || "") ? "they ran before their code was there, or were too small to compile" : "install the code generator (deft doctor says what is missing)", []);
    const lost = (p.dropped_notes || 0) + (p.dropped_records || 0);
    if (lost) add("note", "Log not whole", `${fmt.plural(lost, "line")} found no room while ${p.program || "it"} ran`, "times of launches and counts are too low by as much", []);
    if (!p.ended) add("note", "Log without an end", "the process ended otherwise, or still runs", "", []);
  }
  out.push(...recompileFindings(), ...copyFindings());
  const late = D.plans.filter((p) => p.cache === "guards_missed");
  if (late.length) add("note", "Planned again", `${fmt.plural(late.length, "plan")} made for a program that was known, since guards did not hold`,
    "the page Recompiles names the field of each", late.map((p) => p.site));
  if (!D.whys.some((w) => w.reason === "recomputed")) for (const r of D.recomputes.slice(0, 5)) add("note", "Computed twice", `${fmt.plural(r.records, "record")} again in ${fmt.plural(r.n, "cut")}`,
    "deft_keep what is read more than once", [r.site, r.first_site]);
  if (D.faults.bad_lines) add("note", "Lines not read", `${fmt.count(D.faults.bad_lines)} of ${fmt.count(D.faults.lines)}: ${D.faults.first[0] || ""}`, "", []);
  const order = ["error", "warning", "note"];
  return out.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
}

// Lines at which plan after plan was made: the program compiles again instead of running again.
function recompileFindings() {
  const bySite = [...grouped(D.plans.filter((p) => p.site !== null), (p) => `${p.process} ${p.site}`).values()].filter((ps) => ps.length >= MANY_PLANS);
  return bySite.sort((a, b) => sum(b, (p) => p.cost) - sum(a, (p) => p.cost)).slice(0, 5).map((ps) => {
    const misses = D.misses.filter((m) => m.site === ps[0].site && m.field);
    const [field, list] = [...grouped(misses, (m) => m.field)].sort((a, b) => b[1].length - a[1].length)[0] || ["", []];
    const last = list.at(-1);
    return { level: "warning", title: "Compiles again and again", text: `${fmt.plural(ps.length, "plan")} were made here, in ${fmt.time(sum(ps, (p) => p.cost))}` +
      (last ? `; what differed most often: ${field} (expected ${last.expected || "–"}, found ${last.found || "–"})` : ""),
    advice: "the page Recompiles says for each what was new; a number or an extent that changes should reach the calls as an argument, not as another program", places: [ps[0].site] };
  });
}

// Kernels that only move data and take a large share of the run.
function copyFindings() {
  const isCopy = (u) => u.kind !== "matmul" && /^(copy|assign|update|expand|concat|contiguous|permute|slice|input)(, *(copy|assign|update|expand|permute|slice|input))*$/.test(u.ops || "");
  return unitList.filter((u) => isCopy(u) && u.ns > 0.05 * totalNs).slice(0, 5).map((u) => ({ level: "warning", title: "Copies whole arrays",
    text: `${unitName(u)} only moves data (${u.ops}): ${fmt.time(u.ns)}, ${fmt.percent(u.ns / totalNs)} of all launches, ${fmt.bytes(u.bytes)} moved`,
    advice: "the Why of its plan names the reader that keeps the old value; read before the assign, or assign to a slice of the place itself", places: [u.site] }));
}

const more = (group) => (sum(group, (w) => w.n) > 1 ? ` (${fmt.count(sum(group, (w) => w.n))} times in ${fmt.plural(group.length, "place")})` : "");

function findingList() {
  const all = findings();
  if (!all.length) return empty("No warnings: nothing failed, nothing ran unfused, no read stopped a step.");
  const sign = { error: "✕", warning: "▲", note: "●" };
  return el("ul", { class: "findings" }, all.map((f) => el("li", { class: f.level },
    el("span", { class: "sign", "aria-label": f.level }, sign[f.level]),
    el("div", {}, el("b", {}, f.title), " ", f.text, f.advice ? el("div", { class: "advice" }, f.advice) : null,
      el("div", { class: "places" }, [...new Set(f.places.filter((x) => x !== null && x !== undefined))].slice(0, 4).map(siteLink))))));
}

// ---- the page ----

const number = (name, value, note) => el("div", { class: "figure" }, el("b", {}, value), el("span", {}, name), note ? el("small", {}, note) : null);

function figures(p) {
  const t = p.totals;
  const plans = D.plans.filter((x) => D.processes[x.process] === p);
  const compiled = sum(D.kernels, (k) => k.compiles.filter((c) => D.processes[c.process] === p).length);
  return el("div", { class: "figures" },
    number("wall time", fmt.time(p.last_ns - p.first_ns), p.steps ? fmt.plural(p.steps, "step") : ""),
    number("cuts", fmt.count(t.cuts), t.cuts ? `${fmt.percent(t.plan_hits / t.cuts)} found their plan` : ""),
    number("launches", fmt.count(t.launches), `${fmt.time(t.launches_ns)} in all`),
    number("plans made", fmt.count(plans.length), fmt.time(sum(plans, (x) => x.cost))),
    number("compiles", fmt.count(compiled), fmt.time(sum(p.buckets.compile))),
    number("reads that computed", fmt.count(p.syncs)),
    number("peak memory", p.peak_bytes ? fmt.bytes(p.peak_bytes) : "–", t.results ? `${fmt.percent(t.donated / t.results)} of results in place` : ""));
}

const lineColumns = () => [
  { name: "line", of: (l) => siteLink(l.site), wide: true },
  { name: "kernels", of: (l) => [...l.units].slice(0, 4).flatMap((u) => [unitLink(u), " "]) },
  { name: "time ≈", right: true, of: (l) => fmt.time(l.ns), sort: (l) => l.ns, first: true, title: "Split by an estimate where a kernel holds several lines" },
  { name: "", right: true, of: (l) => fmt.percent(l.ns / (totalNs || 1)) },
  { name: "", of: (l) => bar(l.ns / (lineList[0].ns || 1)) },
];
const unitColumns = () => [
  { name: "kernel", of: unitLink },
  { name: "ops", of: (u) => clip(unitTitle(u), 52), wide: true },
  { name: "runs", right: true, of: (u) => fmt.count(u.n), sort: (u) => u.n },
  { name: "time", right: true, of: (u) => (u.alone ? "" : "≈ ") + fmt.time(u.ns), sort: (u) => u.ns, first: true },
  { name: "", right: true, of: (u) => fmt.percent(u.ns / (totalNs || 1)) },
  { name: "", of: (u) => bar(u.ns / (unitList[0].ns || 1)) },
];

const cutTable = () => table([
  { name: "at", right: true, of: (c) => fmt.time(c[1] - D.processes[c[0]].first_ns), sort: (c) => c[1], first: true },
  { name: "cut at", of: (c) => siteLink(c[2]), wide: true },
  { name: "by", of: (c) => c[4].replaceAll("_", " ") },
  { name: "plan", of: (c) => [planLink(D.plans[c[3]]), c[5] ? "" : el("span", { class: "dim" }, " made")] },
  { name: "extract", right: true, of: (c) => fmt.time(c[6]), sort: (c) => c[6] },
  { name: "plan", right: true, of: (c) => fmt.time(c[7]), sort: (c) => c[7] },
  { name: "run", right: true, of: (c) => fmt.time(c[8]), sort: (c) => c[8] },
  { name: "in launches", right: true, of: (c) => fmt.time(c[9]), sort: (c) => c[9] },
], D.cuts, { most: 8, none: "Nothing was run." });

function overviewPage(pick) {
  const p = D.processes[Number(pick) || 0] || D.processes[0];
  const choose = D.processes.length < 2 ? null : el("label", { class: "option" }, "process ",
    el("select", { onchange: (e) => go("overview", e.target.value) }, D.processes.map((x, i) =>
      el("option", { value: i, selected: x === p }, `${x.program || "?"} (${x.process_id ?? "?"})`))));
  return el("div", { class: "page overview" }, choose, figures(p),
    el("div", { class: "cols" },
      el("div", {}, panel("Where time went", `wall time of ${p.program || "the process"}`, ...whereTimeWent(p), timeline(p)),
        panel("Slowest lines", "time in launches, by line of the program", table(lineColumns(), lineList.filter((l) => l.ns > 0), { most: 10, open: (l) => ["source", l.key] })),
        panel("Newest cuts", shownNote("cuts", "cuts"), cutTable())),
      el("div", {}, panel("Worth a look", "", findingList()),
        panel("Slowest kernels", p.has_launches ? "" : "run with DEFT_TRACE_LAUNCHES=1 for times of single launches",
          table(unitColumns(), unitList.filter((u) => u.n > 0), { most: 10, open: (u) => ["kernels", u.key] })))));
}
