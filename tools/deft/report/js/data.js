// SPDX-License-Identifier: Apache-2.0
// The data and what follows from it. Of the object that tools/deft/report/model.c makes:
//
//   processes   a row for each file set: program, times, totals, buckets over time
//   sites       texts; everywhere else a site is an index, or null
//   plans       blocks of launches of segments; launch_stats: [block, index, n, ns, least, most, bytes,
//               flops, forked] of those that ran
//   kernels     texts of their code, compiles
//   whys, syncs, recomputes, replays    equal ones together, n of them
//   misses, errors                      the newest, one by one
//   cuts                                the same: [process, t, site, plan, reason, plan hit, extract, plan, run,
//                                       launches], times in ns
//   reasons     template and advice of each reason in whys
//   steps       the newest: [process, begin, elapsed, site, failed], times in ns
//   step_times  histograms by process and site: steps.h
//   compared    the same object of an earlier run, without files and limits; may be absent
//   files       source texts by name        limits, faults, shown
//
// A launch is measured as a whole. Where it holds several segments, and a segment several records, its time
// is split by an estimate of their work: elements times a weight of the op. Such numbers are marked "≈".

const D = JSON.parse($("data").textContent);

// What tools/deft/report/pack.c packed.
const BASE90 = "!#$%&'()*+,-./0123456789:;=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~";

const VALUE90 = new Map([...BASE90].map((c, k) => [c.charCodeAt(0), k]));

function unpack(text) {
  if (text === null || text === undefined) return "";
  if (typeof text === "string") return text;
  const z = new TextEncoder().encode(text.z);
  const digit = (k) => VALUE90.get(z[k]) ?? 0;
  let out = new Uint8Array(8 * z.length + 256), n = 0;
  for (let i = 0; i < z.length; i++) {
    if (n + 128 > out.length) {
      const more = new Uint8Array(2 * out.length);
      more.set(out);
      out = more;
    }
    if (z[i] !== 0x7f) {
      out[n++] = z[i];
      continue;
    }
    const back = (digit(i + 2) * 90 + digit(i + 3)) * 90 + digit(i + 4);
    for (let k = digit(i + 1) + 8; k > 0; k--, n++) out[n] = out[n - back];
    i += 4;
  }
  return new TextDecoder().decode(out.subarray(0, n));
}

const siteOf = (text) => {
  const m = /^([^:]*):(\d+)(?: \(([^)]*)\))?(?: in (.*))?$/s.exec(text);
  return m
    ? { text, file: m[1], line: Number(m[2]), func: m[3] || "", label: m[4] || "" }
    : { text, file: "", line: 0, func: "", label: (/ in (.*)$/s.exec(text) || [])[1] || "" };
};
const sites = D.sites.map(siteOf);
const siteText = (at) => (at === null || at === undefined ? "unknown place" : sites[at].text);
const keyOfSite = (s) => (s.file ? `${s.file}:${s.line}` : s.text);
const lineKey = (at) => keyOfSite(sites[at]);

// ---- traces ----

const WEIGHT = {
  input: 0, num: 0, cst: 0, reshape: 0, permute: 0, slice: 0, squeeze: 0, unsqueeze: 0, broadcast: 0,
  diagonal: 0, exp: 12, log: 12, tanh: 16, sin: 16, cos: 16, tan: 20, pow: 40, erf: 16, sqrt: 4, div: 4, random: 20,
  expm1: 14, log1p: 14, sigmoid: 14, argsort: 60, topk: 10, sort: 60, gelu: 20, atan2: 25,
};
// The numbers of a text as people write them: 0x1.8p+1 becomes 3.
const decimal = (text) => text.replace(/(-?)0x([01])(?:\.([0-9a-f]+))?p([+-]?\d+)/g, (_, sign, one, digits, power) => {
  const fraction = [...(digits || "")].reduce((a, c, i) => a + parseInt(c, 16) / 16 ** (i + 1), Number(one));
  return String(Number((Number(sign + "1") * fraction * 2 ** Number(power)).toPrecision(9)));
});
const NODE = /^%(\d+) = (\w+) (\w+)\[([\d,]*)\](.*)$/;

