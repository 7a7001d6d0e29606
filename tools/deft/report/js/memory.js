// SPDX-License-Identifier: Apache-2.0
// Memory: what a plan's buffers need from launch to launch, which of them share memory, what is donated.

const buffersOf = (plan) => (plan.blocks || []).flatMap((block, b) => (block.buffers || []).map((x, i) => ({ ...x, b, i })));

// Bytes alive at each launch: temporaries by their regions, the rest as they are.
function alive(block) {
  const out = block.launches.map(() => 0);
  for (const x of block.buffers || []) if (x.first !== null) for (let i = x.first; i <= x.last; i++) out[i] += x.bytes;
  return out;
}

const BUFFER_KINDS = [["input", "input"], ["temporary", "temporary"], ["result", "result"], ["into", "written through"]];

function lifeChart(plan, block, b) {
  const n = Math.max(1, block.launches.length);
  const list = (block.buffers || []).map((x, i) => ({ ...x, i })).filter((x) => x.first !== null)
    .sort((a, c) => a.first - c.first || c.bytes - a.bytes);
  const rows = list.length > 160 ? [...list].sort((a, c) => c.bytes - a.bytes).slice(0, 160).sort((a, c) => a.first - c.first) : list;
  const W = 900, L = 190, R = 14, H = 15, top = 74;
  const step = (W - L) / n;
  const bytes = alive(block), most = Math.max(1, ...bytes);
  const peak = bytes.indexOf(most);
  const g = svg("svg", { class: "life", viewBox: `0 0 ${W + R} ${top + rows.length * H + 22}`, role: "img", "aria-label": `Live ranges of ${rows.length} buffers over ${n} launches, at most ${fmt.bytes(most)} in launch ${peak}` });
  bytes.forEach((v, i) => {
    const h = (v / most) * (top - 26);
    g.append(withTip(svg("rect", { class: i === peak ? "peak" : "total", x: L + i * step, y: top - 8 - h, width: step > 3 ? step - 0.8 : step + 0.2, height: h }), `launch ${i}: ${fmt.bytes(v)} in use by this plan`));
  });
  g.append(svg("text", { x: L - 8, y: top - 40, "text-anchor": "end" }, "in use"),
    svg("text", { x: L - 8, y: top - 26, "text-anchor": "end", class: "b" }, fmt.bytes(most)),
    svg("text", { x: Math.min(W - 60, L + peak * step), y: 12, class: "b" }, `peak: launch ${peak}`));
  rows.forEach((x, k) => {
    const y = top + k * H;
    const name = x.kind === "temporary" ? `t${x.index}` : x.kind === "result" ? `result ${x.index}` : x.kind === "into" ? `into ${x.index}` : `input ${x.index}`;
    const tip = `b${x.i}: ${name}, ${x.dtype}, ${fmt.bytes(x.bytes)}\nlaunches ${x.first} to ${x.last}` + (x.kind === "temporary" ? `\nshares region ${x.index}` : "") + (x.donor !== null && x.donor !== undefined ? `\nmay take the memory of input ${x.donor}` : "");
    g.append(svg("text", { x: 4, y: y + 11, class: "bn" }, name), svg("text", { x: L - 8, y: y + 11, "text-anchor": "end", class: "bs" }, fmt.bytes(x.bytes) + (x.donor !== null && x.donor !== undefined ? " ⤺" : "")),
      svg("line", { x1: L, x2: W, y1: y + H - 1.5, y2: y + H - 1.5, class: "rule" }),
      withTip(svg("rect", { class: `buf buf-${x.kind}`, x: L + x.first * step, y: y + 2, width: Math.max(2, (x.last - x.first + 1) * step - 1), height: H - 5, rx: 2 }), tip));
  });
  [...new Set([0, Math.floor((n - 1) / 2), n - 1])].forEach((i) => g.append(svg("text", { x: L + (i + 0.5) * step, y: top + rows.length * H + 14, "text-anchor": "middle" }, n > 1 ? `launch ${i}` : "the one launch")));
  return el("figure", {}, (plan.blocks.length > 1 ? el("h3", {}, `part ${b}`) : null), g, rows.length < list.length ? el("p", { class: "hint" }, `showing the ${rows.length} largest of ${list.length} buffers`) : null);
}

