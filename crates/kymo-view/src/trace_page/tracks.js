// Tracks: rows over time on one canvas, the overview above them.
const GUTTER = 210, RULER = 24, CPU_ROW = 22, TASK_ROW = 26, GROUP_ROW = 22;
const STATE = {
  from: 0, to: LENGTH, range: null, row: null, at: null, tab: "tasks", scope: "all", query: "",
  filter: "", theme: "", frame: "", inverse: false, sampled: -1, closed: new Set(), sort: "busy",
};
let rows = [], scale = 1, redrawAsked = false, colors = {};
const drawTimes = [];

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["bg", "panel", "ink", "soft", "line", "hover", "accent", "select", "run", "ready", "sleep", "disk", "other", "call", "warn", "idle", "kernel", "user"])
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
  const add = row => { row.height = { cpu: CPU_ROW, task: TASK_ROW, group: GROUP_ROW }[row.kind]; rows.push(row); };
  if (CPUS.length) {
    add({ kind: "group", id: "cpus", title: "CPUs" });
    if (!STATE.closed.has("cpus")) CPUS.forEach(cpu => add({ kind: "cpu", id: "cpu" + cpu.number, cpu, title: "CPU " + cpu.number }));
  }
  const processes = new Map();
  for (const t of TASKS) {
    if (!t.tid || (!t.run && !t.events)) continue;
    const key = t.pid ?? (t.states.desc.count || t.events ? t.tid : -1);
    if (!processes.has(key)) processes.set(key, []);
    processes.get(key).push(t);
  }
  const list = [...processes].map(([pid, tasks]) => {
    tasks.sort((a, b) => (a.tid === pid ? -1 : 0) - (b.tid === pid ? -1 : 0) || b.events - a.events);
    return { pid, tasks, weight: tasks.reduce((n, t) => n + t.run + t.events, 0) };
  }).sort((a, b) => b.weight - a.weight);
  for (const { pid, tasks } of list) {
    const lead = tasks.find(t => t.tid === pid) || tasks[0];
    if (tasks.length > 1) {
      const id = "pid" + pid;
      add({ kind: "group", id, title: `${lead.comm || "?"} ${pid} \u2013 ${tasks.length} threads` });
      if (STATE.closed.has(id)) continue;
    }
    for (const task of tasks) add({ kind: "task", id: "task" + task.number, task, title: taskName(task), inner: tasks.length > 1 });
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

function drawTracks() {
  const height = trackHeight(), [c, width] = fit($("tracks"), height);
  c.fillStyle = colors.bg; c.fillRect(0, 0, width, height);
  const top = $("scroll").scrollTop;
  c.save();
  c.beginPath(); c.rect(0, RULER, width, height - RULER); c.clip();
  for (const row of rows) {
    const y = row.y - top + RULER;
    if (y + row.height < RULER || y > height) continue;
    drawRow(c, row, y, width);
  }
  drawWakeups(c, top, width);
  c.restore();
  drawRange(c, height, width);
  ruler(c, width, 0);
  for (const [a, b] of HEAD.losses) {
    const x = Math.max(GUTTER, xAt(a)), end = xAt(b);
    if (end < GUTTER || x > width) continue;
    c.fillStyle = colors.warn; c.fillRect(x, RULER - 5, Math.max(2, end - x), 5);
  }
}
function drawRow(c, row, y, width) {
  if (row.id === STATE.row) { c.fillStyle = colors.select; c.fillRect(0, y, width, row.height); }
  c.fillStyle = row.kind === "group" ? colors.soft : colors.ink;
  if (row.kind === "group") {
    c.font = "600 12px system-ui, sans-serif";
    write(c, (STATE.closed.has(row.id) ? "\u25b8 " : "\u25be ") + row.title, 10, y + row.height / 2, GUTTER - 16);
    c.font = "12px system-ui, sans-serif";
  } else {
    if (STATE.query && row.title.toLowerCase().includes(STATE.query)) c.fillStyle = colors.accent;
    write(c, row.title, row.inner || row.kind === "cpu" ? 24 : 10, y + row.height / 2, GUTTER - 30);
  }
  c.strokeStyle = colors.line; c.globalAlpha = .6;
  c.beginPath(); c.moveTo(0, y + row.height - .5); c.lineTo(width, y + row.height - .5); c.stroke();
  c.globalAlpha = 1;
  c.save(); c.beginPath(); c.rect(GUTTER, y, width - GUTTER, row.height); c.clip();
  if (row.kind === "cpu") drawCpu(c, row, y, width);
  if (row.kind === "task") drawTask(c, row, y, width);
  c.restore();
}
// Calls `see(x, width, code, span or bin)` for what a track has in the view.
function eachDrawn(track, width, see) {
  const per = perPixel(), got = track.level(per);
  if (!got) return;
  if (got.leaf) {
    const l = got.leaf;
    for (let i = Track.find(l, STATE.from); i < l.count && l.from[i] < STATE.to; i++)
      see(xAt(l.from[i]), (l.to[i] - l.from[i]) / per, l.code[i], 255, i);
    return;
  }
  const b = got.bins, w = b.width / per;
  for (let i = Math.max(0, lowerBound(b.from, STATE.from - b.width)); i < b.count && b.from[i] < STATE.to; i++)
    see(xAt(b.from[i]), w, b.code[i], b.share[i], -1);
}
// Text as far as there is room for it.
function write(c, text, x, y, room) {
  while (text.length > 2 && c.measureText(text).width > room) text = text.slice(0, -2) + "\u2026";
  c.fillText(text, x, y);
}
function label(c, text, x, w, y) {
  const from = Math.max(x, GUTTER) + 4, room = x + w - from - 3;
  if (room < 26) return;
  const most = Math.floor(room / 6.2);
  c.fillText(text.length > most ? text.slice(0, Math.max(1, most - 1)) + "\u2026" : text, from, y);
}
function drawCpu(c, row, y, width) {
  const known = row.cpu.known === null ? LENGTH : row.cpu.known, h = CPU_ROW - 5;
  c.fillStyle = colors.idle; c.fillRect(xAt(known), y + 2, Math.max(0, xAt(LENGTH) - xAt(known)), h);
  eachDrawn(row.cpu.runs, width, (x, w, code, share, span) => {
    c.fillStyle = taskColor(code);
    const full = Math.max(1, h * share / 255);
    c.fillRect(x, y + 2 + h - full, Math.max(w, .7), full);
    if (span >= 0 && w > 30) { c.fillStyle = "#fff"; label(c, taskName(TASKS[code]), x, w, y + 2 + h / 2); }
  });
}
function drawTask(c, row, y, width) {
  const task = row.task;
  // The height says the state, too: colors are not all that tells them apart.
  const heights = [11, 8, 2, 6, 3];
  eachDrawn(task.states, width, (x, w, code, share) => {
    const state = stateOf(code), h = heights[state];
    c.fillStyle = colors.states[state];
    c.globalAlpha = share === 255 ? 1 : .35 + .65 * share / 255;
    c.fillRect(x, y + 13 - h, Math.max(w, .8), h);
    c.globalAlpha = 1;
    if (state === 0 && w > 44) { c.fillStyle = "#fff"; c.font = "10px system-ui, sans-serif"; label(c, "CPU " + (code >>> 3), x, w, y + 8); }
    if (state === 3 && w > 6) {
      c.strokeStyle = colors.bg; c.lineWidth = 1; c.beginPath();
      for (let k = Math.max(x, GUTTER) + 3; k < Math.min(x + w, width); k += 6) { c.moveTo(k, y + 13); c.lineTo(k + 4, y + 7); }
      c.stroke();
    }
  });
  c.font = "10px system-ui, sans-serif";
  eachDrawn(task.calls, width, (x, w, code, share, span) => {
    c.fillStyle = colors.call; c.globalAlpha = span >= 0 ? .85 : .3 + .55 * share / 255;
    c.fillRect(x, y + 15, Math.max(w, .8), 8); c.globalAlpha = 1;
    if (span >= 0 && w > 36) { c.fillStyle = "#fff"; label(c, HEAD.calls[code] || "?", x, w, y + 19.5); }
  });
  c.font = "12px system-ui, sans-serif";
  const s = task.samples;
  if (s) {
    c.fillStyle = colors.soft;
    let last = -1;
    for (let i = lowerBound(s.at, STATE.from, s.n); i < s.n && s.at[i] <= STATE.to; i++) {
      const x = Math.round(xAt(s.at[i]));
      if (x !== last) c.fillRect(last = x, y + 23, 1, 2);
    }
  }
}
// Wake-ups of the chosen task: from who woke to who was woken.
function drawWakeups(c, top, width) {
  const row = rows.find(r => r.id === STATE.row);
  if (!row || row.kind !== "task" || !HEAD.wakeups.count) return;
  if (!WAKEUPS) return void wantWakeups();
  const places = new Map(rows.filter(r => r.kind === "task").map(r => [r.task.number, r.y - top + RULER]));
  const own = row.task.number, w = WAKEUPS;
  let drawn = 0;
  c.strokeStyle = c.fillStyle = colors.ink; c.lineWidth = 1;
  for (let i = lowerBound(w.at, STATE.from); i < w.count && w.at[i] <= STATE.to && drawn < 300; i++) {
    if (w.task[i] !== own && w.by[i] !== own) continue;
    const a = places.get(w.by[i]), b = places.get(w.task[i]), x = xAt(w.at[i]);
    if (b === undefined) continue;
    drawn++;
    const from = a === undefined ? b - 6 : a + 8, to = b + (a !== undefined && a > b ? 14 : 2), down = to >= from ? 1 : -1;
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
