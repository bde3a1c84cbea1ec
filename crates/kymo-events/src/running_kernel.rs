//! Facts of the running kernel that a recording may lack: values of names that print formats use,
//! and formats of tracepoints. Read only when needed; the caller has to know whether the recording
//! was made under this kernel.

use std::cell::OnceCell;

use kymo_debuginfo::Enumerators;
use kymo_format::{Builtin, Constants};
use kymo_kernel::system::SystemRoot;
use kymo_kernel::tracefs::Tracefs;
use rustc_hash::FxHashMap;

/// The release of the running kernel.
pub fn release() -> String {
    SystemRoot::machine().kernel_release().unwrap_or_default()
}

/// Names with a value everywhere, then those of the running kernel.
#[derive(Default)]
pub struct EnumeratorValues {
    running: OnceCell<Enumerators>,
}

impl Constants for EnumeratorValues {
    fn value(&self, name: &str) -> Option<i64> {
        Builtin.value(name).or_else(|| {
            let running = self.running.get_or_init(|| {
                let btf = SystemRoot::machine().kernel_btf().unwrap_or_default();
                Enumerators::parse(&btf).unwrap_or_default()
            });
            running.value(name)
        })
    }
}

/// Formats of the running kernel, by the number of their event.
#[derive(Default)]
pub struct RunningFormats {
    names: OnceCell<FxHashMap<u64, (String, String)>>,
}

impl RunningFormats {
    /// System and format text.
    pub fn format(&self, id: u64) -> Option<(String, String)> {
        let tracefs = Tracefs::open().ok()?;
        let names = self.names.get_or_init(|| names(&tracefs));
        let (system, name) = names.get(&id)?;
        let text = tracefs.event_format(system, name).ok()?;
        Some((system.clone(), text))
    }
}

fn names(tracefs: &Tracefs) -> FxHashMap<u64, (String, String)> {
    let mut names = FxHashMap::default();
    for system in tracefs.systems().unwrap_or_default() {
        for name in tracefs.events(&system).unwrap_or_default() {
            if let Ok(id) = tracefs.event_id(&system, &name) {
                names.insert(id, (system.clone(), name));
            }
        }
    }
    names
}
