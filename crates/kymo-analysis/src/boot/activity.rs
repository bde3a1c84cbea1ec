//! Activities of each task (initcalls, modules, work items, processes) as intervals that nest.

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

/// Intervals of all tasks together; more are counted.
const MAX_INTERVALS: usize = 1 << 20;
/// Most activities that are distinguished.
const MAX_ACTIVITIES: usize = 1 << 16;
/// Activities within each other.
const DEEPEST: usize = 16;

/// Kind of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActivityKind {
    /// A function that the kernel calls once.
    Initcall,
    /// A module that is loaded.
    Module,
    /// A function of work items.
    Work,
    /// A function that is called asynchronously.
    Async,
    /// A device that is probed, after its driver where that is known.
    Device,
    /// A program.
    Process,
    /// A task of which nothing more is known.
    Task,
}

impl ActivityKind {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            ActivityKind::Initcall => "initcall",
            ActivityKind::Module => "module",
            ActivityKind::Work => "work",
            ActivityKind::Async => "async",
            ActivityKind::Device => "device",
            ActivityKind::Process => "process",
            ActivityKind::Task => "task",
        }
    }
}

/// Number of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActivityId(pub u32);

/// An activity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BootActivity {
    /// Kind of the activity.
    pub kind: ActivityKind,
    /// Function, module, or program.
    pub name: String,
}

#[derive(Clone, Copy, Debug)]
struct ActivityInterval {
    from: u64,
    to: u64,
    activity: ActivityId,
}

/// Intervals of tasks, and those that are open.
#[derive(Debug, Default)]
pub(super) struct ActivityMap {
    pub(super) activities: Vec<BootActivity>,
    ids: FxHashMap<BootActivity, ActivityId>,
    /// By thread, by their begin once it is finished.
    intervals: FxHashMap<u32, Vec<ActivityInterval>>,
    open: FxHashMap<u32, Vec<(u64, ActivityId)>>,
    /// Devices whose probes are under way by thread, with their drivers.
    probes: FxHashMap<u32, Vec<(String, String)>>,
    /// Initcalls that the kernel said it calls, by thread.
    called: FxHashMap<u32, String>,
    /// Units of systemd by their main processes.
    pub(super) units: FxHashMap<u32, String>,
    count: usize,
    /// Number of initcalls, modules and program starts.
    pub(super) seen: [u64; 3],
    pub(super) crowded: u64,
    /// Births of tasks: time, thread, parent.
    pub(super) forks: Vec<(u64, u32, u32)>,
    /// Program starts: time, thread, file.
    pub(super) execs: Vec<(u64, u32, String)>,
}

impl ActivityMap {
    /// The number of an activity.
    pub(super) fn id(&mut self, kind: ActivityKind, name: &str) -> ActivityId {
        let activity = BootActivity { kind, name: name.to_owned() };
        if let Some(id) = self.ids.get(&activity) {
            return *id;
        }
        if self.activities.len() >= MAX_ACTIVITIES {
            self.crowded += 1;
            return ActivityId(0);
        }
        let id = ActivityId(self.activities.len() as u32);
        self.activities.push(activity.clone());
        self.ids.insert(activity, id);
        id
    }

