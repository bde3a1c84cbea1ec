// Tracks: rows over time on one canvas, the overview above them.
// Room for names, which are deep where processes have children.
let GUTTER = 210;
const RULER = 24, CPU_ROW = 22, WORK_ROW = 16, TASK_ROW = 26, GROUP_ROW = 22;
const STATE = {
  from: 0, to: LENGTH, range: null, row: null, at: null, tab: "tasks", scope: "all", query: "",
  filter: "", kind: "", theme: "", frame: "", inverse: false, sampled: -1, closed: new Set(), sort: "busy",
};
let rows = [], rowsMade = 0, scale = 1, redrawAsked = false, colors = {};
const drawTimes = [];

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["bg", "panel", "ink", "soft", "line", "hover", "accent", "select", "run", "ready", "sleep", "disk", "other", "call", "warn", "idle", "kernel", "user", "chosen", "path", "span"])
    colors[name] = style.getPropertyValue("--" + name).trim();
  colors.states = [colors.run, colors.ready, colors.sleep, colors.disk, colors.other];
}
const hues = [212, 152, 28, 338, 262, 188, 52, 8, 96, 300, 232, 128];
function taskColor(number) {
  const name = TASKS[number]?.comm || "";
  let h = 7;
  for (let i = 0; i < name.length; i++) h = (h * 31 + name.charCodeAt(i)) >>> 0;
  return `hsl(${hues[h % 12]} 45% ${isDark() ? 52 : 58}%)`;
}
const isDark = () => document.documentElement.classList.contains("dark") ||
  (!document.documentElement.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);

// Rows: CPUs, then processes with their threads, the busiest first.
function makeRows() {
  rows = [];
  rowsMade++;
  GUTTER = Math.max(210, Math.min(340, Math.round(innerWidth * .17)));
  const add = row => { row.height = { cpu: CPU_ROW, work: WORK_ROW, task: TASK_ROW, counter: TASK_ROW, group: GROUP_ROW }[row.kind]; rows.push(row); };
  if (CPUS.length) {
    add({ kind: "group", id: "cpus", title: "CPUs" });
    if (!STATE.closed.has("cpus")) for (const cpu of CPUS) {
      add({ kind: "cpu", id: "cpu" + cpu.number, cpu, title: "CPU " + cpu.number });
      for (const work of WORK) if (work.cpu === cpu.number) add({ kind: "work", id: work.kind + cpu.number, work, title: work.kind });
      for (const counter of COUNTERS) if (counter.cpu === cpu.number) add({ kind: "counter", id: "counter" + counter.number, counter, title: counter.name, level: 2 });
    }
  }
  const processes = new Map();
  for (const t of TASKS) {
    if (!t.tid || t.tid === NO_TID || (!t.run && !t.events)) continue;
    const pid = t.pid ?? (t.states.desc.count || t.events ? t.tid : -1);
    if (!processes.has(pid)) processes.set(pid, { pid, tasks: [], children: [], above: null, counters: COUNTERS.filter(c => c.pid === pid) });
    processes.get(pid).tasks.push(t);
  }
  const roots = [];
  for (const p of processes.values()) {
    // The nearest ancestor that has a track. Numbers that were given again make no circle.
    let up = p.pid, above;
    for (let k = 0; k < 64 && !above && up !== undefined; k++) { up = PARENTS.get(up); above = processes.get(up); }
    for (let at = above, k = 0; at && above; at = at.above, k++) if (at === p || k > 500) above = null;
    p.above = above || null;
    (above ? above.children : roots).push(p);
  }
  const weigh = p => {
    const isLead = t => t.tid === p.pid ? -1 : 0;
    p.tasks.sort((a, b) => isLead(a) - isLead(b) || b.events - a.events);
    p.weight = p.tasks.reduce((n, t) => n + t.run + t.events, 0);
    // The recorded command comes first.
    p.first = p.tasks.some(t => t.tid === HEAD.command) ? 1 : 0;
    for (const child of p.children) { weigh(child); p.weight += child.weight; p.first = Math.max(p.first, child.first); }
    p.children.sort(busiest);
  }, busiest = (a, b) => b.first - a.first || b.weight - a.weight;
  roots.forEach(weigh);
  const show = (p, level) => {
    const { pid, tasks, children } = p, lead = tasks.find(t => t.tid === pid) || tasks[0], id = "pid" + pid, folds = tasks.length > 1 || children.length > 0;
    if (folds) {
      const parts = [tasks.length > 1 ? `${tasks.length} threads` : "", children.length > 1 ? `${children.length} children` : children.length ? "1 child" : ""];
      add({ kind: "group", id, level, title: `${lead.comm || "?"} ${pid} \u2013 ${parts.filter(t => t).join(", ")}` });
      if (STATE.closed.has(id)) return;
    }
    for (const task of tasks) {
      add({ kind: "task", id: "task" + task.number, task, title: taskName(task), level: level + (folds ? 1 : 0) });
      // What its program tells of, the outer spans first.
      task.spans.forEach((spans, depth) => add({ kind: "work", id: `span${task.number}.${depth}`, title: depth ? "" : "spans of the program", work: { kind: "spans", names: HEAD.spanNames, spans } }));
    }
    for (const counter of p.counters) add({ kind: "counter", id: "counter" + counter.number, counter, title: counter.name, level: level + 1 });
    for (const child of children) show(child, Math.min(level + 1, 6));
  };
  for (const p of roots.sort(busiest)) show(p, 0);
  let y = 0;
  for (const row of rows) { row.y = y; y += row.height; }
  // The lower part has the room that rows do not need.
  $("scroll").style.maxHeight = Math.max(80, y + RULER) + "px";
  $("spacer").style.height = Math.max(0, y + RULER - trackHeight()) + "px";
  return y;
}
function trackHeight() { return $("scroll").clientHeight; }
const timeAt = x => STATE.from + (x - GUTTER) * perPixel();
const xAt = time => GUTTER + (time - STATE.from) / perPixel();
function perPixel() { return (STATE.to - STATE.from) / Math.max(1, $("tracks").clientWidth - GUTTER); }

