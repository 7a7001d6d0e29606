// SPDX-License-Identifier: Apache-2.0
// Graph trees: what of a GPU's work was replayed, where its memory lies in the pool, and why not. Of the object
// that tools/deft/report/trees.c makes:
//
//   trees       process, context, device; nodes: node, parent (0: the root), plan, site, layout: pairs of offset
//               (null: outside the pool) and bytes, the arena's first; actions, reasons, hits: counted;
//               totals: what was told at the end, or null
//   decisions   the newest runs that were no mere replay: tree, t, path, node, action, reason, hits before it, ...

// Reasons as docs/graphs.md has them.
const GRAPH_WORDS = {
  hit: "replayed as it stood", warming: "seen too seldom here to be recorded", first: "recorded for the first time here",
  again: "recorded again: its graph was dropped", held: "something held lies where this was placed",
  learned: "an output is held too long for the pool", variants: "too many variants here for a graph each",
  unfit: "the device cannot put this into a graph", paused: "recording pauses: too many of the latest runs were wasted attempts",
  no_memory: "no memory for the pool or a graph", failed: "the device could not record, update or launch a graph",
  off: "graphs are off",
};
const ACTION_WORDS = { plain: "ran plainly", record: "recorded", replay: "replayed", place: "placed anew", reshape: "reshaped" };
const has = (table, key) => Object.prototype.hasOwnProperty.call(table, key);
const graphWord = (reason) => (has(GRAPH_WORDS, reason) ? GRAPH_WORDS[reason] : reason || "unknown");
const actionWord = (action) => (has(ACTION_WORDS, action) ? ACTION_WORDS[action] : action || "unknown");
const treeName = (t) => `context ${t.context} on cuda:${t.device}` + (D.processes.length > 1 ? `, process ${t.process}` : "");
const treeHits = (t) => t.hits + (t.totals ? t.totals.hits : 0);

// Nodes in the order of a walk from the root, each with its level. A parent has a smaller number than its
// children; what names another one stands at the root.
function walk(tree) {
  const byNumber = new Map(tree.nodes.map((n) => [n.node, n]));
  const children = grouped([...tree.nodes].sort((a, b) => b.node - a.node),
    (n) => (n.parent < n.node && byNumber.has(n.parent) ? n.parent : 0));
  const out = [], left = (children.get(0) || []).map((n) => [n, 0]);
  while (left.length) {
    const [n, level] = left.pop();
    out.push({ ...n, level });
    for (const c of children.get(n.node) || []) left.push([c, level + 1]);
  }
  return out;
}

const endOf = (n) => Math.max(0, ...(n.layout || []).map(([at, bytes]) => (at === null ? 0 : at + bytes)));
const poolOf = (tree) => Math.max(1, tree.totals ? tree.totals.pool_bytes : tree.pool_bytes || 0, tree.nodes.reduce((m, n) => Math.max(m, endOf(n)), 0));
const rangeName = (i) => (i === 0 ? "arena" : `output ${i - 1}`);

// Where a node's memory lies: the whole bar is the pool.
function poolBar(node, pool) {
  const list = (node.layout || []).map(([at, bytes], i) => ({ at, bytes, i })).filter((r) => r.at !== null && r.bytes > 0);
  if (!list.length) return el("span", { class: "dim" }, node.layout ? "none of it" : node.has_graph ? "not placed" : "no graph");
  const text = list.map((r) => `${rangeName(r.i)}: ${fmt.bytes(r.bytes)} at ${fmt.bytes(r.at)}`);
  const g = svg("svg", { class: "pool", viewBox: "0 0 1000 14", preserveAspectRatio: "none", role: "img",
    "aria-label": clip(`of a pool of ${fmt.bytes(pool)}: ${text.join(", ")}`, 300) });
  list.forEach((r, k) => g.append(withTip(svg("rect", { class: r.i === 0 ? "pool-arena" : "pool-output", x: (r.at / pool) * 1000, y: 1,
    width: Math.max(5, (r.bytes / pool) * 1000), height: 12 }), text[k])));
  return g;
}

const poolLegend = () => el("div", { class: "legend" }, el("span", {}, el("i", { class: "pool-output" }), "outputs"),
  el("span", {}, el("i", { class: "pool-arena" }), "arena: temporaries, while it runs"), el("span", {}, "the whole bar is the pool"));

