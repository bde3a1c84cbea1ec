//! Run and wait times by task: the summary of `sched timehist`.

use super::machine::{SwitchOut, TaskMachine};
use super::switch_state::SwitchOutState;
use super::task::{SchedTask, TaskId};

/// Tasks that ended and have rows of their own.
const MOST_ENDED: usize = 100_000;

/// Runs of a task: mean and spread as they come in (Welford's method).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunSummary {
    /// Number of runs.
    pub count: u64,
    /// Nanoseconds together.
    pub total: u64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    mean: f64,
    squares: f64,
}

impl RunSummary {
    /// Counts a run.
    pub fn add(&mut self, nanos: u64) {
        self.min = if self.count == 0 { nanos } else { self.min.min(nanos) };
        self.max = self.max.max(nanos);
        self.count += 1;
        self.total = self.total.saturating_add(nanos);
        let delta = nanos as f64 - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (nanos as f64 - self.mean);
    }

    /// Mean.
    pub fn average(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    /// Standard error of the mean in percent of it, as perf states it.
    pub fn error_percent(&self) -> f64 {
        if self.count < 2 || self.mean <= 0.0 {
            return 0.0;
        }
        let n = self.count as f64;
        let of_mean = (self.squares / (n - 1.0) / n).sqrt();
        of_mean * 100.0 / self.mean
    }
}

/// A task, or the idle time of a CPU.
#[derive(Clone, Debug, Default)]
pub struct RuntimeRow {
    /// Name.
    pub comm: Vec<u8>,
    /// Thread.
    pub tid: u32,
    /// Process, where known and another number.
    pub process: Option<u32>,
    /// Parent, where the recording has it.
    pub parent: Option<u32>,
    /// Whether it ended.
    pub has_ended: bool,
    /// Runs.
    pub runs: RunSummary,
    /// Nanoseconds between wake-up and run.
    pub delay: u64,
    /// Nanoseconds asleep (`S` and others), until it ran again.
    pub sleep: u64,
    /// Nanoseconds in `D`, until it ran again.
    pub uninterruptible: u64,
    /// Nanoseconds preempted.
    pub preempted: u64,
    /// Runs on another CPU than the one before.
    pub migrations: u64,
    /// Runs or waits in which events were lost.
    pub uncertain: u64,
}

impl RuntimeRow {
    fn add(&mut self, out: &SwitchOut, (from, to): (u64, u64)) {
        self.runs.add(to - from);
        self.uncertain += u64::from(out.touches_loss || out.wait.touches_loss);
        // Where events were lost, the run before may have been another.
        self.migrations += u64::from(out.wait.is_migrated && !out.wait.touches_loss);
        let wait = &out.wait;
        self.delay += wait.wakeup_delay().unwrap_or(0);
        let off = wait.off_cpu().unwrap_or(0);
        match wait.left.map(|l| l.1) {
            Some(SwitchOutState::Runnable | SwitchOutState::Preempted) => self.preempted += off,
            Some(SwitchOutState::Blocked(b'D')) => self.uninterruptible += off,
            Some(_) => self.sleep += off,
            None => {}
        }
    }
}

/// Idle time of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IdleTime {
    /// The CPU.
    pub cpu: u32,
    /// Times without a task.
    pub idle: RunSummary,
}

/// Rows as they grow.
#[derive(Debug, Default)]
pub struct RuntimeTable {
    live: Vec<RuntimeRow>,
    ended: Vec<RuntimeRow>,
    idle: Vec<IdleTime>,
    /// Ended tasks without rows of their own.
    pub crowded: u64,
}

impl RuntimeTable {
    /// Counts a run that has ended; `cut` is the part of it that counts.
    pub fn add(&mut self, out: &SwitchOut, task: &SchedTask, cpu: u32, cut: (u64, u64)) {
        if task.is_idle() {
            let found = self.idle.iter().position(|i| i.cpu == cpu);
            let at = found.unwrap_or_else(|| {
                self.idle.push(IdleTime { cpu, ..IdleTime::default() });
                self.idle.len() - 1
            });
            if let Some(slot) = self.idle.get_mut(at) {
                slot.idle.add(cut.1 - cut.0);
            }
            return;
        }
        let index = out.task.index();
        if self.live.len() <= index {
            self.live.resize_with(index + 1, RuntimeRow::default);
        }
        if let Some(row) = self.live.get_mut(index) {
            row.add(out, cut);
        }
    }

    /// Keeps the rows of tasks that ended.
    pub fn keep_ended(&mut self, machine: &TaskMachine) {
        for id in machine.ended() {
            self.keep(*id, machine, true);
        }
    }

    fn keep(&mut self, id: TaskId, machine: &TaskMachine, has_ended: bool) {
        let row = self.live.get_mut(id.index()).map(std::mem::take);
        let (Some(row), Some(task)) = (row, machine.tasks.get(id)) else { return };
        if row.runs.count == 0 {
            return;
        }
        if has_ended && self.ended.len() >= MOST_ENDED {
            self.crowded += 1;
            return;
        }
        self.ended.push(RuntimeRow {
            comm: task.comm().to_vec(),
            tid: task.tid,
            process: task.process(),
            parent: task.parent,
            has_ended,
            ..row
        });
    }

    /// All rows, longest run time first, and idle times by CPU.
    pub fn finish(mut self, machine: &TaskMachine) -> (Vec<RuntimeRow>, Vec<IdleTime>) {
        let alive: Vec<TaskId> = machine.tasks.iter().map(|(id, _)| id).collect();
        alive.into_iter().for_each(|id| self.keep(id, machine, false));
        self.ended.sort_by(|a, b| b.runs.total.cmp(&a.runs.total).then(a.tid.cmp(&b.tid)));
        self.idle.sort_by_key(|i| i.cpu);
        (self.ended, self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_that_of_the_mean() {
        let mut runs = RunSummary::default();
        assert_eq!(runs.error_percent(), 0.0);
        [2, 4, 4, 4, 5, 5, 7, 9].into_iter().for_each(|n| runs.add(n));
        assert_eq!((runs.count, runs.average(), runs.min, runs.max), (8, 5, 2, 9));
        // Variance 32/7; its eighth's root in percent of 5.
        assert!((runs.error_percent() - 15.118_578).abs() < 1e-5, "{}", runs.error_percent());
    }
}
