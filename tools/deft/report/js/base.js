// SPDX-License-Identifier: Apache-2.0
// Elements and numbers. Text gets onto the page by el() alone, which makes text nodes: nothing that a log
// holds is ever read as markup.

const SVG = "http://www.w3.org/2000/svg"; // a name: nothing is loaded

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
const $ = (id) => document.getElementById(id);

// ---- numbers ----

function digits(x) {
  const a = Math.abs(x);
  if (a === 0) return "0";
  if (a >= 100) return x.toFixed(0);
  return a >= 10 ? x.toFixed(1) : x.toFixed(2);
}

function scaled(x, units, step) {
  let k = 0;
  while (k + 1 < units.length && Math.abs(x) >= step * 0.9995) {
    x /= step;
    k++;
  }
  return (k === 0 && Number.isInteger(x) ? String(x) : digits(x)) + "\u202f" + units[k];
}

const fmt = {
  time: (ns) => scaled(ns, ["ns", "µs", "ms", "s"], 1000),
  bytes: (n) => scaled(n, ["B", "KiB", "MiB", "GiB", "TiB"], 1024),
  count: (n) => (n < 100000 ? n.toLocaleString("en").replaceAll(",", "\u202f")
    : scaled(n, ["", "k", "M", "G", "T"], 1000)),
  percent: (x) => (x > 0 && x < 0.001 ? "<0.1" : (100 * x).toFixed(x < 0.0995 ? 1 : 0)) + "\u202f%",
  rate: (perNs, unit) => digits(perNs) + "\u202f" + unit,
  plural: (n, one, many) => `${fmt.count(n)} ${n === 1 ? one : many || one + "s"}`,
};

const sum = (list, f = (x) => x) => list.reduce((a, x) => a + f(x), 0);
const clip = (text, n) => (text.length <= n ? text : text.slice(0, n - 1) + "…");

function grouped(list, key) {
  const out = new Map();
  for (const x of list) {
    const k = key(x);
    if (!out.has(k)) out.set(k, []);
    out.get(k).push(x);
  }
  return out;
}

// ---- the tip: for those who point, and for what has the focus ----

let tipOwner = null;

function showTip(node, text, x, y) {
  const tip = $("tip");
  tipOwner = node;
  tip.replaceChildren(...text.split("\n").map((line) => el("div", {}, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + box.height + 24 > innerHeight ? y - box.height - 10 : y + 16) + "px";
}

function hideTip() {
  tipOwner = null;
  $("tip").hidden = true;
}

// text: a string, or a function of the event that gives one.
function withTip(node, text) {
  const say = typeof text === "function" ? text : () => text;
  node.addEventListener("mousemove", (e) => {
    const t = say(e);
    if (t) showTip(node, t, e.clientX, e.clientY);
    else hideTip();
  });
  node.addEventListener("mouseleave", hideTip);
  return node;
}
