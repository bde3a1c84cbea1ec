//! CPU lists, which CPUs are online, and where each sits (core, die, socket).

use std::fs;
use std::path::Path;

use crate::system_root::system_path;

/// The highest CPU number taken for real: the kernel's own limit is lower.
const CPU_LIMIT: u32 = 1 << 16;

/// A CPU list could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} in CPU list {list:?} is neither a number nor a range such as 0-3")]
pub struct ListError {
    /// The list.
    pub list: String,
    /// The part that is wrong.
    pub part: String,
}

/// Parses a list such as `0-3,5`, sorted and without duplicates. The kernel's
/// own lists end in a newline and may be empty.
pub fn parse_list(list: &str) -> Result<Vec<u32>, ListError> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let bad = || ListError { list: list.trim().to_owned(), part: part.to_owned() };
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| bad())?;
        let last: u32 = last.parse().map_err(|_| bad())?;
        if first > last || last >= CPU_LIMIT {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// A CPU list does not name CPUs that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// It could not be understood.
    #[error(transparent)]
    List(#[from] ListError),
    /// A CPU is not online.
    #[error("CPU {0} is not online")]
    Offline(u32),
    /// It is empty.
    #[error("the list has no CPU")]
    Empty,
}

/// CPUs of a list, all of which must be online.
///
/// # Errors
/// If the list cannot be understood, is empty, or has a CPU that is not online.
pub fn parse_online(list: &str) -> Result<Vec<u32>, ChoiceError> {
    let chosen = parse_list(list)?;
    let online = online();
    match chosen.iter().find(|cpu| !online.contains(cpu)) {
        Some(off) => Err(ChoiceError::Offline(*off)),
        None if chosen.is_empty() => Err(ChoiceError::Empty),
        None => Ok(chosen),
    }
}

/// CPUs that are online, in order. Without sysfs, the number of CPUs this process may use.
pub fn online() -> Vec<u32> {
    online_under(&system_path("/sys"))
}

fn online_under(sysfs: &Path) -> Vec<u32> {
    fs::read_to_string(sysfs.join("devices/system/cpu/online"))
        .ok()
        .and_then(|text| parse_list(&text).ok())
        .filter(|cpus| !cpus.is_empty())
        .unwrap_or_else(|| {
            let n = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            (0..n).collect()
        })
}

/// Topology of a CPU. Numbers that sysfs does not state are 0, as in perf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topology {
    /// `physical_package_id`.
    pub socket: u32,
    /// `die_id`.
    pub die: u32,
    /// `cluster_id`.
    pub cluster: u32,
    /// `core_id`, unique within its die.
    pub core: u32,
}

/// Topology of `cpu`.
pub fn topology(cpu: u32) -> Topology {
    topology_under(&system_path("/sys"), cpu)
}

fn topology_under(sysfs: &Path, cpu: u32) -> Topology {
    let directory = sysfs.join(format!("devices/system/cpu/cpu{cpu}/topology"));
    let number = |name: &str| {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        text.trim().parse::<i64>().ok().and_then(|n| u32::try_from(n).ok())
    };
    Topology {
        socket: number("physical_package_id").unwrap_or(0),
        die: number("die_id").unwrap_or(0),
        cluster: number("cluster_id").unwrap_or(0),
        core: number("core_id").unwrap_or(0),
    }
}

/// The cache of a level that serves `cpu` (0: of the last level there is): its level, and the first
/// CPU that it serves.
pub fn cache(cpu: u32, level: u8) -> Option<(u8, u32)> {
    cache_under(&system_path("/sys"), cpu, level)
}

fn cache_under(sysfs: &Path, cpu: u32, wanted: u8) -> Option<(u8, u32)> {
    let directory = sysfs.join(format!("devices/system/cpu/cpu{cpu}/cache"));
    let caches = fs::read_dir(directory).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let level: u8 = fs::read_to_string(path.join("level")).ok()?.trim().parse().ok()?;
        let served = fs::read_to_string(path.join("shared_cpu_list")).ok()?;
        Some((level, *parse_list(&served).ok()?.first()?))
    });
    caches.filter(|(level, _)| wanted == 0 || *level == wanted).max()
}

/// The memory node of `cpu`; 0 where the kernel has none.
pub fn node(cpu: u32) -> u32 {
    let Ok(dir) = fs::read_dir(system_path(format!("/sys/devices/system/cpu/cpu{cpu}"))) else {
        return 0;
    };
    dir.filter_map(|e| e.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .next()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-3,5\n"), Ok(vec![0, 1, 2, 3, 5]));
        assert_eq!(parse_list("5,0-1,1"), Ok(vec![0, 1, 5]));
        assert_eq!(parse_list("\n"), Ok(vec![]));
        for bad in ["a", "3-1", "0-4294967295", "1--2", "0-"] {
            assert_eq!(parse_list(bad).unwrap_err().part, bad);
        }
    }

    #[test]
    fn this_machine_has_a_first_cpu() {
        let cpus = online();
        assert!(!cpus.is_empty() && cpus.is_sorted(), "{cpus:?}");
        assert_eq!(topology_under(Path::new("/nonexistent"), 0), Topology::default());
    }

    #[test]
    fn caches_are_reported_by_level_and_the_first_cpu_that_they_serve() {
        let sysfs = tempfile::tempdir().unwrap();
        let caches = sysfs.path().join("devices/system/cpu/cpu5/cache");
        for (index, level, served) in
            [(0, "1", "5"), (1, "1", "5"), (2, "2", "4-5"), (3, "3", "0-7")]
        {
            let directory = caches.join(format!("index{index}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("level"), format!("{level}\n")).unwrap();
            fs::write(directory.join("shared_cpu_list"), format!("{served}\n")).unwrap();
        }
        let found = [0, 1, 2, 3, 4].map(|level| cache_under(sysfs.path(), 5, level));
        assert_eq!(found, [Some((3, 0)), Some((1, 5)), Some((2, 4)), Some((3, 0)), None]);
        assert_eq!(cache_under(sysfs.path(), 4, 0), None);
    }
}
