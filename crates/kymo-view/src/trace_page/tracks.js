// Tracks: rows over time on one canvas, the overview above them.
const GUTTER = 210, RULER = 24, CPU_ROW = 22, WORK_ROW = 16, TASK_ROW = 26, GROUP_ROW = 22;
const STATE = {
  from: 0, to: LENGTH, range: null, row: null, at: null, tab: "tasks", scope: "all", query: "",
  filter: "", kind: "", theme: "", frame: "", inverse: false, sampled: -1, closed: new Set(), sort: "busy",
};
let rows = [], scale = 1, redrawAsked = false, colors = {};
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
  const add = row => { row.height = { cpu: CPU_ROW, work: WORK_ROW, task: TASK_ROW, group: GROUP_ROW }[row.kind]; rows.push(row); };
  if (CPUS.length) {
    add({ kind: "group", id: "cpus", title: "CPUs" });
    if (!STATE.closed.has("cpus")) for (const cpu of CPUS) {
      add({ kind: "cpu", id: "cpu" + cpu.number, cpu, title: "CPU " + cpu.number });
      for (const work of WORK) if (work.cpu === cpu.number) add({ kind: "work", id: work.kind + cpu.number, work, title: work.kind });
    }
  }
  const processes = new Map();
  for (const t of TASKS) {
    if (!t.tid || t.tid === NO_TID || (!t.run && !t.events)) continue;
    const key = t.pid ?? (t.states.desc.count || t.events ? t.tid : -1);
    if (!processes.has(key)) processes.set(key, []);
    processes.get(key).push(t);
  }
  const list = [...processes].map(([pid, tasks]) => {
    tasks.sort((a, b) => (a.tid === pid ? -1 : 0) - (b.tid === pid ? -1 : 0) || b.events - a.events);
    return { pid, tasks, weight: tasks.reduce((n, t) => n + t.run + t.events, 0) };
  });
  // The recorded command comes first.
  const isFirst = p => HEAD.command !== "" && p.tasks.some(t => t.comm === HEAD.command && (t.pid === null || t.tid === t.pid)) ? 1 : 0;
  list.sort((a, b) => isFirst(b) - isFirst(a) || b.weight - a.weight);
  for (const { pid, tasks } of list) {
    const lead = tasks.find(t => t.tid === pid) || tasks[0];
    if (tasks.length > 1) {
      const id = "pid" + pid;
      add({ kind: "group", id, title: `${lead.comm || "?"} ${pid} \u2013 ${tasks.length} threads` });
      if (STATE.closed.has(id)) continue;
    }
    for (const task of tasks) {
      add({ kind: "task", id: "task" + task.number, task, title: taskName(task), level: tasks.length > 1 ? 1 : 0 });
      // What its program tells of, the outer spans first.
      task.spans.forEach((spans, depth) => add({ kind: "work", id: `span${task.number}.${depth}`, title: depth ? "" : "spans of the program", work: { kind: "spans", names: HEAD.spanNames, spans } }));
    }
  }
  let y = 0;
  for (const row of rows) { row.y = y; y += row.height; }
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
  if (share >= 255) return word;
  const mix = shift => Math.round(((word >> shift & 255) * share + (ground >> shift & 255) * (255 - share)) / 255);
  return (255 << 24 | mix(16) << 16 | mix(8) << 8 | mix(0)) >>> 0;
}
// For each pixel the key that has most of it, and how much of it is in spans.
let sums = new Float64Array(64);
const touched = [], lines = [];
// `which` of two lines of values that are used again and again.
function columns(track, width, keyOf, which = 0) {
  const per = (STATE.to - STATE.from) / width, got = track.level(per);
  if (!got) return null;
  if (lines[which]?.keys.length !== width) lines[which] = { keys: new Int32Array(width), shares: new Uint8Array(width) };
  const { keys, shares } = lines[which];
  keys.fill(-1);
  let pixel = -1;
  const flush = () => {
    let whole = 0, most = 0, best = -1;
    for (const key of touched) { const n = sums[key]; sums[key] = 0; whole += n; if (n > most) { most = n; best = key; } }
    touched.length = 0;
    if (pixel >= 0 && best >= 0) { keys[pixel] = best; shares[pixel] = Math.max(1, Math.min(255, Math.round(whole / per * 255))); }
  };
  const add = (at, key, n) => {
    if (at !== pixel) { flush(); pixel = at; }
    if (key >= sums.length) { const more = new Float64Array(key * 2); more.set(sums); sums = more; }
    if (!sums[key]) touched.push(key);
    sums[key] += n;
  };
  const see = (from, to, key, weight) => {
    const a = Math.max(0, (from - STATE.from) / per), b = Math.min(width, (to - STATE.from) / per);
    if (!(b > a)) return;
    let at = Math.floor(a);
    const last = Math.min(width - 1, Math.ceil(b) - 1);
    if (at >= last) return add(Math.min(at, width - 1), key, (b - a) * per * weight);
    add(at, key, (at + 1 - a) * per * weight);
    if (last > at + 1) {
      flush(); pixel = -1;
      for (at++; at < last; at++) { keys[at] = key; shares[at] = Math.max(1, Math.round(weight * 255)); }
    }
    add(last, key, (b - last) * per * weight);
  };
  if (got.leaf) {
    const l = got.leaf;
    for (let i = Track.find(l, STATE.from); i < l.count && l.from[i] < STATE.to; i++) see(l.from[i], l.to[i], keyOf(l.code[i]), 1);
  } else {
    const b = got.bins;
    for (let i = Math.max(0, lowerBound(b.from, STATE.from - b.width)); i < b.count && b.from[i] < STATE.to; i++)
      see(b.from[i], b.from[i] + b.width, keyOf(b.code[i]), b.share[i] / 255);
  }
  flush();
  return lines[which];
}
const HEIGHTS = [11, 8, 2, 6, 3];
const taskWords = new Map();
function taskWord(number) {
  const name = TASKS[number]?.comm || "";
  if (!taskWords.has(name)) taskWords.set(name, colorWord(taskColor(number)));
  return taskWords.get(name);
}
// Rows of the view into the image.
function paintRow(row, y, image, pixels, left) {
  const width = image.width, room = width - left, px = n => Math.round(n * scale), ground = colorWord(row.id === STATE.row ? colors.chosen : colors.bg);
  const column = (x, top, height, word) => {
    const from = Math.max(0, px(top)), to = Math.min(image.height, px(top + height));
    for (let line = from, at = from * width + left + x; line < to; line++, at += width) pixels[at] = word;
  };
  if (row.kind === "cpu") {
    const h = CPU_ROW - 5, known = columns(row.cpu.known, room, () => 0), runs = columns(row.cpu.runs, room, code => code, 1), idle = colorWord(colors.idle);
    if (known) for (let x = 0; x < room; x++) if (known.keys[x] >= 0) column(x, y + 2, h, idle);
    if (runs) for (let x = 0; x < room; x++) if (runs.keys[x] >= 0) { const full = Math.max(1, h * runs.shares[x] / 255); column(x, y + 2 + h - full, full, taskWord(runs.keys[x])); }
  }
  if (row.kind === "work") {
    const spans = columns(row.work.spans, room, code => code), word = colorWord({ softirqs: colors.user, interrupts: colors.kernel, spans: colors.span }[row.work.kind]);
    if (spans) for (let x = 0; x < room; x++) if (spans.keys[x] >= 0) { const h = Math.max(1, 11 * spans.shares[x] / 255); column(x, y + 13 - h, h, word); }
  }
  if (row.kind === "task") {
    const states = columns(row.task.states, room, code => stateOf(code) + (isUncertain(code) || isOpen(code) ? 8 : 0)), shown = colors.states.map(colorWord);
    if (states) for (let x = 0; x < room; x++) {
      const key = states.keys[x];
      if (key < 0) continue;
      const state = key & 7, h = HEIGHTS[state];
      // The height says the state, too, and stripes say doubt: colors are not all that tells them apart.
      if (key & 8 && (x + row.y) % 3) continue;
      column(x, y + 13 - h, h, state === 3 && x % 6 === 0 ? ground : mixed(shown[state], ground, 110 + states.shares[x] * 145 / 255));
    }
    const calls = columns(row.task.calls, room, () => 0), call = colorWord(colors.call);
    if (calls) for (let x = 0; x < room; x++) if (calls.keys[x] >= 0) column(x, y + 15, 8, mixed(call, ground, 90 + calls.shares[x] * 130 / 255));
  }
}
let picture = null;
function drawTracks() {
  const height = trackHeight(), canvas = $("tracks"), [c, width] = fit(canvas, height), top = $("scroll").scrollTop;
  const seen = rows.filter(row => row.y - top + row.height > 0 && row.y - top + RULER < height);
  if (picture?.width !== canvas.width || picture.height !== canvas.height) picture = c.createImageData(canvas.width, canvas.height);
  const image = picture, pixels = new Uint32Array(image.data.buffer);
  pixels.fill(colorWord(colors.bg));
  const line = colorWord(colors.line), chosen = colorWord(colors.chosen), left = Math.round(GUTTER * scale), px = n => Math.max(0, Math.round(n * scale)) * image.width;
  for (const row of seen) {
    const y = row.y - top + RULER;
    if (row.id === STATE.row) pixels.fill(chosen, px(y), px(y + row.height));
    pixels.fill(line, px(y + row.height - 1), px(y + row.height - 1) + image.width);
    paintRow(row, y, image, pixels, left);
  }
  c.putImageData(image, 0, 0);
  c.save();
  c.beginPath(); c.rect(0, RULER, width, height - RULER); c.clip();
  for (const row of seen) writeRow(c, row, row.y - top + RULER, width);
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
// Names and what spans are, over the image.
function writeRow(c, row, y, width) {
  c.fillStyle = row.kind === "group" ? colors.soft : colors.ink;
  if (row.kind === "group") {
    c.font = "600 12px system-ui, sans-serif";
    write(c, (STATE.closed.has(row.id) ? "\u25b8 " : "\u25be ") + row.title, 10 + (row.level || 0) * 12, y + row.height / 2, GUTTER - 16 - (row.level || 0) * 12);
    c.font = "12px system-ui, sans-serif";
  } else {
    if (STATE.query && row.title.toLowerCase().includes(STATE.query)) c.fillStyle = colors.accent;
    const inset = row.kind === "cpu" ? 24 : row.kind === "work" ? 36 : 10 + (row.level || 0) * 12;
    write(c, row.title, inset, y + row.height / 2, GUTTER - inset - 6);
  }
  if (row.kind === "group") return;
  c.save(); c.beginPath(); c.rect(GUTTER, y, width - GUTTER, row.height); c.clip();
  if (row.kind === "cpu") { c.fillStyle = "#fff"; eachWide(row.cpu.runs, 30, (x, w, code) => label(c, taskName(TASKS[code]), x, w, y + 2 + (CPU_ROW - 5) / 2)); }
  else if (row.kind === "work") {
    c.fillStyle = "#241a00"; c.font = "10px system-ui, sans-serif";
    eachWide(row.work.spans, 36, (x, w, code) => label(c, row.work.names[code] || "", x, w, y + 8));
    c.font = "12px system-ui, sans-serif";
  } else {
    c.font = "10px system-ui, sans-serif";
    eachWide(row.task.states, 44, (x, w, code) => {
      c.fillStyle = ["#fff", "#241a00", colors.soft, "#fff", colors.soft][stateOf(code)];
      if (isUncertain(code) || isOpen(code)) c.fillStyle = colors.ink;
      if (stateOf(code) === 0) label(c, "CPU " + detailOf(code), x, w, y + 8);
      else if (w > 90) {
        const text = HEAD.causes[detailOf(code)] || STATES[stateOf(code)], thin = stateOf(code) === 2 || stateOf(code) === 4;
        if (stateOf(code) === 3) { const ink = c.fillStyle; c.fillStyle = colors.disk; c.fillRect(Math.max(x, GUTTER) + 2, y + 7, Math.min(w - 4, text.length * 5.3 + 4), 6); c.fillStyle = ink; }
        label(c, text, x, w, y + (thin ? 5 : 8));
      }
    });
    c.fillStyle = "#fff";
    eachWide(row.task.calls, 36, (x, w, code) => label(c, HEAD.calls[code] || "?", x, w, y + 19.5));
    c.font = "12px system-ui, sans-serif";
    drawSamples(c, row.task.samples, y);
  }
  c.restore();
}
// Spans that have room for text; there are few of them in a view.
function eachWide(track, least, see) {
  const l = track.leaf, per = perPixel();
  if (!l) return;
  const first = Track.find(l, STATE.from);
  if (lowerBound(l.from, STATE.to, l.count) - first > 3000) return;
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
function write(c, text, x, y, room) {
  const key = c.font + room + text;
  if (!fitted.has(key)) {
    if (fitted.size > 20000) fitted.clear();
    let short = text;
    while (short.length > 2 && c.measureText(short).width > room) short = short.slice(0, -2) + "\u2026";
    fitted.set(key, short);
  }
  c.fillText(fitted.get(key), x, y);
}
function label(c, text, x, w, y) {
  const from = Math.max(x, GUTTER) + 4, room = x + w - from - 3;
  if (room < 26) return;
  const most = Math.floor(room / 6.2);
  c.fillText(text.length > most ? text.slice(0, Math.max(1, most - 1)) + "\u2026" : text, from, y);
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
function drawOverview() {
  const canvas = $("overview"), [c, width] = fit(canvas, 60), room = width - GUTTER;
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
  from = Math.min(Math.max(0, middle - length / 2), LENGTH - length);
  [STATE.from, STATE.to] = [from, from + length];
  save(); redraw();
}
function zoom(factor, center = (STATE.from + STATE.to) / 2) {
  const length = Math.min(LENGTH, Math.max(20, (STATE.to - STATE.from) * factor));
  const share = (center - STATE.from) / (STATE.to - STATE.from), from = center - share * length;
  look(from, from + length);
}
