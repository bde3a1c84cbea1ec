//! How long each thread ran, waited for a CPU and slept, from the context
//! switch records of a recording (`PERF_RECORD_SWITCH`, perf_event_open(2)).
//!
//! A thread is on a CPU from its switch-in to its switch-out. What lies between
//! a switch-out and the next switch-in is *ready* time when the switch-out was
//! a preemption, *blocked* time otherwise (which includes the wait for a CPU
//! after the wake-up: the records do not tell when that came).

use kymo_events::EventSelection;
use kymo_files::perfdata::Entry;
use kymo_model::{RecordKind, Sideband, Switch};
use rustc_hash::FxHashMap;

/// Nanoseconds of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a CPU.
    pub on_cpu: u64,
    /// Preempted, or newborn and not yet run.
    pub ready: u64,
    /// Off the CPU by its own doing.
    pub blocked: u64,
    /// Switches away from the CPU.
    pub switches: u64,
    /// How many of them were preemptions.
    pub preemptions: u64,
}

impl ThreadTime {
    /// Sums two accounts.
    pub fn plus(self, other: ThreadTime) -> ThreadTime {
        ThreadTime {
            on_cpu: self.on_cpu + other.on_cpu,
            ready: self.ready + other.ready,
            blocked: self.blocked + other.blocked,
            switches: self.switches + other.switches,
            preemptions: self.preemptions + other.preemptions,
        }
    }
}

/// How a thread was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffKind {
    /// It had not run yet.
    New,
    /// It was preempted.
    Preempted,
    /// By its own doing.
    Blocked,
}

/// A time between two runs of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffInterval {
    /// When it left the CPU.
    pub from: u64,
    /// When it was back.
    pub to: u64,
    /// How it left.
    pub kind: OffKind,
    /// It had not come back when the recording ended.
    pub is_open: bool,
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

/// The accounts of all threads of a recording, fed in time order.
#[derive(Debug, Default)]
pub struct OnCpu {
    threads: FxHashMap<u32, (ThreadTime, Since)>,
    /// Intervals that ended and were not taken yet, with their threads, where they are wanted.
    ended: Option<Vec<(u32, OffInterval)>>,
    begin: RecordingBegin,
    first: Option<(u32, u64)>,
    /// Threads that were there before, and whether they ran then. Their first account begins at
    /// 0 where it is not known when the recording began.
    existing: Vec<(u32, bool)>,
    /// Times of the first and the last record.
    seen: Option<(u64, u64)>,
    /// Where tasks are chosen by their names: the selection, and whether each thread has such a
    /// name now.
    names: Option<(EventSelection, FxHashMap<u32, bool>)>,
}

impl OnCpu {
    /// Accounts that hand out the intervals, too ([`OnCpu::take_ended`]).
    pub fn with_intervals(begin: RecordingBegin) -> OnCpu {
        OnCpu { ended: Some(Vec::new()), begin, ..OnCpu::default() }
    }

