// SPDX-License-Identifier: Apache-2.0
// A trace, and the plan made of it, as a graph that folds.
//
// Records stand in a tree of groups: launches and kernels, lines, or labels; a group of more than MOST children
// is parted further, in the order of the trace. Only open groups are laid out, each by itself (dagre), its
// box being one node of the group around it: however long the trace, a layout is of at most MOST nodes. An edge
// is drawn in the innermost group that holds both ends, between the children that hold them. What many read
// would hide the rest under its edges: they are drawn when one of their ends is selected.

const MOST = 90, OPEN_AT_ONCE = 500, MANY_READERS = 8;
const inlined = (r) => r.op === "num" || r.op === "cst";

// ---- the tree ----

const leafOf = (plan, r) => ({ leaf: r, plan, key: `r${r}`, first: r, size: 1 });
const groupOf = (key, kind, title, children, more) => ({
  key, kind, title, children, open: false, edges: new Map(), first: Math.min(...children.map((c) => c.first)),
  size: sum(children, (c) => c.size), ...more,
});

function part(group) {
  group.children.sort((a, b) => a.first - b.first);
  if (group.children.length > MOST) {
    const n = Math.min(MOST, Math.ceil(group.children.length / 48));
    const each = Math.ceil(group.children.length / n), parts = [];
    for (let i = 0; i < group.children.length; i += each) {
      const list = group.children.slice(i, i + each);
      parts.push(groupOf(`${group.key}/${i}`, "range", `${fmt.count(i + 1)} – ${fmt.count(i + list.length)} of ${fmt.count(group.children.length)}`, list, { ns: sum(list, (c) => c.ns || 0) }));
    }
    group.children = parts;
  }
  for (const c of group.children) {
    c.parent = group;
    if (c.children) part(c);
  }
  return group;
}

// The segment that computes each record first.
function segmentsOf(plan) {
  const of = new Map();
  (plan.blocks || []).forEach((block, b) => block.launches.forEach((launch, i) => launch.forEach((seg, k) => {
    for (const r of seg.records) if (!of.has(r)) of.set(r, { block, b, i, k, seg });
  })));
  return of;
}

// What no segment computes (a view, what simplifying made unnecessary) stands with the one segment that its
// users are in, where there is one.
function adopt(records, of) {
  const users = records.map(() => []);
  records.forEach((record, r) => record.from.forEach((f) => users[f].push(r)));
  for (let r = records.length - 1; r >= 0; r--) {
    if (of.has(r) || records[r].op === "input" || inlined(records[r])) continue;
    const homes = users[r].map((u) => of.get(u));
    const [first] = homes;
    if (first && homes.every((h) => h && h.b === first.b && h.i === first.i && h.k === first.k)) of.set(r, first);
  }
  return of;
}

// What runs in one launch of several kernels: their operators, those of the kernel that takes longest first.
const together = (kernels) => `${kernels.length} kernels: ` +
  [...new Set([...kernels].sort((a, b) => b.ns - a.ns).flatMap((k) => k.text.split(/, */)))].join(", ");

const GROUPINGS = {
  kernel: (plan, list, of) => {
    const launches = grouped(list.filter((r) => of.has(r)), (r) => `${of.get(r).b}.${of.get(r).i}`);
    return [...launches].map(([at, records]) => {
      const kernels = [...grouped(records, (r) => of.get(r).k)].map(([k, rs]) => {
        const o = of.get(rs[0]);
        const u = unitOf(plan, o.block, o.seg);
        const place = u.places.find((p) => p.plan === plan && p.b === o.b && p.i === o.i && p.k === o.k);
        return groupOf(`s${at}.${k}`, "kernel", unitName(u), rs.map((r) => leafOf(plan, r)), { unit: u, text: unitTitle(u), ns: place ? place.ns : 0 });
      });
      const o = of.get(records[0]);
      if (kernels.length === 1) return Object.assign(kernels[0], { launch: o.i, title: `${kernels[0].title} · launch ${o.i}` });
      return groupOf(`l${at}`, "launch", `launch ${o.i}`, kernels, { text: together(kernels), ns: sum(kernels, (k) => k.ns) });
    });
  },
  line: (plan, list) => [...grouped(list.filter((r) => plan.record_sites?.[r] !== null && plan.record_sites?.[r] !== undefined), (r) => lineKey(plan.record_sites[r]))]
    .map(([key, rs]) => groupOf(`n${key}`, "line", key, rs.map((r) => leafOf(plan, r)), { text: opNames(plan, rs), ns: 0, line: key })),
  label: (plan, list) => [...grouped(list, (r) => labelOf(plan, r))].filter(([label]) => label)
    .map(([label, rs]) => groupOf(`b${label}`, "label", label, rs.map((r) => leafOf(plan, r)), { text: `${rs.length} records`, ns: 0 })),
};

