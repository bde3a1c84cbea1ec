//! Formats of the running kernel's events, read when the first event of a class comes.

use kymo_format::EventFormat;
use kymo_kernel::ftrace::TraceDir;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::trace_dat::KnownEvent;

/// Bytes of a `long` of this kernel.
const LONG_SIZE: u8 = size_of::<usize>() as u8;

/// Finds formats by the number of their event.
pub(super) struct LiveFormats {
    dir: TraceDir,
    /// System and name of events by number; looked up when a number is not known.
    names: FxHashMap<u16, (String, String)>,
    /// Formats of the `ftrace` system: stacks, marks, functions have no file with a number.
    own: FxHashMap<u16, KnownEvent>,
    missing: FxHashSet<u16>,
}

impl LiveFormats {
    pub(super) fn new(dir: &TraceDir) -> LiveFormats {
        let (names, own, missing) = Default::default();
        LiveFormats { dir: dir.clone(), names, own, missing }
    }

    /// The format of an event; `None` for one that is not there (any more).
    pub(super) fn load(&mut self, id: u16) -> Option<KnownEvent> {
        // Looked for once: an event that was removed is not found each time it comes.
        if !self.missing.insert(id) {
            return None;
        }
        if !self.names.contains_key(&id) {
            self.find_names(id);
        }
        self.own.remove(&id).or_else(|| {
            let (system, name) = self.names.get(&id)?;
            self.read(system, name)
        })
    }

    fn read(&self, system: &str, name: &str) -> Option<KnownEvent> {
        let text = self.dir.tracefs().event_format(system, name).ok()?;
        KnownEvent::parse(system, &text, LONG_SIZE).ok()
    }

    /// Formats of the events that are on.
    pub(super) fn enabled(&self) -> Vec<EventFormat> {
        let on = self.dir.enabled().unwrap_or_default();
        on.iter().filter_map(|e| Some(self.read(&e.system, &e.name)?.format)).collect()
    }

    /// Numbers of the events that are on, or else of all: a named instance may hold events
    /// that are off again.
    fn find_names(&mut self, id: u16) {
        for name in self.dir.tracefs().events("ftrace").unwrap_or_default() {
            if let Some(known) = self.read("ftrace", &name)
                && let Ok(id) = u16::try_from(known.format.id)
            {
                self.own.insert(id, known);
            }
        }
        let on = self.dir.enabled().unwrap_or_default();
        self.add_names(on.into_iter().map(|e| (e.system, e.name)).collect());
        if self.names.contains_key(&id) || self.own.contains_key(&id) {
            return;
        }
        let mut all = Vec::new();
        for system in self.dir.tracefs().systems().unwrap_or_default() {
            let names = self.dir.tracefs().events(&system).unwrap_or_default();
            all.extend(names.into_iter().map(|name| (system.clone(), name)));
        }
        self.add_names(all);
    }

    fn add_names(&mut self, events: Vec<(String, String)>) {
        for (system, name) in events {
            if let Ok(id) = self.dir.tracefs().event_id(&system, &name)
                && let Ok(id) = u16::try_from(id)
            {
                self.names.insert(id, (system, name));
            }
        }
    }
}
