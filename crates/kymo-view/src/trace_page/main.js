// What the user does: mouse, keys, search, and the state in the address.
let saving = 0;
function save() {
  clearTimeout(saving);
  saving = setTimeout(() => { history.replaceState(null, "", "#" + fragment()); }, 60);
}
function fragment() {
  const p = new URLSearchParams();
  p.set("v", Math.round(STATE.from) + "-" + Math.round(STATE.to));
  if (STATE.range) p.set("s", STATE.range.map(Math.round).join("-"));
  if (STATE.at !== null) p.set("at", Math.round(STATE.at));
  for (const key of ["row", "tab", "scope", "query", "filter", "kind", "frame", "sort", "theme"]) if (STATE[key]) p.set(key, STATE[key]);
  if (STATE.inverse) p.set("inverse", "1");
  if (STATE.sampled >= 0) p.set("sampled", STATE.sampled);
  if (STATE.closed.size) p.set("closed", [...STATE.closed].join(","));
  return p.toString();
}
function restore() {
  const p = new URLSearchParams((location.hash || HEAD.fragment).slice(1));
  const pair = key => { const m = /^(\d{1,18})-(\d{1,18})$/.exec(p.get(key) || ""); return m ? [Math.min(+m[1], LENGTH), Math.min(+m[2], LENGTH)] : null; };
  const v = pair("v");
  [STATE.from, STATE.to] = v && v[1] > v[0] ? v : [0, LENGTH];
  STATE.range = pair("s");
  if (STATE.range && STATE.range[1] <= STATE.range[0]) STATE.range = null;
  STATE.at = /^\d{1,18}$/.test(p.get("at") || "") ? Math.min(+p.get("at"), LENGTH) : null;
  for (const key of ["query", "filter", "frame", "row"]) STATE[key] = p.get(key) || "";
  STATE.kind = HEAD.classes.includes(p.get("kind")) ? p.get("kind") : "";
  STATE.tab = TABS.includes(p.get("tab")) ? p.get("tab") : STATE.tab;
  STATE.scope = ["process", "task"].includes(p.get("scope")) ? p.get("scope") : "all";
  STATE.sort = ["name", "run", "ready", "blocked", "unsure"].includes(p.get("sort")) ? p.get("sort") : "busy";
  STATE.theme = ["dark", "light"].includes(p.get("theme")) ? p.get("theme") : "";
  STATE.inverse = p.get("inverse") === "1";
  const sampled = Number(p.get("sampled") ?? -1);
  STATE.sampled = HEAD.samples.events[sampled] ? sampled : -1;
  STATE.closed = new Set((p.get("closed") || "").split(",").filter(c => c));
  $("find").value = STATE.query; $("filter").value = STATE.filter; $("kind").value = STATE.kind;
}
function paint() {
  document.documentElement.classList.remove("dark", "light");
  if (STATE.theme) document.documentElement.classList.add(STATE.theme);
  readColors(); words.clear(); taskWords.clear(); shadeTables.clear(); redraw(); drawFlames();
}
function select(range) {
  STATE.range = range && range[1] > range[0] ? [Math.max(0, Math.round(range[0])), Math.min(LENGTH, Math.round(range[1]))] : null;
  save(); redraw(); showPanel();
}
function showRow() {
  const row = rows.find(r => r.id === STATE.row), box = $("scroll");
  if (!row) return;
  if (row.y < box.scrollTop) box.scrollTop = row.y;
  else if (row.y + row.height + RULER > box.scrollTop + box.clientHeight) box.scrollTop = row.y + row.height + RULER - box.clientHeight;
}
function spanAt(row, time, lower) {
  const track = row.kind === "cpu" ? row.cpu.runs : row.kind === "work" ? row.work.spans : row.kind === "task" ? (lower ? row.task.calls : row.task.states) : null;
  if (!track?.covers(time, time)) { track?.want(time, time); return null; }
  const i = Track.find(track.leaf, time), l = track.leaf;
  return i < l.count && l.from[i] <= time ? { from: l.from[i], to: l.to[i], code: l.code[i], i, lower } : null;
}
function spanText(row, span) {
  const what = row.kind === "work" ? row.work.names[span.code] : row.kind === "cpu" ? taskName(TASKS[span.code]) : span.lower ? HEAD.calls[span.code] + "()" :
    stateText(span.code) + (isOpen(span.code) ? ", without an end in the recording" : "") + (isUncertain(span.code) ? ", uncertain: events are missing" : "");
  return `${row.title}\n${what}\n${duration(span.to - span.from)} from ${absolute(span.from)}`;
}
function showTip(event, text) {
  const tip = $("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
}
function hover(event) {
  const box = $("tracks").getBoundingClientRect(), y = event.clientY - box.top, row = rowAt(y), time = timeAt(event.clientX - box.left);
  if (!row || event.clientX - box.left < GUTTER || row.kind === "group") return showTip(event, row && event.clientX - box.left < GUTTER ? row.title : "");
  if (row.kind === "counter") {
    const i = row.counter.ready() ? lowerBound(row.counter.at, time) - 1 : -1;
    if (row.counter.end !== null && time > row.counter.end) return showTip(event, "");
    return showTip(event, i < 0 ? "" : `${row.counter.textAt(i)}\nsince ${absolute(row.counter.at[i])}`);
  }
  const inner = y - RULER + $("scroll").scrollTop - row.y;
  const span = spanAt(row, time, row.kind === "task" && inner > 14);
  showTip(event, span ? spanText(row, span) : "");
}
let drag = null;
function bindTracks() {
  const canvas = $("tracks"), x = e => e.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", e => {
    if (e.button) return;
    canvas.focus({ preventScroll: true });
    if (x(e) < GUTTER) return void chooseRow(rowAt(e.clientY - canvas.getBoundingClientRect().top), true);
    canvas.setPointerCapture(e.pointerId);
    drag = { x: x(e), time: timeAt(x(e)), from: STATE.from, to: STATE.to, moved: false, pans: e.shiftKey };
  });
  canvas.addEventListener("pointermove", e => {
    if (!drag) return hover(e);
    drag.moved ||= Math.abs(x(e) - drag.x) > 3;
    if (!drag.moved) return;
    if (drag.pans) { const d = (x(e) - drag.x) * perPixel(); look(drag.from - d, drag.to - d); return; }
    const t = Math.min(LENGTH, Math.max(0, timeAt(Math.max(GUTTER, x(e)))));
    STATE.range = [Math.min(t, drag.time), Math.max(t, drag.time)];
    showCommand(); redraw();
  });
  canvas.addEventListener("pointerup", e => {
    const d = drag;
    drag = null;
    if (!d) return;
    if (d.moved) { if (!d.pans) select(STATE.range); return; }
    STATE.at = d.time;
    chooseRow(rowAt(e.clientY - canvas.getBoundingClientRect().top), false);
    if (STATE.tab === "events") goToEvent(d.time);
  });
  canvas.addEventListener("pointerleave", e => showTip(e, ""));
  canvas.addEventListener("dblclick", e => {
    const y = e.clientY - canvas.getBoundingClientRect().top, row = rowAt(y), span = row && spanAt(row, timeAt(x(e)), false);
    if (span) select([span.from, span.to]);
  });
  canvas.addEventListener("wheel", e => {
    if (!e.ctrlKey && !e.altKey && !e.shiftKey && !e.deltaX) return;
    e.preventDefault();
    if (e.ctrlKey || e.altKey) zoom(e.deltaY > 0 ? 1.25 : .8, timeAt(x(e)));
    else { const d = (e.deltaX || e.deltaY) * perPixel(); look(STATE.from + d, STATE.to + d); }
  }, { passive: false });
  $("scroll").addEventListener("scroll", redraw);
}
function chooseRow(row, folds) {
  if (!row) return;
  if (row.kind === "group") {
    if (!folds) return;
    if (!STATE.closed.delete(row.id)) STATE.closed.add(row.id);
    resized();
  }
  STATE.row = row.id;
  save(); redraw(); showCommand();
  if (STATE.scope !== "all") showPanel();
  $("tracks").setAttribute("aria-description", row.title);
}
function bindOverview() {
  const canvas = $("overview"), time = e => {
    const box = canvas.getBoundingClientRect();
    return Math.min(LENGTH, Math.max(0, (e.clientX - box.left - GUTTER) / (box.width - GUTTER) * LENGTH));
  };
  let begin = null;
  canvas.addEventListener("pointerdown", e => { canvas.setPointerCapture(e.pointerId); begin = time(e); });
  canvas.addEventListener("pointermove", e => { if (begin !== null && Math.abs(time(e) - begin) > LENGTH / 500) look(Math.min(begin, time(e)), Math.max(begin, time(e))); });
  canvas.addEventListener("pointerup", e => {
    if (begin !== null && Math.abs(time(e) - begin) <= LENGTH / 500) { const half = (STATE.to - STATE.from) / 2; look(begin - half, begin + half); }
    begin = null;
  });
}
// Search: tasks first, then functions in the flame graph.
let matches = [], match = -1;
function find(text) {
  STATE.query = text.trim().toLowerCase();
  matches = STATE.query ? rows.filter(r => r.kind !== "group" && r.title.toLowerCase().includes(STATE.query)) : [];
  const functions = STATE.query ? HEAD.samples.functions.filter(f => f[0].toLowerCase().includes(STATE.query)).length : 0;
  const classes = STATE.query ? HEAD.classes.filter(c => c.toLowerCase().includes(STATE.query)).length : 0;
  match = -1;
  $("found").textContent = STATE.query ? `${matches.length} tracks, ${functions} functions, ${classes} kinds of events` : "";
  save(); redraw(); drawFlames();
  if (matches.length) step(1);
}
function step(by) {
  if (STATE.tab === "events" && rowsTotal() && document.activeElement !== $("find")) return void chooseEvent(Math.max(0, Math.min(rowsTotal() - 1, chosenEvent + by)));
  if (!matches.length) return;
  match = (match + by + matches.length) % matches.length;
  STATE.row = matches[match].id;
  showRow(); save(); redraw(); showCommand();
}
async function stepSpan(by) {
  const row = rows.find(r => r.id === STATE.row), counter = row?.counter;
  if (counter?.count) {
    await counter.want();
    const i = STATE.at === null ? lowerBound(counter.at, STATE.from) : lowerBound(counter.at, STATE.at + (by > 0 ? .5 : 0)) - (by < 0 ? 1 : 0);
    const k = Math.max(0, Math.min(counter.count - 1, i));
    return goTo(counter.at[k], counter.textAt(k));
  }
  const track = row && (row.kind === "cpu" ? row.cpu.runs : row.kind === "work" ? row.work.spans : row.kind === "task" ? row.task.states : null);
  if (!track || !track.desc.count) return;
  const now = STATE.at ?? STATE.from, [at] = track.chunksIn(now, now), l = await track.unpackChunks(Math.max(0, at - 1), at + 2);
  let i = Track.find(l, now) + (by > 0 ? (STATE.at === null ? 0 : 1) : -1);
  i = Math.max(0, Math.min(l.count - 1, i));
  goTo(l.from[i], spanText(row, { from: l.from[i], to: l.to[i], code: l.code[i] }).split("\n").slice(1).join(", "));
}
function goTo(time, text) {
  STATE.at = time;
  if (STATE.at < STATE.from || STATE.at > STATE.to) { const half = (STATE.to - STATE.from) / 2; look(STATE.at - half, STATE.at + half); }
  $("found").textContent = text;
  save(); redraw();
}
function spanNow() { const row = rows.find(r => r.id === STATE.row); return row && STATE.at !== null ? spanAt(row, STATE.at, false) : null; }
function key(event) {
  const typing = event.target.matches("input[type=search], select"), length = STATE.to - STATE.from;
  if (event.key === "Escape") {
    if (typing) event.target.blur(); else if (STATE.frame && STATE.tab === "flame") clearFrame(); else { STATE.at = null; select(null); }
    return;
  }
  if (typing) { if (event.key === "Enter" && event.target.id === "find") step(event.shiftKey ? -1 : 1); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("#on, #off") && flameKey(event.target.id, event.key)) return void event.preventDefault();
  if (event.key === "Enter" && event.target.matches("tr, th")) return void event.target.click();
  const at = rows.findIndex(r => r.id === STATE.row), move = by => { const row = rows[Math.max(0, Math.min(rows.length - 1, at + by))]; if (row) { chooseRow(row, false); STATE.row = row.id; showRow(); redraw(); save(); } };
  const onTab = event.target.matches("[role=tab]");
  const does = {
    w: () => zoom(.6, STATE.at ?? undefined), s: () => zoom(1 / .6), a: () => look(STATE.from - length / 4, STATE.to - length / 4), d: () => look(STATE.from + length / 4, STATE.to + length / 4),
    ArrowUp: () => move(-1), ArrowDown: () => move(1),
    ArrowLeft: () => onTab ? nextTab(-1) : stepSpan(-1), ArrowRight: () => onTab ? nextTab(1) : stepSpan(1),
    "/": () => $("find").focus(), n: () => step(1), p: () => step(-1), "?": showHelp, "0": () => look(0, LENGTH),
    f: () => { const r = STATE.range || (spanNow() && [spanNow().from, spanNow().to]); if (r) { const room = (r[1] - r[0]) * .1; look(r[0] - room, r[1] + room); } },
    c: () => showPath(),
    m: () => { const s = spanNow(); if (s) select([s.from, s.to]); },
    Enter: () => { const row = rows[at]; if (row?.kind === "group") chooseRow(row, true); },
  }[event.key] || (TABS[event.key - 1] ? () => { STATE.tab = TABS[event.key - 1]; save(); showPanel(); } : null);
  if (!does || (event.target.matches("button") && event.key === "Enter")) return;
  event.preventDefault();
  does();
}
function nextTab(by) {
  STATE.tab = TABS[(TABS.indexOf(STATE.tab) + by + TABS.length) % TABS.length];
  save(); showPanel(); $("tab-" + STATE.tab).focus();
}
function clearFrame() { for (const g of Object.values(graphs)) if (g) g.zoom = null; STATE.frame = ""; $("frame").textContent = ""; save(); drawFlames(); }
function bindPanels() {
  for (const tab of TABS) $("tab-" + tab).addEventListener("click", () => { STATE.tab = tab; save(); showPanel(); });
  $("clear").addEventListener("click", () => { STATE.at = null; select(null); });
  $("scope").addEventListener("change", e => { STATE.scope = e.target.value; save(); showPanel(); });
  $("sampled").addEventListener("change", e => { STATE.sampled = Number(e.target.value); save(); showPanel(); });
  $("inverse").addEventListener("change", e => { STATE.inverse = e.target.checked; STATE.frame = ""; save(); showPanel(); });
  $("unzoom").addEventListener("click", clearFrame);
  $("filter").addEventListener("input", e => { STATE.filter = e.target.value; chosenEvent = -1; save(); showPanel(); });
  $("kind").addEventListener("change", e => { STATE.kind = e.target.value; chosenEvent = -1; save(); showPanel(); });
  $("find").addEventListener("input", e => find(e.target.value));
  $("event-scroll").addEventListener("scroll", drawEvents);
  $("trust").addEventListener("click", () => { STATE.tab = "ledger"; save(); showPanel(); });
  $("path").addEventListener("click", showPath);
  $("theme").addEventListener("click", () => { STATE.theme = isDark() ? "light" : "dark"; save(); paint(); });
  $("keys").addEventListener("click", showHelp);
  $("copy").addEventListener("click", () => {
    const range = document.createRange();
    range.selectNodeContents($("command"));
    getSelection().removeAllRanges(); getSelection().addRange(range);
    navigator.clipboard?.writeText(commandText()).catch(() => {});
  });
  for (const which of ["on", "off"]) {
    $(which).addEventListener("click", e => { const b = boxAt(which, e); if (b) chooseFrame(which, b.node); });
    $(which).addEventListener("pointermove", e => { const b = boxAt(which, e); showTip(e, b ? frameText(which, b.node) : ""); });
    $(which).addEventListener("pointerleave", e => showTip(e, ""));
  }
  $("grip").addEventListener("pointerdown", e => {
    $("grip").setPointerCapture(e.pointerId);
    const moves = m => { $("panel").style.height = Math.max(90, Math.min(innerHeight - 220, innerHeight - m.clientY)) + "px"; resized(); };
    $("grip").addEventListener("pointermove", moves);
    $("grip").addEventListener("pointerup", () => $("grip").removeEventListener("pointermove", moves), { once: true });
  });
}
function resized() { makeRows(); redraw(); drawFlames(); if (STATE.tab === "events") drawEvents(); }
function start() {
  $("title").textContent = $("title").title = HEAD.title;
  document.title = HEAD.title + " \u2013 kymo view";
  const warnings = HEAD.notes.filter(n => n.doubt).length;
  $("trust").textContent = warnings ? `Ledger: ${warnings} warning${warnings > 1 ? "s" : ""}` : "Ledger";
  $("trust").classList.toggle("doubt", warnings > 0);
  for (const [name, cls] of [["Time, s", "r"], ["CPU", "r"], ["Task", ""], ["Event", ""], ["Fields", ""]]) $("event-head").append(element("span", { class: cls }, name));
  HEAD.classes.forEach((name, i) => $("kind").append(element("option", { value: name }, `${name} (${grouped(HEAD.classCounts[i])})`)));
  restore();
  if (!TASKS.some(t => t.states.desc.count) && !location.hash.includes("tab=")) STATE.tab = HEAD.samples.count ? "flame" : "events";
  readColors(); makeRows(); bindTracks(); bindOverview(); bindPanels();
  addEventListener("keydown", key);
  addEventListener("resize", resized);
  addEventListener("hashchange", () => { restore(); makeRows(); paint(); showPanel(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
  if (STATE.query) find(STATE.query); else if (PATH) tellPath();
  if (HEAD.samples.count) wantSamples();
  showPanel();
}
start();
