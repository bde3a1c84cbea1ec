//! A cgroup for a test's children.

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