const labelOf = (plan, r) => {
  const at = plan.record_sites?.[r];
  return at === null || at === undefined ? "" : sites[at].label || sites[at].func;
};
const opNames = (plan, rs) => [...new Set(rs.map((r) => recordsOf(plan)[r].op))].join(", ");

function treeOf(plan, fold, withInputs) {
  const records = recordsOf(plan);
  const of = adopt(records, segmentsOf(plan));
  const shownRecords = records.map((_, r) => r).filter((r) => !inlined(records[r]));
  const inputs = withInputs ? shownRecords.filter((r) => records[r].op === "input") : [];
  const rest = shownRecords.filter((r) => records[r].op !== "input");
  const groups = GROUPINGS[fold](plan, rest, of);
  const taken = new Set();
  const mark = (g) => (g.children ? g.children.forEach(mark) : taken.add(g.leaf));
  groups.forEach(mark);
  const loose = rest.filter((r) => !taken.has(r)).map((r) => leafOf(plan, r));
  const ins = inputs.length > 6
    ? [groupOf("inputs", "inputs", fmt.plural(inputs.length, "input"), inputs.map((r) => leafOf(plan, r)), { text: "read by this plan", ns: 0 })]
    : inputs.map((r) => leafOf(plan, r));
  const root = part(groupOf("root", "root", "", [...ins, ...groups, ...loose], {}));
  root.open = true;
  if (groups.length === 1 && root.size < 80) root.children.forEach((c) => { c.open = c.kind === "kernel"; });
  if (root.children.every((c) => c.kind === "range") && sum(root.children, (c) => c.children.length) < 2 * MOST)
    root.children.forEach((c) => { c.open = true; });
  linkTree(root, records);
  return root;
}

function linkTree(root, records) {
  const leaf = new Map();
  const visit = (g) => (g.children ? g.children.forEach(visit) : leaf.set(g.leaf, g));
  visit(root);
  const path = (node) => {
    const out = [];
    for (let x = node; x; x = x.parent) out.unshift(x);
    return out;
  };
  records.forEach((record, r) => record.from.forEach((f) => {
    if (!leaf.has(r) || !leaf.has(f)) return;
    const a = path(leaf.get(f)), b = path(leaf.get(r));
    let k = 0;
    while (a[k + 1] && a[k + 1] === b[k + 1]) k++;
    if (!a[k + 1] || !b[k + 1]) return;
    const id = `${a[k + 1].key}>${b[k + 1].key}`;
    const edge = a[k].edges.get(id) || { from: a[k + 1], to: b[k + 1], values: new Set() };
    edge.values.add(f);
    a[k].edges.set(id, edge);
  }));
}

// ---- layout ----

const CHAR = 6.7;

function measure(node, records) {
  if (node.children && node.open) {
    layout(node, records);
    return;
  }
  if (node.children) {
    node.words = [node.title, clip(node.text || `${fmt.plural(node.size, "record")}`, 34), node.ns ? fmt.time(node.ns) : ""].filter(Boolean);
  } else {
    const r = records[node.leaf];
    const numbers = r.from.filter((f) => inlined(records[f])).map((f) => clip(decimal(records[f].rest), 12));
    node.words = [`%${node.leaf} ${r.op}`, [typeText(r), clip([decimal(r.rest), ...numbers].filter(Boolean).join(" "), 26)].filter(Boolean).join(" ")];
    if (r.op === "input") node.words[1] = typeText(r);
  }
  if (node.readers > MANY_READERS) node.words.push(`read by ${node.readers} of these`);
  node.w = Math.max(60, ...node.words.map((t, i) => t.length * (i ? CHAR : CHAR + 0.6) + 18 + (i ? 0 : 12)));
  node.h = 10 + 15 * node.words.length;
}

