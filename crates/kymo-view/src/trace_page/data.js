"use strict";
// Data of the page: the description in JSON, columns in compressed pieces, times.
const $ = id => document.getElementById(id);
const HEAD = JSON.parse($("head").textContent);
const BASE = BigInt(HEAD.base), LENGTH = Math.max(HEAD.length, 1);
const STATES = ["running", "waiting for a CPU", "sleeping", "blocked (D)", "waiting otherwise"];
// State, flags (goes on at the end; uncertain), and the CPU or the cause of the wait.
const stateOf = code => Math.min(code & 7, 4), isOpen = code => (code & 8) !== 0, isUncertain = code => (code & 16) !== 0;
const detailOf = code => code >>> 5;
const stateText = code => stateOf(code) === 0 ? `running on CPU ${detailOf(code)}` :
  (HEAD.causes[detailOf(code)] || STATES[stateOf(code)]) + ([, , " (S)", " (D)", ""][stateOf(code)] || "");

// Pieces are unpacked when they are looked at, and the least lately used are forgotten.
const pieces = new Map(), MOST_BYTES = 19e7;
let heldBytes = 0;
async function unpack(number) {
  const own = $("p" + number);
  if (!own) return ask(number);
  const text = own.textContent, bytes = new Uint8Array(text.length);
  let at = 0;
  // "=" and 64 more stand for a byte that is no character of its number.
  for (let i = 0; i < text.length;) {
    for (const end = i + 4e5; i < end && i < text.length; i++) {
      const c = text.charCodeAt(i);
      bytes[at++] = c === 61 ? text.charCodeAt(++i) - 64 : c;
    }
    // A frame may be drawn between.
    await new Promise(done => setTimeout(done));
  }
  return inflate(new Response(bytes.subarray(0, at)));
}
async function inflate(response) {
  const stream = response.body.pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
// A served page asks for its pieces; what it has seen stays when the server is gone.
async function ask(number) {
  let answer = null;
  try { answer = await fetch("p/" + number, { cache: "no-store" }); } catch { /* Said below. */ }
  if (answer?.ok) return inflate(answer);
  forget(number);
  const gone = answer?.status === 410;
  $("gone").textContent = gone ? "The recording has been moved or changed since this page was made." : "kymo view has ended: what was not looked at before is not here.";
  $("gone").hidden = false;
  throw new Error($("gone").textContent);
}
addEventListener("unhandledrejection", event => { if (!$("gone").hidden) event.preventDefault(); });
function forget(number) {
  heldBytes -= pieces.get(number)?.size || 0;
  pieces.delete(number);
}
function piece(number) {
  let known = pieces.get(number);
  if (known) pieces.delete(number);
  else {
    known = { size: 0, bytes: unpack(number) };
    known.bytes.then(bytes => {
      if (pieces.get(number) !== known) return;
      heldBytes += known.size = bytes.length;
      for (const old of pieces.keys()) if (heldBytes > MOST_BYTES && old !== number) forget(old);
    }, () => { /* Who asked for it is told. */ });
  }
  pieces.set(number, known);
  return known.bytes;
}
async function blob(parts) {
  if (!parts || !parts.length) return new Uint8Array(0);
  if (parts.length === 3) return (await piece(parts[0])).subarray(parts[1], parts[1] + parts[2]);
  let size = 0;
  for (let i = 2; i < parts.length; i += 3) size += parts[i];
  const out = new Uint8Array(size);
  for (let i = 0, at = 0; i < parts.length; i += 3) {
    out.set((await piece(parts[i])).subarray(parts[i + 1], parts[i + 1] + parts[i + 2]), at);
    at += parts[i + 2];
  }
  return out;
}

// Numbers of seven bits a byte.
class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  get done() { return this.at >= this.bytes.length; }
  next() {
    const bytes = this.bytes;
    let byte = bytes[this.at++], number = byte & 127, factor = 128;
    while (byte & 128) { byte = bytes[this.at++]; number += (byte & 127) * factor; factor *= 128; }
    return number;
  }
  signed() { const n = this.next(); return n % 2 ? -(n + 1) / 2 : n / 2; }
}
// Readers of the columns of one blob: the lengths of all but the last come first.
function columnReaders(bytes, count) {
  const r = new Reader(bytes), sizes = [];
  for (let i = 1; i < count && !r.done; i++) sizes.push(r.next());
  let at = r.at;
  return [...sizes, bytes.length].map(size => new Reader(bytes.subarray(at, at += size)));
}
// Calls `see` for each span of a track that touches a time, without keeping any; with `before` also
// for some that end before it, at least for the last two.
async function eachSpan(track, a, b, see, before = false) {
  let [first, last] = track.chunksIn(a, b);
  if (before && first > 0) first--;
  for (const chunk of track.chunks.slice(first, last)) {
    const [gaps, lengths, codes] = columnReaders(await blob(chunk.at), 3);
    let end = chunk.from;
    while (!gaps.done) {
      const from = end + gaps.next();
      end = from + lengths.next();
      const code = codes.next();
      if (from >= b) return;
      if (end > a || before) see(from, end, code);
    }
  }
}
function decodeLevel(bytes, count, shift) {
  const width = 2 ** shift, from = new Float64Array(count), code = new Uint32Array(count), share = new Uint8Array(count);
  const [steps, codes, shares] = columnReaders(bytes, 3);
  let index = 0;
  for (let i = 0; i < count; i++) {
    index += steps.next();
    from[i] = index * width; code[i] = codes.next(); share[i] = shares.next();
  }
  return { from, code, share, count, width };
}

