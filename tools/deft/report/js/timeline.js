// SPDX-License-Identifier: Apache-2.0
// Timeline: the newest steps, cuts and compiles one by one, to scale and zoomable, and how long steps took.

const LANES = [["steps", "steps"], ["cuts", "cuts"], ["compiles", "compiling"], ["events", "events"]];
const LANE_HEIGHT = 30, LANE_TOP = 22, LANE_LEFT = 78;

// [{lane, from, to, cls, tip, go}] of one process, times in ns since its first line, ordered by lane.
function timelineItems(at) {
  const p = D.processes[at], t0 = p.first_ns, items = [];
  const add = (lane, to, ns, cls, tip, open) => items.push({ lane, from: to - ns - t0, to: to - t0, cls, tip, open });
  for (const [process, begin, ns, site, failed] of D.steps)
    if (process === at) add(0, begin + ns, ns, failed ? "red" : "grey", `step, ${fmt.time(ns)}${failed ? ", failed" : ""}\n${siteText(site)}`, site === null ? null : ["source", lineKey(site)]);
  for (const [process, t, site, plan, reason, hit, extract, planNs, run, launches] of D.cuts) {
    if (process !== at) continue;
    const tip = `cut by ${reason.replaceAll("_", " ") || "?"} at ${siteText(site)}\n${D.plans[plan] ? `plan ${D.plans[plan].name}${hit ? "" : ", made for it"}` : ""}\nextract ${fmt.time(extract)} · plan ${fmt.time(planNs)} · run ${fmt.time(run)}, of which launches ${fmt.time(launches)}`;
    const open = plan === null ? null : ["graph", String(plan)];
    add(1, t - run - planNs, extract, "pink", tip, open);
    add(1, t - run, planNs, "orange", tip, open);
    add(1, t, run - launches, "green", tip, open);
    add(1, t - Math.max(0, run - launches), launches, "blue", tip, open);
  }
  for (const k of D.kernels) for (const c of k.compiles)
    if (c.process === at) add(2, c.t, c.compile_ns, "orange", `compiling, ${c.tier}${c.facts ? `, for ${c.facts}` : ""}: ${fmt.time(c.compile_ns)}\n${clip(k.ops || "", 80)}`, ["kernels", k.kernel]);
  for (const e of D.errors) if (e.process === at) add(3, e.t, 0, "red", `failed: ${e.message || e.status}`, null);
  for (const m of D.misses) if (m.process === at) add(3, m.t, 0, "orange", `miss: ${m.kind} ${m.field || ""}\nexpected ${m.expected || "–"}, found ${m.found || "–"}`, ["recompiles"]);
  return items;
}

// Round steps of time for about `most` marks over ns.
function timeStep(ns, most) {
  const least = ns / most, power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((x) => x * power).find((x) => x >= least) || 10 * power;
}

