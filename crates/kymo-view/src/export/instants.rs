//! Events that a timeline format has no form of its own for: they are written as instants, so that
//! none is left out.

use kymo_analysis::tracks::{ListedEvent, TraceTracks};

/// Events that timelines show as spans or samples: switches, system calls.
const SHOWN: [&str; 5] =
    ["sched:sched_switch", "sched_switch", "raw_syscalls:", "syscalls:sys_", "syscall_"];

/// The instants of a recording.
pub(super) struct Instants<'t> {
    tracks: &'t TraceTracks,
    /// By class, whether its events are instants.
    chosen: Vec<bool>,
}

impl<'t> Instants<'t> {
    /// All events but those of which `is_shown` says that they are shown otherwise: by the full
    /// name of their class.
    pub(super) fn new(tracks: &'t TraceTracks, is_shown: impl Fn(&str) -> bool) -> Instants<'t> {
        let is_span = |name: &str| {
            SHOWN.iter().any(|shown| {
                if shown.ends_with([':', '_']) { name.starts_with(shown) } else { name == *shown }
            })
        };
        let chosen = |name: &String| !is_span(name) && !is_shown(name);
        Instants { tracks, chosen: tracks.events.classes.iter().map(chosen).collect() }
    }

    /// The events with the names of their classes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'t str, ListedEvent)> + '_ {
        let list = &self.tracks.events;
        let is_chosen = |event: &ListedEvent| self.chosen.get(event.class as usize) == Some(&true);
        // Of recordings that have none nothing is unpacked.
        let any = self.chosen.contains(&true);
        let events = any.then(|| list.iter()).into_iter().flatten();
        events.filter(is_chosen).filter_map(|event| {
            list.classes.get(event.class as usize).map(|name| (name.as_str(), event))
        })
    }
}
