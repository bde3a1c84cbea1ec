//! Time of each thread on CPU, runnable and blocked, from the context switch records of a recording
//! (`PERF_RECORD_SWITCH`, perf_event_open(2)).
//!
//! A thread is on a CPU from its switch-in to its switch-out. Between a switch-out and the next
//! switch-in it is *ready* after a preemption, else *blocked* until its wake-up and ready after
//! that; without events of wake-ups all of it is blocked.
//!
//! Only time within the window of the recording counts: a recorder that attaches to many threads
//! opens the events of some of them long before those of the others.

use kymo_events::{EventSelection, TaskComm};
use kymo_files::perfdata::Entry;
use kymo_model::{RecordKind, Sideband, Switch};
use rustc_hash::{FxHashMap, FxHashSet};

/// Nanoseconds of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a CPU.
    pub on_cpu: u64,
    /// Preempted, newborn and not yet run, or woken and not yet run.
    pub ready: u64,
    /// Off the CPU by its own doing.
    pub blocked: u64,
    /// Running or not: a record of a switch is missing.
    pub uncertain: u64,
    /// Switches away from the CPU.
    pub switches: u64,
    /// Preemptions among them.
    pub preemptions: u64,
}

impl ThreadTime {
    /// Sums two accounts.
    pub fn plus(self, other: ThreadTime) -> ThreadTime {
        ThreadTime {
            on_cpu: self.on_cpu + other.on_cpu,
            ready: self.ready + other.ready,
            blocked: self.blocked + other.blocked,
            uncertain: self.uncertain + other.uncertain,
            switches: self.switches + other.switches,
            preemptions: self.preemptions + other.preemptions,
        }
    }

    /// An account without one of its parts.
    pub fn minus(self, part: ThreadTime) -> ThreadTime {
        ThreadTime {
            on_cpu: self.on_cpu.saturating_sub(part.on_cpu),
            ready: self.ready.saturating_sub(part.ready),
            blocked: self.blocked.saturating_sub(part.blocked),
            uncertain: self.uncertain.saturating_sub(part.uncertain),
            switches: self.switches.saturating_sub(part.switches),
            preemptions: self.preemptions.saturating_sub(part.preemptions),
        }
    }
}

/// The accounts of the threads of a recording.
#[derive(Clone, Debug, Default)]
pub struct ThreadAccounts {
    /// By thread, in no particular order.
    pub threads: Vec<(u32, ThreadTime)>,
    /// Parts of accounts that threads spent in programs before they executed their last one, by
    /// these programs.
    pub earlier: FxHashMap<u32, Vec<(TaskComm, ThreadTime)>>,
}

/// Kind of a time off CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffKind {
    /// It had not run yet.
    New,
    /// It was preempted.
    Preempted,
    /// By its own doing.
    Blocked,
    /// It may have run: a record of a switch is missing.
    Uncertain,
}

/// A time between two runs of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffInterval {
    /// Time at which it left the CPU.
    pub from: u64,
    /// Time at which it was back.
    pub to: u64,
    /// Kind of the interval, by the switch-out.
    pub kind: OffKind,
    /// It had not come back when the recording ended.
    pub is_open: bool,
    /// It left the CPU before the recording began, which `from` is the start of then.
    pub is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
enum Since {
    /// It was there before the recording, running or not.
    Existing,
    Running(u64),
    Off(OffKind, u64),
    Dead,
}

/// Time from which threads count that were there before the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordingBegin {
    /// Known after all records: accounts are cut then.
    #[default]
    Unknown,
    /// This time.
    At(u64),
    /// The time of the first record.
    FirstRecord,
    /// The first execution of a program, within these times.
    FirstExec(u64, u64),
}

/// Time that counts: records from before it and after it only tell the states of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingWindow {
    /// Its start.
    pub begin: RecordingBegin,
    /// Its end, where it is known before all is read.
    pub end: Option<u64>,
}

/// Record that ends a part of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A switch or an exit.
    Switch,
    /// The thread executes a program.
    Exec,
    /// The recording ends.
    End,
}

/// A thread as it is followed.
#[derive(Clone, Copy, Debug)]
struct ThreadAccount {
    time: ThreadTime,
    since: Since,
    /// When it was woken while it is off its CPU.
    woken: Option<u64>,
    /// It came on its CPU after another thread, without a record.
    came_unseen: bool,
}

