//! Users of an event: trace directories in which it is enabled, and processes with perf events
//! open, for which the kernel does not report which events they are.

use kymo_kernel::ftrace::TraceDir;
use kymo_kernel::probe_events::ListedProbe;
use kymo_kernel::target;
use kymo_kernel::tracefs::Tracefs;

/// Trace directories in which an event is enabled.
pub(super) fn users(tracefs: &Tracefs, probe: &ListedProbe) -> Vec<String> {
    let (group, event) = (&probe.definition.group, probe.event());
    let file = format!("events/{group}/{event}/enable");
    // A star says that a trigger is set, too.
    let enabled = |dir: &TraceDir| dir.read(&file).is_ok_and(|t| t.starts_with('1'));
    let mut by = Vec::new();
    if enabled(&TraceDir::top(tracefs)) {
        let how = format!("kymo event disable {group}:{event}");
        by.push(format!("tracefs itself (its enable file is 1; {how})"));
    }
    for name in TraceDir::instances(tracefs).unwrap_or_default() {
        if enabled(&TraceDir::named(tracefs, &name)) {
            by.push(format!("trace instance {name}"));
        }
    }
    by
}

/// Describes the users of an event that could not be removed.
pub(super) fn keepers(tracefs: &Tracefs, probe: &ListedProbe) -> String {
    let by = users(tracefs, probe);
    if !by.is_empty() {
        return format!("it is in use by {}", by.join(", "));
    }
    let open: Vec<String> = target::with_perf_events()
        .into_iter()
        .map(|(pid, name)| format!("{name} (process {pid})"))
        .collect();
    if open.is_empty() {
        "it is in use, as a perf event of a process that is not seen here".into()
    } else {
        format!(
            "it is in use as a perf event; processes with perf events open: {}",
            open.join(", ")
        )
    }
}