function layout(group, records) {
  const g = new dagre.graphlib.Graph();
  g.setGraph({ ranksep: 26, nodesep: 14, edgesep: 8, marginx: 12, marginy: 12, rankdir: "TB" });
  for (const c of group.children) {
    c.readers = 0;
    for (const e of group.edges.values()) if (e.from === c) c.readers++;
    measure(c, records);
    g.setNode(c.key, { width: c.w, height: c.h });
  }
  const readers = grouped([...group.edges.values()], (e) => e.from);
  for (const [, edges] of readers) edges.forEach((e, k) => {
    e.far = edges.length > MANY_READERS && k > 0;
    if (!e.far) g.setEdge(e.from.key, e.to.key, {});
  });
  if (group.children.length) dagre.layout(g);
  for (const c of group.children) {
    const at = g.node(c.key);
    c.x = at.x - c.w / 2;
    c.y = at.y - c.h / 2;
  }
  for (const e of group.edges.values()) e.points = e.far ? null : g.edge(e.from.key, e.to.key).points;
  const size = g.graph();
  const title = group.kind === "root" ? 0 : 20;
  const least = group.kind === "root" ? 0 : group.title.length * CHAR + 40;
  group.w = Math.max(least, size.width || 0);
  group.h = (size.height || 0) + title;
  group.top = title;
}

// ---- drawing ----

const curve = (points) => {
  let d = `M${points[0].x},${points[0].y}`;
  for (let i = 1; i < points.length - 1; i++) {
    const p = points[i], q = points[i + 1];
    d += i < points.length - 2 ? `Q${p.x},${p.y} ${(p.x + q.x) / 2},${(p.y + q.y) / 2}` : `Q${p.x},${p.y} ${q.x},${q.y}`;
  }
  return points.length === 2 ? `${d}L${points[1].x},${points[1].y}` : d;
};

const kindClass = (node, records) => {
  if (node.children) return `g g-${node.kind}`;
  const op = records[node.leaf].op;
  return "leaf " + (op === "input" ? "o-input" : WEIGHT[op] === 0 ? "o-view" : /^(sum|prod|max|min|mean|any|all|arg)/.test(op) ? "o-reduce" : op === "matmul" ? "o-matmul" : "o-map");
};

function drawNode(view, node, x, y) {
  node.ax = x + node.x;
  node.ay = y + node.y;
  const open = node.children && node.open;
  const box = svg("g", { class: `node ${kindClass(node, view.records)}${open ? " open" : ""}`, transform: `translate(${node.ax},${node.ay})`, "data-key": node.key });
  box.append(svg("rect", { width: node.w, height: node.h, rx: node.children ? 5 : 3 }));
  if (node.kind && node.children && !open && node.ns && view.most)
    box.append(svg("rect", { class: "heat", x: 0, y: node.h - 4, width: Math.max(2, (node.w * node.ns) / view.most), height: 4 }));
  if (open) box.append(svg("text", { x: 10, y: 15, class: "gt" }, `− ${node.title}`, node.ns ? ` · ${fmt.time(node.ns)}` : ""));
  else node.words.forEach((t, i) => box.append(svg("text", { x: 9, y: 17 + 15 * i, class: i ? "n2" : "n1" }, i === 0 && node.children ? `+ ${t}` : t)));
  view.layer.append(box);
  node.box = box;
  view.drawn.push(node);
  if (open) drawGroup(view, node, node.ax, node.ay + node.top);
}

function drawGroup(view, group, x, y) {
  for (const e of group.edges.values()) {
    const points = e.points || [{ x: e.from.x + e.from.w / 2, y: e.from.y + e.from.h }, { x: e.to.x + e.to.w / 2, y: e.to.y }];
    const path = svg("path", { class: e.far ? "edge far" : "edge", d: curve(points.map((p) => ({ x: p.x + x, y: p.y + y }))), "marker-end": "url(#arrow)" });
    e.path = path;
    view.layer.append(path);
  }
  for (const c of group.children) drawNode(view, c, x, y);
}

function redraw(view, keep) {
  const start = performance.now();
  const was = keep && keep.box ? { x: keep.ax, y: keep.ay } : null;
  layout(view.root, view.records);
  view.layer.replaceChildren();
  view.drawn = [];
  const kernels = [];
  const visit = (g) => { if (g.kind === "kernel" || g.kind === "launch") kernels.push(g.ns || 0); (g.children || []).forEach(visit); };
  visit(view.root);
  view.most = Math.max(0, ...kernels);
  drawGroup(view, view.root, 0, 0);
  if (was) {
    view.tx += (was.x - keep.ax) * view.zoom;
    view.ty += (was.y - keep.ay) * view.zoom;
  }
  place(view);
  select(view, view.selected);
  view.count.textContent = `${fmt.plural(view.drawn.length, "box", "boxes")} of ${fmt.plural(view.root.size, "record")} · laid out in ${Math.round(performance.now() - start)} ms`;
}