function fit(canvas, height) {
  const width = canvas.clientWidth;
  scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
  }
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.font = "12px system-ui, sans-serif"; c.textBaseline = "middle";
  return [c, width];
}
function redraw() {
  if (redrawAsked) return;
  redrawAsked = true;
  requestAnimationFrame(() => {
    redrawAsked = false;
    const begin = performance.now();
    frames++;
    drawTracks(); drawOverview();
    drawTimes.push(performance.now() - begin);
    if (drawTimes.length > 1000) drawTimes.shift();
  });
}

function ruler(c, width, top) {
  const per = perPixel(), raw = per * 130;
  const step = [1, 2, 5, 10].map(m => m * 10 ** Math.floor(Math.log10(raw))).find(s => s >= raw) || raw;
  c.fillStyle = colors.panel; c.fillRect(0, top, width, RULER);
  c.strokeStyle = colors.line; c.fillStyle = colors.soft;
  c.fillText(HEAD.clock ? "s, " + HEAD.clock : "s", 10, top + RULER / 2, GUTTER - 20);
  c.beginPath();
  for (let t = Math.ceil(STATE.from / step) * step; t <= STATE.to; t += step) {
    const x = Math.round(xAt(t)) + .5;
    c.moveTo(x, top + 4); c.lineTo(x, top + RULER);
    const digits = Math.min(9, Math.max(0, 9 - Math.floor(Math.log10(step))));
    c.fillText("+" + (t / 1e9).toFixed(digits), x + 4, top + RULER / 2);
  }
  c.moveTo(0, top + RULER - .5); c.lineTo(width, top + RULER - .5);
  c.stroke();
}

