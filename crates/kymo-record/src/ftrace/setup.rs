//! What is switched on in a trace instance: events with their filters, and whose.

use std::ffi::OsString;
use std::time::Duration;

use kymo_kernel::ftrace::{EventName, Selection, TraceDir};

use super::error::TraceError;

/// An event to record.
#[derive(Clone, Debug)]
pub struct TraceEvent {
    /// Which.
    pub selection: Selection,
    /// Only those for which this holds.
    pub filter: Option<String>,
}

/// Events that are recorded or shown, and whose.
#[derive(Clone, Debug, Default)]
pub struct TraceSetup {
    /// What.
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
    /// The kernel's stack with each event.
    pub stacks: bool,
    /// Begin so long after the command was let go.
    pub delay: Option<Duration>,
    /// Stop after this time.
    pub timeout: Option<Duration>,
}

/// Switches events on. Filters first: nothing that they exclude is recorded.
pub(super) fn enable(dir: &TraceDir, events: &[TraceEvent]) -> Result<Vec<EventName>, TraceError> {
    let mut enabled = Vec::new();
    for TraceEvent { selection, filter } in events {
        if let Some(filter) = filter {
            for event in dir.select(selection)? {
                dir.set_filter(&event, filter)?;
            }
        }
        enabled.extend(dir.enable(selection)?);
    }
    Ok(enabled)
}
