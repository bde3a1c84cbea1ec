//! CPU quotas of the cgroups of this process: how long they kept their tasks from running.

use std::path::{Path, PathBuf};

/// Mount points of the controller, version 2 first.
const MOUNTS: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu"];

/// A cgroup, and how long its quota was used up: of all CPUs together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottledCgroup {
    /// Its directory below the mount point.
    pub path: String,
    /// Nanoseconds.
    pub nanos: u64,
}

/// The cgroups of this process that account for throttling: its own, and those above it.
pub fn throttled_cgroups() -> Vec<ThrottledCgroup> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for path in text.lines().filter_map(path_of) {
        for directory in Path::new(path).ancestors() {
            let below = directory.strip_prefix("/").unwrap_or(directory);
            let files = MOUNTS.iter().map(|m| PathBuf::from(m).join(below).join("cpu.stat"));
            let stat = files.filter_map(|file| std::fs::read_to_string(file).ok());
            if let Some(nanos) = stat.into_iter().find_map(|text| throttled_nanos(&text)) {
                found.push(ThrottledCgroup { path: directory.display().to_string(), nanos });
            }
        }
    }
    found
}

/// The cgroups that were throttled since an earlier look at them.
pub fn throttled_since(before: &[ThrottledCgroup]) -> Vec<ThrottledCgroup> {
    let mut now = throttled_cgroups();
    for cgroup in &mut now {
        let known = before.iter().find(|b| b.path == cgroup.path);
        cgroup.nanos = cgroup.nanos.saturating_sub(known.map_or(0, |b| b.nanos));
    }
    now.retain(|cgroup| cgroup.nanos > 0);
    now
}

/// Path of the cgroup that a line of /proc/PID/cgroup names, of version 2 or the CPU controller.
fn path_of(line: &str) -> Option<&str> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    (controllers.is_empty() || controllers.split(',').any(|c| c == "cpu")).then_some(path)
}

/// Time in a cpu.stat: microseconds of version 2, nanoseconds of version 1.
fn throttled_nanos(text: &str) -> Option<u64> {
    text.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", value) => value.parse::<u64>().ok()?.checked_mul(1000),
        ("throttled_time", value) => value.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_files_are_read() {
        assert_eq!(path_of("0::/user.slice/a:b"), Some("/user.slice/a:b"));
        assert_eq!(path_of("4:cpu,cpuacct:/docker/x"), Some("/docker/x"));
        assert_eq!(path_of("5:memory:/docker/x"), None);
        let two = "usage_usec 5\nnr_periods 8\nnr_throttled 3\nthrottled_usec 207\n";
        assert_eq!(throttled_nanos(two), Some(207_000));
        let one = "nr_periods 8\nnr_throttled 3\nthrottled_time 207123\n";
        assert_eq!(throttled_nanos(one), Some(207_123));
        assert_eq!(throttled_nanos("usage_usec 5\n"), None);
    }
}