    /// The same, of threads only while they have names that the selection wants.
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
        let since = self.threads.get(&tid).map(|(_, since)| *since);
        matches!(since, Some(Since::Off(..) | Since::Existing))
    }

    /// Takes note of what a record of a recording tells; answers the thread that it is of.
    pub fn take_record(&mut self, entry: &Entry<'_>) -> Option<(u32, RecordKind)> {
        // Births and names without a time are made of what was there before.
        let time = match (entry.time, entry.raw.kind) {
            (Some(time), _) => time,
            (None, RecordKind::FORK) => 0,
            (None, RecordKind::COMM) if self.names.is_some() => 0,
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
        let tid = entry.raw.sample_id(&entry.desc()?.attr).ok()?.tid?.1;
        let record = Sideband::parse(&entry.raw).ok()??;
        self.apply(tid, time, &record);
        Some((tid, entry.raw.kind))
    }

    /// The first thread that executed a program, and when it did.
    pub fn first_thread(&self) -> Option<(u32, u64)> {
        self.first
    }

    /// Times of the first and the last record.
    pub fn seen(&self) -> Option<(u64, u64)> {
        self.seen
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
                self.threads.entry(f.tid).or_insert((ThreadTime::default(), Since::Existing));
            }
            Sideband::Fork(f) => {
                self.threads.insert(f.tid, (ThreadTime::default(), Since::Off(OffKind::New, time)));
            }
            // The program counted from its exec is running as it does it.
            Sideband::Comm(c) if c.exec && time > 0 => {
                self.first.get_or_insert((tid, time));
                self.threads.entry(tid).or_insert((ThreadTime::default(), Since::Running(time)));
            }
            Sideband::Exit(e) => self.settle(e.tid, time, Since::Dead, false),
            _ => {}
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
                        let new = (ThreadTime::default(), Since::Existing);
                        self.threads.entry(c.tid).or_insert(new);
                    }
                    (false, true, _) => {
                        let (_, since) = self
                            .threads
                            .entry(c.tid)
                            .or_insert_with(|| (ThreadTime::default(), Since::Dead));
                        *since = Since::Running(time);
                    }
                    (true, false, _) => self.settle(c.tid, time, Since::Dead, false),
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
            return self.settle(tid, time, Since::Running(time), false);
        }
        let kind = if s.preempt { OffKind::Preempted } else { OffKind::Blocked };
        let next = Since::Off(kind, time);
        self.settle(tid, time, next, false);
        if let Some((t, _)) = self.threads.get_mut(&tid) {
            t.switches += 1;
            t.preemptions += u64::from(s.preempt);
        }
    }

    /// Books the time since the last change to the state the thread was in.
    fn settle(&mut self, tid: u32, time: u64, next: Since, is_open: bool) {
        let Some((t, since)) = self.threads.get_mut(&tid) else {
            self.threads.insert(tid, (ThreadTime::default(), next));
            return;
        };
        let before = *since;
        if matches!(before, Since::Existing) {
            let ran = !is_open && !matches!(next, Since::Running(_));
            self.existing.push((tid, ran));
            let begin = match self.begin {
                RecordingBegin::Unknown => 0,
                RecordingBegin::At(begin) => begin,
                RecordingBegin::FirstRecord => self.seen.map_or(time, |seen| seen.0),
                // Before the program starts its waits are not those of the command.
                RecordingBegin::FirstExec(from, to) => {
                    self.first.map_or(time, |(_, exec)| exec.max(from).min(to))
                }
            };
            *since = if ran { Since::Running(begin) } else { Since::Off(OffKind::Blocked, begin) };
        }
        match *since {
            Since::Existing => {}
            Since::Running(t0) => t.on_cpu += time.saturating_sub(t0),
            Since::Off(kind, t0) => {
                let account = if kind == OffKind::Blocked { &mut t.blocked } else { &mut t.ready };
                *account += time.saturating_sub(t0);
                if let Some(ended) = &mut self.ended {
                    let to = time.max(t0);
                    ended.push((tid, OffInterval { from: t0, to, kind, is_open }));
                }
            }
            Since::Dead => return,
        }
        *since = next;
    }

    /// Closes what is open at the end of the recording.
    pub fn close(&mut self, end: u64) {
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            self.settle(tid, end, Since::Dead, true);
        }
    }

    /// The accounts from `begin`, open intervals closed at `end`, in no particular order.
    pub fn finish(mut self, begin: u64, end: u64) -> Vec<(u32, ThreadTime)> {
        self.close(end);
        for (tid, ran) in std::mem::take(&mut self.existing) {
            if let Some((time, _)) =
                self.threads.get_mut(&tid).filter(|_| self.begin == RecordingBegin::Unknown)
            {
                let account = if ran { &mut time.on_cpu } else { &mut time.blocked };
                *account = account.saturating_sub(begin);
            }
        }
        self.threads.into_iter().map(|(tid, (t, _))| (tid, t)).collect()
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
        let t = on.finish(100, 900);
        let want = ThreadTime { on_cpu: 43, ready: 20, blocked: 40, switches: 3, preemptions: 1 };
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
        let mut times = on.finish(10, 200);
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
        let t = on.finish(10, 20);
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
        let mut times = on.finish(100, 200);
        times.sort_by_key(|(tid, _)| *tid);
        let times: Vec<_> = times.iter().map(|(_, t)| (t.on_cpu, t.blocked)).collect();
        assert_eq!(times, [(70, 30), (40, 60), (0, 100)]);
        let mut on = OnCpu::with_intervals(RecordingBegin::At(100));
        records(&mut on);
        on.close(200);
        let mut ended: Vec<_> = on.take_ended().map(|(tid, i)| (tid, i.from, i.to)).collect();
        ended.sort_unstable();
        assert_eq!(ended, [(5, 100, 130), (6, 140, 200), (7, 100, 200)]);
    }
}