const memoryLegend = () => el("div", { class: "legend" }, BUFFER_KINDS.map(([kind, name]) => el("span", {}, el("i", { class: "buf-" + kind }), name)), el("span", {}, "⤺ may take an input's memory"));

function planMemory(plan) {
  const all = buffersOf(plan);
  if (!all.length) return empty("The log says nothing of this plan's buffers: it is of an older version, or the report has dropped it for its size.");
  const t = plan.totals;
  const temporary = sum(all.filter((x) => x.kind === "temporary"), (x) => x.bytes);
  const regions = sum(plan.blocks, (b) => sum((b.regions || []).filter((_, i) => (b.part_of || [])[i] == null)));
  return el("div", {}, el("div", { class: "figures small" },
    number("allocated by a run", fmt.bytes(t.cuts ? t.allocated_bytes / t.cuts : 0), `at most ${fmt.bytes(t.max_allocated_bytes)}`),
    number("temporaries", fmt.bytes(temporary), `in ${fmt.plural(sum(plan.blocks, (b) => (b.regions || []).length), "region")} of ${fmt.bytes(regions)}`),
    number("saved by sharing", fmt.bytes(Math.max(0, temporary - regions))),
    number("stored in place", t.results ? fmt.percent(t.donated / t.results) : "–", `${fmt.count(t.donated)} of ${fmt.plural(t.results, "result")}`),
    number("could be", fmt.count(all.filter((x) => x.donor !== null && x.donor !== undefined).length), `of ${fmt.plural(all.filter((x) => x.kind === "result").length, "result")} of the plan`)),
  memoryLegend(), plan.blocks.map((b, i) => (b.launches.length && b.buffers ? lifeChart(plan, b, i) : null)));
}

const memoryTable = () => table([
  { name: "plan", of: (p) => link(["memory", String(p.at)], {}, `plan ${p.name}`) },
  { name: "cut at", of: (p) => siteLink(p.site), wide: true },
  { name: "runs", right: true, of: (p) => fmt.count(p.totals.cuts), sort: (p) => p.totals.cuts },
  { name: "allocated in all", right: true, of: (p) => fmt.bytes(p.totals.allocated_bytes), sort: (p) => p.totals.allocated_bytes, first: true },
  { name: "most in a run", right: true, of: (p) => fmt.bytes(p.totals.max_allocated_bytes), sort: (p) => p.totals.max_allocated_bytes },
  { name: "in place", right: true, of: (p) => (p.totals.results ? fmt.percent(p.totals.donated / p.totals.results) : "–"), sort: (p) => p.totals.donated / (p.totals.results || 1) },
], D.plans, { most: 15, open: (p) => ["memory", String(p.at)] });

function memoryPage(at) {
  if (!D.plans.length) return el("div", { class: "page" }, empty("No plan is in the log."));
  const plan = (at !== undefined && at !== "" && D.plans[Number(at)]) || [...D.plans].sort((a, b) => b.totals.max_allocated_bytes - a.totals.max_allocated_bytes)[0];
  const peaks = D.processes.map((p) => panel(`Process ${p.program || ""}`, p.process_id ? `pid ${p.process_id}` : "", el("div", { class: "figures small" },
    number("peak of all values", p.peak_bytes ? fmt.bytes(p.peak_bytes) : "–", p.steps ? "as steps ended" : "no step ended"), number("results stored in place", p.totals.results ? fmt.percent(p.totals.donated / p.totals.results) : "–"), number("allocated in all", fmt.bytes(p.totals.allocated_bytes)))));
  return el("div", { class: "page" }, el("div", { class: "cols" }, el("div", {}, panel(`Live ranges of plan ${plan.name}`, siteText(plan.site), el("div", { class: "bar-row" }, planChoice(plan, "memory")), planMemory(plan))),
    el("div", {}, peaks, panel("By plan", "", memoryTable()))));
}
