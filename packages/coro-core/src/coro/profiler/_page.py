"""The unchanging parts of the report's page: its style and its script.

The page asks nothing of any network, and its policy says so. Tables are readable without the script, which sorts them
and draws the flame graph from the numbers in the page. Kept in a module, not in files of their own, so that nothing has
to be found at run time. Cost: text.
"""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

STYLE = """
:root { color-scheme: light dark; --line: #8886; --bar: #e0813a44; --soft: #8882; --accent: #a34a16; }
@media (prefers-color-scheme: dark) { :root { --accent: #f0a070; } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 78rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
nav a { margin-right: 1rem; } a { color: var(--accent); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
table.sortable th { cursor: pointer; position: sticky; top: 0; background: Canvas; user-select: none; }
th[aria-sort=descending]::after { content: " \\25BE"; } th[aria-sort=ascending]::after { content: " \\25B4"; }
table.sortable :is(th, td):first-child { position: sticky; left: 0; background: Canvas; }
table.sortable td:first-child { max-width: 34rem; overflow: hidden; text-overflow: ellipsis; }
td a { text-decoration: none; } td a:hover { text-decoration: underline; }
td b { font-weight: 400; } tr[data-owner=own] td b { font-weight: 700; }
tr[data-owner=own] td:first-child { box-shadow: inset 3px 0 var(--own); }
tr[data-owner=coro] a, tr[data-owner=library] a { color: inherit; }
:root { --own: #e0813a; --coro: #1f7f6c; --library: #8a94a0; }
.shares { display: flex; height: .9rem; border-radius: 3px; overflow: hidden; margin-top: 1rem; }
.key { display: inline-block; width: .7em; height: .7em; margin-right: .35em; border-radius: 2px; }
.shares > [data-owner=own], .key[data-owner=own] { background: var(--own); }
.shares > [data-owner=coro], .key[data-owner=coro] { background: var(--coro); }
.shares > [data-owner=library], .key[data-owner=library] { background: var(--library); }
body.only-own tr[data-owner]:not([data-owner=own]) { display: none; }
tbody tr:hover { background: var(--soft); }
td small { color: GrayText; margin-left: .4em; }
.node { border-top: 1px solid var(--line); padding: .4rem 0; }
.node b { font-weight: 600; } .node:target { background: var(--bar); }
tr:target { background: var(--bar); }
.muted { color: GrayText; }
#flame svg { display: block; width: 100%; } #flame rect { stroke: Canvas; cursor: pointer; }
#flame text { font: 11px system-ui, sans-serif; fill: #222; pointer-events: none; }
#told { min-height: 1.5em; }
"""

SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, column) => row.cells[column].dataset.v ?? row.cells[column].textContent;
  const sort = (head) => {
    const column = heads.indexOf(head), down = head.getAttribute("aria-sort") !== "descending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const text = head.dataset.kind === "text";
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a, column), y = value(b, column);
      return text ? (x < y ? 1 : x > y ? -1 : 0) : y - x;
    });
    if (!down) rows.reverse();
    body.append(...rows);
  };
  for (const head of heads) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
  }
}

const only = document.getElementById("only-own");
only?.addEventListener("change", () => document.body.classList.toggle("only-own", only.checked));

const data = JSON.parse(document.getElementById("trees").textContent);
const place = document.getElementById("flame"), told = document.getElementById("told");
const whose = document.getElementById("whose"), what = document.getElementById("what");
const HEIGHT = 18, SVG = "http://www.w3.org/2000/svg";
function tree(flat, measure) {
  const path = [];
  let root = null;
  for (const [depth, name, own, waited] of flat) {
    const node = {name: data.names[name], own: Math.max(0, measure === "waited" ? waited : own), total: 0, below: []};
    path.length = depth;
    if (depth) path[depth - 1].below.push(node); else root = node;
    node.above = depth ? path[depth - 1] : null;
    path.push(node);
  }
  const add = (first) => {  // without recursion: trees may be deep
    const order = [first];
    for (const node of order) order.push(...node.below);
    for (const node of order.reverse()) {
      node.total += node.own;
      if (node.above) node.above.total += node.total;
    }
  };
  if (root) add(root);
  return root;
}
function colour(name) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return `hsl(${20 + sum % 40} ${60 + sum % 30}% ${62 + (sum >> 8) % 14}%)`;
}
function amount(node, whole) {
  const percent = (100 * node.total / (whole || 1)).toFixed(2);
  const time = data.second ? `${(1e3 * node.total / data.second).toFixed(3)} ms` : `${node.total} ticks`;
  return `${node.name}: ${time} (${percent} %)`;
}
function draw(root, focus) {
  place.replaceChildren();
  if (!root || !root.total) { told.textContent = "Nothing to show."; return; }
  const svg = document.createElementNS(SVG, "svg"), width = place.clientWidth || 1000;
  const above = [];
  for (let node = focus.above; node; node = node.above) above.unshift(node);
  let deepest = 0;
  const box = (node, x, wide, level) => {
    const rect = document.createElementNS(SVG, "rect");
    for (const [key, to] of Object.entries({x, y: level * HEIGHT, width: Math.max(wide, .5), height: HEIGHT,
                                            fill: colour(node.name)})) rect.setAttribute(key, to);
    const title = document.createElementNS(SVG, "title");
    title.textContent = amount(node, root.total);
    rect.append(title);
    rect.addEventListener("click", () => draw(root, node));
    rect.addEventListener("mouseover", () => { told.textContent = title.textContent; });
    svg.append(rect);
    if (wide > 40) {
      const text = document.createElementNS(SVG, "text");
      text.setAttribute("x", x + 3);
      text.setAttribute("y", level * HEIGHT + 13);
      text.textContent = node.name.slice(0, wide / 6.2);
      svg.append(text);
    }
    deepest = Math.max(deepest, level);
  };
  above.forEach((node, level) => box(node, 0, width, level));
  const todo = [[focus, 0, width, above.length]];
  while (todo.length) {
    const [node, x, wide, level] = todo.pop();
    box(node, x, wide, level);
    let at = x;
    for (const child of [...node.below].sort((a, b) => b.total - a.total)) {
      const part = wide * child.total / (node.total || 1);
      if (part >= .3) todo.push([child, at, part, level + 1]);
      at += part;
    }
  }
  svg.setAttribute("height", (deepest + 1) * HEIGHT);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Flame graph");
  place.append(svg);
  told.textContent = amount(focus, root.total);
}
function show() {
  const root = data.threads.length ? tree(data.threads[whose.value].nodes, what.value) : null;
  draw(root, root);
}
data.threads.forEach((thread, number) => whose.append(new Option(thread.name, number)));
whose.addEventListener("change", show);
what.addEventListener("change", show);
show();
"""