const place = (view) => view.layer.setAttribute("transform", `translate(${view.tx},${view.ty}) scale(${view.zoom})`);

function fit(view) {
  const w = view.svg.clientWidth || 800, h = view.svg.clientHeight || 500;
  view.zoom = Math.max(0.15, Math.min(1.2, (w - 24) / view.root.w, (h - 24) / view.root.h));
  if (view.root.h * view.zoom < h / 3 || view.zoom < 0.45) view.zoom = Math.max(0.55, Math.min(1, (w - 24) / view.root.w));
  view.tx = (w - view.root.w * view.zoom) / 2;
  view.ty = Math.max(12, (h - view.root.h * view.zoom) / 2);
  place(view);
}

function zoomBy(view, factor, x, y) {
  const zoom = Math.max(0.05, Math.min(3, view.zoom * factor));
  view.tx = x - ((x - view.tx) * zoom) / view.zoom;
  view.ty = y - ((y - view.ty) * zoom) / view.zoom;
  view.zoom = zoom;
  place(view);
}

// ---- what is selected ----

function select(view, node, reveal) {
  for (const n of view.drawn) n.box.classList.toggle("on", n === node);
  view.layer.querySelectorAll(".edge.on").forEach((x) => x.classList.remove("on"));
  if (node && node.parent) for (const e of node.parent.edges.values()) {
    if (e.path) e.path.classList.toggle("on", e.from === node || e.to === node);
  }
  view.selected = node || null;
  view.detail.replaceChildren(node && node.box ? nodeDetail(view, node) : planDetail(view));
  if (!node || !reveal) return;
  const x = node.ax * view.zoom + view.tx, y = node.ay * view.zoom + view.ty;
  const w = view.svg.clientWidth, h = view.svg.clientHeight;
  if (x < 0 || y < 0 || x + node.w * view.zoom > w || y + node.h * view.zoom > h) {
    view.tx += w / 2 - x - (node.w * view.zoom) / 2;
    view.ty += h / 2 - y - (node.h * view.zoom) / 2;
    place(view);
  }
}

// The text with operator and source line beside each %N, the first time that a line of it names the record.
function withPlaces(plan, text) {
  const records = recordsOf(plan);
  return text.split("\n").map((line) => {
    const told = new Set();
    return line.replace(/%(\d+)(?!\d)( \w+)?/g, (whole, number, word) => {
      const r = records[Number(number)], at = plan.record_sites?.[Number(number)];
      if (!r || told.has(number)) return whole;
      told.add(number);
      const place = at === null || at === undefined ? "" : ` at ${lineKey(at)}`;
      return word && word.trim() === r.op ? `%${number} ${r.op} (${place.trim() || "no line"})` : `%${number} (${r.op}${place})${word || ""}`;
    });
  }).join("\n");
}

function planDetail(view) {
  const p = view.plan, t = p.totals;
  return el("div", {}, el("h2", {}, `plan ${p.name}`, el("small", {}, siteText(p.site))),
    el("div", { class: "figures small" }, number("ran", fmt.count(t.cuts)), number("launches", fmt.count(sum(p.blocks || [], (b) => b.launches.length))), number("in launches", fmt.time(p.launchNs))),
    p.retreat ? el("p", { class: "warn" }, `▲ one kernel per op: ${p.retreat}`) : null,
    tabs("Texts of the plan", [["Why", () => codeView(withPlaces(p, unpack(p.why)) || "Nothing was decided: one kernel.", "kernel")], ["Guards", () => codeView(unpack(p.guards) || "none", "kernel")],
      ["Plan", () => codeView(unpack(p.plan_text), "kernel")], ["Trace", () => codeView(unpack(p.trace), "kernel")]], p.why ? 0 : 2));
}

