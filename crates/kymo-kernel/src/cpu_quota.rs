//! CPU quotas of cgroups: how long they kept tasks from running.

use std::path::{Path, PathBuf};

use crate::system_root::system_path;

/// Most cgroups of the machine that are read.
const MOST: usize = 1 << 13;

/// A cgroup, and how long its quota was used up: of all CPUs together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottledCgroup {
    /// Its directory below the mount point.
    pub path: String,
    /// Number of periods in which the quota was used up.
    pub times: u64,
    /// Nanoseconds.
    pub nanos: u64,
}

impl ThrottledCgroup {
    /// Whether a cgroup is this one, or one below it.
    pub fn contains(&self, path: &str) -> bool {
        Path::new(path).starts_with(&self.path)
    }
}

/// Tasks whose cgroups are read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum QuotaScope {
    /// Those of the machine.
    Machine,
    /// Those of these processes or threads, and those above them.
    Tasks(Vec<u32>),
}

/// Throttling of cgroups since a moment.
#[derive(Clone, Debug)]
pub struct QuotaWatch {
    scope: QuotaScope,
    /// By file.
    before: Vec<(PathBuf, ThrottledCgroup)>,
}

impl QuotaWatch {
    /// Reads all cgroups of the machine.
    pub fn of_machine() -> QuotaWatch {
        QuotaWatch::of(QuotaScope::Machine)
    }

    /// Reads the cgroups of these processes or threads and those above them; of the machine if
    /// there are none.
    pub fn of_tasks(ids: &[u32]) -> QuotaWatch {
        let is_chosen = !ids.is_empty();
        QuotaWatch::of(if is_chosen {
            QuotaScope::Tasks(ids.to_vec())
        } else {
            QuotaScope::Machine
        })
    }

    fn of(scope: QuotaScope) -> QuotaWatch {
        let before = read_all(&scope);
        QuotaWatch { scope, before }
    }

    /// The cgroups that were throttled since, the longest first.
    pub fn throttled(&self) -> Vec<ThrottledCgroup> {
        let mut now = read_all(&self.scope);
        // Tasks may have ended.
        for (file, _) in &self.before {
            if !now.iter().any(|(known, _)| known == file) {
                now.extend(read(file.clone(), None));
            }
        }
        for (file, cgroup) in &mut now {
            if let Some((_, before)) = self.before.iter().find(|(known, _)| known == file) {
                cgroup.path.clone_from(&before.path);
                cgroup.times = cgroup.times.saturating_sub(before.times);
                cgroup.nanos = cgroup.nanos.saturating_sub(before.nanos);
            }
        }
        let mut found: Vec<_> = now.into_iter().map(|(_, cgroup)| cgroup).collect();
        found.retain(|cgroup| cgroup.nanos > 0 && !cgroup.path.is_empty());
        found.sort_by(|a, b| b.nanos.cmp(&a.nanos).then_with(|| a.path.cmp(&b.path)));
        found
    }
}

/// Paths of a task's cgroups that may have a quota: of version 2, and of the CPU controller.
pub fn cgroups_of_task(id: u32) -> Vec<String> {
    let text = std::fs::read_to_string(system_path(format!("/proc/{id}/cgroup")));
    text.unwrap_or_default().lines().filter_map(path_of).map(str::to_owned).collect()
}

fn read_all(scope: &QuotaScope) -> Vec<(PathBuf, ThrottledCgroup)> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts: Vec<PathBuf> = mounts.lines().filter_map(mount_of).collect();
    let mut found: Vec<(PathBuf, ThrottledCgroup)> = Vec::new();
    match scope {
        QuotaScope::Machine => {
            for mount in &mounts {
                read_below(mount, &mut found);
            }
        }
        QuotaScope::Tasks(ids) => {
            for path in ids.iter().flat_map(|id| cgroups_of_task(*id)) {
                for directory in Path::new(&path).ancestors() {
                    let below = directory.strip_prefix("/").unwrap_or(directory);
                    for file in mounts.iter().map(|mount| mount.join(below).join("cpu.stat")) {
                        if !found.iter().any(|(known, _)| *known == file) {
                            found.extend(read(file, Some(directory)));
                        }
                    }
                }
            }
        }
    }
    found
}

fn read_below(mount: &Path, found: &mut Vec<(PathBuf, ThrottledCgroup)>) {
    let mut waiting = vec![mount.to_owned()];
    let mut left = MOST;
    while let Some(directory) = waiting.pop() {
        if left == 0 {
            return;
        }
        left -= 1;
        let below = directory.strip_prefix(mount).unwrap_or(&directory);
        found.extend(read(directory.join("cpu.stat"), Some(&Path::new("/").join(below))));
        let below = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        waiting.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
}

/// Reads a cpu.stat, if it accounts for throttling.
fn read(file: PathBuf, directory: Option<&Path>) -> Option<(PathBuf, ThrottledCgroup)> {
    let (times, nanos) = throttled_in(&std::fs::read_to_string(&file).ok()?)?;
    let path = directory.map(|path| path.display().to_string()).unwrap_or_default();
    Some((file, ThrottledCgroup { path, times, nanos }))
}

/// Mount point in a line of /proc/self/mounts of version 2 or of the CPU controller.
fn mount_of(line: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ').skip(1);
    let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    let is_cpu = || options.split(',').any(|option| option == "cpu");
    (kind == "cgroup2" || kind == "cgroup" && is_cpu()).then(|| PathBuf::from(at))
}

/// Path of the cgroup that a line of /proc/PID/cgroup names, of version 2 or the CPU controller.
fn path_of(line: &str) -> Option<&str> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    (controllers.is_empty() || controllers.split(',').any(|c| c == "cpu")).then_some(path)
}

/// Number and nanoseconds in a cpu.stat, which has microseconds in version 2.
fn throttled_in(text: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let of_version_2 = value("throttled_usec").and_then(|micros| micros.checked_mul(1000));
    let nanos = of_version_2.or_else(|| value("throttled_time"))?;
    Some((value("nr_throttled").unwrap_or(0), nanos))
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
        assert_eq!(throttled_in(two), Some((3, 207_000)));
        let one = "nr_periods 8\nnr_throttled 3\nthrottled_time 207123\n";
        assert_eq!(throttled_in(one), Some((3, 207_123)));
        assert_eq!(throttled_in("usage_usec 5\n"), None);
        let mount = |line| mount_of(line).map(|path| path.display().to_string());
        let own = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0";
        assert_eq!(mount(own).as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct"));
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0";
        assert_eq!(mount(unified).as_deref(), Some("/sys/fs/cgroup"));
        assert_eq!(mount("cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0"), None);
    }

    #[test]
    fn a_cgroup_contains_those_below_it() {
        let cgroup = ThrottledCgroup { path: "/a/b".to_owned(), times: 1, nanos: 1 };
        assert!(cgroup.contains("/a/b") && cgroup.contains("/a/b/c"));
        assert!(!cgroup.contains("/a") && !cgroup.contains("/a/bc"));
    }
}
