//! What the kernel knows beside an event's bytes: names of tasks, formats,
//! symbols.

use kymo_format::{EventFormat, FormatTable};
use kymo_kernel::ftrace::TraceDir;
use kymo_kernel::target;
use kymo_model::Endian;
use rustc_hash::{FxHashMap, FxHashSet};

use kymo_events::payload::{KallsymsSource, KernelNames};

/// KernelNames of tasks, as tracefs and /proc tell them. Once known a name is kept
/// until the kernel tells another.
pub(super) struct Tasks {
    dir: TraceDir,
    comms: FxHashMap<i32, Box<[u8]>>,
    tgids: FxHashMap<i32, u32>,
    with_tgids: bool,
}

impl Tasks {
    pub(super) fn new(dir: &TraceDir, with_tgids: bool) -> Tasks {
        let (comms, tgids) = Default::default();
        Tasks { dir: dir.clone(), comms, tgids, with_tgids }
    }

    /// Reads what the kernel saved since. Its list is short (128 tasks) and is
    /// read before each batch of events is shown.
    pub(super) fn refresh(&mut self) {
        let tracefs = self.dir.tracefs();
        for line in tracefs.saved_cmdlines().unwrap_or_default().lines() {
            let Some((pid, comm)) = line.split_once(' ') else { continue };
            if let Ok(pid) = pid.parse()
                && comm != "<...>"
            {
                self.comms.insert(pid, comm.as_bytes().into());
            }
        }
        if self.with_tgids {
            for line in tracefs.read("saved_tgids").unwrap_or_default().lines() {
                let Some((pid, tgid)) = line.split_once(' ') else { continue };
                if let (Ok(pid), Ok(tgid)) = (pid.parse(), tgid.trim().parse()) {
                    self.tgids.insert(pid, tgid);
                }
            }
        }
    }

    /// A task's name, as the kernel's `trace` file shows it.
    pub(super) fn comm(&mut self, tid: i32) -> &[u8] {
        if tid == 0 {
            return b"<idle>";
        }
        self.comms.entry(tid).or_insert_with(|| {
            let comm = u32::try_from(tid).ok().and_then(target::comm);
            comm.map_or_else(|| b"<...>"[..].into(), |c| c.into_bytes().into())
        })
    }

    /// The same, if the kernel had saved it.
    pub(super) fn saved(&self, tid: i32) -> Option<&str> {
        let comm = self.comms.get(&tid).and_then(|c| std::str::from_utf8(c).ok());
        comm.filter(|c| *c != "<...>")
    }

    /// A task's process, if that column is shown; 0 is not known.
    pub(super) fn tgid(&self, tid: i32) -> Option<u32> {
        self.with_tgids.then(|| self.tgids.get(&tid).copied().unwrap_or(0))
    }
}

/// Formats, read when the first event of a kind comes.
pub(super) struct Formats {
    dir: TraceDir,
    table: FormatTable,
    /// Where each event's format lies, by id; read when an id is not known.
    places: FxHashMap<u32, (String, String)>,
    missing: FxHashSet<u32>,
}

impl Formats {
    pub(super) fn new(dir: &TraceDir) -> Formats {
        let (table, places, missing) = Default::default();
        Formats { dir: dir.clone(), table, places, missing }
    }

    /// The format of a payload's event; `None` for an event that is gone.
    pub(super) fn of(&mut self, payload: &[u8]) -> Option<&EventFormat> {
        let id = u32::from(EventFormat::payload_id(payload, Endian::NATIVE)?);
        if self.table.get(id).is_none() {
            self.load(id);
        }
        self.table.get(id)
    }

    fn load(&mut self, id: u32) {
        // Looked for once: an event that was removed is not found each time it comes.
        if !self.missing.insert(id) {
            return;
        }
        if !self.places.contains_key(&id) {
            self.find_places(id);
        }
        let Some((system, name)) = self.places.get(&id) else { return };
        let text = self.dir.tracefs().event_format(system, name);
        if let Some(format) = text.ok().and_then(|t| EventFormat::parse(&t).ok()) {
            self.table.insert(format.with_system(system.clone()));
        }
    }

    /// The ids of the events that are on, or else (a named instance may hold
    /// events that are off again) of all.
    fn find_places(&mut self, id: u32) {
        self.own_formats();
        let on = self.dir.enabled().unwrap_or_default();
        self.add_places(on.into_iter().map(|e| (e.system, e.name)).collect());
        if self.places.contains_key(&id) || self.table.get(id).is_some() {
            return;
        }
        let mut all = Vec::new();
        for system in self.dir.tracefs().systems().unwrap_or_default() {
            let names = self.dir.tracefs().events(&system).unwrap_or_default();
            all.extend(names.into_iter().map(|name| (system.clone(), name)));
        }
        self.add_places(all);
    }

    /// Stacks, marks and functions: they have no file with their id.
    fn own_formats(&mut self) {
        for name in self.dir.tracefs().events("ftrace").unwrap_or_default() {
            let text = self.dir.tracefs().event_format("ftrace", &name);
            if let Some(format) = text.ok().and_then(|t| EventFormat::parse(&t).ok()) {
                self.table.insert(format.with_system("ftrace"));
            }
        }
    }

    fn add_places(&mut self, events: Vec<(String, String)>) {
        for (system, name) in events {
            if let Ok(id) = self.dir.tracefs().event_id(&system, &name)
                && let Ok(id) = u32::try_from(id)
            {
                self.places.insert(id, (system, name));
            }
        }
    }
}

/// Symbols and strings of the running kernel.
pub(super) fn kernel(dir: &TraceDir) -> KernelNames {
    KernelNames::new(KallsymsSource::Live, &dir.tracefs().printk_formats().unwrap_or_default())
}
