//! Cgroups for a test's children.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup of the unified hierarchy, removed at the end.
#[derive(Debug)]
pub struct TestCgroup(PathBuf);

impl TestCgroup {
    /// Makes one; `None` where that is not possible.
    pub fn new(name: &str) -> Option<TestCgroup> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let root = mounts.lines().find_map(|l| {
            let mut f = l.split(' ').skip(1);
            let (at, kind) = (f.next()?, f.next()?);
            (kind == "cgroup2").then(|| at.to_owned())
        })?;
        let path = Path::new(&root).join(format!("kymo-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(TestCgroup(path))
    }

    /// Its path below the mount.
    ///
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }

    /// Moves a process into it.
    ///
    /// # Panics
    /// If the kernel does not let it.
    #[track_caller]
    pub fn add(&self, pid: u32) {
        let moved = fs::write(self.0.join("cgroup.procs"), pid.to_string());
        assert!(moved.is_ok(), "{}: {moved:?}", self.0.display());
    }
}

/// Cgroup of version 1 with a CPU quota, which is removed when it is dropped.
#[derive(Debug)]
pub struct QuotaCgroup(TestCgroup);

impl QuotaCgroup {
    /// Makes one that may run for `quota` of each `period`; `None` where that is not possible.
    pub fn new(name: &str, quota: Duration, period: Duration) -> Option<QuotaCgroup> {
        let path =
            Path::new("/sys/fs/cgroup/cpu").join(format!("kymo-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = QuotaCgroup(TestCgroup(path));
        let set = |file: &str, time: Duration| {
            fs::write(group.0.0.join(file), time.as_micros().to_string()).ok()
        };
        set("cpu.cfs_period_us", period)?;
        set("cpu.cfs_quota_us", quota)?;
        Some(group)
    }

    /// File that a process writes its id to, to join it.
    #[must_use]
    pub fn procs(&self) -> String {
        self.0.0.join("cgroup.procs").display().to_string()
    }

    /// Times that a CPU's tasks were throttled, and nanoseconds.
    #[must_use]
    pub fn throttled(&self) -> (u64, u64) {
        let text = fs::read_to_string(self.0.0.join("cpu.stat")).unwrap_or_default();
        let of = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        (of("nr_throttled "), of("throttled_time "))
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // The kernel lets a group go a moment after its last task.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