    /// Takes an event.
    pub(super) fn event(&mut self, event: &RecordedEvent<'_>) {
        let (Some(time), Some(tid)) = (event.time, event.task().tid) else { return };
        let class = event.class;
        let number = |name: &str| class.field(name).and_then(|f| event.fields().integer(f));
        let text = |name: &str| {
            let text = class.field(name).map(|f| event.fields().text(f).into_owned());
            String::from_utf8_lossy(&text.unwrap_or_default()).into_owned()
        };
        // Memory of initcalls is another's later: only the start of a function names it.
        let function = |address: Option<i64>| {
            let address = address.unwrap_or(0) as u64;
            let symbol = event.kernel_symbol(address).filter(|(_, offset)| *offset == 0);
            symbol.map_or_else(|| format!("{address:#x}"), |(name, _)| name)
        };
        match class.name.as_str() {
            "initcall_start" => {
                self.seen[0] += 1;
                // That of a module is the module's.
                if self.top(tid) != Some(ActivityKind::Module) {
                    // One that is within no other has ended by now.
                    self.end_top(tid, time, ActivityKind::Initcall);
                    let mut name = function(number("func"));
                    // That of a module is gone with its memory; the kernel has said what it calls.
                    if name.starts_with("0x") {
                        name = self.called.remove(&tid).unwrap_or(name);
                    }
                    self.begin(tid, time, ActivityKind::Initcall, &name);
                }
                self.called.remove(&tid);
            }
            "initcall_finish" => {
                // A module is there when its own initcall is over.
                match self.top(tid) {
                    Some(ActivityKind::Module) => self.end_top(tid, time, ActivityKind::Module),
                    // Early clocks have the times of ticks, and events of a tick come in any order.
                    _ if self.is_top(tid, &function(number("func"))) => {
                        self.end_top(tid, time, ActivityKind::Initcall);
                    }
                    _ => {}
                }
            }
            "module_load" => {
                self.seen[1] += 1;
                self.end_top(tid, time, ActivityKind::Module);
                self.begin(tid, time, ActivityKind::Module, &text("name"));
            }
            "workqueue_execute_start" => {
                let name = function(number("function"));
                self.begin(tid, time, ActivityKind::Work, &name);
            }
            "workqueue_execute_end" => self.end(tid, time, ActivityKind::Work),
            "sched_process_exec" => {
                self.seen[2] += 1;
                let file = text("filename");
                self.end_all(tid, time);
                let mut name = file.rsplit('/').next().unwrap_or(&file).to_owned();
                if let Some(unit) = self.units.get(&tid) {
                    name = format!("{name} ({unit})");
                }
                self.begin(tid, time, ActivityKind::Process, &name);
                if self.execs.len() < MAX_INTERVALS {
                    self.execs.push((time, tid, file));
                }
            }
            "sched_process_fork" => {
                let tids = [number("child_pid"), number("parent_pid")];
                if let [Some(Ok(child)), Some(Ok(parent))] = tids.map(|t| t.map(u32::try_from))
                    && self.forks.len() < MAX_INTERVALS
                {
                    self.forks.push((time, child, parent));
                }
            }
            "sched_process_exit" => self.end_all(tid, time),
            "console" => self.message(tid, time, &text("msg")),
            _ => {}
        }
    }

    /// Reads a kernel message: with `initcall_debug` it reports the end of a probe or of an
    /// asynchronous function, and with `dd.dyndbg` the start of a probe. No other event names them.
    fn message(&mut self, tid: u32, time: u64, text: &str) {
        if let Some((_, probe)) = text.split_once(": really_probe: probing driver ") {
            let Some((driver, device)) = probe.split_once(" with device ") else { return };
            let probes = self.probes.entry(tid).or_default();
            if probes.len() < DEEPEST {
                probes.push((device.trim_end().to_owned(), driver.to_owned()));
            }
            return;
        }
        // `calling  FUNCTION+0x0/0x20 [MODULE] @ THREAD`, before the event or behind it.
        if let Some((name, _)) = text.strip_prefix("calling  ").and_then(|t| t.split_once('+')) {
            let top = self.open.get(&tid).and_then(|open| open.last()).copied();
            let activity = top.and_then(|(_, id)| self.activities.get(id.0 as usize));
            let is_nameless = activity
                .is_some_and(|a| a.kind == ActivityKind::Initcall && a.name.starts_with("0x"));
            match top.filter(|_| is_nameless) {
                Some((from, _)) => {
                    let id = self.id(ActivityKind::Initcall, name);
                    let open = self.open.get_mut(&tid).and_then(|open| open.last_mut());
                    open.into_iter().for_each(|last| *last = (from, id));
                }
                None if self.called.len() < MAX_ACTIVITIES => {
                    self.called.insert(tid, name.to_owned());
                }
                None => {}
            }
            return;
        }
        let Some(rest) = text.trim_end().strip_suffix(" usecs") else { return };
        let Some((rest, micros)) = rest.rsplit_once(" after ") else { return };
        let Ok(micros) = micros.parse::<u64>() else { return };
        let (kind, name, unit) = if let Some(probe) = rest.strip_prefix("probe of ") {
            let Some((device, _)) = probe.rsplit_once(" returned ") else { return };
            let probes = self.probes.entry(tid).or_default();
            let driver = probes.iter().rposition(|(d, _)| d == device).map(|at| {
                let driver = std::mem::take(&mut probes[at].1);
                probes.truncate(at);
                driver
            });
            let name = driver.map_or(device.to_owned(), |driver| format!("{driver} {device}"));
            (ActivityKind::Device, name, 1000)
        } else {
            // `initcall COOKIE_FUNCTION+0x0/0x20 [MODULE] returned`
            let function = rest.strip_prefix("initcall ").and_then(|r| r.strip_suffix(" returned"));
            let Some((cookie, name)) = function.and_then(|f| f.split_once('_')) else { return };
            if cookie.is_empty() || !cookie.bytes().all(|b| b.is_ascii_digit()) {
                return;
            }
            // Its microseconds are nanoseconds that were shifted.
            (ActivityKind::Async, name.split('+').next().unwrap_or(name).to_owned(), 1024)
        };
        let from = time.saturating_sub(micros.saturating_mul(unit));
        let activity = self.id(kind, &name);
        self.push(tid, ActivityInterval { from, to: time, activity });
    }