// Spans with their pyramid; what is not there yet is asked for, and drawn when it came. Of the spans
// themselves those in view are unpacked, in chunks; what was not drawn last is forgotten first.
const decoded = new Set(), MOST_SPANS = 6e6;
let decodedSpans = 0, frames = 0;
class Track {
  constructor(desc) {
    this.desc = desc;
    this.levels = desc.levels.map(([shift, count, at]) => ({ shift, count, at, data: null, asked: false }));
    this.chunks = []; this.leaf = this.asked = null; this.drawn = 0;
    let from = 0;
    for (const [count, to, ...at] of desc.leaf) { this.chunks.push({ from, to, count, at }); from = to; }
  }
  // The first of the chunks that touch a time, and the one behind the last.
  chunksIn(a, b) {
    const c = this.chunks;
    let lo = 0, hi = c.length;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (c[mid].to <= a) lo = mid + 1; else hi = mid; }
    let end = lo;
    while (end < c.length && (end === lo || c[end].from < b)) end++;
    return [lo, end];
  }
  // Whether chunks that are unpacked, or asked for, are all that touch a time.
  covers(a, b, held = this.leaf) {
    if (!held) return false;
    const [first, end] = this.chunksIn(a, b);
    return held.first <= first && end <= held.end;
  }
  level(perPixel) {
    let best = null;
    const a = STATE.from, b = STATE.to, covers = this.covers(a, b);
    this.drawn = frames;
    for (const l of this.levels) if (2 ** l.shift <= perPixel) best = l;
    // With what is beside it, for the next move.
    if (!best) { if (covers) return { leaf: this.leaf }; this.want(a - (b - a) / 2, b + (b - a) / 2); }
    else if (!best.data) this.wantLevel(best);
    else return { bins: best.data };
    if (covers) return { leaf: this.leaf };
    // Meanwhile something coarser.
    for (const l of this.levels) if (l.data) return { bins: l.data };
    if (this.levels.length && !best) this.wantLevel(this.levels[0]);
    return null;
  }
  // Has what touches a time unpacked.
  async want(a = 0, b = LENGTH) {
    if (this.covers(a, b)) return;
    if (this.covers(a, b, this.asked)) return this.asked.done;
    const [first, end] = this.chunksIn(a, b), asked = this.asked = { first, end };
    return asked.done = this.unpackChunks(first, end).then(leaf => {
      // Meanwhile another part was asked for.
      if (this.asked !== asked) return this.asked?.done;
      this.forget(); this.leaf = leaf; this.asked = null;
      decoded.add(this);
      decodedSpans += leaf.count;
      for (const other of decoded) {
        if (decodedSpans <= MOST_SPANS) break;
        if (other !== this && other.drawn < frames) other.forget();
      }
      redraw();
    });
  }
  forget() {
    decodedSpans -= this.leaf?.count || 0;
    decoded.delete(this); this.leaf = null;
  }
  async unpackChunks(first, end) {
    const chunks = this.chunks.slice(first, end), count = chunks.reduce((n, c) => n + c.count, 0);
    const from = new Float64Array(count), to = new Float64Array(count), code = new Uint32Array(count);
    let i = 0;
    for (const chunk of chunks) {
      const [gaps, lengths, codes] = columnReaders(await blob(chunk.at), 3);
      let before = chunk.from;
      for (const last = i + chunk.count; i < last; i++) {
        from[i] = before + gaps.next(); to[i] = before = from[i] + lengths.next(); code[i] = codes.next();
      }
    }
    return { from, to, code, count, first, end };
  }
  wantLevel(l) {
    if (l.asked) return;
    l.asked = true;
    blob(l.at).then(bytes => { l.data = decodeLevel(bytes, l.count, l.shift); redraw(); });
  }
  // First span that ends after a time.
  static find(leaf, time) {
    let lo = 0, hi = leaf.count;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (leaf.to[mid] <= time) lo = mid + 1; else hi = mid; }
    return lo;
  }
}
const TASKS = HEAD.tasks.map((t, number) => ({ ...t, number, states: new Track(t.states), calls: new Track(t.calls), spans: t.spans.map(s => new Track(s)), samples: null }));
const WORK = HEAD.work.map(w => ({ ...w, names: HEAD.workNames, spans: new Track(w.spans) }));
// Numbers over time; the least and the greatest of each 64 spare looking at all.
class Counter {
  constructor(desc, number) { Object.assign(this, desc, { number, at: null, waiting: null }); }
  ready() { this.want(); return this.at !== null; }
  want() {
    return this.waiting ||= blob(this.leaf).then(bytes => {
      const [steps, numbers] = columnReaders(bytes, 2), n = this.count, at = new Float64Array(n), value = new Float64Array(n), bits = new DataView(new ArrayBuffer(4));
      let now = 0, sum = 0;
      for (let i = 0; i < n; i++) {
        at[i] = now += steps.next();
        if (this.float) { bits.setUint32(0, numbers.next()); value[i] = bits.getFloat32(0); } else value[i] = sum += numbers.signed();
      }
      this.value = value; this.least = []; this.greatest = [];
      for (let i = 0; i < n; i += 64) { const part = value.subarray(i, i + 64); this.least.push(Math.min(...part)); this.greatest.push(Math.max(...part)); }
      const finite = list => list.filter(Number.isFinite);
      this.low = Math.min(0, ...finite(this.least)); this.high = Math.max(0, ...finite(this.greatest));
      this.at = at;
      redraw();
    });
  }
  range(from, to) {
    let low, high;
    for (let i = from; i < to;) {
      const block = i % 64 === 0 && i + 64 <= to, a = block ? this.least[i / 64] : this.value[i], b = block ? this.greatest[i / 64] : this.value[i];
      if (Number.isFinite(a) && !(a >= low)) low = a;
      if (Number.isFinite(b) && !(b <= high)) high = b;
      i += block ? 64 : 1;
    }
    return [low, high];
  }
  text(v) { return this.float ? String(Number(v.toPrecision(6))) : (v < 0 ? "-" : "") + grouped(Math.abs(v)); }
  textAt(i) { return `${this.name} = ${this.text(this.value[i])}`; }
}
const COUNTERS = HEAD.counters.map((c, number) => new Counter(c, number)), PARENTS = new Map(HEAD.parents);
const CPUS = HEAD.cpus.map((c, number) => ({ number, known: new Track(c.known), runs: new Track(c.runs) }));
// The name that a task had at a time.
const nameAt = (t, time) => t ? (t.names.find(n => time < n[0]) || [0, t.comm])[1] : "";
// Of what happens while a task ends, perf states -1.
const NO_TID = 4294967295;
const taskName = t => t ? `${t.comm || "?"} ${t.tid}` : "";

