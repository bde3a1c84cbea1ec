// The events of the selection as a table: only rows that are seen are made.
const ROW_H = 20, MOST_ROWS = 200000, MOST_HEIGHT = 8e6;
const found = { at: [], place: [], total: 0, scanned: 0, done: true };
const chunkCache = new Map();
let eventTurn = 0, chosenEvent = -1;
async function chunkHeads(number) {
  let c = chunkCache.get(number);
  if (c) { chunkCache.delete(number); chunkCache.set(number, c); return c; }
  const desc = HEAD.chunks[number], [steps, classes, tasks, cpus] = columnReaders(await blob(desc.heads), 4), n = desc.count;
  c = { time: new Float64Array(n), cls: new Uint16Array(n), task: new Int32Array(n), cpu: new Int16Array(n), texts: null };
  let now = desc.times[0];
  for (let i = 0; i < n; i++) { c.time[i] = now += steps.signed(); c.cls[i] = classes.next(); c.task[i] = tasks.next() - 1; c.cpu[i] = cpus.next() - 1; }
  chunkCache.set(number, c);
  if (chunkCache.size > 12) chunkCache.delete(chunkCache.keys().next().value);
  return c;
}
async function chunkTexts(number) {
  const c = await chunkHeads(number);
  return c.texts ||= new TextDecoder().decode(await blob(HEAD.chunks[number].texts)).split("\n");
}
// Fields of an event as a line of text.
function cellsText(text) {
  const [layout, ...cells] = text.split("\x1f"), fields = HEAD.classFields[layout] || [];
  return cells.map((cell, i) => cell === "\x1d" ? "" : `${fields[i]?.[0] ?? ""}=${cell.split("\x1e")[0]}`).filter(t => t).join(" ");
}
async function showEvents() {
  const turn = ++eventTurn, [a, b] = selected(), filter = makeFilter(STATE.filter), kind = HEAD.classes.indexOf(STATE.kind);
  const filters = filter !== null, chooses = filters || kind >= 0;
  let textless = 0;
  Object.assign(found, { at: [], place: [], time: [], total: 0, done: false });
  const e = {
    line() { return `${HEAD.classes[e.cls]} ${e.comm} ${e.task?.tid ?? ""} cpu=${e.cpu} ${cellsText(e.text)}`.toLowerCase(); },
  };
  for (let n = 0; n < HEAD.chunks.length; n++) {
    const desc = HEAD.chunks[n];
    if (desc.times[2] < a || desc.times[1] > b) continue;
    if (!chooses && STATE.scope === "all" && found.at.length >= MOST_ROWS && desc.times[1] >= a && desc.times[2] <= b) { found.total += desc.count; continue; }
    const c = await chunkHeads(n), texts = filters ? await chunkTexts(n) : null;
    if (turn !== eventTurn) return;
    for (let i = 0; i < desc.count; i++) {
      if (c.time[i] < a || c.time[i] > b || !inScope(c.task[i])) continue;
      if (kind >= 0 && c.cls[i] !== kind) continue;
      if (filters) {
        const text = texts[i], task = TASKS[c.task[i]];
        if (!text) textless++;
        e.text = text; e.cells = text.split("\x1f"); e.layout = e.cells.shift();
        e.cls = c.cls[i]; e.cpu = c.cpu[i]; e.task = task; e.comm = nameAt(task, c.time[i]);
        if (!filter(e)) continue;
      }
      found.total++;
      if (found.at.length < MOST_ROWS) { found.at.push(n); found.place.push(i); found.time.push(c.time[i]); }
    }
  }
  found.done = true;
  const rows = found.at.length;
  if (filterWrong) $("shown").textContent = "filter: " + filterWrong;
  else if (textless) $("shown").textContent = `${grouped(found.total)} events; fields of ${grouped(textless)} are not in this page`;
  else $("shown").textContent = found.total > rows ? `${grouped(rows)} of ${grouped(found.total)} events can be scrolled; choose a shorter time` : `${grouped(found.total)} events`;
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
const taskAt = (number, time) => { const t = TASKS[number]; return t ? `${nameAt(t, time) || "?"} ${t.tid === NO_TID ? -1 : t.tid}` : ""; };
let drawTurn = 0;
async function drawEvents() {
  const turn = ++drawTurn, box = $("event-scroll"), first = firstRow(), holder = $("event-rows");
  const last = Math.min(rowsTotal(), first + Math.ceil(box.clientHeight / ROW_H) + 1), made = [];
  for (let i = first; i < last; i++) {
    const n = found.at[i], k = found.place[i], c = await chunkHeads(n), text = (await chunkTexts(n))[k] || "";
    if (turn !== drawTurn) return;
    const cells = [[absolute(c.time[k]), "r mono"], [c.cpu[k] < 0 ? "" : c.cpu[k], "r"], [taskAt(c.task[k], c.time[k]), ""], [HEAD.classes[c.cls[k]], ""], [cellsText(text), "mono"]];
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