// [{op, dtype, shape, from, rest, weight}] of a plan's trace; [] when the log has none.
function recordsOf(plan) {
  if (plan.parsed) return plan.parsed;
  const out = [];
  for (const text of unpack(plan.trace).split("\n")) {
    const m = NODE.exec(text);
    if (!m || Number(m[1]) !== out.length) continue;
    const shape = m[4] ? m[4].split(",").map(Number) : [];
    const from = [...m[5].matchAll(/%(\d+)/g)].map((x) => Number(x[1])).filter((k) => k < out.length);
    const size = shape.reduce((a, b) => a * b, 1);
    out.push({ op: m[2], dtype: m[3], shape, from, rest: m[5].replace(/ ?%\d+/g, "").trim(), size, text });
  }
  for (const r of out) r.weight = weightOf(r, out);
  plan.parsed = out;
  return out;
}

function weightOf(r, all) {
  const operand = r.from.length ? all[r.from[0]] : null;
  if (r.op === "matmul" && operand) return (2 * r.size * (operand.shape.at(-1) || 1)) / 8;
  const weight = WEIGHT[r.op] ?? 1;
  return weight * Math.max(r.size, operand && operand.size > r.size ? operand.size : 0);
}

const typeText = (r) => `${r.dtype}[${r.shape.join(",")}]`;

// ---- segments: what a launch does at once ----

// A run: units and lines of one log. The page is about one run; a second one may stand beside it.
// A unit is a kernel by its hash; what has no generated code goes by its kind and line.
function unitOf(plan, block, seg) {
  const { units, sites: places } = plan.run;
  const k = seg.kernel === null ? null : block.kernels[seg.kernel];
  const last = seg.records.at(-1);
  const at = k ? k.site : last === undefined ? null : plan.record_sites?.[last] ?? plan.site;
  const key = k ? k.kernel : `${seg.kind} ${at === null ? "" : keyOfSite(places[at])}`;
  if (!units.has(key))
    units.set(key, {
      key, ops: k ? k.ops || seg.kind : opsOf(plan, seg), kind: seg.kind, code: null, site: at, places: [],
      n: 0, ns: 0, bytes: 0, flops: 0, alone: true, sites: new Map(),
    });
  return units.get(key);
}

function opsOf(plan, seg) {
  const records = recordsOf(plan);
  return [...new Set(seg.records.map((r) => records[r]?.op).filter((op) => op && !WEIGHT_FREE.has(op)))]
    .join(", ") || seg.kind;
}
const WEIGHT_FREE = new Set(["input", "num", "cst"]);

// "file:line" or site text: what it became and what that cost.
function lineOf(run, at) {
  const site = run.sites[at], key = keyOfSite(site);
  if (!run.lines.has(key))
    run.lines.set(key, { key, site: at, file: site.file, line: site.line, ns: 0, n: 0,
      records: [], units: new Set(), notes: [] });
  return run.lines.get(key);
}

function spreadLaunch(plan, block, b, i, stat, ns) {
  const records = recordsOf(plan);
  const segments = block.launches[i] || [];
  const weight = segments.map((s) => 1 + sum(s.records, (r) => records[r]?.weight ?? 1));
  const all = sum(weight);
  segments.forEach((seg, k) => {
    const share = weight[k] / all;
    const unit = unitOf(plan, block, seg);
    const place = { plan, b, i, k, seg, n: stat ? stat[2] : plan.totals.cuts, ns: ns * share, share };
    place.bytes = stat ? stat[6] * share : 0;
    place.flops = stat ? stat[7] * share : 0;
    unit.places.push(place);
    unit.n += place.n;
    unit.ns += place.ns;
    unit.bytes += place.bytes;
    unit.flops += place.flops;
    unit.alone = unit.alone && segments.length === 1 && stat !== null;
    spreadSegment(plan, unit, seg, records, place);
  });
}

