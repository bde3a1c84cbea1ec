//! A look at tracefs before and after: what a test switched on must be off again.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

const ROOT: &str = "/sys/kernel/tracing";

/// Files whose lines may only become fewer: an entry that is new was left behind.
const LISTS: &[&str] = &["set_event", "uprobe_events", "kprobe_events", "dynamic_events"];

/// Files whose content must be the same.
const VALUES: &[&str] = &[
    "current_tracer",
    "tracing_on",
    "set_event_pid",
    "set_event_notrace_pid",
    "set_ftrace_filter",
    "set_ftrace_notrace",
    "set_ftrace_pid",
    "set_graph_function",
    "max_graph_depth",
    "trace_clock",
    "trace_options",
    "tracing_cpumask",
    "buffer_size_kb",
    "buffer_percent",
];

/// Other tests run at the same time and clean up after themselves; this long is waited for
/// what they had when the test ended.
const PATIENCE: Duration = Duration::from_secs(90);

/// Snapshot of tracefs. Compares itself when dropped, so that one line at the start of a test is
/// enough.
#[derive(Debug)]
pub struct TracingState {
    before: Snapshot,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Snapshot {
    lists: Vec<(&'static str, BTreeSet<String>)>,
    values: Vec<(&'static str, String)>,
}

impl TracingState {
    /// Takes the state now. Without tracefs it is empty and compares equal.
    #[must_use]
    pub fn take() -> TracingState {
        TracingState { before: Snapshot::take() }
    }

    /// Differences from the snapshot, in words; `None` when nothing was left behind. Objects that
    /// appear later or disappear belong to other tests.
    pub fn left_behind(&self) -> Option<String> {
        let start = Instant::now();
        let mut found = self.before.left_behind(&Snapshot::take());
        while !found.is_empty() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.before.left_behind(&Snapshot::take());
            found.retain(|what| now.contains(what));
        }
        (!found.is_empty()).then(|| found.join("; "))
    }
}

impl Drop for TracingState {
    fn drop(&mut self) {
        // A second panic would hide the first.
        if std::thread::panicking() {
            return;
        }
        if let Some(what) = self.left_behind() {
            panic!("tracefs is not as it was: {what}");
        }
    }
}

impl Snapshot {
    fn take() -> Snapshot {
        let root = Path::new(ROOT);
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
        let mut lists: Vec<_> = LISTS
            .iter()
            .map(|name| (*name, read(name).lines().map(str::to_owned).collect()))
            .collect();
        let instances = std::fs::read_dir(root.join("instances"))
            .map(|dir| {
                dir.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
            })
            .unwrap_or_default();
        lists.push(("instances", instances));
        lists.extend(Snapshot::rules(root));
        let value = |name: &&'static str| (*name, expanded(read(name)));
        Snapshot { lists, values: VALUES.iter().map(value).collect() }
    }

    /// Filters and triggers of all events.
    fn rules(root: &Path) -> [(&'static str, BTreeSet<String>); 2] {
        let (mut filters, mut triggers) = (BTreeSet::new(), BTreeSet::new());
        let directories =
            |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
        for event in directories(&root.join("events")).flat_map(|system| directories(&system)) {
            let read = |file| std::fs::read_to_string(event.join(file)).unwrap_or_default();
            let name = event.strip_prefix(root.join("events")).unwrap_or(&event).display();
            let filter = read("filter");
            if !matches!(filter.trim(), "none" | "") {
                filters.insert(format!("{name}: {}", filter.trim()));
            }
            let lines = read("trigger");
            let lines = lines.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
            triggers.extend(lines.map(|l| format!("{name}: {l}")));
        }
        [("filters", filters), ("triggers", triggers)]
    }

    fn left_behind(&self, now: &Snapshot) -> Vec<String> {
        let mut found = Vec::new();
        for ((name, before), (_, now)) in self.lists.iter().zip(&now.lists) {
            let new = now.difference(before);
            found.extend(new.map(|new| format!("{name} still has `{new}`")));
        }
        for ((name, before), (_, now)) in self.values.iter().zip(&now.values) {
            if before != now {
                found.push(format!("{name} was `{}` and is `{}`", before.trim(), now.trim()));
            }
        }
        found
    }
}

/// `7 (expanded: 1408)`: the top's ring gets its real size when it is first
/// used, and keeps it. Sizes are compared in whole pages of the ring (4,080 bytes of
/// data each), because some kernels then say 1410.
fn expanded(value: String) -> String {
    let size = match value.split_once("(expanded: ") {
        Some((_, size)) => size.replace(')', ""),
        None => value,
    };
    match size.trim().parse::<u64>() {
        Ok(kb) => format!("{} pages", (kb * 1024).div_ceil(4080)),
        Err(_) => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_named_and_what_went_away_is_not() {
        let snapshot = |events: &[&str], tracer: &str| Snapshot {
            lists: vec![("set_event", events.iter().map(|e| (*e).to_owned()).collect())],
            values: vec![("current_tracer", tracer.to_owned())],
        };
        let before = snapshot(&["sched:sched_switch"], "nop\n");
        assert_eq!(before.left_behind(&snapshot(&[], "nop\n")), [""; 0]);
        assert_eq!(
            before.left_behind(&snapshot(&["sched:sched_switch", "irq:softirq_entry"], "nop\n")),
            ["set_event still has `irq:softirq_entry`"]
        );
        assert_eq!(
            before.left_behind(&snapshot(&["irq:softirq_exit"], "function\n")),
            [
                "set_event still has `irq:softirq_exit`",
                "current_tracer was `nop` and is `function`"
            ]
        );
        for text in ["7 (expanded: 1408)\n", "1408\n", "1410\n"] {
            assert_eq!(expanded(text.into()), "354 pages", "{text}");
        }
        assert_eq!(expanded("X\n".into()), "X\n");
    }
}