impl ThreadAccount {
    fn new(since: Since) -> ThreadAccount {
        ThreadAccount { time: ThreadTime::default(), since, woken: None, came_unseen: false }
    }
}

/// The accounts of all threads of a recording, fed in time order.
#[derive(Debug, Default)]
pub struct OnCpu {
    threads: FxHashMap<u32, ThreadAccount>,
    /// Names of threads.
    comms: FxHashMap<u32, TaskComm>,
    /// Processes of threads, by their births and names.
    pids: FxHashMap<u32, u32>,
    /// Parts of the accounts of threads that executed other programs before, by these programs.
    earlier: FxHashMap<u32, Vec<(TaskComm, ThreadTime)>>,
    /// The thread that runs on each CPU.
    running: FxHashMap<u32, u32>,
    /// CPUs with records of switches since the recording began.
    switched: FxHashSet<u32>,
    /// Intervals that ended and were not taken yet, with their threads, where they are wanted.
    ended: Option<Vec<(u32, OffInterval)>>,
    window: RecordingWindow,
    first: Option<(u32, u64)>,
    /// Threads that were there before, and whether they ran then. Their first account begins at
    /// 0 where it is not known when the recording began.
    existing: Vec<(u32, bool)>,
    /// Times of the first and the last record.
    seen: Option<(u64, u64)>,
    /// Selection of tasks by name, and whether each thread has such a name now.
    names: Option<(EventSelection, FxHashMap<u32, bool>)>,
}

impl OnCpu {
    /// Accounts of the time within a window.
    pub fn within(window: RecordingWindow) -> OnCpu {
        OnCpu { window, ..OnCpu::default() }
    }

    /// Accounts that hand out the intervals, too ([`OnCpu::take_ended`]).
    pub fn with_intervals(window: RecordingWindow) -> OnCpu {
        OnCpu { ended: Some(Vec::new()), ..OnCpu::within(window) }
    }

    /// Restricts the accounts to threads while they have names that the selection contains.
    #[must_use]
    pub fn with_names(self, selection: &EventSelection) -> OnCpu {
        let chooses = !selection.comms.is_empty();
        OnCpu { names: chooses.then(|| (selection.clone(), FxHashMap::default())), ..self }
    }