function nodeDetail(view, node) {
  if (node.leaf !== undefined) {
    const r = view.records[node.leaf], at = view.plan.record_sites?.[node.leaf];
    const o = view.segments.get(node.leaf);
    const users = view.records.map((x, k) => [x, k]).filter(([x]) => x.from.includes(node.leaf)).slice(0, 12);
    return el("div", {}, el("h2", {}, el("code", {}, `%${node.leaf} ${r.op}`), el("small", {}, `${typeText(r)} · ${fmt.count(r.size)} elements`)),
      el("dl", {}, el("dt", {}, "line"), el("dd", {}, siteLink(at ?? null)), el("dt", {}, "kernel"), el("dd", {}, o ? [unitLink(unitOf(view.plan, o.block, o.seg)), ` in launch ${o.i}`] : "none: simplified away, a view, or an input"),
        el("dt", {}, "record"), el("dd", {}, el("code", {}, decimal(r.text))), el("dt", {}, "reads"), el("dd", {}, r.from.map((f) => el("div", {}, el("code", {}, decimal(view.records[f].text))))),
        el("dt", {}, "read by"), el("dd", {}, users.map(([x]) => el("div", {}, el("code", {}, decimal(x.text)))))),
      el("h3", {}, "What the fuser said"), codeView(withPlaces(view.plan, unpack(view.plan.why).split("\n").filter((l) => l.match(new RegExp(`%${node.leaf}(?!\\d)`))).join("\n")) || "nothing of this record", "kernel"));
  }
  return el("div", {}, el("h2", {}, node.title, el("small", {}, fmt.plural(node.size, "record"))),
    el("p", {}, node.text || ""), node.line ? el("p", {}, link(["source", node.line], { class: "site" }, node.line)) : null,
    node.ns ? el("p", {}, `${fmt.time(node.ns)} in all runs of this plan`) : null,
    node.unit ? [el("p", {}, unitLink(node.unit), " ", el("span", { class: "dim" }, "is its kernel; lines: "), [...node.unit.sites.keys()].slice(0, 8).map((k) => [link(["source", k], { class: "site" }, k), " "])), codeTabs(node.unit, 0)] : null);
}

// Up and down along edges, left and right to the nearest beside it.
function neighbour(view, node, key) {
  const edges = node.parent ? [...node.parent.edges.values()] : [];
  if (key === "ArrowUp") return edges.find((e) => e.to === node)?.from || node.parent;
  if (key === "ArrowDown") return node.children && node.open ? node.children[0] : edges.find((e) => e.from === node)?.to;
  const beside = view.drawn.filter((n) => n !== node && n.parent === node.parent && Math.abs(n.ay - node.ay) < 60 && (key === "ArrowLeft" ? n.ax < node.ax : n.ax > node.ax));
  return beside.sort((a, b) => Math.abs(a.ax - node.ax) - Math.abs(b.ax - node.ax))[0];
}

function toggle(view, node) {
  if (!node || !node.children) return;
  node.open = !node.open;
  view.selected = node;
  redraw(view, node);
}

function openAll(view) {
  let n = view.drawn.length;
  for (let more = true; more && n < OPEN_AT_ONCE;) {
    more = false;
    for (const node of collect(view.root)) if (node.children && !node.open && n + node.children.length < OPEN_AT_ONCE) {
      node.open = more = true;
      n += node.children.length;
    }
  }
  redraw(view);
  fit(view);
}
const collect = (g) => [g, ...(g.children && g.open ? g.children.flatMap(collect) : [])];

function graphKeys(view, e) {
  const node = view.selected;
  const w = view.svg.clientWidth / 2, h = view.svg.clientHeight / 2;
  if (e.key.startsWith("Arrow")) select(view, node ? neighbour(view, node, e.key) || node : view.drawn[0], true);
  else if (e.key === "Enter" || e.key === " ") toggle(view, node);
  else if (e.key === "+" || e.key === "=") zoomBy(view, 1.25, w, h);
  else if (e.key === "-") zoomBy(view, 0.8, w, h);
  else if (e.key === "0") fit(view);
  else if (e.key === "Escape" && node) select(view, null);
  else return;
  e.preventDefault();
  e.stopPropagation();
}

