// The events of the selection as a table: only rows that are seen are made.
const ROW_H = 20, MOST_ROWS = 200000, MOST_HEIGHT = 8e6;
const found = { at: [], place: [], total: 0, scanned: 0, done: true };
const chunkCache = new Map();
let eventTurn = 0, chosenEvent = -1;
async function chunkHeads(number) {
  let c = chunkCache.get(number);
  if (c) { chunkCache.delete(number); chunkCache.set(number, c); return c; }
  const desc = HEAD.chunks[number], r = new Reader(await blob(desc.heads)), n = desc.count;
  c = { time: new Float64Array(n), cls: new Uint16Array(n), task: new Int32Array(n), cpu: new Int16Array(n), texts: null };
  let now = desc.times[0];
  for (let i = 0; i < n; i++) { c.time[i] = now += r.signed(); c.cls[i] = r.next(); c.task[i] = r.next() - 1; c.cpu[i] = r.next() - 1; }
  chunkCache.set(number, c);
  if (chunkCache.size > 12) chunkCache.delete(chunkCache.keys().next().value);
  return c;
}
async function chunkTexts(number) {
  const c = await chunkHeads(number);
  return c.texts ||= new TextDecoder().decode(await blob(HEAD.chunks[number].texts)).split("\n");
}
// Words of the filter: all that are wanted, none with a minus before it.
function filterWords() {
  const words = STATE.filter.toLowerCase().split(/\s+/).filter(w => w);
  return { wanted: words.filter(w => !(w[0] === "-" && w.length > 1)), unwanted: words.filter(w => w[0] === "-" && w.length > 1).map(w => w.slice(1)) };
}
async function showEvents() {
  const turn = ++eventTurn, [a, b] = selected(), { wanted, unwanted } = filterWords();
  const filters = wanted.length + unwanted.length > 0;
  Object.assign(found, { at: [], place: [], time: [], total: 0, done: false });
  const classes = HEAD.classes.map(c => c.toLowerCase()), names = TASKS.map(t => taskName(t).toLowerCase());
  for (let n = 0; n < HEAD.chunks.length; n++) {
    const desc = HEAD.chunks[n];
    if (desc.times[2] < a || desc.times[1] > b) continue;
    if (!filters && STATE.scope === "all" && found.at.length >= MOST_ROWS && desc.times[1] >= a && desc.times[2] <= b) { found.total += desc.count; continue; }
    const c = await chunkHeads(n), texts = filters ? await chunkTexts(n) : null;
    if (turn !== eventTurn) return;
    for (let i = 0; i < desc.count; i++) {
      if (c.time[i] < a || c.time[i] > b || !inScope(c.task[i])) continue;
      if (filters) {
        const line = `${classes[c.cls[i]]} ${names[c.task[i]] || ""} cpu=${c.cpu[i]} ${texts[i].toLowerCase()}`;
        if (!wanted.every(w => line.includes(w)) || unwanted.some(w => line.includes(w))) continue;
      }
      found.total++;
      if (found.at.length < MOST_ROWS) { found.at.push(n); found.place.push(i); found.time.push(c.time[i]); }
    }
  }
  found.done = true;
  const rows = found.at.length;
  $("shown").textContent = found.total > rows ? `${grouped(rows)} of ${grouped(found.total)} events can be scrolled; choose a shorter time` : `${grouped(found.total)} events`;
  $("event-space").style.height = Math.min(MOST_HEIGHT, rows * ROW_H) + "px";
  if (STATE.at !== null) goToEvent(STATE.at); else drawEvents();
}
const rowsTotal = () => found.at.length;
// Of more rows than a browser can scroll each pixel stands for several.
function firstRow() {
  const box = $("event-scroll"), whole = rowsTotal() * ROW_H;
  if (whole <= MOST_HEIGHT) return Math.floor(box.scrollTop / ROW_H);
  return Math.floor(box.scrollTop / Math.max(1, MOST_HEIGHT - box.clientHeight) * Math.max(0, rowsTotal() - box.clientHeight / ROW_H));
}
let drawTurn = 0;
async function drawEvents() {
  const turn = ++drawTurn, box = $("event-scroll"), first = firstRow(), holder = $("event-rows");
  const last = Math.min(rowsTotal(), first + Math.ceil(box.clientHeight / ROW_H) + 1), made = [];
  for (let i = first; i < last; i++) {
    const n = found.at[i], k = found.place[i], c = await chunkHeads(n), text = (await chunkTexts(n))[k] || "";
    if (turn !== drawTurn) return;
    const cells = [[absolute(c.time[k]), "r mono"], [c.cpu[k] < 0 ? "" : c.cpu[k], "r"], [taskName(TASKS[c.task[k]]), ""], [HEAD.classes[c.cls[k]], ""], [text, "mono"]];
    made.push(element("div", { class: "event" + (i === chosenEvent ? " chosen" : ""), role: "row", onclick: () => chooseEvent(i) },
      ...cells.map(([t, cls]) => element("span", { class: cls, role: "cell", title: String(t) }, String(t)))));
  }
  holder.style.top = box.scrollTop + "px";
  holder.replaceChildren(...made);
}
async function chooseEvent(i) {
  if (i < 0 || i >= rowsTotal()) return;
  chosenEvent = i;
  const c = await chunkHeads(found.at[i]), k = found.place[i];
  STATE.at = c.time[k];
  if (TASKS[c.task[k]] && STATE.scope === "all") STATE.row = "task" + c.task[k];
  if (STATE.at < STATE.from || STATE.at > STATE.to) look(STATE.at - (STATE.to - STATE.from) / 2, STATE.at + (STATE.to - STATE.from) / 2);
  showRow(); save(); redraw(); scrollToEvent(i); drawEvents(); showCommand();
}
function scrollToEvent(i) {
  const box = $("event-scroll"), first = firstRow(), fits = Math.floor(box.clientHeight / ROW_H) - 1;
  if (i >= first && i < first + fits) return;
  const whole = rowsTotal() * ROW_H, top = Math.max(0, i - Math.floor(fits / 2));
  box.scrollTop = whole <= MOST_HEIGHT ? top * ROW_H : top / Math.max(1, rowsTotal() - fits) * (MOST_HEIGHT - box.clientHeight);
}
function goToEvent(time) {
  chosenEvent = Math.min(rowsTotal() - 1, lowerBound(found.time, time));
  if (chosenEvent >= 0) scrollToEvent(chosenEvent);
  drawEvents();
}
