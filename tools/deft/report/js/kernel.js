// SPDX-License-Identifier: Apache-2.0
// Kernels: each with its code, where it runs, what it takes, and how near that is to what the machine can do.

function kernelLaunches(u) {
  return table([
    { name: "plan", of: (x) => planLink(x.plan) },
    { name: "cut at", of: (x) => siteLink(x.plan.site), wide: true },
    { name: "launch", right: true, of: (x) => (x.plan.blocks.length > 1 ? `${x.b}.` : "") + x.i, title: "its place in the plan" },
    { name: "with", right: true, of: (x) => (x.plan.blocks[x.b].launches[x.i].length - 1 || "–"), title: "other kernels in the same launch" },
    { name: "runs", right: true, of: (x) => fmt.count(x.n), sort: (x) => x.n },
    { name: "each", right: true, of: (x) => (x.n ? fmt.time(x.ns / x.n) : "–"), sort: (x) => x.ns / (x.n || 1) },
    { name: "time", right: true, of: (x) => (x.share < 1 ? "≈ " : "") + fmt.time(x.ns), sort: (x) => x.ns, first: true },
    { name: "bytes each", right: true, of: (x) => (x.n && x.bytes ? fmt.bytes(x.bytes / x.n) : "–") },
    { name: "GB/s", right: true, of: (x) => (x.ns && x.bytes ? digits(x.bytes / x.ns) : "–"), sort: (x) => x.bytes / (x.ns || 1) },
    { name: "GFLOP/s", right: true, of: (x) => (x.ns && x.flops ? digits(x.flops / x.ns) : "–"), sort: (x) => x.flops / (x.ns || 1) },
  ], u.places, { most: 12, none: "It did not run while the log was written." });
}

const kernelCompiles = (k) => table([
  { name: "at", right: true, of: (c) => fmt.time(c.t - D.processes[c.process].first_ns), sort: (c) => -c.t, first: true },
  { name: "tier", of: (c) => c.tier },
  { name: "for", of: (c) => c.facts || "all extents", wide: true },
  { name: "took", right: true, of: (c) => fmt.time(c.compile_ns), sort: (c) => c.compile_ns, title: "of the whole module" },
  { name: "kernels in module", right: true, of: (c) => c.kernels_in_module },
  { name: "code", right: true, of: (c) => (c.compiled ? fmt.bytes(c.code_bytes) : "–") },
  { name: "plan", of: (c) => planLink(D.plans[c.plan]) },
  { name: "", of: (c) => (c.compiled ? "" : el("span", { class: "warn" }, `▲ ${c.error || "could not be compiled"}`)) },
], k.compiles, { most: 8 });

function kernelDetail(u) {
  const places = [...u.sites].sort((a, b) => b[1] - a[1]);
  const most = Math.max(1, ...places.map(([, ns]) => ns));
  const whole = u.places.reduce((a, x) => a + x.n, 0);
  return el("div", { class: "detail wide" },
    el("h2", {}, unitName(u), " ", el("span", { class: "ops" }, unitTitle(u)), el("small", {}, u.code ? el("code", {}, u.key) : u.kind)),
    el("div", { class: "figures small" }, number(u.alone ? "time" : "time ≈", fmt.time(u.ns), totalNs ? `${fmt.percent(u.ns / totalNs)} of launches` : ""),
      number("runs", fmt.count(whole), u.n ? `${fmt.time(u.ns / u.n)} each` : ""), number("compiles", u.code ? fmt.count(u.code.n_compiles) : "–", u.code ? fmt.time(u.code.compile_ns) : ""),
      el("div", { class: "limits" }, limitBar("memory", u.ns ? u.bytes / u.ns : 0, D.limits.gbytes, "GB/s"), limitBar("arithmetic", u.ns ? u.flops / u.ns : 0, D.limits.gflops, "GFLOP/s"))),
    el("p", { class: "hint" }, limitsNote(), ". Bytes are those that must move; what a cache holds can beat the limit of memory."),
    panel("From these lines", u.alone ? "" : "time split by an estimate", el("div", { class: "fromlines" }, places.slice(0, 12).map(([key, ns]) => {
      const s = lines.get(key);
      const text = s.file && D.files[s.file] !== undefined ? (D.files[s.file].split("\n")[s.line - 1] || "").trim() : "";
      return el("div", {}, link(["source", key], { class: "site" }, key), bar(ns / most), el("span", { class: "num" }, fmt.time(ns)), el("code", {}, text));
    }), places.length ? null : empty("No line is known."))),
    panel("Code", "", codeTabs(u, 0)),
    panel("Launches", u.alone ? "" : "≈ a launch of several kernels is measured as a whole; its time, bytes and operations are split by estimated work", kernelLaunches(u)),
    u.code ? panel("Compiles", "", kernelCompiles(u.code)) : null);
}

function kernelPage(key) {
  if (!unitList.length) return el("div", { class: "page" }, empty("No kernel is in the log."));
  const u = units.get(key) || unitList.find((x) => unitName(x) === key) || unitList[0];
  const list = unitList.slice(0, 400);
  if (!list.includes(u)) list.push(u);
  const side = el("nav", { class: "side kernels", "aria-label": "Kernels" }, list.map((x) =>
    link(["kernels", x.key], { class: x === u ? "on" : null, "aria-current": x === u ? "true" : null }, el("span", {}, el("b", {}, unitName(x)), " ", clip(unitTitle(x), 46)), el("small", {}, fmt.time(x.ns)), bar(x.ns / (unitList[0].ns || 1)))),
    unitList.length > list.length ? el("p", { class: "hint" }, `showing ${list.length} of ${unitList.length}`) : null);
  return el("div", { class: "page split2" }, side, kernelDetail(u));
}
