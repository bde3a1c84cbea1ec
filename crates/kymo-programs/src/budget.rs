//! The share of a CPU that programs take while they run, and whether it is too much.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use kymo_kernel::bpf::{BpfProgram, ProgramInfo, enable_run_time};

/// Length of a measurement of the share.
const WINDOW: Duration = Duration::from_millis(250);

/// A limit of run time.
pub(crate) struct RunBudget {
    percent: f64,
    begin: Instant,
    last: (Instant, u64),
    _measured: OwnedFd,
}

impl RunBudget {
    pub(crate) fn new(percent: f64) -> io::Result<RunBudget> {
        let now = Instant::now();
        Ok(RunBudget { percent, begin: now, last: (now, 0), _measured: enable_run_time()? })
    }

    /// In words by how much the programs took more than they may, if they did.
    pub(crate) fn excess(&mut self, programs: &[(String, BpfProgram)]) -> Option<String> {
        let (since, before) = self.last;
        let elapsed = since.elapsed();
        if elapsed < WINDOW {
            return None;
        }
        let total =
            programs.iter().map(|(_, p)| ProgramInfo::of(p).map_or(0, |i| i.run_time_ns)).sum();
        self.last = (Instant::now(), total);
        let share = total.saturating_sub(before) as f64 / elapsed.as_nanos() as f64 * 100.0;
        (share > self.percent).then(|| {
            format!(
                "the programs took {share:.2} % of a CPU, more than the budget of {} %: they were detached after {:.1} s",
                self.percent,
                self.begin.elapsed().as_secs_f64()
            )
        })
    }
}
