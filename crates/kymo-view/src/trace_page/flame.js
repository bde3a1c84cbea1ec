// Flame graphs: samples of the selection by stacks, and the time off CPU beside them.
const FRAME_H = 18;
const graphs = { on: null, off: null };
function inScope(number) {
  if (STATE.scope === "all") return true;
  const chosen = chosenTask();
  if (!chosen) return true;
  if (number === chosen.number) return true;
  return STATE.scope === "process" && chosen.pid !== null && TASKS[number]?.pid === chosen.pid;
}
const chosenTask = () => rows.find(r => r.id === STATE.row && r.kind === "task")?.task || null;

// A tree by functions out of weights of stacks.
function growTree(weights, inverse) {
  const root = { name: "", total: 0, self: 0, children: new Map(), fn: -1 };
  for (const [stack, weight] of weights) {
    const path = [];
    let node = stack.node;
    if (stack.isEvent && node >= 0) node = SAMPLES.nodes[node].parent;
    for (; node >= 0; node = SAMPLES.nodes[node].parent) path.push(SAMPLES.nodes[node].fn);
    if (!inverse) path.reverse();
    root.total += weight;
    let at = root;
    for (const fn of path.length ? path : [-1]) {
      let child = at.children.get(fn);
      if (!child) at.children.set(fn, child = { fn, name: fn < 0 ? "[no stack]" : HEAD.samples.functions[fn][0], total: 0, self: 0, children: new Map(), parent: at });
      child.total += weight;
      at = child;
    }
    at.self += weight;
  }
  return root;
}
function selected() { return STATE.range || [0, LENGTH]; }
function onWeights() {
  const [a, b] = selected(), s = SAMPLES, weights = new Map();
  let samples = 0;
  for (let i = STATE.range ? lowerBound(s.time, a) : 0; i < s.count && s.time[i] <= b; i++) {
    const st = s.stacks[s.stack[i]];
    if (st.isSwitch || st.event !== STATE.sampled || !inScope(st.task)) continue;
    samples++;
    weights.set(st, (weights.get(st) || 0) + s.weight[i]);
  }
  return { weights, samples };
}
// Time off CPU: what lies between two runs, by the stack in which the task left its CPU.
async function offWeights() {
  const [a, b] = selected(), s = SAMPLES, weights = new Map(), left = new Map();
  for (let i = 0; i < s.count && s.time[i] <= b; i++) {
    const st = s.stacks[s.stack[i]];
    if (!st.isSwitch || !inScope(st.task)) continue;
    if (!left.has(st.task)) left.set(st.task, new Map());
    left.get(st.task).set(s.time[i], st);
  }
  let waits = 0;
  const none = { node: -1 };
  for (const task of TASKS) {
    if (!task.tid || task.tid === NO_TID || !task.states.desc.count || !inScope(task.number)) continue;
    const stacks = left.get(task.number);
    let now = none, end = -1, counted = false;
    eachSpan(await blob(task.states.desc.leaf), 0, b, (from, to, code) => {
      if (isOpen(code) || isUncertain(code) || stateOf(code) === 0) return;
      // Blocked, and then waiting for a CPU, are one wait.
      const stack = stacks?.get(from);
      if (stack || from !== end) { now = stack || none; counted = false; }
      end = to;
      if (to > a && !counted) { waits++; counted = true; }
      const part = Math.min(to, b) - Math.max(from, a);
      if (part > 0) weights.set(now, (weights.get(now) || 0) + part);
    });
  }
  return { weights, waits };
}
let flameTurn = 0;
async function showFlame() {
  const turn = ++flameTurn;
  await wantSamples();
  if (STATE.sampled < 0) STATE.sampled = sampledEvents()[0]?.[0] ?? -1;
  const select = $("sampled");
  if (!select.options.length) for (const [number, name] of sampledEvents()) select.append(element("option", { value: number }, name));
  select.value = STATE.sampled;
  $("inverse").checked = STATE.inverse;
  const on = onWeights(), off = await offWeights();
  if (turn !== flameTurn) return;
  graphs.on = { root: growTree(on.weights, STATE.inverse), unit: HEAD.samples.events[STATE.sampled]?.[1] || "", zoom: null };
  graphs.off = { root: growTree(off.weights, STATE.inverse), unit: "nanoseconds", zoom: null };
  const sum = amount(graphs.on.root.total, graphs.on.unit);
  $("on-title").textContent = on.samples ? `On CPU: ${grouped(on.samples)} samples, ${sum}` : "On CPU: no samples in the selection";
  $("off-title").textContent = off.waits ? `Off CPU: ${grouped(off.waits)} waits, ${duration(graphs.off.root.total)}` : "Off CPU: no waits in the selection";
  if (STATE.frame) for (const g of [graphs.on, graphs.off]) g.zoom = findFrame(g.root, STATE.frame);
  drawFlames();
}
const sampledEvents = () => HEAD.samples.events.map((e, i) => [i, e[0]]).filter(e => e[1] !== "events" && !/(^|:)sched_switch$/.test(e[1]));
const amount = (n, unit) => unit === "nanoseconds" ? duration(n) : grouped(n);
function findFrame(root, name) {
  let best = null;
  (function walk(node) { for (const c of node.children.values()) { if (c.name === name) { if (!best || c.total > best.total) best = c; } else walk(c); } })(root);
  return best;
}
function drawFlames() { drawFlame("on"); drawFlame("off"); }
function drawFlame(which) {
  const g = graphs[which], canvas = $(which);
  if (!g) return;
  const width = canvas.clientWidth, top = g.zoom || g.root, boxes = [];
  const least = .6;
  (function place(node, x, w, depth) {
    if (w < least) return;
    if (node !== g.root) boxes.push({ node, x, w, depth });
    let at = x;
    const kids = [...node.children.values()].sort((a, b) => b.total - a.total);
    for (const kid of kids) { const kw = w * kid.total / (node.total || 1); place(kid, at, kw, depth + 1); at += kw; }
  })(top, 0, width, top === g.root ? -1 : 0);
  // What leads to the frame that is looked at.
  const before = [];
  for (let n = top.parent; n && n !== g.root; n = n.parent) before.unshift(n);
  for (const b of boxes) b.depth += before.length;
  before.forEach((node, depth) => boxes.push({ node, x: 0, w: width, depth, before: true }));
  g.boxes = boxes;
  const height = (Math.max(0, ...boxes.map(b => b.depth)) + 1) * FRAME_H + 4;
  const [c] = fit(canvas, height);
  c.fillStyle = colors.panel; c.fillRect(0, 0, width, height);
  c.font = "11.5px system-ui, sans-serif";
  let found = 0;
  for (const b of boxes) {
    const y = b.depth * FRAME_H, hit = STATE.query && b.node.name.toLowerCase().includes(STATE.query);
    c.fillStyle = hit ? colors.accent : frameColor(b.node, which);
    c.globalAlpha = b.before ? .5 : 1;
    c.fillRect(b.x, y, Math.max(.5, b.w - .7), FRAME_H - 1);
    c.globalAlpha = 1;
    if (hit) found += b.node.total;
    if (b.w > 30) {
      c.fillStyle = hit ? "#fff" : isDark() ? "#f2f2f2" : "#2a1c08";
      write(c, b.node.name.slice(0, Math.ceil(b.w / 3)), b.x + 4, y + FRAME_H / 2, b.w - 7);
    }
  }
  canvas.setAttribute("aria-label", `Flame graph of ${which === "on" ? "samples" : "the time off CPU"}: ${boxes.length} frames; ` +
    boxes.filter(b => b.depth < 3).slice(0, 6).map(b => `${b.node.name} ${percent(b.node.total, g.root.total)}`).join(", "));
}
function frameColor(node, which) {
  const kernel = node.fn >= 0 && HEAD.samples.functions[node.fn][2];
  let h = 0;
  for (let i = 0; i < node.name.length; i++) h = (h * 33 + node.name.charCodeAt(i)) >>> 0;
  const dark = isDark(), light = (dark ? 34 : 68) + h % 9;
  if (node.fn < 0) return dark ? "#3a4248" : "#d5dadd";
  if (which === "off") return `hsl(${kernel ? 218 : 188} ${kernel ? 38 : 42}% ${light}%)`;
  return kernel ? `hsl(14 55% ${light}%)` : `hsl(${38 + h % 12} 75% ${light - (dark ? 2 : 6)}%)`;
}
function boxAt(which, event) {
  const box = $(which).getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const depth = Math.floor(y / FRAME_H);
  return graphs[which]?.boxes?.find(b => b.depth === depth && x >= b.x && x < b.x + b.w) || null;
}
function chooseFrame(which, node) {
  const g = graphs[which];
  g.zoom = node;
  STATE.frame = node ? node.name : "";
  $("frame").textContent = node ? `${node.name}: ${amount(node.total, g.unit)}, ${percent(node.total, g.root.total)} of the selection` : "";
  save(); drawFlames();
}
function frameText(which, node) {
  const g = graphs[which], fn = node.fn >= 0 ? HEAD.samples.functions[node.fn] : null;
  return [node.name, fn && fn[1] ? fn[1] : "", `${amount(node.total, g.unit)}, ${percent(node.total, g.root.total)} of the selection`,
    `in itself ${amount(node.self, g.unit)}, ${percent(node.self, g.root.total)}`].filter(t => t).join("\n");
}
// The same as a table.
async function showFunctions() {
  await wantSamples();
  if (STATE.sampled < 0) STATE.sampled = sampledEvents()[0]?.[0] ?? -1;
  const { weights, samples } = onWeights(), rowsOf = new Map(), unit = HEAD.samples.events[STATE.sampled]?.[1] || "";
  let whole = 0;
  for (const [stack, weight] of weights) {
    whole += weight;
    const seen = new Set();
    let inner = true;
    for (let node = stack.node; node >= 0; node = SAMPLES.nodes[node].parent) {
      const fn = SAMPLES.nodes[node].fn;
      const row = rowsOf.get(fn) || rowsOf.set(fn, { fn, self: 0, total: 0 }).get(fn);
      if (inner) row.self += weight;
      if (!seen.has(fn)) row.total += weight;
      seen.add(fn); inner = false;
    }
  }
  const pane = $("pane-functions");
  pane.replaceChildren();
  if (!samples) return void pane.append(element("p", { class: "empty" }, "No samples in the selection. kymo record -g records them with stacks."));
  const list = [...rowsOf.values()].sort((a, b) => b.self - a.self || b.total - a.total);
  const body = element("tbody");
  for (const row of list.slice(0, 500)) {
    const [name, binary] = HEAD.samples.functions[row.fn], bar = element("span", { class: "share" });
    bar.style.width = Math.round(row.self / whole * 80) + "px";
    body.append(element("tr", { onclick: () => { STATE.query = name.toLowerCase(); $("find").value = name; STATE.tab = "flame"; save(); showPanel(); } },
      element("td", {}, percent(row.self, whole)), element("td", {}, bar), element("td", {}, amount(row.self, unit)),
      element("td", {}, percent(row.total, whole)), element("td", { class: "name" }, name), element("td", { class: "name" }, binary)));
  }
  pane.append(element("table", {}, element("thead", {}, element("tr", {}, ...["Self", "", "Self " + (unit === "nanoseconds" ? "time" : "count"), "Total"].map(t => element("th", { scope: "col" }, t)),
    element("th", { class: "name", scope: "col" }, "Function"), element("th", { class: "name", scope: "col" }, "Binary"))), body));
  if (list.length > 500) pane.append(element("p", { class: "empty" }, `${list.length - 500} more functions; kymo report shows all.`));
}