const treeTable = (tree, at) => {
  const pool = poolOf(tree);
  return table([
    { name: "node", of: (n) => el("span", { class: "treenode", style: { "padding-left": `${Math.min(n.level, 30) * 12}px` } },
      n.level ? el("span", { class: "dim", "aria-hidden": "true" }, "└ ") : null, link(["trees", String(at), String(n.node)], {}, String(n.node))) },
    { name: "plan", of: (n) => planLink(D.plans[n.plan]) },
    { name: "cut at", of: (n) => siteLink(n.site), wide: true },
    { name: "runs", right: true, of: (n) => fmt.count(n.runs) },
    { name: "replayed", right: true, of: (n) => fmt.count(n.replays) },
    { name: "recorded", right: true, of: (n) => fmt.count(n.recordings) },
    { name: "placed anew", right: true, of: (n) => fmt.count(n.placements) },
    { name: "memory in the pool", of: (n) => poolBar(n, pool) },
    { name: "latest", of: (n) => graphWord(n.reason), wide: true },
  ], walk(tree), { most: 100, open: (n) => ["trees", String(at), String(n.node)], none: "No node is in the log." });
};

// Why runs were what they were, with how often. What was told at the end knows all; before that, what was told.
function reasonRows(tree) {
  const counts = tree.totals ? tree.totals.reasons : { hit: tree.hits, ...tree.reasons };
  return Object.entries(counts).filter(([, n]) => n > 0).map(([reason, n]) => ({ reason, n }));
}

const reasonTable = (tree) => {
  const rows = reasonRows(tree), all = sum(rows, (r) => r.n);
  return table([
    { name: "reason", of: (r) => el("code", {}, clip(r.reason, 40)) },
    { name: "", of: (r) => graphWord(r.reason), wide: true },
    { name: "runs", right: true, of: (r) => fmt.count(r.n), sort: (r) => r.n, first: true },
    { name: "share", right: true, of: (r) => [bar(r.n / all), " ", fmt.percent(r.n / all)] },
  ], rows, { most: 30 });
};

// What counters that only grow have grown by, in words.
const SO_FAR = [["evicted", "node evicted", "nodes evicted"], ["trims", "trim: all graphs dropped", "trims"], ["pauses", "pause begun", "pauses begun"]];
function grown(d, last) {
  return SO_FAR.filter(([key]) => last && d[key] > last[key]).map(([key, one, many]) => fmt.plural(d[key] - last[key], one, many));
}

const nodeLink = (at, n) => (n ? link(["trees", String(at), String(n)], {}, `node ${n}`) : "a node that could not be made");
const decisionText = (at, d, before) => el("div", { class: "decision" }, before ? el("span", { class: "dim" }, before) : null, nodeLink(at, d.node), " ", el("b", {}, actionWord(d.action)), `: ${graphWord(d.reason)}`,
  d.failure ? el("span", { class: "warn" }, ` – ${d.failure}`) : null,
  d.pause_left ? el("span", { class: "dim" }, `, pausing for ${fmt.plural(d.pause_left, "run")} more`) : null,
  (d.more || []).map((x) => el("span", { class: "dim" }, `, ${x}`)));

// The decisions of a tree by step, the newest first: {path, t, list, hits before them}.
function stepsOf(at) {
  const steps = new Map();
  let last = null;
  for (const d of D.decisions.filter((x) => x.tree === at).sort((a, b) => a.t - b.t)) {
    if (!steps.has(d.path)) steps.set(d.path, { path: d.path, t: d.t, list: [], hits: 0 });
    const step = steps.get(d.path);
    step.list.push({ ...d, more: grown(d, last) });
    step.hits += d.hits;
    last = d;
  }
  return [...steps.values()].reverse();
}

const stepTable = (tree, at) => table([
  { name: "step", right: true, of: (s) => fmt.count(s.path), title: "steps and outermost scopes, counted" },
  { name: "at", right: true, of: (s) => fmt.time(Math.max(0, s.t - (D.processes[tree.process]?.first_ns ?? 0))) },
  { name: "replayed before", right: true, of: (s) => fmt.count(s.hits), title: "mere replays since the decision before" },
  { name: "what was no mere replay", of: (s) => s.list.slice(0, 20).map((d) => decisionText(at, d)).concat(s.list.length > 20 ? `and ${fmt.count(s.list.length - 20)} more` : []), wide: true },
], stepsOf(at), { most: 20, none: "Nothing but replays is in the log." });

