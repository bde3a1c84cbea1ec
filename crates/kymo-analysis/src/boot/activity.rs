//! What each task does when: initcalls, modules, work items, processes, as intervals that nest.

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

/// Intervals of all tasks together; more are counted.
const MAX_INTERVALS: usize = 1 << 20;
/// Activities that are told apart.
const MAX_ACTIVITIES: usize = 1 << 16;
/// Activities within each other.
const DEEPEST: usize = 16;

/// What an activity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActivityKind {
    /// A function that the kernel calls once.
    Initcall,
    /// A module that is loaded.
    Module,
    /// A function of work items.
    Work,
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
    /// What it is.
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
        // Memory of initcalls is another's later: only the begin of a function names it.
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
                    let name = function(number("func"));
                    self.begin(tid, time, ActivityKind::Initcall, &name);
                }
            }
            "initcall_finish" => {
                // A module is there when its own initcall is over.
                match self.top(tid) {
                    Some(ActivityKind::Module) => self.end_top(tid, time, ActivityKind::Module),
                    _ => self.end(tid, time, ActivityKind::Initcall),
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
                let name = file.rsplit('/').next().unwrap_or(&file).to_owned();
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
            _ => {}
        }
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
        for (begin, activity) in open.drain(from.min(open.len())..) {
            if self.count >= MAX_INTERVALS {
                self.crowded += 1;
                continue;
            }
            self.count += 1;
            let to = time.max(begin);
            let interval = ActivityInterval { from: begin, to, activity };
            self.intervals.entry(tid).or_default().push(interval);
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

    /// What a thread does between two times, piece by piece.
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
            let inner = within.iter().rev().find(|i| i.from <= a && i.to >= b);
            sink(a, b, inner.map(|i| i.activity));
        }
    }

    /// The longest initcalls, modules: activity, begin, nanoseconds.
    pub(super) fn longest(&self, count: usize) -> Vec<(ActivityId, u64, u64)> {
        let wanted = |id: ActivityId| {
            matches!(self.kind(id), Some(ActivityKind::Initcall | ActivityKind::Module))
        };
        let all = self.intervals.values().flatten().filter(|i| wanted(i.activity));
        let mut all: Vec<_> = all.map(|i| (i.activity, i.from, i.to - i.from)).collect();
        all.sort_by_key(|(id, from, nanos)| (std::cmp::Reverse(*nanos), *from, *id));
        all.truncate(count);
        all
    }
}