function drawTimeline(view) {
  const { canvas, from, to, items } = view, style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`);
  const w = canvas.clientWidth, h = canvas.clientHeight, dpr = devicePixelRatio || 1;
  canvas.width = w * dpr;
  canvas.height = h * dpr;
  const g = canvas.getContext("2d"), x = (t) => LANE_LEFT + ((t - from) / (to - from)) * (w - LANE_LEFT - 8);
  g.scale(dpr, dpr);
  g.font = "11px system-ui, sans-serif";
  g.fillStyle = colour("dim");
  const step = timeStep(to - from, Math.max(2, (w - LANE_LEFT) / 110));
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    g.fillRect(x(t), LANE_TOP - 6, 1, 4);
    g.fillText(fmt.time(t), x(t) + 3, 12);
  }
  LANES.forEach(([, name], i) => {
    g.fillStyle = colour("dim");
    g.fillText(name, 4, LANE_TOP + i * LANE_HEIGHT + 18);
    g.fillStyle = colour("soft");
    g.fillRect(LANE_LEFT, LANE_TOP + i * LANE_HEIGHT + 2, w - LANE_LEFT - 8, LANE_HEIGHT - 4);
  });
  g.save();
  g.beginPath();
  g.rect(LANE_LEFT, 0, w - LANE_LEFT - 8, h);
  g.clip();
  const last = {}; // what is narrower than a pixel is drawn once in each
  for (const it of items) {
    if (it.to < from || it.from > to) continue;
    const left = x(it.from), width = Math.max(1, x(it.to) - left), id = `${it.lane}${it.cls}`;
    if (width <= 1 && last[id] === Math.floor(left)) continue;
    last[id] = Math.floor(left);
    g.fillStyle = colour(it.cls);
    g.fillRect(left, LANE_TOP + it.lane * LANE_HEIGHT + 4, it.lane === 3 ? 2 : width > 3 ? width - 1 : width, LANE_HEIGHT - 8);
  }
  g.restore();
  canvas.setAttribute("aria-label", `Timeline from ${fmt.time(from)} to ${fmt.time(to)}. Plus and minus zoom, arrows move, 0 shows everything.`);
  view.range.textContent = `${fmt.time(from)} – ${fmt.time(to)}, ${fmt.time(to - from)} shown`;
}

function showRange(view, from, to) {
  const least = 1000, all = view.last;
  const width = Math.min(Math.max(to - from, least), all);
  const begin = Math.min(Math.max(0, from), all - width);
  view.from = begin;
  view.to = begin + width;
  drawTimeline(view);
}

function zoomTimeline(view, factor, share = 0.5) {
  const width = (view.to - view.from) * factor, at = view.from + (view.to - view.from) * share;
  showRange(view, at - width * share, at + width * (1 - share));
}

// The item under the pointer: the shortest of those that are near.
function itemAt(view, e) {
  const box = view.canvas.getBoundingClientRect(), perPixel = (view.to - view.from) / (box.width - LANE_LEFT - 8);
  const lane = Math.floor((e.clientY - box.top - LANE_TOP) / LANE_HEIGHT);
  const t = view.from + (e.clientX - box.left - LANE_LEFT) * perPixel, near = 3 * perPixel;
  if (e.clientX - box.left < LANE_LEFT) return null;
  const hits = view.items.filter((it) => it.lane === lane && it.from - near <= t && it.to + near >= t);
  return hits.sort((a, b) => a.to - a.from - (b.to - b.from))[0] || null;
}

function timelineEvents(view) {
  const { canvas } = view;
  let drag = null;
  canvas.addEventListener("wheel", (e) => {
    const box = canvas.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (e.clientX - box.left - LANE_LEFT) / (box.width - LANE_LEFT - 8)));
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const by = ((e.deltaX || e.deltaY) / box.width) * (view.to - view.from);
      showRange(view, view.from + by, view.to + by);
    } else zoomTimeline(view, Math.exp(e.deltaY * 0.0015), share);
    e.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, from: view.from, to: view.to, moved: false }; });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag || !(e.buttons & 1)) return;
    drag.moved = drag.moved || Math.abs(e.clientX - drag.x) > 3;
    const by = ((drag.x - e.clientX) / (canvas.clientWidth - LANE_LEFT - 8)) * (drag.to - drag.from);
    showRange(view, drag.from + by, drag.to + by);
  });
  canvas.addEventListener("click", (e) => {
    const it = drag && drag.moved ? null : itemAt(view, e);
    if (it && it.open) go(...it.open);
  });
  canvas.addEventListener("keydown", (e) => {
    const by = (view.to - view.from) / 5;
    if (e.key === "+" || e.key === "=") zoomTimeline(view, 0.7);
    else if (e.key === "-") zoomTimeline(view, 1.4);
    else if (e.key === "0") showRange(view, 0, view.last);
    else if (e.key === "ArrowLeft") showRange(view, view.from - by, view.to - by);
    else if (e.key === "ArrowRight") showRange(view, view.from + by, view.to + by);
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  withTip(canvas, (e) => { const it = itemAt(view, e); return it && it.tip; });
}

function timelinePanel(at) {
  const p = D.processes[at];
  const canvas = el("canvas", { class: "lanes", tabindex: 0, role: "img" }), range = el("span", { class: "dim", id: "timeline-range" });
  const items = timelineItems(at).sort((a, b) => a.lane - b.lane || a.from - b.from);
  const view = { canvas, range, items, last: Math.max(1000, p.last_ns - p.first_ns), from: 0, to: 0 };
  view.to = view.last;
  timelineEvents(view);
  const button = (name, label, f) => el("button", { type: "button", class: "pill", "aria-label": label, onclick: f }, name);
  // One by one, the log keeps only the newest: the timeline begins where they do.
  const first = Math.min(...items.filter((it) => it.lane < 2).map((it) => it.from));
  requestAnimationFrame(() => showRange(view, items.length && isFinite(first) ? first : 0, view.last));
  new ResizeObserver(() => canvas.isConnected && drawTimeline(view)).observe(canvas);
  const key = [["grey", "step"], ["pink", "cutting the trace"], ["orange", "planning, compiling; a miss"], ["green", "run, beside launches"], ["blue", "launches"], ["red", "failed"]];
  return { view, panel: panel("Timeline", [shownNote("steps", "steps"), shownNote("cuts", "cuts")].filter(Boolean).join(", "),
    el("div", { class: "bar-row" }, button("+", "Zoom in", () => zoomTimeline(view, 0.6)), button("−", "Zoom out", () => zoomTimeline(view, 1.6)),
      button("all", "Show everything", () => showRange(view, 0, view.last)), range,
      el("span", { class: "dim" }, "wheel zooms, dragging moves, a click opens")),
    canvas, el("div", { class: "legend" }, key.map(([c, name]) => el("span", {}, el("i", { style: { background: `var(--${c})` } }), name)))) };
}

// ---- how long steps took ----

const bucketTime = (b) => 2 ** (b / 4);

// The time that a share of the steps did not exceed, to within a bucket (19 %).
function quantile(h, share) {
  let left = share * h.n;
  for (let b = 0; b < h.buckets.length; b++) {
    left -= h.buckets[b];
    if (left <= 0) return Math.min(h.most_ns, bucketTime(b + 0.5));
  }
  return h.most_ns;
}

function histogramOf(h) {
  const used = h.buckets.map((n, b) => (n ? b : -1)).filter((b) => b >= 0);
  const first = Math.max(0, used[0] - 1), last = Math.min(h.buckets.length - 1, used.at(-1) + 1), n = last - first + 1;
  const most = Math.max(...h.buckets), W = 640, H = 120, w = W / Math.max(n, 8);
  const g = svg("svg", { viewBox: `0 0 ${W} ${H + 30}`, class: "histogram", role: "img",
    "aria-label": `Times of ${fmt.plural(h.n, "step")}: half took at most ${fmt.time(quantile(h, 0.5))}, 99 of 100 at most ${fmt.time(quantile(h, 0.99))}` });
  for (let b = first; b <= last; b++) {
    const count = h.buckets[b], height = count ? Math.max(2, (H - 14) * (count / most)) : 0, x = (b - first) * w;
    const bar = svg("rect", { class: "hbar", x: x + 1, y: H - height, width: w - 2, height });
    if (count) g.append(withTip(bar, `${fmt.time(bucketTime(b))} – ${fmt.time(bucketTime(b + 1))}: ${fmt.plural(count, "step")}`));
    if ((b - first) % Math.ceil(n / 8) === 0) g.append(svg("text", { x: x + 1, y: H + 14 }, fmt.time(bucketTime(b))));
  }
  g.append(svg("rect", { class: "rule", x: 0, y: H, width: W, height: 1 }), svg("text", { x: 0, y: H + 28 }, "a logarithmic scale: each column holds times up to 19 % longer than the one before"));
  return g;
}

function stepTimes(at) {
  const list = D.step_times.filter((h) => h.process === at).sort((a, b) => b.ns - a.ns);
  if (!list.length) return panel("Step times", "", empty("No step ended while the log was written."));
  const box = el("div");
  const show = (h) => box.replaceChildren(el("div", { class: "figures small" }, number("steps", fmt.count(h.n)), number("in all", fmt.time(h.ns)),
    number("shortest", fmt.time(h.least_ns)), number("half took at most", `≈ ${fmt.time(quantile(h, 0.5))}`), number("99 % took at most", `≈ ${fmt.time(quantile(h, 0.99))}`), number("longest", fmt.time(h.most_ns))), histogramOf(h));
  show(list[0]);
  const choose = el("label", { class: "option" }, "opened at ", el("select", { onchange: (e) => show(list[Number(e.target.value)]), "aria-label": "Steps opened at" },
    list.slice(0, 200).map((h, i) => el("option", { value: i }, `${clip(siteText(h.site), 60)} · ${fmt.plural(h.n, "step")}`))));
  return panel("Step times", "from the beginning of a step to its end", choose, box);
}

function slowestSteps(at, view) {
  const list = D.steps.filter((s) => s[0] === at);
  const t0 = D.processes[at].first_ns;
  return panel("Slowest steps", shownNote("steps", "steps"), table([
    { name: "at", right: true, of: (s) => fmt.time(s[1] - t0), sort: (s) => s[1] },
    { name: "opened at", of: (s) => siteLink(s[3]), wide: true },
    { name: "took", right: true, of: (s) => fmt.time(s[2]), sort: (s) => s[2], first: true },
    { name: "", of: (s) => el("button", { type: "button", class: "pill", onclick: () => { showRange(view, s[1] - t0 - s[2] * 0.2, s[1] - t0 + s[2] * 1.2); view.canvas.scrollIntoView({ block: "nearest" }); } }, "show") },
  ], list, { most: 8, none: "No step is in the log." }));
}

function timelinePage(pick) {
  const at = D.processes[Number(pick)] ? Number(pick) : 0;
  const choose = D.processes.length < 2 ? null : el("label", { class: "option" }, "process ",
    el("select", { onchange: (e) => go("timeline", e.target.value) }, D.processes.map((x, i) => el("option", { value: i, selected: i === at }, `${x.program || "?"} (${x.process_id ?? "?"})`))));
  const lanes = timelinePanel(at);
  return el("div", { class: "page timelinepage" }, choose, lanes.panel, el("div", { class: "cols" }, stepTimes(at), slowestSteps(at, lanes.view)));
}