function spreadSegment(plan, unit, seg, records, place) {
  const known = seg.records.filter((r) => plan.record_sites?.[r] !== null && plan.record_sites?.[r] !== undefined);
  const weights = known.map((r) => 0.01 + (records[r]?.weight ?? 1));
  const all = sum(weights);
  if (!known.length && unit.site !== null) addTo(lineOf(plan.run, unit.site), unit, place.ns);
  known.forEach((r, x) => addTo(lineOf(plan.run, plan.record_sites[r]), unit, (place.ns * weights[x]) / all));
}

function addTo(line, unit, ns) {
  line.ns += ns;
  line.units.add(unit);
  unit.sites.set(line.key, (unit.sites.get(line.key) || 0) + ns);
}

// Without launches in the log the cuts' time is split over all launches of their plan.
function spreadPlan(plan) {
  const stats = new Map((plan.launch_stats || []).map((s) => [`${s[0]}.${s[1]}`, s]));
  const all = plan.blocks.flatMap((block, b) => block.launches.map((_, i) => [block, b, i]));
  for (const [block, b, i] of all) {
    const stat = stats.get(`${b}.${i}`) || null;
    spreadLaunch(plan, block, b, i, stat, stat ? stat[3] : stats.size ? 0 : plan.totals.launches_ns / all.length);
  }
}

const byTime = (a, b) => b.ns - a.ns || (a.key < b.key ? -1 : 1);

function makeRun(data) {
  const run = { data, sites: data === D ? sites : data.sites.map(siteOf), units: new Map(), lines: new Map() };
  data.plans.forEach((plan, at) => {
    plan.at = at;
    plan.run = run;
    plan.name = (data.processes.length > 1 ? `${plan.process}/` : "") + plan.id;
    plan.cost = plan.simplify_ns + plan.fuse_ns + plan.prepare_ns;
    plan.launchNs = sum(plan.launch_stats || [], (s) => s[3]) || plan.totals.launches_ns;
    (plan.record_sites || []).forEach((s, r) => {
      if (s !== null) lineOf(run, s).records.push([plan, r]);
    });
    if (plan.blocks) spreadPlan(plan);
  });
  for (const k of data.kernels) {
    if (!run.units.has(k.kernel))
      run.units.set(k.kernel, { key: k.kernel, ops: k.ops, kind: "kernel", site: k.site, places: [], n: 0,
        ns: 0, bytes: 0, flops: 0, alone: true, sites: new Map() });
    run.units.get(k.kernel).code = k;
  }
  const note = (at, kind, row) => { if (at !== null && at !== undefined) lineOf(run, at).notes.push([kind, row]); };
  data.whys.forEach((w) => note(w.site, "why", w));
  data.syncs.forEach((s) => note(s.site, "sync", s));
  data.errors.forEach((e) => note(e.site, "error", e));
  data.recomputes.forEach((r) => note(r.site, "recompute", r));
  run.unitList = [...run.units.values()].sort(byTime);
  run.unitList.forEach((u, i) => { u.rank = i + 1; });
  run.lineList = [...run.lines.values()].sort(byTime);
  return run;
}

const { units, lines, unitList, lineList } = makeRun(D);
const totalNs = sum(unitList, (u) => u.ns);
const unitName = (u) => `k${u.rank}`;
const unitTitle = (u) => (u.code ? "" : u.kind === "kernel" ? "" : `${u.kind}: `) + (u.ops || "");

// The sentence of a why, its template filled in.
function sentence(w) {
  const about = D.reasons[w.reason] || { template: w.reason };
  const names = { site: siteText(w.site), other: siteText(w.other_site), other_site: siteText(w.other_site),
    n: String(w.count ?? ""), count: String(w.count ?? ""), field: w.field || "", expected: w.expected || "",
    found: w.found || "" };
  return (about.template || w.reason).replace(/\{(\w+)\}/g, (whole, key) => names[key] ?? whole);
}
const adviceOf = (w) => (D.reasons[w.reason] || {}).advice || "";