// Pixels: each track is brought to one value a pixel, and all rows are one image.
const words = new Map();
let ink = null;
function colorWord(css) {
  if (words.has(css)) return words.get(css);
  ink ||= element("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  ink.fillStyle = css; ink.fillRect(0, 0, 1, 1);
  const [r, g, b] = ink.getImageData(0, 0, 1, 1).data, word = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  words.set(css, word);
  return word;
}
// A color over the background, by a share of 255.
function mixed(word, ground, share) {
  const mix = shift => Math.round(((word >> shift & 255) * share + (ground >> shift & 255) * (255 - share)) / 255);
  return (255 << 24 | mix(16) << 16 | mix(8) << 8 | mix(0)) >>> 0;
}
const shadeTables = new Map();
function shades(color, ground, least) {
  const name = color + ground + least;
  if (!shadeTables.has(name)) shadeTables.set(name, Uint32Array.from({ length: 256 }, (_, share) => mixed(colorWord(color), ground, least + share * (255 - least) / 255)));
  return shadeTables.get(name);
}
// For each pixel the key that has most of it, and how much of it is in spans. It stays with the track:
// after a move only what came into view is computed.
const keyNow = [], sumNow = [];
function columns(track, width, keyOf) {
  const per = (STATE.to - STATE.from) / width, got = track.level(per);
  if (!got) return null;
  const leaf = got.leaf || null, data = leaf || got.bins;
  let seen = track.seen, x0 = 0, x1 = width;
  const moved = seen && seen.data === data && seen.keys.length === width && Math.abs(seen.per / per - 1) < 1e-9 ? (STATE.from - seen.from) / per : NaN, by = Math.round(moved);
  if (Math.abs(moved - by) < .01 && Math.abs(by) < width) {
    if (!by) return seen;
    seen.keys.copyWithin(Math.max(0, -by), Math.max(0, by)); seen.shares.copyWithin(Math.max(0, -by), Math.max(0, by));
    if (by > 0) x0 = width - by; else x1 = -by;
    seen.from += by * per;
  } else {
    if (seen?.keys.length !== width) seen = track.seen = { keys: new Int32Array(width), shares: new Uint8Array(width) };
    seen.data = data; seen.per = per; seen.from = STATE.from;
  }
  const { keys, shares } = seen, begin = seen.from, from = data.from, code = data.code, wide = leaf ? 0 : data.width;
  keys.fill(-1, x0, x1);
  let pixel = -1, kinds = 0, i = leaf ? Track.find(leaf, begin + x0 * per) : Math.max(0, lowerBound(from, begin + x0 * per - wide));
  const count = data.count, end = begin + x1 * per, one = 1 / per;
  const flush = () => {
    let whole = 0, most = 0;
    for (let k = 0; k < kinds; k++) { whole += sumNow[k]; if (sumNow[k] > sumNow[most]) most = k; }
    kinds = 0;
    if (pixel >= x0) { keys[pixel] = keyNow[most]; shares[pixel] = Math.max(1, Math.min(255, Math.round(whole * 255))); }
  };
  const add = (at, key, n) => {
    if (at !== pixel) { if (kinds) flush(); pixel = at; }
    for (let k = 0; k < kinds; k++) if (keyNow[k] === key) { sumNow[k] += n; return; }
    keyNow[kinds] = key; sumNow[kinds++] = n;
  };
  for (; i < count && from[i] < end; i++) {
    const a = Math.max(x0, (from[i] - begin) * one), b = Math.min(x1, ((leaf ? leaf.to[i] : from[i] + wide) - begin) * one);
    if (!(b > a)) continue;
    const key = keyOf(code[i]), share = leaf ? 1 : data.share[i] / 255, first = Math.floor(a), last = Math.ceil(b) - 1;
    if (first >= last) { add(Math.min(first, x1 - 1), key, (b - a) * share); continue; }
    add(first, key, (first + 1 - a) * share);
    if (last > first + 1) {
      flush(); pixel = -1;
      keys.fill(key, first + 1, last); shares.fill(Math.max(1, Math.round(share * 255)), first + 1, last);
    }
    add(last, key, (b - last) * share);
  }
  if (kinds) flush();
  return seen;
}
// The height says the state, too, and stripes say doubt: colors are not all that tells them apart.
// Of a row's lines from the top of a band on, states have color whose number here is no higher.
const BANDS = [2, 5, 7, 10, 11, 13], TOPS = [0, 1, 4, 2, 3], LEAST_SHADE = 110;
const stateKey = code => stateOf(code) + (isUncertain(code) || isOpen(code) ? 8 : 0);
const codeKey = code => code, anyKey = () => 0;
const taskWords = new Map();
function taskWord(number) {
  const name = TASKS[number]?.comm || "";
  if (!taskWords.has(name)) taskWords.set(name, colorWord(taskColor(number)));
  return taskWords.get(name);
}
// A row of the view into the image, which begins right of the names.
function paintRow(row, y, image, pixels) {
  const room = image.width, line = n => Math.min(image.height, Math.max(0, Math.round((y + n) * scale))) * room;
  const ground = colorWord(row.id === STATE.row ? colors.chosen : colors.bg), sole = line(row.height - 1);
  pixels.fill(ground, line(0), sole);
  pixels.fill(colorWord(colors.line), sole, Math.max(sole, Math.min(sole + room, line(row.height))));
  const column = (x, top, height, word) => { for (let at = line(top) + x, end = line(top + height); at < end; at += room) pixels[at] = word; };
  // The first line of a band is the others, too.
  const repeat = (from, to) => { for (let at = from + room; at < to; at += room) pixels.copyWithin(at, from, from + room); };
  if (row.kind === "cpu") {
    const h = CPU_ROW - 5, known = columns(row.cpu.known, room, anyKey), runs = columns(row.cpu.runs, room, codeKey), idle = colorWord(colors.idle);
    if (known) for (let x = 0; x < room; x++) if (known.keys[x] >= 0) column(x, 2, h, idle);
    if (runs) for (let x = 0; x < room; x++) if (runs.keys[x] >= 0) { const full = Math.max(1, h * runs.shares[x] / 255); column(x, 2 + h - full, full, taskWord(runs.keys[x])); }
  }
  if (row.kind === "work") {
    const spans = columns(row.work.spans, room, codeKey), word = colorWord({ softirqs: colors.user, interrupts: colors.kernel, spans: colors.span }[row.work.kind]);
    if (spans) for (let x = 0; x < room; x++) if (spans.keys[x] >= 0) { const h = Math.max(1, 11 * spans.shares[x] / 255); column(x, 13 - h, h, word); }
  }
  if (row.kind === "counter" && row.counter.ready()) {
    const c = row.counter, per = (STATE.to - STATE.from) / room, y = v => Math.round(21 - (v - c.low) / (c.high - c.low || 1) * 17);
    const area = shades(colors.span, ground, 90)[0], edge = colorWord(colors.span);
    for (let x = 0, i = lowerBound(c.at, STATE.from); x < room; x++) {
      const next = lowerBound(c.at, STATE.from + (x + 1) * per, c.count, i), [low, high] = c.range(Math.max(0, i - 1), next);
      i = next;
      if (low === undefined || c.end !== null && STATE.from + x * per > c.end) continue;
      column(x, y(high), 22 - y(high), area); column(x, y(high), y(low) - y(high) + 1.5, edge);
    }
  }
  if (row.kind === "task") {
    const states = columns(row.task.states, room, stateKey), tables = colors.states.map(color => shades(color, ground, LEAST_SHADE));
    if (states) {
      const { keys, shares } = states, stripe = Math.floor(y) % 3, lines = BANDS.map(line), [l0, l1, l2, l3, l4] = lines;
      for (let x = 0; x < room; x++) {
        const key = keys[x];
        if (key < 0 || key & 8 && (x + stripe) % 3 || key === 3 && x % 6 === 0) continue;
        const state = key & 7, word = tables[state][shares[x]], top = TOPS[state];
        if (l4 < lines[5]) pixels[l4 + x] = word;
        if (top < 4 && l3 < l4) { pixels[l3 + x] = word; if (top < 3 && l2 < l3) { pixels[l2 + x] = word; if (top < 2 && l1 < l2) { pixels[l1 + x] = word; if (!top && l0 < l1) pixels[l0 + x] = word; } } }
      }
      for (let k = 0; k < 5; k++) repeat(lines[k], lines[k + 1]);
    }
    const calls = columns(row.task.calls, room, anyKey), table = shades(colors.call, ground, 90), first = line(15), end = line(23);
    if (calls && first < end) {
      for (let x = 0; x < room; x++) if (calls.keys[x] >= 0) pixels[first + x] = table[calls.shares[x]];
      repeat(first, end);
    }
  }
}
let picture = null;
const gutter = { canvas: null, key: "" };
// The names beside the tracks change less often than those.
function drawGutter(c, seen, top, height) {
  const key = [top, height, scale, STATE.row, STATE.query, colors.bg, rowsMade].join(), canvas = gutter.canvas ||= element("canvas");
  if (key !== gutter.key) {
    gutter.key = key;
    canvas.width = Math.round(GUTTER * scale); canvas.height = Math.round(height * scale);
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    g.textBaseline = "middle";
    g.fillStyle = colors.bg; g.fillRect(0, 0, GUTTER, height);
    for (const row of seen) {
      const y = row.y - top + RULER, level = (row.level || 0) * 12;
      if (row.id === STATE.row) { g.fillStyle = colors.chosen; g.fillRect(0, y, GUTTER, row.height); }
      g.fillStyle = colors.line; g.fillRect(0, y + row.height - 1, GUTTER, 1);
      const folds = row.kind === "group", inset = (folds ? 10 : row.kind === "cpu" ? 24 : row.kind === "work" ? 36 : 10) + level;
      g.font = (folds ? "600 " : "") + "12px system-ui, sans-serif";
      g.fillStyle = !folds && STATE.query && row.title.toLowerCase().includes(STATE.query) ? colors.accent : folds ? colors.soft : colors.ink;
      write(g, (folds ? STATE.closed.has(row.id) ? "\u25b8 " : "\u25be " : "") + row.title, inset, y + row.height / 2, GUTTER - inset - 6, folds ? "b" : "");
    }
  }
  c.drawImage(canvas, 0, 0, GUTTER, height);
}
function drawTracks() {
  const height = trackHeight(), canvas = $("tracks"), [c, width] = fit(canvas, height), top = $("scroll").scrollTop;
  const seen = rows.filter(row => row.y - top + row.height > 0 && row.y - top + RULER < height), left = Math.round(GUTTER * scale);
  if (picture?.width !== canvas.width - left || picture.height !== canvas.height) picture = c.createImageData(Math.max(1, canvas.width - left), canvas.height);
  const image = picture, pixels = new Uint32Array(image.data.buffer);
  for (const row of seen) paintRow(row, row.y - top + RULER, image, pixels);
  const last = seen.at(-1), below = last ? Math.min(image.height, Math.max(0, Math.round((last.y - top + RULER + last.height) * scale))) : 0;
  if (below > 0) c.putImageData(image, left, 0, 0, 0, image.width, below);
  c.fillStyle = colors.bg; c.fillRect(0, below / scale, width, height - below / scale);
  drawGutter(c, seen, top, height);
  c.save();
  c.beginPath(); c.rect(0, RULER, width, height - RULER); c.clip();
  for (const row of seen) if (row.kind !== "group") writeRow(c, row, row.y - top + RULER, width);
  drawPath(c, top, width);
  drawWakeups(c, top, width);
  c.restore();
  drawRange(c, height, width);
  ruler(c, width, 0);
  for (const [a, b] of HEAD.losses) {
    const x = Math.max(GUTTER, xAt(a)), end = xAt(b);
    if (end < GUTTER || x > width) continue;
    c.fillStyle = colors.warn; c.fillRect(x, RULER - 5, Math.max(2, end - x), 5);
    c.globalAlpha = .07; c.fillRect(x, RULER, Math.max(2, end - x), height); c.globalAlpha = 1;
  }
}
// What spans are, over the image.
function writeRow(c, row, y, width) {
  const texts = [];
  if (row.kind === "cpu") eachWide(row.cpu.runs, 30, (x, w, code) => texts.push([taskName(TASKS[code]), x, w, 2 + (CPU_ROW - 5) / 2, "#fff"]));
  else if (row.kind === "counter") { if (row.counter.at) texts.push(["\u2264 " + row.counter.text(row.counter.high), GUTTER, 300, 8, colors.soft]); }
  else if (row.kind === "work") eachWide(row.work.spans, 36, (x, w, code) => texts.push([row.work.names[code] || "", x, w, 8, "#241a00"]));
  else {
    eachWide(row.task.states, 44, (x, w, code) => {
      const state = stateOf(code), ink = isUncertain(code) || isOpen(code) ? colors.ink : ["#fff", "#241a00", colors.soft, "#fff", colors.soft][state];
      if (state === 0) texts.push(["CPU " + detailOf(code), x, w, 8, ink]);
      else if (w > 90) texts.push([HEAD.causes[detailOf(code)] || STATES[state], x, w, state === 2 || state === 4 ? 5 : 8, ink, state === 3]);
    });
    eachWide(row.task.calls, 36, (x, w, code) => texts.push([HEAD.calls[code] || "?", x, w, 19.5, "#fff"]));
    drawSamples(c, row.task.samples, y);
  }
  if (!texts.length) return;
  c.save(); c.beginPath(); c.rect(GUTTER, y, width - GUTTER, row.height); c.clip();
  if (row.kind !== "cpu") c.font = "10px system-ui, sans-serif";
  for (const [text, x, w, at, ink, patch] of texts) {
    if (patch) { c.fillStyle = colors.disk; c.fillRect(Math.max(x, GUTTER) + 2, y + 7, Math.min(w - 4, text.length * 5.3 + 4), 6); }
    c.fillStyle = ink;
    label(c, text, x, w, y + at);
  }
  c.restore();
}
// Spans that have room for text; there are few of them in a view.
function eachWide(track, least, see) {
  const l = track.leaf, per = perPixel();
  if (!track.covers(STATE.from, STATE.to)) return;
  const first = Track.find(l, STATE.from);
  if (lowerBound(l.from, STATE.to, l.count) - first > 1000) return;
  for (let i = first; i < l.count && l.from[i] < STATE.to; i++) {
    const w = (l.to[i] - l.from[i]) / per;
    if (w > least) see(xAt(l.from[i]), w, l.code[i]);
  }
}
function drawSamples(c, s, y) {
  if (!s) return;
  c.fillStyle = colors.soft;
  const per = perPixel();
  for (let i = lowerBound(s.at, STATE.from, s.n); i < s.n && s.at[i] <= STATE.to;) {
    const x = Math.round(xAt(s.at[i]));
    c.fillRect(x, y + 23, 1, 2);
    // Those on the same pixel are not looked at.
    const next = STATE.from + (x + .5 - GUTTER) * per;
    i = Math.max(i + 1, lowerBound(s.at, next, s.n));
  }
}
// Text as far as there is room for it; the same names come again and again.
const fitted = new Map();
function write(c, text, x, y, room, style = "f") {
  const key = style + room + text;
  if (!fitted.has(key)) {
    if (fitted.size > 20000) fitted.clear();
    let short = text;
    while (short.length > 2 && c.measureText(short).width > room) short = short.slice(0, -2) + "\u2026";
    fitted.set(key, short);
  }
  c.fillText(fitted.get(key), x, y);
}
const widths = new Map();
function label(c, text, x, w, y) {
  const from = Math.max(x, GUTTER) + 4, room = Math.min(x + w, c.canvas.width / scale) - from - 3;
  if (room < 26) return;
  const key = c.font + text;
  if (!widths.has(key)) { if (widths.size > 20000) widths.clear(); widths.set(key, c.measureText(text).width); }
  const share = room / widths.get(key);
  c.fillText(share < 1 ? text.slice(0, Math.max(1, Math.floor(text.length * share) - 1)) + "\u2026" : text, from, y);
}
// The critical path: whose time it is, from row to row.
let PATH = HEAD.path;
function drawPath(c, top, width) {
  if (!PATH) return;
  const places = new Map();
  for (const r of rows) if (r.kind === "task" && !places.has(r.task.tid)) places.set(r.task.tid, r.y - top + RULER);
  let before = null, dotted = -1;
  c.fillStyle = colors.path;
  for (const [from, to, tid, , doubt] of PATH.segments) {
    const y = places.get(tid), x = xAt(from), end = xAt(to);
    if (y === undefined || end < GUTTER || x > width) { before = null; continue; }
    // Of parts on one pixel the first is drawn.
    if (before !== null && before !== y && Math.round(x) !== dotted) { dotted = Math.round(x); c.fillRect(dotted, Math.min(before, y), 1.5, Math.abs(before - y) + 3); }
    const a = Math.max(GUTTER, x), w = Math.max(1, Math.min(width, end) - a);
    if (doubt) for (let k = 0; k < w; k += 6) c.fillRect(a + k, y, Math.min(3, w - k), 3); else c.fillRect(a, y, w, 3);
    before = y;
  }
}
// Wake-ups of the chosen task: from who woke to who was woken.
function drawWakeups(c, top, width) {
  const row = rows.find(r => r.id === STATE.row);
  if (!row || row.kind !== "task" || !HEAD.wakeups.count || PATH?.tid === row.task.tid) return;
  if (!WAKEUPS) return void wantWakeups();
  const places = new Map(rows.filter(r => r.kind === "task").map(r => [r.task.number, r.y - top + RULER]));
  const own = row.task.number, w = WAKEUPS, seen = [];
  let before = -1;
  for (let i = lowerBound(w.at, STATE.from, w.count); i < w.count && w.at[i] <= STATE.to; i++) {
    if (w.task[i] !== own && w.by[i] !== own) continue;
    const a = places.get(w.by[i]), b = places.get(w.task[i]), x = xAt(w.at[i]);
    // Of those on one pixel one is drawn.
    if (b === undefined || Math.round(x) === before) continue;
    before = Math.round(x);
    seen.push([x, a, b]);
  }
  c.strokeStyle = c.fillStyle = colors.ink; c.lineWidth = 1;
  for (const [x, a, b] of seen) {
    // Of many only the heads are drawn: lines would hide the rows.
    const to = b + (a !== undefined && a > b ? 14 : 2), far = a === undefined ? b - 6 : a + 8, down = to >= far ? 1 : -1;
    const from = seen.length > 150 ? to - 6 * down : far;
    c.beginPath(); c.moveTo(x, from); c.lineTo(x, to); c.stroke();
    c.beginPath(); c.moveTo(x, to); c.lineTo(x - 3, to - 5 * down); c.lineTo(x + 3, to - 5 * down); c.fill();
  }
}
function drawRange(c, height, width) {
  if (STATE.range) {
    const a = Math.max(GUTTER, xAt(STATE.range[0])), b = Math.min(width, xAt(STATE.range[1]));
    if (b >= GUTTER && a <= width) {
      c.fillStyle = colors.select; c.fillRect(a, RULER, Math.max(1, b - a), height);
      c.fillStyle = colors.accent; c.fillRect(a, RULER, 1, height); c.fillRect(Math.max(a, b - 1), RULER, 1, height);
    }
  }
  if (STATE.at !== null) {
    const x = xAt(STATE.at);
    if (x >= GUTTER) { c.fillStyle = colors.ink; c.fillRect(Math.round(x), RULER, 1, height); }
  }
}
// The bars of the overview change with the width and the colors alone.
const overviewBars = { canvas: null, key: "" };
function drawOverviewBars(width) {
  const key = [width, scale, GUTTER, colors.bg].join(), canvas = overviewBars.canvas ||= element("canvas");
  if (key === overviewBars.key) return canvas;
  overviewBars.key = key;
  canvas.width = Math.round(width * scale); canvas.height = Math.round(60 * scale);
  const c = canvas.getContext("2d"), room = width - GUTTER;
  c.scale(scale, scale);
  c.font = "12px system-ui, sans-serif"; c.textBaseline = "middle";
  c.fillStyle = colors.panel; c.fillRect(0, 0, width, 60);
  const { events, busy } = HEAD.overview, n = events.length, most = Math.max(1, ...events);
  const part = Math.max(1, Math.ceil(LENGTH / n)), capacity = part * Math.max(1, CPUS.length);
  const x = i => GUTTER + i * part / LENGTH * room;
  c.fillStyle = colors.accent; c.globalAlpha = .55;
  for (let i = 0; i < n; i++) {
    const h = events[i] ? Math.max(1, Math.sqrt(events[i] / most) * 50) : 0;
    c.fillRect(x(i), 56 - h, Math.max(.8, x(1) - x(0)), h);
  }
  c.globalAlpha = 1;
  if (busy.some(b => b)) {
    c.strokeStyle = colors.run; c.lineWidth = 1.5; c.beginPath();
    for (let i = 0; i < n && i * part < LENGTH; i++) c.lineTo(x(i + .5), 56 - Math.min(1, busy[i] / capacity) * 50);
    c.stroke(); c.lineWidth = 1;
  }
  c.fillStyle = colors.soft;
  c.fillText(`${grouped(HEAD.events)} events (bars)`, 10, 15, GUTTER - 16);
  c.fillText(CPUS.length ? `load of ${CPUS.length} CPUs (line)` : "", 10, 31, GUTTER - 16);
  c.fillText(duration(LENGTH), 10, 47, GUTTER - 16);
  c.fillStyle = colors.warn;
  for (const [a, b] of HEAD.losses) c.fillRect(GUTTER + a / LENGTH * room, 0, Math.max(2, (b - a) / LENGTH * room), 4);
  return canvas;
}
function drawOverview() {
  const [c, width] = fit($("overview"), 60), room = width - GUTTER;
  c.drawImage(drawOverviewBars(width), 0, 0, width, 60);
  const a = GUTTER + STATE.from / LENGTH * room, b = GUTTER + STATE.to / LENGTH * room;
  c.fillStyle = colors.bg; c.globalAlpha = .6;
  c.fillRect(GUTTER, 0, a - GUTTER, 60); c.fillRect(b, 0, width - b, 60);
  c.globalAlpha = 1; c.strokeStyle = colors.accent; c.lineWidth = 2; c.strokeRect(a, 1, Math.max(2, b - a), 58); c.lineWidth = 1;
  if (STATE.range) { c.fillStyle = colors.select; c.fillRect(GUTTER + STATE.range[0] / LENGTH * room, 0, Math.max(2, (STATE.range[1] - STATE.range[0]) / LENGTH * room), 60); }
}
const rowAt = y => { const at = y - RULER + $("scroll").scrollTop; return y < RULER ? null : rows.find(r => at >= r.y && at < r.y + r.height); };
function look(from, to) {
  const least = 20, length = Math.min(Math.max(to - from, least), LENGTH);
  const middle = (from + to) / 2;
  from = middle - length / 2;
  // Moves are by pixels of the screen: what is in view stays as it is drawn.
  const per = perPixel() / scale;
  if (Math.abs(length / (STATE.to - STATE.from) - 1) < 1e-9) from = STATE.from + Math.round((from - STATE.from) / per) * per;
  from = Math.min(Math.max(0, from), LENGTH - length);
  [STATE.from, STATE.to] = [from, from + length];
  save(); redraw();
}
function zoom(factor, center = (STATE.from + STATE.to) / 2) {
  const length = Math.min(LENGTH, Math.max(20, (STATE.to - STATE.from) * factor));
  const share = (center - STATE.from) / (STATE.to - STATE.from), from = center - share * length;
  look(from, from + length);
}
