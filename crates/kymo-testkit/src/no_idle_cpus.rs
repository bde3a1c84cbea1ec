//! CPUs that never run their idle task.

use std::process::{Child, Command};
use std::thread::available_parallelism;

/// Keeps each CPU out of its idle task while it lives, with programs of the lowest policy
/// (`SCHED_IDLE`), which give way to all others.
#[derive(Debug)]
pub struct NoIdleCpus(Vec<Child>);

impl NoIdleCpus {
    /// Starts them; needs `taskset` and `chrt` of util-linux.
    #[must_use]
    pub fn keep() -> Self {
        let cpus = available_parallelism().map_or(1, usize::from);
        let spin = |cpu: usize| {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string(), "chrt", "--idle", "0"]);
            command.args(["sh", "-c", "while :; do :; done"]).spawn().expect("taskset")
        };
        Self((0..cpus).map(spin).collect())
    }
}

impl Drop for NoIdleCpus {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
