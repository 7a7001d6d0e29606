// SPDX-License-Identifier: Apache-2.0
// Compare: this run beside an earlier one (deft report --compare=LOG), by total, line and kernel.

const earlier = D.compared ? makeRun(D.compared) : null;

const totalsOf = (data) => {
  const all = (f) => sum(data.processes, f);
  const steps = data.step_times, n = sum(steps, (h) => h.n);
  const main = [...steps].sort((a, b) => b.ns - a.ns)[0];
  return {
    wall: all((p) => p.last_ns - p.first_ns), steps: n, median: main ? quantile(main, 0.5) : 0, tail: main ? quantile(main, 0.99) : 0,
    cuts: all((p) => p.totals.cuts), launches: all((p) => p.totals.launches), launchNs: all((p) => p.totals.launches_ns),
    run: all((p) => p.totals.run_ns), plan: all((p) => p.totals.plan_ns), extract: all((p) => p.totals.extract_ns), records: all((p) => p.totals.records),
    plans: data.shown.plans ? data.shown.plans[1] : data.plans.length, compiles: sum(data.kernels, (k) => k.n_compiles || 0), compileNs: sum(data.kernels, (k) => k.compile_ns || 0),
    interpreted: all((p) => p.totals.interpreted_segments), allocated: all((p) => p.totals.allocated_bytes), peak: Math.max(0, ...data.processes.map((p) => p.peak_bytes)),
  };
};

const TOTALS = [
  ["wall", "Wall time", fmt.time], ["median", "A step, median ≈", fmt.time], ["tail", "A step, 99 % below ≈", fmt.time], ["steps", "Steps", fmt.count],
  ["launchNs", "In launches", fmt.time], ["run", "Running cuts, launches included", fmt.time], ["plan", "Finding and making plans", fmt.time], ["extract", "Cutting traces", fmt.time],
  ["cuts", "Cuts", fmt.count], ["records", "Records cut", fmt.count], ["launches", "Launches", fmt.count], ["plans", "Plans made", fmt.count],
  ["compiles", "Compiles", fmt.count], ["compileNs", "Compiling", fmt.time], ["interpreted", "Segments interpreted", fmt.count],
  ["allocated", "Allocated", fmt.bytes], ["peak", "Peak memory", fmt.bytes],
];

// A change in words and sign: what is less than 2 % is none.
function changeOf(before, now) {
  if (!before && !now) return el("span", { class: "dim" }, "–");
  if (!before) return el("span", { class: "worse" }, "▲ new");
  if (!now) return el("span", { class: "better" }, "▼ gone");
  const ratio = now / before;
  if (Math.abs(ratio - 1) < 0.02) return el("span", { class: "dim" }, "=");
  return el("span", { class: ratio > 1 ? "worse" : "better" }, `${ratio > 1 ? "▲" : "▼"} ${ratio >= 10 ? ratio.toFixed(0) : ratio.toFixed(2)} ×`);
}

// Pairs of rows of the two runs with equal names: {name, before, now}, either may be null.
function paired(before, now, nameOf) {
  const out = new Map();
  for (const x of before) out.set(nameOf(x), { name: nameOf(x), before: x, now: null });
  for (const x of now) {
    const pair = out.get(nameOf(x)) || { name: nameOf(x), before: null, now: null };
    // Of several kernels with one name the times are added up.
    pair.now = pair.now ? { ...pair.now, ns: pair.now.ns + x.ns, n: pair.now.n + x.n } : x;
    out.set(pair.name, pair);
  }
  return [...out.values()];
}

const nsOf = (x) => (x ? x.ns : 0);
const pairColumns = (name) => [
  name,
  { name: "before", right: true, of: (p) => (p.before ? fmt.time(p.before.ns) : "–"), sort: (p) => nsOf(p.before) },
  { name: "now", right: true, of: (p) => (p.now ? fmt.time(p.now.ns) : "–"), sort: (p) => nsOf(p.now) },
  { name: "difference", right: true, of: (p) => `${nsOf(p.now) >= nsOf(p.before) ? "+" : "−"}${fmt.time(Math.abs(nsOf(p.now) - nsOf(p.before)))}`, sort: (p) => Math.abs(nsOf(p.now) - nsOf(p.before)), first: true },
  { name: "", right: true, of: (p) => changeOf(nsOf(p.before), nsOf(p.now)) },
];

// A kernel's name in both runs: its operators. Its hash differs when anything about it does.
const kernelName = (u) => clip(unitTitle(u) || u.kind, 110);
const merged = (list, nameOf) => [...grouped(list, nameOf).values()].map((xs) => ({ ...xs[0], ns: sum(xs, (x) => x.ns), n: sum(xs, (x) => x.n) }));

function comparePage() {
  if (!earlier) return el("div", { class: "page" }, panel("Compare", "", empty("This page compares two runs. Give the log of the earlier one: deft report LOG --compare=EARLIER -o report.html")));
  const before = totalsOf(earlier.data), now = totalsOf(D);
  const lineRows = paired(earlier.lineList, lineList, (l) => l.key).filter((p) => nsOf(p.before) || nsOf(p.now));
  const kernelRows = paired(merged(earlier.unitList, kernelName), merged(unitList, kernelName), kernelName).filter((p) => nsOf(p.before) || nsOf(p.now));
  return el("div", { class: "page compare" },
    panel("Two runs", `before: ${D.compared.path}`, table([
      { name: "", of: (r) => r[1], wide: true }, { name: "before", right: true, of: (r) => r[2](before[r[0]]) },
      { name: "now", right: true, of: (r) => r[2](now[r[0]]) }, { name: "", right: true, of: (r) => changeOf(before[r[0]], now[r[0]]) },
    ], TOTALS, { most: TOTALS.length })),
    panel("Lines", "time in launches, by line of the program; lines are equal when file and number are", table(pairColumns({ name: "line", of: (p) => (p.now ? siteLink(p.now.site) : el("span", { class: "site" }, p.name)), wide: true }), lineRows, { most: 20 })),
    panel("Kernels", "by their operators", table(pairColumns({ name: "ops", of: (p) => p.name, wide: true }), kernelRows, { most: 20 })));
}
