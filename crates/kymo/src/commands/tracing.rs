//! Shared parts of the commands that write to tracefs: opening the tree, cleaning up after a killed
//! kymo, and reporting it.

use kymo_kernel::ftrace::{Instance, TraceDir};
use kymo_kernel::kprobes::JumpOptimization;
use kymo_kernel::probe_guard::ProbeGuard;
use kymo_kernel::tracefs::Tracefs;

/// Purpose of an instance that marks the top instance's tracer as in use by its owner.
pub(crate) const TOP_IN_USE: &str = "top-tracer";

/// Puts the top instance's tracer and everything that goes with it back to nothing.
pub(crate) fn reset_tracer(top: &TraceDir) {
    // Each for itself: a kernel that lacks one file has the others.
    let _ = top.set("current_tracer", "nop");
    for file in ["set_ftrace_filter", "set_ftrace_notrace", "set_ftrace_pid", "set_graph_function"]
    {
        let _ = top.set(file, "");
    }
    let _ = top.set("max_graph_depth", "0");
    let _ = top.set("options/function-fork", "0");
    let _ = top.set("tracing_on", "1");
    let _ = top.set("trace", "");
}

/// The machine's tracefs, without the instances and probes of kymos that are dead.
pub(crate) fn open() -> anyhow::Result<Tracefs> {
    let tracefs = Tracefs::open()?;
    for stale in Instance::remove_stale(&tracefs) {
        let (name, pid) = (&stale.name, stale.pid);
        if name.contains(TOP_IN_USE) {
            reset_tracer(&TraceDir::top(&tracefs));
        }
        if JumpOptimization::restore(name) {
            sayln!(
                "kymo: debug.kprobes-optimization is again what it was before process {pid}, which is dead"
            );
        }
        match stale.error {
            None => sayln!(
                "kymo: removed the trace instance {name}: process {pid}, which made it, is dead"
            ),
            Some(e) => sayln!(
                "kymo: the trace instance {name} is left over from process {pid}, which is dead: {e}"
            ),
        }
    }
    for stale in ProbeGuard::remove_stale(&tracefs) {
        let (name, pid) = (&stale.name, stale.pid);
        match stale.error {
            None => {
                sayln!("kymo: removed the probe {name}: process {pid}, which added it, is dead")
            }
            Some(e) => {
                sayln!("kymo: the probe {name} is left over from process {pid}, which is dead: {e}")
            }
        }
    }
    Ok(tracefs)
}

/// The tree's top, or the instance that was named.
pub(crate) fn directory(tracefs: &Tracefs, instance: Option<&str>) -> anyhow::Result<TraceDir> {
    Ok(match instance {
        None => TraceDir::top(tracefs),
        Some(name) => TraceDir::open(tracefs, name)?,
    })
}

/// Name of a directory in messages.
pub(crate) fn called(dir: &TraceDir) -> String {
    match dir.name() {
        None => "the top instance".to_owned(),
        Some(name) => format!("instance {name}"),
    }
}
