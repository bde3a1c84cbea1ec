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

const newFrame = (fn, parent) => ({ fn, name: fn < 0 ? parent ? "[no stack]" : "" : functionName(fn), total: 0, self: 0, was: 0, wasSelf: 0, wide: 0, children: new Map(), parent });
// Another recording, to compare with: its functions are given the numbers of this one's.
let before = null;
function wantBefore() {
  const b = HEAD.before;
  return before ||= b && (async () => {
    const all = HEAD.samples.functions, numbers = new Map(all.map((f, i) => [f[0] + "\0" + f[1], i])), nodes = [], stacks = [];
    const own = b.functions.map(f => {
      const key = f[0] + "\0" + f[1];
      if (!numbers.has(key)) numbers.set(key, all.push(f) - 1);
      return numbers.get(key);
    });
    for (let r = new Reader(await blob(b.nodes)); !r.done;) { const parent = r.next() - 1, fn = r.next(); nodes.push({ parent, fn: own[fn >> 1] << 1 | fn & 1 }); }
    for (let r = new Reader(await blob(b.stacks)); !r.done;) stacks.push({ event: r.next(), node: r.next() - 1, weight: r.next() });
    return { nodes, stacks };
  })();
}
// The event of that recording that is compared: of the same name, or the only one of the same unit.
function eventBefore() {
  const event = HEAD.samples.events[STATE.sampled], all = HEAD.before.events, same = all.findIndex(e => e[0] === event?.[0]);
  const like = all.map((e, i) => [i, e]).filter(([, e]) => e[1] === event?.[1] && isSampled(e));
  return same >= 0 ? same : like.length === 1 ? like[0][0] : -1;
}
async function weightsBefore() {
  const b = await wantBefore(), event = b ? eventBefore() : -1, weights = new Map();
  if (event < 0) return null;
  for (const s of b.stacks) if (s.event === event) weights.set(s, s.weight);
  return { weights, nodes: b.nodes };
}
// What frames weighed there; those that are gone are in the tree, too. A frame is as wide as its
// shares of both recordings together.
function compareTrees(now, was, whole = now.total, all = was.total) {
  now.was = was.total; now.wasSelf = was.self;
  now.wide = (whole ? now.total / whole : 0) + (all ? was.total / all : 0);
  now.change = (whole ? now.total / whole : 0) - (all ? was.total / all : 0);
  for (const fn of was.children.keys()) if (!now.children.has(fn)) now.children.set(fn, newFrame(fn, now));
  for (const [fn, child] of now.children) compareTrees(child, was.children.get(fn) || newFrame(fn, null), whole, all);
}
const points = change => (change < 0 ? "\u2212" : "+") + Math.abs(change * 100).toFixed(2);
// A tree by functions out of weights of stacks.
function growTree(weights, inverse, nodes = SAMPLES.nodes) {
  const root = newFrame(-1, null);
  for (const [stack, weight] of weights) {
    const path = [];
    let node = stack.node;
    if (stack.isEvent && node >= 0) node = nodes[node].parent;
    for (; node >= 0; node = nodes[node].parent) path.push(nodes[node].fn);
    if (!inverse) path.reverse();
    root.total += weight;
    let at = root;
    for (const fn of path.length ? path : [-1]) {
      let child = at.children.get(fn);
      if (!child) at.children.set(fn, child = newFrame(fn, at));
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
  const [a, b] = selected(), weights = new Map();
  let waits = 0;
  const none = { node: -1 };
  for (const task of TASKS) {
    if (!task.tid || task.tid === NO_TID || !task.states.desc.count || !inScope(task.number)) continue;
    const left = task.switches;
    let now = none, end = -1;
    await eachSpan(task.states, a, b, (from, to, code) => {
      if (isOpen(code) || isUncertain(code) || stateOf(code) === 0) return;
      // Blocked, and then waiting for a CPU, are one wait. Of samples of one time the last counts.
      const last = left ? lowerBound(left.at, from + .5, left.n) - 1 : -1, stack = last >= 0 && left.at[last] === from ? SAMPLES.stacks[left.stack[last]] : null;
      if (stack || from !== end) now = stack || none;
      end = to;
      const part = Math.min(to, b) - Math.max(from, a);
      if (part <= 0) return;
      waits++;
      weights.set(now, (weights.get(now) || 0) + part);
    }, true);
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
  const on = onWeights(), off = await offWeights(), old = await weightsBefore();
  if (turn !== flameTurn) return;
  graphs.on = { root: growTree(on.weights, STATE.inverse), unit: HEAD.samples.events[STATE.sampled]?.[1] || "", zoom: null };
  graphs.off = { root: growTree(off.weights, STATE.inverse), unit: "nanoseconds", zoom: null };
  if (old) { graphs.on.old = growTree(old.weights, STATE.inverse, old.nodes); compareTrees(graphs.on.root, graphs.on.old); }
  const sum = amount(graphs.on.root.total, graphs.on.unit);
  $("on-title").textContent = on.samples ? `On CPU: ${grouped(on.samples)} samples, ${sum}` : "On CPU: no samples in the selection";
  if (old) $("on-title").textContent += `; ${amount(graphs.on.old.total, graphs.on.unit)} before, in ${HEAD.before.recording}. Orange, +: a greater share now; blue, \u2212: a smaller one; striped: gone`;
  else if (HEAD.before) $("on-title").textContent += `; no such event in ${HEAD.before.recording}`;
  $("on-title").title = $("on-title").textContent;
  $("off-title").textContent = off.waits ? `Off CPU: ${grouped(off.waits)} waits, ${duration(graphs.off.root.total)}` : "Off CPU: no waits in the selection";
  // The other one has the room of one that is empty.
  $("on").parentElement.style.flex = on.samples || !off.waits ? "" : "0 0 auto";
  $("off").parentElement.style.flex = off.waits || !on.samples ? "" : "0 0 auto";
  const kids = [...graphs.off.root.children.keys()];
  if (off.waits && kids.length === 1 && kids[0] < 0) $("off-title").textContent += "; sched_switch was recorded without stacks (-g)";
  if (STATE.frame) for (const g of [graphs.on, graphs.off]) g.zoom = findFrame(g.root, STATE.frame);
  drawFlames();
}
const isSampled = e => e[0] !== "events" && !/(^|:)sched_switch$/.test(e[0]);
const sampledEvents = () => HEAD.samples.events.map((e, i) => [i, e[0]]).filter(([i]) => isSampled(HEAD.samples.events[i]));
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
    const size = n => g.old ? n.wide : n.total, kids = [...node.children.values()].sort((a, b) => size(b) - size(a));
    for (const kid of kids) { const kw = w * size(kid) / (size(node) || 1); place(kid, at, kw, depth + 1); at += kw; }
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
  for (const b of boxes) {
    const y = b.depth * FRAME_H, hit = STATE.query && b.node.name.toLowerCase().includes(STATE.query);
    c.fillStyle = hit ? colors.accent : frameColor(b.node, which);
    c.globalAlpha = b.before ? .5 : 1;
    const gone = g.old && !b.node.total;
    if (gone) c.globalAlpha *= .6;
    if (gone) for (let x = 0; x < b.w - .7; x += 7) c.fillRect(b.x + x, y, Math.min(4, b.w - .7 - x), FRAME_H - 1);
    else c.fillRect(b.x, y, Math.max(.5, b.w - .7), FRAME_H - 1);
    c.globalAlpha = 1;
    if (b.node === g.cursor) { c.strokeStyle = colors.accent; c.lineWidth = 2; c.strokeRect(b.x + 1, y + 1, Math.max(2, b.w - 2.7), FRAME_H - 3); }
    if (b.w > 30) {
      c.fillStyle = hit ? "#fff" : isDark() ? "#f2f2f2" : "#2a1c08";
      const text = g.old ? `${points(b.node.change)} ${b.node.name}` : b.node.name;
      write(c, text.slice(0, Math.ceil(b.w / 3)), b.x + 4, y + FRAME_H / 2, b.w - 7);
    }
  }
  canvas.setAttribute("aria-label", `Flame graph of ${which === "on" ? "samples" : "the time off CPU"}: ${boxes.length} frames; ` +
    boxes.filter(b => b.depth < 3).slice(0, 6).map(b => `${b.node.name} ${percent(b.node.total, g.root.total)}`).join(", "));
}
function frameColor(node, which) {
  const kernel = node.fn >= 0 && functionOf(node.fn)[2];
  let h = 0;
  for (let i = 0; i < node.name.length; i++) h = (h * 33 + node.name.charCodeAt(i)) >>> 0;
  const dark = isDark(), light = (dark ? 34 : 68) + h % 9;
  if (which === "on" && graphs.on.old) {
    // How much of it is gained or lost, between gray and full color.
    const far = Math.abs(node.change) / (node.wide || 1), strong = Math.abs(node.change) < .0005 ? 0 : Math.max(.25, Math.min(1, far * 2));
    return `hsl(${node.change > 0 ? 30 : 212} ${Math.round(strong * 85)}% ${dark ? 26 + strong * 12 : 86 - strong * 22}%)`;
  }
  if (node.fn < 0) return dark ? "#3a4248" : "#d5dadd";
  if (which === "off") return `hsl(${kernel ? 218 : 188} ${kernel ? 38 : 42}% ${light}%)`;
  return kernel ? `hsl(14 55% ${light}%)` : `hsl(${38 + h % 12} 75% ${light - (dark ? 2 : 6)}%)`;
}
function boxAt(which, event) {
  const box = $(which).getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const depth = Math.floor(y / FRAME_H);
  return graphs[which]?.boxes?.find(b => b.depth === depth && x >= b.x && x < b.x + b.w) || null;
}
// Keys in a graph: to the greatest child, the parent, the frames beside; the answer is whether it was one.
function flameKey(which, key) {
  const g = graphs[which], at = g?.cursor || g?.zoom || g?.root;
  if (!at) return false;
  if (key === "Enter") { if (at !== g.root) chooseFrame(which, at); return true; }
  const size = n => g.old ? n.wide : n.total, kids = n => [...n.children.values()].sort((a, b) => size(b) - size(a)), beside = at.parent ? kids(at.parent) : [];
  const next = { ArrowDown: () => kids(at)[0], ArrowUp: () => at.parent, ArrowLeft: () => beside[beside.indexOf(at) - 1], ArrowRight: () => beside[beside.indexOf(at) + 1] }[key];
  if (!next) return false;
  const frame = next();
  if (frame && frame !== g.root) { g.cursor = frame; $("frame").textContent = frameText(which, frame).replaceAll("\n", ", "); drawFlames(); }
  return true;
}
function chooseFrame(which, node) {
  const g = graphs[which];
  g.zoom = node;
  STATE.frame = node ? node.name : "";
  $("frame").textContent = node ? `${node.name}: ${amount(node.total, g.unit)}, ${percent(node.total, g.root.total)} of the selection` : "";
  save(); drawFlames();
}
function frameText(which, node) {
  const g = graphs[which], fn = node.fn >= 0 ? functionOf(node.fn) : null;
  const old = g.old ? [`before ${amount(node.was, g.unit)}, ${share(node.was, g.old.total)}`, `in itself ${amount(node.wasSelf, g.unit)}, ${share(node.wasSelf, g.old.total)}`, `change of the share ${points(node.change)} percentage points`] : [];
  return [node.name, fn && fn[1] ? fn[1] : "", `${amount(node.total, g.unit)}, ${share(node.total, g.root.total)} of the selection`,
    `in itself ${amount(node.self, g.unit)}, ${share(node.self, g.root.total)}`, ...old].filter(t => t).join("\n");
}
// As kymo report prints them.
const share = (part, whole) => (whole ? part / whole * 100 : 0).toFixed(2) + "%";
// The same as a table.
async function showFunctions() {
  await wantSamples();
  if (STATE.sampled < 0) STATE.sampled = sampledEvents()[0]?.[0] ?? -1;
  const { weights, samples } = onWeights(), rowsOf = new Map(), unit = HEAD.samples.events[STATE.sampled]?.[1] || "", old = await weightsBefore();
  const sum = (weights, nodes, self, total) => {
    let whole = 0;
    for (const [stack, weight] of weights) {
      whole += weight;
      const seen = new Set();
      let inner = true;
      for (let node = stack.node; node >= 0; node = nodes[node].parent) {
        const fn = nodes[node].fn, row = rowsOf.get(fn) || rowsOf.set(fn, { fn, self: 0, total: 0, was: 0, wasTotal: 0 }).get(fn);
        // What is inlined is code of the function around it.
        if (inner && !(fn & 1)) { row[self] += weight; inner = false; }
        if (!seen.has(fn)) row[total] += weight;
        seen.add(fn);
      }
    }
    return whole;
  };
  const whole = sum(weights, SAMPLES.nodes, "self", "total"), all = old ? sum(old.weights, old.nodes, "was", "wasTotal") : 0;
  const pane = $("pane-functions");
  pane.replaceChildren();
  if (!samples) return void pane.append(element("p", { class: "empty" }, "No samples in the selection. kymo record -g records them with stacks."));
  const most = row => Math.max(row.self / whole, all ? row.was / all : 0);
  const list = [...rowsOf.values()].sort((a, b) => most(b) - most(a) || b.total - a.total);
  const body = element("tbody");
  for (const row of list.slice(0, 500)) {
    const [name, binary] = [functionName(row.fn), functionOf(row.fn)[1]], bar = element("span", { class: "share" });
    bar.style.width = Math.round(row.self / whole * 80) + "px";
    const then = old ? [share(row.was, all), points((whole ? row.self / whole : 0) - (all ? row.was / all : 0)), share(row.wasTotal, all)] : [];
    body.append(element("tr", { tabindex: 0, onclick: () => { STATE.query = functionOf(row.fn)[0].toLowerCase(); $("find").value = functionOf(row.fn)[0]; STATE.tab = "flame"; save(); showPanel(); } },
      element("td", {}, share(row.self, whole)), element("td", {}, bar), element("td", {}, amount(row.self, unit)),
      element("td", {}, share(row.total, whole)), ...then.map(t => element("td", {}, t)), element("td", { class: "name" }, name), element("td", { class: "name" }, binary)));
  }
  pane.append(element("table", {}, element("thead", {}, element("tr", {}, ...["Self", "", "Self " + (unit === "nanoseconds" ? "time" : "count"), "Total", ...(old ? ["Self before", "Change", "Total before"] : [])].map(t => element("th", { scope: "col" }, t)),
    element("th", { class: "name", scope: "col" }, "Function"), element("th", { class: "name", scope: "col" }, "Binary"))), body));
  if (list.length > 500) pane.append(element("p", { class: "empty" }, `${list.length - 500} more functions; kymo report shows all.`));
}