    fn push(&mut self, tid: u32, interval: ActivityInterval) {
        if self.count >= MAX_INTERVALS {
            self.crowded += 1;
            return;
        }
        self.count += 1;
        self.intervals.entry(tid).or_default().push(interval);
    }

    fn begin(&mut self, tid: u32, time: u64, kind: ActivityKind, name: &str) {
        let id = self.id(kind, name);
        let open = self.open.entry(tid).or_default();
        if open.len() < DEEPEST {
            open.push((time, id));
        }
    }

    /// Kind of the innermost.
    fn top(&self, tid: u32) -> Option<ActivityKind> {
        self.kind(self.open.get(&tid)?.last()?.1)
    }

    /// Whether the innermost has a name, or one of both names is only an address.
    fn is_top(&self, tid: u32, name: &str) -> bool {
        let top = self.open.get(&tid).and_then(|open| open.last());
        let top = top.and_then(|(_, id)| self.activities.get(id.0 as usize));
        top.is_some_and(|top| {
            top.name == name || [&top.name, name].iter().any(|n| n.starts_with("0x"))
        })
    }

    fn kind(&self, id: ActivityId) -> Option<ActivityKind> {
        self.activities.get(id.0 as usize).map(|a| a.kind)
    }

    /// Ends the innermost of a kind, and what is within it.
    fn end(&mut self, tid: u32, time: u64, kind: ActivityKind) {
        let Some(open) = self.open.get(&tid) else { return };
        let Some(at) = open.iter().rposition(|(_, id)| self.kind(*id) == Some(kind)) else {
            return;
        };
        self.close(tid, time, at);
    }

    /// Ends the innermost, if it is of a kind.
    fn end_top(&mut self, tid: u32, time: u64, kind: ActivityKind) {
        let open = self.open.get(&tid).map_or(&[][..], Vec::as_slice);
        let Some((_, top)) = open.last() else { return };
        if self.kind(*top) == Some(kind) {
            self.close(tid, time, open.len() - 1);
        }
    }

    fn end_all(&mut self, tid: u32, time: u64) {
        self.close(tid, time, 0);
        self.open.remove(&tid);
    }

    fn close(&mut self, tid: u32, time: u64, from: usize) {
        let Some(open) = self.open.get_mut(&tid) else { return };
        let ended = open.split_off(from.min(open.len()));
        for (from, activity) in ended {
            self.push(tid, ActivityInterval { from, to: time.max(from), activity });
        }
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self, end: u64) {
        let tids: Vec<u32> = self.open.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.end_all(tid, end));
        for all in self.intervals.values_mut() {
            // Of those that begin together the outer one first.
            all.sort_by_key(|i| (i.from, std::cmp::Reverse(i.to)));
        }
    }

    /// Passes the activities of a thread between two times to `sink`, piece by piece.
    pub(super) fn pieces(
        &self,
        tid: u32,
        from: u64,
        to: u64,
        sink: &mut dyn FnMut(u64, u64, Option<ActivityId>),
    ) {
        let all = self.intervals.get(&tid).map_or(&[][..], Vec::as_slice);
        let begun = all.partition_point(|i| i.from < to);
        let within: Vec<&ActivityInterval> =
            all.iter().take(begun).filter(|i| i.to > from).collect();
        let mut times: Vec<u64> = within.iter().flat_map(|i| [i.from, i.to]).collect();
        times.retain(|t| *t > from && *t < to);
        times.extend([from, to]);
        times.sort_unstable();
        times.dedup();
        for pair in times.windows(2) {
            let &[a, b] = pair else { continue };
            // The one that ended first; begins of those that messages tell are less exact.
            let around = within.iter().filter(|i| i.from <= a && i.to >= b);
            let inner = around.min_by_key(|i| (i.to, std::cmp::Reverse(i.from)));
            sink(a, b, inner.map(|i| i.activity));
        }
    }

    /// The longest initcalls, modules, probes: activity, begin, nanoseconds.
    pub(super) fn longest(&self, count: usize) -> Vec<(ActivityId, u64, u64)> {
        let wanted = |id: ActivityId| {
            let kind = self.kind(id);
            kind.is_some_and(|k| !matches!(k, ActivityKind::Work | ActivityKind::Process))
        };
        let all = self.intervals.values().flatten().filter(|i| wanted(i.activity));
        let mut all: Vec<_> = all.map(|i| (i.activity, i.from, i.to - i.from)).collect();
        all.sort_by_key(|(id, from, nanos)| (std::cmp::Reverse(*nanos), *from, *id));
        all.truncate(count);
        all
    }
}
