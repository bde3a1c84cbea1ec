// The lower part: tables of the selection, the ledger, the command that gives the same numbers.
const TABS = ["tasks", "flame", "functions", "events", "ledger"];
let taskTurn = 0;
const taskColumns = [
  ["Running", "run"], ["Waiting for a CPU", "ready"], ["Blocked", "blocked"], ["Uncertain", "unsure"],
];
async function taskTimes(a, b) {
  const out = [];
  for (const task of TASKS) {
    if (!task.tid || task.tid === NO_TID || !task.states.desc.count) continue;
    const row = { task, run: 0, ready: 0, blocked: 0, unsure: 0 };
    await eachSpan(task.states, a, b, (from, to, code) => {
      const part = Math.min(to, b) - Math.max(from, a), state = code & 7;
      // What has no end in the recording is not counted, as in the command's table.
      if (isOpen(code)) return;
      if (isUncertain(code)) row.unsure += part;
      else if (state === 0) row.run += part;
      else if (state === 1) row.ready += part; else row.blocked += part;
    });
    if (row.run || row.ready || row.blocked || row.unsure) out.push(row);
  }
  return out;
}
async function showTasks() {
  const turn = ++taskTurn, pane = $("pane-tasks"), [a, b] = selected();
  const list = await taskTimes(a, b);
  if (turn !== taskTurn) return;
  if (!list.length) {
    pane.replaceChildren(element("p", { class: "empty" }, "No states of tasks in the selection. They come from sched_switch and sched_waking: kymo record -a -e sched:sched_switch -e sched:sched_waking"));
    return;
  }
  const key = STATE.sort === "busy" ? "run" : STATE.sort;
  list.sort((x, y) => key === "name" ? taskName(x.task).localeCompare(taskName(y.task)) : y[key] - x[key]);
  const body = element("tbody");
  for (const row of list.slice(0, 400)) {
    const id = "task" + row.task.number, name = taskName(row.task);
    const tr = element("tr", { tabindex: 0, "data-tid": row.task.tid, class: id === STATE.row ? "chosen" : "", onclick: () => { STATE.row = id; showRow(); save(); redraw(); showPanel(); } },
      element("td", { class: "name" }, name + (row.task.pid !== null && row.task.pid !== row.task.tid ? ` (process ${row.task.pid})` : "")));
    const bar = element("span", { class: "share" });
    bar.style.width = Math.round(row.run / (b - a) * 100) + "px";
    tr.append(element("td", {}, bar), element("td", {}, percent(row.run, b - a)));
    for (const [, k] of taskColumns) tr.append(element("td", { "data-key": k, "data-ns": String(row[k]) }, millis(row[k])));
    body.append(tr);
  }
  const head = element("tr", {}, element("th", { class: "name", scope: "col", tabindex: 0, onclick: () => sortBy("name") }, "Task"),
    element("th", { scope: "col" }, ""), element("th", { scope: "col", tabindex: 0, onclick: () => sortBy("run") }, "of the time"));
  for (const [title, k] of taskColumns) head.append(element("th", { scope: "col", tabindex: 0, onclick: () => sortBy(k), "aria-sort": k === key ? "descending" : null }, title + ", ms" + (k === key ? " \u25be" : "")));
  pane.replaceChildren(element("table", {}, element("thead", {}, head), body));
  if (list.length > 400) pane.append(element("p", { class: "empty" }, `${list.length - 400} more tasks; the command above shows all.`));
}
function sortBy(key) { STATE.sort = key; save(); showTasks(); }
function showLedger() {
  const pane = $("pane-ledger");
  pane.replaceChildren();
  const notes = [...HEAD.notes].sort((a, b) => b.doubt - a.doubt);
  if (!notes.length) pane.append(element("p", { class: "empty" }, "No warnings."));
  for (const n of notes) pane.append(element("div", { class: "note" + (n.doubt ? " doubt" : "") }, element("b", {}, (n.doubt ? "Trust: " : "Note: ") + n.kind), " " + n.fact, n.advice ? element("i", {}, "\u2192 " + n.advice) : ""));
  pane.append(element("p", { class: "empty" }, `${grouped(HEAD.events)} events, ${grouped(HEAD.samples.count)} stacks of samples and switches; written by kymo ${HEAD.version}. ${HEAD.recordings ? "This page is a copy of the recording." : NOT_KEPT}`));
}
const NOT_KEPT = "The recording was not kept; kymo profile -o FILE keeps it.";
// The command that gives the same numbers in a terminal.
function commandText() {
  if (!HEAD.recordings) return "";
  const [a, b] = selected();
  const time = STATE.range || HEAD.chosenTimes ? ` --time ${absolute(a)},${absolute(b)}` : "";
  const chosen = chosenTask();
  const who = STATE.scope === "all" || !chosen ? "" : STATE.scope === "process" && chosen.pid !== null ? ` --pid ${chosen.pid}` : ` --tid ${chosen.tid}`;
  const files = HEAD.recordings.includes(" ") ? ` ${HEAD.recordings}` : ` -i ${HEAD.recordings}`;
  switch (STATE.tab) {
    case "tasks": return `kymo offcpu report --tasks${files}${time}`;
    case "flame": case "functions": {
      const name = HEAD.samples.events[STATE.sampled]?.[0];
      const report = `kymo report${STATE.tab === "flame" ? (STATE.inverse ? " -g caller" : " -g") + " --children" : " --children -g none -s dso,sym"}`;
      const old = HEAD.before && name ? HEAD.before.events[eventBefore()] : null;
      return name ? `${report}${files} -e ${quoted(name)}${time}${who}${old ? `; ${report} -i ${HEAD.before.recording} -e ${quoted(old[0])}` : ""}` : `kymo offcpu report${files}${time}${who}`;
    }
    case "events": {
      const words = STATE.filter.trim() && !/[=<>~&]/.test(STATE.filter);
      return `kymo script${files}${STATE.kind ? " -e " + quoted(STATE.kind) : ""}${time}${who}${STATE.filter.trim() && !words ? " --filter " + quoted(STATE.filter.trim()) : ""}${words ? "  # of these the rows with the words" : ""}`;
    }
  }
  return `kymo view${files}${time} --strict -o page.html`;
}
// The critical path of the chosen task in the selection; kymo finds it.
async function showPath() {
  const chosen = chosenTask(), [a, b] = selected(), exact = t => (BASE + BigInt(Math.round(t))).toString();
  if (PATH && chosen && PATH.tid === chosen.tid && PATH.from >= a && PATH.to <= b) PATH = null;
  else if (!chosen) return void ($("found").textContent = "choose a task first: its critical path is shown");
  else if ($("p0")) return void ($("found").textContent = `${HEAD.recordings ? `only a served page finds paths: kymo view -i ${HEAD.recordings} --path-of ${chosen.tid} --select ${absolute(a)},${absolute(b)}` : `only a served page finds paths. ${NOT_KEPT}`}`);
  else {
    $("found").textContent = "looking for the path \u2026";
    let answer = null;
    try { answer = await fetch(`why/${chosen.tid}/${exact(a)}/${exact(b)}`, { cache: "no-store" }); } catch { /* Said below. */ }
    if (!answer?.ok) return void ($("found").textContent = answer ? (await answer.text()).trim() : "kymo view has ended");
    PATH = await answer.json();
  }
  tellPath(); redraw();
}
function tellPath() {
  if (!PATH) return void ($("found").textContent = "");
  const sums = new Map();
  for (const [from, to, , kind] of PATH.segments) sums.set(kind, (sums.get(kind) || 0) + to - from);
  const most = [...sums].sort((x, y) => y[1] - x[1]).slice(0, 3).map(([kind, n]) => `${kind} ${duration(n)}`);
  $("found").textContent = `critical path of ${PATH.tid}: ${most.join(", ")}`;
  $("found").title = !HEAD.recordings ? "" : `kymo why -i ${HEAD.recordings} --tid ${PATH.tid} --time ${absolute(PATH.from)},${absolute(PATH.to)}`;
}
// A text as one word of a shell.
const quoted = text => /^[\w\/.:@%+,=-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
function showCommand() {
  $("command").textContent = commandText() || NOT_KEPT;
  $("copy").hidden = !HEAD.recordings;
  const [a, b] = selected();
  $("range").textContent = STATE.range ? `${absolute(a)} \u2013 ${absolute(b)} (${duration(b - a)})` : `whole recording (${duration(LENGTH)})`;
  $("scope").value = STATE.scope;
}
function showPanel() {
  for (const tab of TABS) {
    $("tab-" + tab).setAttribute("aria-selected", tab === STATE.tab);
    $("tab-" + tab).tabIndex = tab === STATE.tab ? 0 : -1;
    $("pane-" + tab).classList.toggle("on", tab === STATE.tab);
  }
  showCommand();
  return (panelDone = ({ tasks: showTasks, flame: showFlame, functions: showFunctions, events: showEvents, ledger: showLedger })[STATE.tab]())?.then(showCommand);
}
let panelDone = null;
const KEYS = [
  ["w s", "zoom in and out"], ["a d", "move left and right"], ["\u2191 \u2193", "choose a track"], ["\u2190 \u2192", "span before, next span of the track"],
  ["f", "show the selection, or the span"], ["m", "select the span"], ["Escape", "select the whole recording"], ["0", "show the whole recording"],
  ["/", "find"], ["n p", "next, previous match; in the table next, previous event, of the kind that is chosen there"], ["1 \u2026 5", "tables and graphs"], ["\u2191 \u2193 \u2190 \u2192 Enter", "in a flame graph: choose a frame, zoom to it; in a table: Enter chooses the row"], ["c", "critical path of the chosen task in the selection (kymo why)"], ["drag", "select a time"], ["Shift+drag", "move"], ["Ctrl+wheel", "zoom"], ["?", "these keys"],
];
function showHelp() {
  const dialog = $("help");
  dialog.replaceChildren(element("table", {}, element("tbody", {}, ...KEYS.map(([k, what]) => element("tr", {}, element("td", {}, ...k.split(" ").flatMap(one => [element("kbd", {}, one), " "])), element("td", {}, what))))),
    element("p", {}, "Task rows: above the state (tall: running; middle: waiting for a CPU; thin: sleeping; hatched: blocked, not interruptible; stripes: uncertain, or without an end in the recording), below system calls, at the bottom samples. Red on the time axis: events were lost."),
    element("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}
