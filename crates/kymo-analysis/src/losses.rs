//! Shared parts of analyses that pair events: windows of losses, which make a time between two
//! events uncertain, and the selection of events by name.

use kymo_events::EventSelection;
use kymo_events::name_map::recorded_names;

pub use kymo_model::LossWindows;

/// More CPUs than a kernel can have; a recording that states another is damaged.
pub const MOST_CPUS: u32 = 1 << 13;

/// Conditions that chosen events fulfill, and no others; names are those of the kernel, and
/// those that perf and LTTng have for them.
pub fn select_events(names: &[&str]) -> EventSelection {
    let mut selection = EventSelection::default();
    let names = names.iter().flat_map(|name| recorded_names(name));
    let names: Vec<String> = names.map(str::to_owned).collect();
    // They are kymo's own, some with a pattern (`syscall_entry_*`): always a selection.
    let _ = selection.set_events(&names);
    selection
}
