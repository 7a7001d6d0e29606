// SPDX-License-Identifier: Apache-2.0
// Recompiles: each plan that was made, and what was new: the field, what was expected, what was found.

// The misses and the explanations that came before a plan, since the context's plan before it.
function causesOf() {
  const out = new Map();
  const byContext = (list) => grouped(list, (x) => `${x.process}/${x.context}`);
  const misses = byContext(D.misses), whys = byContext(D.whys);
  for (const [key, plans] of byContext(D.plans)) {
    let last = -1;
    for (const p of [...plans].sort((a, b) => a.t - b.t)) {
      const now = (list) => (list.get(key) || []).filter((x) => x.t > last && x.t <= p.t);
      out.set(p, { misses: now(misses), whys: now(whys).filter((w) => /^(plan|guard)/.test(w.reason) && w.site === p.site) });
      last = p.t;
    }
  }
  return out;
}

const cacheWord = { key_missed: "a new program", guards_missed: "a guard did not hold" };

function adviceFor(plan, causes) {
  const why = causes.whys.findLast((w) => w.reason !== "plan_miss") || causes.whys.at(-1)
    || D.whys.find((w) => w.site === plan.site && /^plan_(new|guards|first)/.test(w.reason));
  return why ? [sentence(why), adviceOf(why)] : ["", ""];
}

function recompileRow(plan, causes, said) {
  const main = causes.misses.findLast((m) => m.kind !== "key") || causes.misses.at(-1);
  const [text, advice] = adviceFor(plan, causes);
  const useful = advice && !/^none needed/.test(advice);
  const isNew = useful && !said.has(advice);
  said.add(advice);
  return el("details", { class: "recompile" + (plan.cache === "guards_missed" ? " guard" : "") },
    el("summary", {},
      el("span", { class: "when num" }, fmt.time(plan.t - D.processes[plan.process].first_ns)),
      el("span", { class: "who" }, planLink(plan), " ", siteLink(plan.site)),
      el("span", { class: "what" }, el("b", {}, main ? (main.kind === "key" ? cacheWord[plan.cache] || plan.cache : `guard ${main.kind}`) : cacheWord[plan.cache] || plan.cache),
        main && main.field ? ` ${main.field}` : ""),
      el("span", { class: "num cost" }, fmt.time(plan.cost)), el("span", { class: "num runs" }, fmt.plural(plan.totals.cuts, "run")),
      main && (main.expected || main.found) ? el("span", { class: "diff" }, el("span", { class: "minus" }, "expected ", el("code", {}, main.expected || "nothing: the first")), el("span", { class: "plus" }, "found ", el("code", {}, main.found || "a program"))) : null,
      isNew ? el("span", { class: "advice" }, advice) : null),
    el("div", { class: "more-of" }, text ? el("p", {}, text) : null, useful ? el("p", { class: "advice" }, advice) : null,
      el("dl", {}, el("dt", {}, "time"), el("dd", {}, `simplify ${fmt.time(plan.simplify_ns)} · fuse ${fmt.time(plan.fuse_ns)} · prepare, compiles included ${fmt.time(plan.prepare_ns)}`),
        el("dt", {}, "program"), el("dd", {}, `${fmt.plural(plan.records, "record")}, ${fmt.plural(plan.inputs, "input")}, ${fmt.plural(plan.results, "result")}${plan.parts ? `, ${fmt.plural(plan.parts, "part")}` : ""}, key ${plan.key}`)),
      causes.misses.length > 1 ? table([{ name: "did not fit", of: (m) => planLink(D.plans[m.plan]) }, { name: "kind", of: (m) => m.kind }, { name: "field", of: (m) => m.field || "", wide: true }, { name: "expected", of: (m) => el("code", {}, m.expected || "–") }, { name: "found", of: (m) => el("code", {}, m.found || "–") }], causes.misses, { most: 20 }) : null,
      plan.guards ? [el("h3", {}, "What it relies on"), codeView(unpack(plan.guards), "kernel")] : null));
}

function recompilesPage() {
  const causes = causesOf(), said = new Set(); // the same advice is given once
  const plans = [...D.plans].sort((a, b) => a.process - b.process || a.t - b.t);
  const notes = [shownNote("plans", "plans"), shownNote("misses", "misses")].filter(Boolean).join(", ");
  const compiles = D.kernels.flatMap((k) => k.compiles.map((c) => ({ ...c, k }))).sort((a, b) => b.compile_ns - a.compile_ns);
  return el("div", { class: "page recompiles" },
    panel("Plans made", [fmt.plural(plans.length, "plan"), fmt.time(sum(plans, (p) => p.cost)) + " in all", notes].filter(Boolean).join(" · "),
      plans.length ? el("div", { class: "rows" }, plans.slice(0, 500).map((p) => recompileRow(p, causes.get(p), said))) : empty("No plan was made."),
      plans.length > 500 ? el("p", { class: "hint" }, `showing 500 of ${fmt.count(plans.length)}`) : null),
    panel("Kernels compiled", "most expensive first; tiers replace each other while the program runs", table([
      { name: "kernel", of: (c) => unitLink(units.get(c.k.kernel)) },
      { name: "ops", of: (c) => clip(c.k.ops || "", 70), wide: true },
      { name: "tier", of: (c) => c.tier },
      { name: "for", of: (c) => c.facts || "all extents" },
      { name: "took", right: true, of: (c) => fmt.time(c.compile_ns), sort: (c) => c.compile_ns, first: true },
      { name: "in module", right: true, of: (c) => c.kernels_in_module },
      { name: "for plan", of: (c) => planLink(D.plans[c.plan]) },
    ], compiles, { most: 25, open: (c) => ["kernels", c.k.kernel] })));
}