function pointers(view) {
  let from = null;
  view.svg.addEventListener("wheel", (e) => {
    const box = view.svg.getBoundingClientRect();
    zoomBy(view, Math.exp(-e.deltaY * 0.0015), e.clientX - box.left, e.clientY - box.top);
    e.preventDefault();
  }, { passive: false });
  view.svg.addEventListener("pointerdown", (e) => { from = { x: e.clientX, y: e.clientY, tx: view.tx, ty: view.ty, moved: false }; });
  view.svg.addEventListener("pointermove", (e) => {
    if (!from || !(e.buttons & 1)) return;
    if (Math.abs(e.clientX - from.x) + Math.abs(e.clientY - from.y) > 4) from.moved = true;
    view.tx = from.tx + e.clientX - from.x;
    view.ty = from.ty + e.clientY - from.y;
    place(view);
  });
  view.svg.addEventListener("click", (e) => {
    if (from && from.moved) return;
    const box = e.target.closest(".node");
    const node = box && view.drawn.find((n) => n.box === box);
    if (node && node.children) toggle(view, node);
    else select(view, node || null);
  });
}

// ---- the page ----

const FOLDS = [["kernel", "kernels"], ["line", "lines"], ["label", "labels"]];

function planChoice(plan, to) {
  const list = [...D.plans].sort((a, b) => b.launchNs - a.launchNs).slice(0, 300);
  if (plan && !list.includes(plan)) list.unshift(plan);
  return el("label", { class: "option" }, "plan ", el("select", { onchange: (e) => go(to, e.target.value), "aria-label": "Plan" },
    list.map((p) => el("option", { value: p.at, selected: p === plan }, `${p.name} · ${clip(siteText(p.site), 48)} · ${p.records} records · ${fmt.time(p.launchNs)}`))));
}

const heaviest = () => [...D.plans].sort((a, b) => b.launchNs - a.launchNs)[0];

// Inputs are read from everywhere: where there are many, edges from them hide the rest.
const hasFewInputs = (plan) => plan.inputs <= 5;

function graphPage(at, fold, inputs) {
  const plan = D.plans[Number(at)] && at !== undefined && at !== "" ? D.plans[Number(at)] : heaviest();
  if (!plan) return el("div", { class: "page" }, empty("No plan is in the log."));
  const how = GROUPINGS[fold] ? fold : "kernel";
  const withInputs = inputs ? inputs === "inputs" : hasFewInputs(plan);
  const head = el("div", { class: "bar-row" }, planChoice(plan, "graph"),
    el("span", { class: "option", role: "group", "aria-label": "Fold by" }, "fold by ", FOLDS.map(([id, name]) =>
      el("button", { type: "button", class: "pill", "aria-pressed": String(id === how), onclick: () => go("graph", String(plan.at), id) }, name))));
  if (!recordsOf(plan).length) return el("div", { class: "page" }, head, empty("The log has no text of this plan: it is of more than 65 536 records, or the report has dropped it for its size."));
  const records = recordsOf(plan);
  const detail = el("div", { class: "detail", "aria-live": "polite" });
  const box = svg("svg", { class: "graph", tabindex: 0, role: "application", "aria-label": "Graph of the plan. Arrows walk, Enter opens, plus and minus zoom, 0 fits." },
    svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, svg("path", { d: "M0,0.8L7,4L0,7.2z" }))));
  const layer = svg("g");
  box.append(layer);
  const count = el("span", { class: "dim", id: "graph-count" });
  const view = { plan, records, segments: segmentsOf(plan), root: treeOf(plan, how, withInputs), svg: box, layer, detail, count, drawn: [], zoom: 1, tx: 0, ty: 0, selected: null };
  head.append(el("button", { type: "button", class: "pill", "aria-pressed": String(withInputs), onclick: () => go("graph", String(plan.at), how, withInputs ? "no-inputs" : "inputs") }, "inputs"),
    el("button", { type: "button", class: "pill", onclick: () => openAll(view) }, "open all"),
    el("button", { type: "button", class: "pill", onclick: () => { collect(view.root).forEach((n) => { n.open = n === view.root; }); redraw(view); fit(view); } }, "fold all"),
    el("button", { type: "button", class: "pill", onclick: () => fit(view) }, "fit"), count);
  box.addEventListener("keydown", (e) => graphKeys(view, e));
  pointers(view);
  requestAnimationFrame(() => { redraw(view); fit(view); });
  const legend = el("div", { class: "legend" }, [["o-input", "input"], ["o-map", "elementwise"], ["o-reduce", "reduction"], ["o-matmul", "product"], ["o-view", "view"], ["g-kernel", "+ opens"]].map(([c, name]) => el("span", {}, el("i", { class: c }), name)));
  return el("div", { class: "page graphpage" }, head, el("div", { class: "split" }, el("div", { class: "middle" }, legend, el("div", { class: "canvas" }, box)), detail));
}
