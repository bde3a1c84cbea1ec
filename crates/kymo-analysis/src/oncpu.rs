//! How long each thread ran, waited for a CPU and slept, from the context
//! switch records of a recording (`PERF_RECORD_SWITCH`, perf_event_open(2)).
//!
//! A thread is on a CPU from its switch-in to its switch-out. What lies between
//! a switch-out and the next switch-in is *ready* time when the switch-out was
//! a preemption, *blocked* time otherwise (which includes the wait for a CPU
//! after the wake-up: the records do not tell when that came).

use kymo_model::{Sideband, Switch};
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

/// Intervals that are kept; more are in the accounts alone.
const MAX_INTERVALS: usize = 1 << 20;

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

/// Intervals by thread, in the order of time.
pub type OffIntervals = FxHashMap<u32, Vec<OffInterval>>;

#[derive(Clone, Copy, Debug)]
enum Since {
    /// It was there before the recording, running or not.
    Existing,
    Running(u64),
    Off(OffKind, u64),
    Dead,
}

/// The accounts of all threads of a recording, fed in time order.
#[derive(Debug, Default)]
pub struct OnCpu {
    threads: FxHashMap<u32, (ThreadTime, Since)>,
    /// Where they are wanted.
    intervals: Option<OffIntervals>,
    kept: usize,
    first: Option<u32>,
    /// Threads that were there before, and whether they ran then. Their first account begins at
    /// 0 until it is known when the recording began.
    existing: Vec<(u32, bool)>,
    /// Times of the first and the last record.
    seen: Option<(u64, u64)>,
}

impl OnCpu {
    /// Accounts that keep the intervals, too.
    pub fn with_intervals() -> OnCpu {
        OnCpu { intervals: Some(OffIntervals::default()), ..OnCpu::default() }
    }

    /// The first thread that executed a program.
    pub fn first_thread(&self) -> Option<u32> {
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
            Sideband::Comm(c) if c.exec => {
                self.first.get_or_insert(tid);
                self.threads.entry(tid).or_insert((ThreadTime::default(), Since::Running(time)));
            }
            Sideband::Exit(e) => self.settle(e.tid, time, Since::Dead, false),
            _ => {}
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
            *since = if ran { Since::Running(0) } else { Since::Off(OffKind::Blocked, 0) };
        }
        match *since {
            Since::Existing => {}
            Since::Running(t0) => t.on_cpu += time.saturating_sub(t0),
            Since::Off(kind, t0) => {
                let account = if kind == OffKind::Blocked { &mut t.blocked } else { &mut t.ready };
                *account += time.saturating_sub(t0);
                if let Some(kept) = self.intervals.as_mut().filter(|_| self.kept < MAX_INTERVALS) {
                    let to = time.max(t0);
                    self.kept += 1;
                    kept.entry(tid).or_default().push(OffInterval { from: t0, to, kind, is_open });
                }
            }
            Since::Dead => return,
        }
        *since = next;
    }

    /// The accounts from `begin`, open intervals closed at `end`, in no particular order; and the
    /// intervals, where they were kept.
    pub fn finish(
        mut self,
        begin: u64,
        end: u64,
    ) -> (Vec<(u32, ThreadTime)>, Option<OffIntervals>) {
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            self.settle(tid, end, Since::Dead, true);
        }
        for (tid, ran) in std::mem::take(&mut self.existing) {
            if let Some((time, _)) = self.threads.get_mut(&tid) {
                let account = if ran { &mut time.on_cpu } else { &mut time.blocked };
                *account = account.saturating_sub(begin);
            }
            let list = self.intervals.as_mut().and_then(|all| all.get_mut(&tid));
            if let Some(first) = list.and_then(|list| list.first_mut()).filter(|i| i.from == 0) {
                first.from = begin.min(first.to);
            }
        }
        let times = self.threads.into_iter().map(|(tid, (t, _))| (tid, t)).collect();
        (times, self.intervals)
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
        let (t, _) = on.finish(100, 900);
        let want = ThreadTime { on_cpu: 43, ready: 20, blocked: 40, switches: 3, preemptions: 1 };
        assert_eq!(t, [(5, want)]);
    }

    #[test]
    fn a_newborn_thread_waits_for_its_first_cpu() {
        let mut on = OnCpu::default();
        let fork = Task { pid: 5, ppid: 5, tid: 6, ptid: 5, time: 10 };
        on.apply(5, 10, &Sideband::Fork(fork));
        on.apply(6, 14, &switch(false, false));
        let (t, _) = on.finish(10, 20);
        assert_eq!(t, [(6, ThreadTime { on_cpu: 6, ready: 4, ..ThreadTime::default() })]);
    }

    #[test]
    fn threads_that_were_there_before_are_counted_from_the_begin() {
        let mut on = OnCpu::with_intervals();
        for tid in [5, 6, 7] {
            let fork = Task { pid: tid, ppid: 1, tid, ptid: 1, time: 0 };
            on.apply(tid, 0, &Sideband::Fork(fork));
        }
        // One slept and comes back, one runs and leaves, of one nothing is heard.
        on.apply(5, 130, &switch(false, false));
        on.apply(6, 140, &switch(true, false));
        assert_eq!(on.seen(), Some((130, 140)));
        let (mut times, intervals) = on.finish(100, 200);
        times.sort_by_key(|(tid, _)| *tid);
        let times: Vec<_> = times.iter().map(|(_, t)| (t.on_cpu, t.blocked)).collect();
        assert_eq!(times, [(70, 30), (40, 60), (0, 100)]);
        let spans = |tid| intervals.as_ref().unwrap()[&tid].iter().map(|i| (i.from, i.to));
        assert_eq!(spans(5).collect::<Vec<_>>(), [(100, 130)]);
        assert_eq!(spans(6).collect::<Vec<_>>(), [(140, 200)]);
        assert_eq!(spans(7).collect::<Vec<_>>(), [(100, 200)]);
    }
}
