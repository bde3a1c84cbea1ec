//! What the commands that write to tracefs share: opening the tree, clearing
//! away what a killed kymo left, and saying so.

use kymo_kernel::ftrace::{Instance, TraceDir};
use kymo_kernel::tracefs::Tracefs;

/// The machine's tracefs, without the instances of kymos that are dead.
pub(crate) fn open() -> anyhow::Result<Tracefs> {
    let tracefs = Tracefs::open()?;
    for stale in Instance::remove_stale(&tracefs) {
        let (name, pid) = (&stale.name, stale.pid);
        match stale.error {
            None => anstream::eprintln!(
                "kymo: removed the trace instance {name}: process {pid}, which made it, is dead"
            ),
            Some(e) => anstream::eprintln!(
                "kymo: the trace instance {name} is left over from process {pid}, which is dead: {e}"
            ),
        }
    }
    Ok(tracefs)
}

/// The tree's top, or the instance that was named.
pub(crate) fn folder(tracefs: &Tracefs, instance: Option<&str>) -> anyhow::Result<TraceDir> {
    Ok(match instance {
        None => TraceDir::top(tracefs),
        Some(name) => TraceDir::open(tracefs, name)?,
    })
}

/// How messages call a folder.
pub(crate) fn called(dir: &TraceDir) -> String {
    match dir.name() {
        None => "the top instance".to_owned(),
        Some(name) => format!("instance {name}"),
    }
}