// Functions of frames; the lowest bit says that one was inlined.
const functionOf = fn => HEAD.samples.functions[fn >> 1], functionName = fn => functionOf(fn)[0] + (fn & 1 ? " (inlined)" : "");
// Samples, once for all; the tasks' own are found by their numbers.
let samplesAsked = null, SAMPLES = null;
function wantSamples() {
  return samplesAsked ||= (async () => {
    const s = HEAD.samples, stacks = [], nodes = [];
    const [sb, nb, mb] = [await blob(s.stacks), await blob(s.nodes), await blob(s.leaf)];
    for (let r = new Reader(sb), i = 0; i < s.stackCount; i++)
      stacks.push({ task: r.next() - 1, event: r.next(), node: r.next() - 1 });
    for (let r = new Reader(nb), i = 0; i < s.nodeCount; i++)
      nodes.push({ parent: r.next() - 1, fn: r.next() });
    const time = new Float64Array(s.count), stack = new Uint32Array(s.count), weight = new Float64Array(s.count);
    let now = 0;
    const [steps, numbers, weights] = columnReaders(mb, 3);
    for (let i = 0; i < s.count; i++) {
      time[i] = now += steps.next(); stack[i] = numbers.next(); weight[i] = weights.next();
    }
    SAMPLES = { time, stack, weight, stacks, nodes, count: s.count };
    // Where tasks left their CPUs is no sample of code.
    for (const st of stacks) {
      const leaf = st.node >= 0 ? functionOf(nodes[st.node].fn)[0] : "";
      // An event that counts one by one is the innermost frame itself.
      st.isEvent = s.events[st.event][0] === "events";
      st.isSwitch = /(^|:)sched_switch$/.test(st.isEvent ? leaf : s.events[st.event][0]);
    }
    const counts = TASKS.map(() => [0, 0]), kind = st => st.isSwitch ? "switches" : "samples";
    for (let i = 0; i < s.count; i++) {
      const st = stacks[stack[i]], n = counts[st.task];
      if (n) n[+st.isSwitch]++;
    }
    counts.forEach(([code, left], task) => {
      TASKS[task].samples = code ? { at: new Float64Array(code), n: 0 } : null;
      TASKS[task].switches = left ? { at: new Float64Array(left), stack: new Uint32Array(left), n: 0 } : null;
    });
    for (let i = 0; i < s.count; i++) {
      const st = stacks[stack[i]], own = TASKS[st.task]?.[kind(st)];
      if (own) { if (own.stack) own.stack[own.n] = stack[i]; own.at[own.n++] = time[i]; }
    }
    redraw();
  })();
}
const lowerBound = (list, value, n = list.length, lo = 0) => {
  let hi = n;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (list[mid] < value) lo = mid + 1; else hi = mid; }
  return lo;
};