function nodePanel(tree, at, number_) {
  const node = tree.nodes.find((n) => n.node === number_);
  if (!node) return null;
  const mine = D.decisions.filter((d) => d.tree === at && d.node === node.node).sort((a, b) => b.t - a.t);
  const about = el("dl", {},
    el("dt", {}, "plan"), el("dd", {}, planLink(D.plans[node.plan]), " ", siteLink(node.site)),
    el("dt", {}, "variant"), el("dd", {}, el("code", {}, node.variant || "–")),
    el("dt", {}, "after"), el("dd", {}, node.parent ? nodeLink(at, node.parent) : "the root"),
    el("dt", {}, "runs"), el("dd", {}, `${fmt.count(node.runs)}: ${fmt.count(node.replays)} replayed, ${fmt.count(node.recordings)} recorded, ${fmt.count(Math.max(0, node.runs - node.replays - node.recordings))} plain; placed anew ${fmt.plural(node.placements, "time")}`),
    el("dt", {}, "graph"), el("dd", {}, node.has_graph ? `${fmt.bytes(node.graph_bytes)}, ${fmt.bytes(node.node_bytes)} of the pool` : "none"),
    el("dt", {}, "latest"), el("dd", {}, graphWord(node.reason)));
  const memory = node.layout ? [poolBar(node, poolOf(tree)), table([
    { name: "what", of: (r) => r.name }, { name: "bytes", right: true, of: (r) => fmt.bytes(r.bytes), sort: (r) => r.bytes },
    { name: "at", right: true, of: (r) => (r.at === null ? "outside the pool" : fmt.bytes(r.at)), sort: (r) => (r.at === null ? -1 : r.at) },
  ], node.layout.map(([start, bytes], i) => ({ name: rangeName(i), at: start, bytes })).filter((r) => r.bytes > 0 || r.at !== null), { most: 12, none: "It takes no memory." })] : null;
  return panel(`Node ${node.node}`, "", el("div", { class: "cols" }, el("div", {}, about), el("div", {}, memory)),
    el("h3", {}, "Decisions, newest first"), mine.length ? mine.slice(0, 20).map((d) => decisionText(at, d, `step ${fmt.count(d.path)}: `)) : empty("None of them is among the newest."));
}

function treeFigures(tree) {
  const t = tree.totals, counts = tree.actions;
  const runs = t ? t.runs : tree.hits + sum(Object.values(counts));
  const replayed = t ? t.replayed : tree.hits;
  const of = (key, action) => (t ? t[key] : counts[action] || 0);
  return el("div", { class: "figures small" },
    number("runs", fmt.count(runs), t ? "of plans" : "told: no end is in the log"),
    number("replayed", runs ? fmt.percent(replayed / runs) : "–", fmt.count(replayed)),
    number("recorded", fmt.count(of("recorded", "record"))),
    number("placed anew", fmt.count(of("placed", "place")), of("reshaped", "reshape") ? `${fmt.count(of("reshaped", "reshape"))} reshaped` : null),
    number("plain", fmt.count(of("plain", "plain"))),
    number("pool", fmt.bytes(t ? t.pool_bytes : tree.pool_bytes || 0), t ? `the most at once ${fmt.bytes(t.peak_path_bytes)}` : null),
    t ? number("with a pool each", fmt.bytes(t.separate_bytes), `${fmt.plural(t.graphs, "graph")} of ${fmt.bytes(t.graph_bytes)}`) : null,
    t ? number("nodes updated", t.launches ? digits(t.updates / t.launches) : "–", "a launch of a graph") : null,
    tree.evicted || tree.trims || tree.pauses ? number("evicted, trims, pauses", `${fmt.count(tree.evicted)}, ${fmt.count(tree.trims)}, ${fmt.count(tree.pauses)}`) : null);
}

function treeChoice(at) {
  const pick = el("select", { "aria-label": "Tree", onchange: () => go("trees", pick.value) },
    D.trees.map((t, i) => el("option", { value: i, selected: i === at }, `${treeName(t)}: ${fmt.plural(t.nodes.length, "node")}`)));
  return D.trees.length > 1 ? el("div", { class: "bar-row" }, pick) : null;
}

function treesPage(which, node) {
  if (!D.trees.length) return el("div", { class: "page" }, empty("No context of this log replays graphs: that is asked for by DEFT_REPLAY=graphs, or the replay of a context's options, and needs a GPU."));
  const at = D.trees[Number(which)] ? Number(which) : 0, tree = D.trees[at];
  return el("div", { class: "page" }, el("div", { class: "trees" },
    panel(`The tree of ${treeName(tree)}`, shownNote("nodes", "nodes"), treeChoice(at), treeFigures(tree), poolLegend(), treeTable(tree, at)),
    node ? nodePanel(tree, at, Number(node)) : null,
    el("div", { class: "cols" }, el("div", {}, panel("Step by step", ["newest first", shownNote("decisions", "decisions")].filter(Boolean).join(" · "), stepTable(tree, at))),
      el("div", {}, panel("Why", "", reasonTable(tree))))));
}
