//! Setup of a trace instance: events with their filters, and tasks.

use std::ffi::OsString;
use std::time::Duration;

use kymo_kernel::ftrace::{EventName, FtraceError, Selection, TraceDir};

use super::error::TraceError;

/// An event to record.
#[derive(Clone, Debug)]
pub struct TraceEvent {
    /// Selected events.
    pub selection: Selection,
    /// Only those for which this holds.
    pub filter: Option<String>,
}

/// Events that are recorded or shown, and whose.
#[derive(Clone, Debug, Default)]
pub struct TraceSetup {
    /// Events that are enabled.
    pub events: Vec<TraceEvent>,
    /// The command, if any.
    pub command: Vec<OsString>,
    /// Processes to be traced, if any.
    pub pids: Vec<u32>,
    /// System-wide although there is a command.
    pub system_wide: bool,
    /// Children too.
    pub follow: bool,
    /// Only these CPUs' events.
    pub cpus: Vec<u32>,
    /// The clock.
    pub clock: String,
    /// Room for each CPU in KiB.
    pub buffer_kb: Option<u64>,
    /// Whether events are recorded with the kernel's stack.
    pub stacks: bool,
    /// Begin so long after the command was let go.
    pub delay: Option<Duration>,
    /// Stop after this time.
    pub timeout: Option<Duration>,
}

/// Texts that are written to `trace_marker`.
const MARKER_TEXTS: (&str, &str) = ("ftrace", "print");
/// The option of an instance that has them copied into it.
const COPY_MARKER: &str = "copy_trace_marker";

/// Has texts that programs write to the `trace_marker` of the top instance recorded here, too.
fn copy_marker_texts(dir: &TraceDir) -> Result<(), FtraceError> {
    if dir.option(COPY_MARKER).is_none() {
        let why = "before Linux 6.16 texts of trace_marker are in the kernel's top instance alone, \
                   where trace-cmd records them";
        let path = dir.path(&format!("options/{COPY_MARKER}"));
        return Err(FtraceError::Lacking { path, why: why.to_owned() });
    }
    dir.set_option(COPY_MARKER, true)
}

/// Switches events on. Filters first: nothing that they exclude is recorded.
pub(super) fn enable(dir: &TraceDir, events: &[TraceEvent]) -> Result<Vec<EventName>, TraceError> {
    let mut enabled = Vec::new();
    for TraceEvent { selection, filter } in events {
        if let Selection::Event(event) = selection
            && (&*event.system, &*event.name) == MARKER_TEXTS
        {
            copy_marker_texts(dir)?;
            enabled.push(event.clone());
            continue;
        }
        if let Some(filter) = filter {
            for event in dir.select(selection)? {
                dir.set_filter(&event, filter)?;
            }
        }
        enabled.extend(dir.enable(selection)?);
    }
    Ok(enabled)
}
