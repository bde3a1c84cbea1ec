//! Leftovers of a killed recorder in the machine: trace instances, probes, files of rings. Others
//! trace at the same time, so anything that belongs to a living process, or disappears after a
//! while, is theirs.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

const TRACING: &str = "/sys/kernel/tracing";
const PATIENCE: Duration = Duration::from_secs(10);

/// Objects that existed at one time.
pub(super) struct Leftovers(BTreeSet<String>);

impl Leftovers {
    pub(super) fn take() -> Leftovers {
        let mut all = BTreeSet::new();
        for directory in [format!("{TRACING}/instances"), "/dev/shm".into()] {
            let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
            let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
            all.extend(names.filter(|n| n.starts_with("kymo")).map(|n| format!("{directory}/{n}")));
        }
        for file in ["uprobe_events", "kprobe_events"] {
            let text = std::fs::read_to_string(format!("{TRACING}/{file}")).unwrap_or_default();
            all.extend(text.lines().map(str::to_owned));
        }
        Leftovers(all)
    }

    /// New objects that stay, and whose process has ended. `programs`: those that were traced.
    pub(super) fn left_behind(&self, programs: &[&str]) -> Option<String> {
        let begin = Instant::now();
        loop {
            let now = Leftovers::take();
            let new = now.0.difference(&self.0).filter(|what| is_orphan(what, programs));
            let new: Vec<&str> = new.map(String::as_str).collect();
            if new.is_empty() {
                return None;
            }
            if begin.elapsed() > PATIENCE {
                return Some(new.join("; "));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// An instance's name has the owner's process id; a probe's definition has the program's path.
fn is_orphan(what: &str, programs: &[&str]) -> bool {
    if !what.starts_with('/') {
        return programs.iter().any(|program| what.contains(program));
    }
    let name = what.rsplit('/').next().unwrap_or_default();
    let pid = name.split('-').find_map(|word| word.parse::<u32>().ok());
    what.starts_with(TRACING) && pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}