// Wake-ups.
let wakeupsAsked = null, WAKEUPS = null;
function wantWakeups() {
  return wakeupsAsked ||= blob(HEAD.wakeups.leaf).then(bytes => {
    const n = HEAD.wakeups.count, at = new Float64Array(n), by = new Int32Array(n), task = new Uint32Array(n);
    const [steps, wakers, woken] = columnReaders(bytes, 3);
    let now = 0;
    for (let i = 0; i < n; i++) { at[i] = now += steps.signed(); by[i] = wakers.next() - 1; task[i] = woken.next(); }
    WAKEUPS = { at, by, task, count: n };
    redraw();
  });
}

// Times: exact beyond 2^53 by the base.
function absolute(time) {
  const text = (BASE + BigInt(Math.round(time))).toString().padStart(10, "0");
  return text.slice(0, -9) + "." + text.slice(-9);
}
function duration(ns) {
  const abs = Math.abs(ns);
  if (abs < 1e3) return ns.toFixed(0) + " ns";
  if (abs < 1e6) return (ns / 1e3).toFixed(3) + " \u00b5s";
  if (abs < 1e9) return (ns / 1e6).toFixed(3) + " ms";
  return (ns / 1e9).toFixed(3) + " s";
}
const millis = ns => (ns / 1e6).toFixed(3);
const grouped = n => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");
const percent = (part, whole) => (whole ? part / whole * 100 : 0).toFixed(1) + "%";

// Elements: texts are always texts.
function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "class") e.className = value;
    else if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (value !== null) e.setAttribute(key, value);
  }
  e.append(...children);
  return e;
}