    /// Intervals that have ended since this was last asked.
    pub fn take_ended(&mut self) -> std::vec::Drain<'_, (u32, OffInterval)> {
        self.ended.get_or_insert_default().drain(..)
    }

    /// Whether a thread is off its CPU, as far as is known.
    pub fn is_off(&self, tid: u32) -> bool {
        let since = self.threads.get(&tid).map(|account| account.since);
        matches!(since, Some(Since::Off(..) | Since::Existing))
    }

    /// Applies a record of a recording; returns its thread.
    pub fn take_record(&mut self, entry: &Entry<'_>) -> Option<(u32, RecordKind)> {
        // Births and names without a time are made of what was there before.
        let time = match (entry.time, entry.raw.kind) {
            (Some(time), _) => time,
            (None, RecordKind::FORK | RecordKind::COMM) => 0,
            (None, _) => return None,
        };
        let wanted = [
            RecordKind::SWITCH,
            RecordKind::SWITCH_CPU_WIDE,
            RecordKind::FORK,
            RecordKind::EXIT,
            RecordKind::COMM,
        ];
        if !wanted.contains(&entry.raw.kind) {
            return None;
        }
        let id = entry.raw.sample_id(&entry.desc()?.attr).ok()?;
        let tid = id.tid?.1;
        let record = Sideband::parse(&entry.raw).ok()??;
        match &record {
            Sideband::Switch(switch) => self.note_cpu(tid, id.cpu, time, switch.out),
            Sideband::Fork(task) => _ = self.pids.insert(task.tid, task.pid),
            Sideband::Comm(comm) => _ = self.pids.insert(comm.tid, comm.pid),
            _ => {}
        }
        self.apply(tid, time, &record);
        Some((tid, entry.raw.kind))
    }

    /// Last name of a thread, and its process, where records state them.
    pub fn task(&self, tid: u32) -> (Option<TaskComm>, Option<u32>) {
        (self.comms.get(&tid).copied(), self.pids.get(&tid).copied())
    }

    /// The first thread that executed a program, and when it did.
    pub fn first_thread(&self) -> Option<(u32, u64)> {
        self.first
    }

    /// The accounts so far.
    pub fn times(&self) -> impl Iterator<Item = (u32, ThreadTime)> {
        self.threads.iter().map(|(tid, account)| (*tid, account.time))
    }

    /// Times of the first and the last record.
    pub fn seen(&self) -> Option<(u64, u64)> {
        self.seen
    }

    /// Takes note of the wake-up of a thread that is off its CPU; the first one counts.
    pub fn woken(&mut self, tid: u32, time: u64) {
        if let Some(account) = self.threads.get_mut(&tid)
            && matches!(account.since, Since::Off(OffKind::Blocked, _) | Since::Existing)
        {
            account.woken.get_or_insert(time);
        }
    }

    /// Follows which thread runs on a CPU: one that is still there when another one comes left it
    /// unseen.
    fn note_cpu(&mut self, tid: u32, cpu: Option<u32>, time: u64, is_out: bool) {
        let Some(cpu) = cpu else { return };
        // One that leaves a CPU that others had since was not there from the beginning on.
        if matches!(self.window.begin, RecordingBegin::At(begin) if time >= begin)
            && !self.switched.insert(cpu)
            && is_out
            && self.running.get(&cpu) != Some(&tid)
            && let Some(account) = self.threads.get_mut(&tid)
        {
            account.came_unseen = true;
        }
        let before = if is_out { self.running.remove(&cpu) } else { self.running.insert(cpu, tid) };
        let Some(before) = before.filter(|before| *before != tid) else { return };
        let runs = |account: &ThreadAccount| matches!(account.since, Since::Running(_));
        if self.threads.get(&before).is_some_and(runs) {
            self.settle(before, time, Since::Off(OffKind::Uncertain, time), Step::Switch);
        }
    }

    /// Takes note of a record of thread `tid` (from the sample-id trailer) at `time`.
    pub fn apply(&mut self, tid: u32, time: u64, record: &Sideband<'_>) {
        if time > 0 {
            let (first, last) = self.seen.unwrap_or((time, time));
            self.seen = Some((first.min(time), last.max(time)));
        }
        if !self.has_wanted_name(tid, time, record) {
            return;
        }
        match record {
            Sideband::Switch(s) => self.switch(tid, time, *s),
            // Made of what was there before the recording.
            Sideband::Fork(f) if time == 0 => {
                self.threads.entry(f.tid).or_insert_with(|| ThreadAccount::new(Since::Existing));
            }
            Sideband::Fork(f) => {
                if let Some(comm) = self.comms.get(&f.ptid).copied() {
                    self.comms.insert(f.tid, comm);
                }
                self.earlier.remove(&f.tid);
                let new = Since::Off(OffKind::New, time);
                self.threads.insert(f.tid, ThreadAccount::new(new));
            }
            Sideband::Comm(c) => {
                if c.exec && time > 0 {
                    self.execute(tid, time);
                }
                self.comms.insert(c.tid, TaskComm::new(c.comm));
            }
            Sideband::Exit(e) => self.settle(e.tid, time, Since::Dead, Step::Switch),
            _ => {}
        }
    }

    /// A thread executes a program: its time so far is that of the one before.
    fn execute(&mut self, tid: u32, time: u64) {
        self.first.get_or_insert((tid, time));
        // The program counted from its exec is running as it does it.
        let running = Since::Running(time);
        match self.threads.get(&tid).map(|account| account.since) {
            Some(Since::Running(_) | Since::Existing) => {
                self.settle(tid, time, running, Step::Exec);
            }
            Some(_) => return,
            None => {
                self.threads.insert(tid, ThreadAccount::new(running));
                return;
            }
        }
        let all = self.threads.get(&tid).map_or_else(ThreadTime::default, |a| a.time);
        let Some(comm) = self.comms.get(&tid).copied().filter(|_| all != ThreadTime::default())
        else {
            return;
        };
        let earlier = self.earlier.entry(tid).or_default();
        let known = earlier.iter().fold(ThreadTime::default(), |sum, (_, time)| sum.plus(*time));
        let part = all.minus(known);
        match earlier.iter_mut().find(|(name, _)| *name == comm) {
            Some((_, time)) => *time = time.plus(part),
            None => earlier.push((comm, part)),
        }
    }

    /// Whether a record is of a thread with a wanted name. A thread that gets such a name, which
    /// happens while it runs, is counted from then on, and one that loses it until then.
    fn has_wanted_name(&mut self, tid: u32, time: u64, record: &Sideband<'_>) -> bool {
        let Some((selection, names)) = &mut self.names else { return true };
        let is_wanted = |names: &FxHashMap<u32, bool>, tid| names.get(&tid) == Some(&true);
        match record {
            Sideband::Fork(f) => {
                let known = is_wanted(names, f.tid) && time == 0;
                let wanted = known || is_wanted(names, f.ptid);
                names.insert(f.tid, wanted);
                wanted
            }
            Sideband::Comm(c) => {
                let now = selection.wants_comm(c.tid, c.comm);
                let before = names.insert(c.tid, now) == Some(true);
                match (before, now, time) {
                    (false, true, 0) => {
                        let new = || ThreadAccount::new(Since::Existing);
                        self.threads.entry(c.tid).or_insert_with(new);
                    }
                    (false, true, _) => {
                        let new = || ThreadAccount::new(Since::Dead);
                        let account = self.threads.entry(c.tid).or_insert_with(new);
                        account.since = Since::Running(time);
                    }
                    (true, false, _) => self.settle(c.tid, time, Since::Dead, Step::Switch),
                    _ => {}
                }
                now
            }
            Sideband::Exit(e) => {
                let wanted = is_wanted(names, e.tid);
                names.remove(&e.tid);
                wanted
            }
            _ => is_wanted(names, tid),
        }
    }

    fn switch(&mut self, tid: u32, time: u64, s: Switch) {
        if !s.out {
            return self.settle(tid, time, Since::Running(time), Step::Switch);
        }
        let kind = if s.preempt { OffKind::Preempted } else { OffKind::Blocked };
        let next = Since::Off(kind, time);
        self.settle(tid, time, next, Step::Switch);
        let begin = self.begin().unwrap_or(0);
        if let Some(account) = self.threads.get_mut(&tid).filter(|_| time >= begin) {
            account.time.switches += 1;
            account.time.preemptions += u64::from(s.preempt);
        }
    }

    /// Start of the time that counts, as far as it is known by now.
    fn begin(&self) -> Option<u64> {
        match self.window.begin {
            RecordingBegin::Unknown => None,
            RecordingBegin::At(begin) => Some(begin),
            RecordingBegin::FirstRecord => self.seen.map(|seen| seen.0),
            // Before the program starts its waits are not those of the command.
            RecordingBegin::FirstExec(from, to) => {
                self.first.map(|(_, exec)| exec.max(from).min(to))
            }
        }
    }

    /// Books the time since the last change to the state the thread was in.
    fn settle(&mut self, tid: u32, time: u64, next: Since, step: Step) {
        let begin = self.begin();
        let Some(account) = self.threads.get_mut(&tid) else {
            self.threads.insert(tid, ThreadAccount::new(next));
            return;
        };
        let woken = account.woken.take();
        let mut is_cut = false;
        if matches!(account.since, Since::Existing) {
            let ran = step == Step::Exec
                || step == Step::Switch
                    && !matches!(next, Since::Running(_))
                    && !account.came_unseen;
            self.existing.push((tid, ran));
            let from = match self.window.begin {
                RecordingBegin::Unknown => 0,
                _ => begin.unwrap_or(time),
            };
            account.since =
                if ran { Since::Running(from) } else { Since::Off(OffKind::Blocked, from) };
            is_cut = !ran;
        }
        // What happened outside of the window does not count.
        let end = self.window.end.unwrap_or(u64::MAX);
        let clip = |at: u64| at.max(begin.unwrap_or(0)).min(end);
        let to = clip(time);
        let t = &mut account.time;
        let (from, kind) = match (account.since, next) {
            (Since::Dead | Since::Existing, _) => return,
            // It left the CPU unseen.
            (Since::Running(from), Since::Running(_)) if step == Step::Switch => {
                (clip(from), Some(OffKind::Uncertain))
            }
            (Since::Running(from), Since::Off(OffKind::Uncertain, _)) => {
                (clip(from), Some(OffKind::Uncertain))
            }
            (Since::Running(from), _) => (clip(from), None),
            (Since::Off(kind, from), Since::Running(_)) => (clip(from), Some(kind)),
            // It was on a CPU unseen.
            (Since::Off(_, from), _) if step == Step::Switch => {
                (clip(from), Some(OffKind::Uncertain))
            }
            (Since::Off(kind, from), _) => (clip(from), Some(kind)),
        };
        account.since = next;
        let nanos = to.saturating_sub(from);
        match kind {
            None => t.on_cpu += nanos,
            Some(OffKind::Uncertain) => t.uncertain += nanos,
            Some(OffKind::Blocked) => {
                let ready = to - woken.unwrap_or(to).clamp(from.min(to), to);
                t.ready += ready;
                t.blocked += nanos - ready;
            }
            Some(OffKind::New | OffKind::Preempted) => t.ready += nanos,
        }
        let is_within = from < to || time == to;
        if let (Some(ended), Some(kind), true) = (&mut self.ended, kind, is_within) {
            let is_open = step == Step::End;
            ended.push((tid, OffInterval { from: from.min(to), to, kind, is_open, is_cut }));
        }
    }

    /// Closes what is open at the end of the recording.
    pub fn close(&mut self, end: u64) {
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            self.settle(tid, end, Since::Dead, Step::End);
        }
    }

    /// The accounts of all threads, once [`OnCpu::close`] has closed what is open.
    pub fn accounts(&mut self) -> ThreadAccounts {
        let threads = self.times().collect();
        ThreadAccounts { threads, earlier: std::mem::take(&mut self.earlier) }
    }

    /// The accounts from `begin`, open intervals closed at `end`.
    pub fn finish(mut self, begin: u64, end: u64) -> ThreadAccounts {
        self.close(end);
        for (tid, ran) in std::mem::take(&mut self.existing) {
            if let Some(account) =
                self.threads.get_mut(&tid).filter(|_| self.window.begin == RecordingBegin::Unknown)
            {
                let time = &mut account.time;
                let account = if ran { &mut time.on_cpu } else { &mut time.blocked };
                *account = account.saturating_sub(begin);
            }
        }
        self.accounts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_model::{Comm, Task};

    fn switch(out: bool, preempt: bool) -> Sideband<'static> {
        Sideband::Switch(Switch { out, preempt, next_prev: None })
    }

    #[test]
    fn running_ready_and_blocked_add_up_to_the_lifetime() {
        let mut on = OnCpu::default();
        let exec = Comm { pid: 5, tid: 5, comm: b"x", exec: true };
        on.apply(5, 100, &Sideband::Comm(exec));
        on.apply(5, 130, &switch(true, true));
        on.apply(5, 150, &switch(false, false));
        on.apply(5, 160, &switch(true, false));
        on.apply(5, 200, &switch(false, false));
        on.apply(5, 203, &Sideband::Exit(Task { pid: 5, ppid: 1, tid: 5, ptid: 1, time: 203 }));
        // The last switch-out of a dead thread counts as a switch, not as time.
        on.apply(5, 204, &switch(true, false));
        let t = on.finish(100, 900).threads;
        let want = ThreadTime {
            on_cpu: 43,
            ready: 20,
            blocked: 40,
            uncertain: 0,
            switches: 3,
            preemptions: 1,
        };
        assert_eq!(t, [(5, want)]);
    }

    /// perf's child waits for long before it executes the program; a thread renames itself.
    #[test]
    fn a_thread_counts_while_it_has_a_wanted_name() {
        let comms = vec!["sl8".to_owned()];
        let selection = EventSelection::of_tasks(comms, Vec::new(), Vec::new());
        let mut on = OnCpu::default().with_names(&selection);
        let named = |comm: &'static [u8], exec| Sideband::Comm(Comm { pid: 5, tid: 5, comm, exec });
        on.apply(5, 0, &named(b"perf", false));
        let fork = |tid| Task { pid: tid, ppid: 5, tid, ptid: 5, time: 0 };
        on.apply(5, 0, &Sideband::Fork(fork(5)));
        on.apply(5, 10, &switch(true, false));
        on.apply(5, 110, &switch(false, false));
        on.apply(5, 112, &named(b"sl8", true));
        on.apply(5, 115, &switch(true, false));
        on.apply(5, 118, &switch(false, false));
        on.apply(5, 119, &Sideband::Fork(Task { time: 119, ..fork(6) }));
        on.apply(6, 120, &switch(false, false));
        on.apply(5, 121, &named(b"other", false));
        on.apply(5, 130, &switch(true, false));
        on.apply(5, 140, &switch(false, false));
        on.apply(6, 125, &Sideband::Exit(Task { time: 125, ..fork(6) }));
        let mut times = on.finish(10, 200).threads;
        times.sort_by_key(|(tid, _)| *tid);
        let of = |n: usize| (times[n].0, times[n].1.on_cpu, times[n].1.blocked, times[n].1.ready);
        assert_eq!((times.len(), of(0), of(1)), (2, (5, 3 + 3, 3, 0), (6, 5, 0, 1)));
    }

    #[test]
    fn a_newborn_thread_waits_for_its_first_cpu() {
        let mut on = OnCpu::default();
        let fork = Task { pid: 5, ppid: 5, tid: 6, ptid: 5, time: 10 };
        on.apply(5, 10, &Sideband::Fork(fork));
        on.apply(6, 14, &switch(false, false));
        let t = on.finish(10, 20).threads;
        assert_eq!(t, [(6, ThreadTime { on_cpu: 6, ready: 4, ..ThreadTime::default() })]);
    }

    #[test]
    fn threads_that_were_there_before_are_counted_from_the_begin() {
        let records = |on: &mut OnCpu| {
            for tid in [5, 6, 7] {
                let fork = Task { pid: tid, ppid: 1, tid, ptid: 1, time: 0 };
                on.apply(tid, 0, &Sideband::Fork(fork));
            }
            // One slept and comes back, one runs and leaves, of one nothing is heard.
            on.apply(5, 130, &switch(false, false));
            on.apply(6, 140, &switch(true, false));
            assert_eq!(on.seen(), Some((130, 140)));
        };
        let mut on = OnCpu::default();
        records(&mut on);
        let mut times = on.finish(100, 200).threads;
        times.sort_by_key(|(tid, _)| *tid);
        let times: Vec<_> = times.iter().map(|(_, t)| (t.on_cpu, t.blocked)).collect();
        assert_eq!(times, [(70, 30), (40, 60), (0, 100)]);
        let mut on =
            OnCpu::with_intervals(RecordingWindow { begin: RecordingBegin::At(100), end: None });
        records(&mut on);
        on.close(200);
        let mut ended: Vec<_> = on.take_ended().map(|(tid, i)| (tid, i.from, i.to)).collect();
        ended.sort_unstable();
        assert_eq!(ended, [(5, 100, 130), (6, 140, 200), (7, 100, 200)]);
    }

    /// Events of the first threads are opened long before those of the last ones.
    #[test]
    fn only_time_within_the_window_counts() {
        let begin = RecordingBegin::At(100);
        let mut on = OnCpu::with_intervals(RecordingWindow { begin, end: Some(200) });
        for tid in [5, 6, 7] {
            let fork = Task { pid: 5, ppid: 1, tid, ptid: 1, time: 0 };
            on.apply(tid, 0, &Sideband::Fork(fork));
        }
        // One ran and slept before, one runs into the window and out of it, one waits for a CPU.
        on.apply(5, 10, &switch(false, false));
        on.apply(5, 60, &switch(true, false));
        on.apply(6, 80, &switch(false, false));
        on.apply(6, 130, &switch(true, false));
        on.apply(6, 180, &switch(false, false));
        on.apply(6, 250, &switch(true, false));
        on.apply(7, 90, &switch(true, false));
        on.woken(7, 120);
        on.woken(7, 140);
        on.apply(7, 150, &switch(false, false));
        on.close(300);
        let mut ended: Vec<_> = on.take_ended().map(|(tid, i)| (tid, i.from, i.to)).collect();
        ended.sort_unstable();
        assert_eq!(ended, [(5, 100, 200), (6, 130, 180), (7, 100, 150)]);
        let mut times = on.accounts().threads;
        times.sort_by_key(|(tid, _)| *tid);
        let of = |(_, t): &(u32, ThreadTime)| (t.on_cpu, t.blocked, t.ready, t.uncertain);
        let times: Vec<_> = times.iter().map(of).collect();
        assert_eq!(times, [(0, 100, 0, 0), (50, 50, 0, 0), (50, 20, 30, 0)]);
    }

    /// Records of switches are missing.
    #[test]
    fn no_thread_runs_longer_than_its_cpu_is_its_own() {
        let mut on =
            OnCpu::within(RecordingWindow { begin: RecordingBegin::At(100), end: Some(1000) });
        let mut step = |tid, cpu, time, out| {
            on.note_cpu(tid, Some(cpu), time, out);
            on.apply(tid, time, &switch(out, false));
        };
        step(5, 0, 100, false);
        // It left the CPU at some time before the other one came.
        step(6, 0, 200, false);
        step(6, 0, 300, true);
        // It came back unseen.
        step(6, 0, 500, true);
        // And left unseen, to come back.
        step(7, 1, 100, false);
        step(7, 1, 400, false);
        let mut times = on.finish(100, 1000).threads;
        times.sort_by_key(|(tid, _)| *tid);
        let of = |(_, t): &(u32, ThreadTime)| (t.on_cpu, t.blocked, t.uncertain);
        let times: Vec<_> = times.iter().map(of).collect();
        assert_eq!(times, [(0, 0, 900), (100, 500, 200), (600, 0, 300)]);
    }

    /// On two CPUs: only the first of many threads that leave a CPU can have been there before.
    #[test]
    fn records_that_are_missing_give_no_more_time_than_the_cpus_have() {
        let window = RecordingWindow { begin: RecordingBegin::At(100), end: Some(1000) };
        let mut on = OnCpu::within(window);
        for tid in 1..=20 {
            let task = Task { pid: 1, ppid: 1, tid, ptid: 1, time: 0 };
            on.apply(1, 0, &Sideband::Fork(task));
        }
        for tid in 1..=20 {
            let time = 200 + u64::from(tid) * 10;
            on.note_cpu(tid, Some(tid % 2), time, true);
            on.apply(tid, time, &switch(true, false));
        }
        let mut times = on.finish(100, 1000).threads;
        times.sort_by_key(|(tid, _)| *tid);
        let on_cpu: Vec<u64> = times.iter().map(|(_, time)| time.on_cpu).collect();
        assert_eq!(on_cpu[..3], [110, 120, 0]);
        assert_eq!(on_cpu.iter().sum::<u64>(), 230);
        let all = |t: &ThreadTime| t.on_cpu + t.ready + t.blocked + t.uncertain;
        assert!(times.iter().all(|(_, time)| all(time) == 900), "{times:?}");
    }

    #[test]
    fn time_before_an_exec_is_that_of_the_program_before() {
        let window = RecordingWindow { begin: RecordingBegin::At(10), end: Some(200) };
        let mut on = OnCpu::within(window);
        let comm = |tid, comm, exec| Sideband::Comm(kymo_model::Comm { pid: tid, tid, comm, exec });
        on.apply(5, 10, &comm(5, b"sh", true));
        let fork = Task { pid: 6, ppid: 5, tid: 6, ptid: 5, time: 20 };
        on.apply(5, 20, &Sideband::Fork(fork));
        on.apply(6, 25, &switch(false, false));
        on.apply(6, 40, &comm(6, b"true", true));
        on.apply(6, 42, &Sideband::Exit(Task { time: 42, ..fork }));
        let accounts = on.finish(10, 200);
        let of_child = accounts.threads.iter().find(|(tid, _)| *tid == 6).unwrap().1;
        assert_eq!((of_child.on_cpu, of_child.ready), (17, 5));
        let (program, before) = accounts.earlier[&6][0];
        assert_eq!(program, TaskComm::new(b"sh"));
        assert_eq!((before.on_cpu, before.ready), (15, 5));
        assert_eq!(accounts.earlier.len(), 1);
    }
}
