//! CPUs that never run their idle task.

use std::process::{Child, Command};
use std::thread::available_parallelism;
use std::time::Duration;

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
        let children: Vec<Child> = (0..cpus).map(spin).collect();
        // Each has to be there: what it executes may have to be read from the disk first.
        children.iter().for_each(|child| wait_until_it_spins(child.id()));
        Self(children)
    }
}

/// Waits until a process has had a CPU for some milliseconds as the shell.
fn wait_until_it_spins(pid: u32) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let spins = || {
        let stat = read("schedstat").expect("it lives");
        let ran = stat.split(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("a number");
        read("comm").expect("it lives").trim() == "sh" && ran > 20_000_000
    };
    while !spins() {
        std::thread::sleep(Duration::from_millis(5));
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
