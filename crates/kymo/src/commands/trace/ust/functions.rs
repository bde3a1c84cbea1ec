//! Functions of a program by their addresses, for fields that hold such. Asked of what the
//! program has mapped while it runs; of one that has ended nothing is known any more.

use std::fs::read_link;
use std::path::PathBuf;
use std::time::Duration;

use kymo_kernel::proc_maps::{self, Mapping};
use kymo_record::ust::ProgramId;
use kymo_symbols::{Options, Resolver};

/// How long a program's mappings are read at most.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a program has mapped, and the names in it.
pub(super) struct Functions {
    id: ProgramId,
    resolver: Resolver,
    code: Vec<Mapping>,
    /// Whether something else may have been mapped since.
    stale: bool,
}

impl Functions {
    pub(super) fn of(id: &ProgramId) -> Functions {
        let namespace = |of: &str| read_link(format!("/proc/{of}/ns/mnt")).ok();
        let pid = id.pid.to_string();
        let elsewhere = namespace("self") != namespace(&pid);
        let symfs = elsewhere.then(|| PathBuf::from(format!("/proc/{pid}/root")));
        let resolver = Resolver::new(Options { symfs, ..Options::default() });
        let mut functions = Functions { id: id.clone(), resolver, code: Vec::new(), stale: true };
        functions.look();
        functions
    }

    /// A round begins: the program may have loaded or unloaded a library.
    pub(super) fn begin_round(&mut self) {
        self.stale = true;
    }

    /// Reads the mappings anew, once in a round, while the program is there.
    fn look(&mut self) {
        self.stale = false;
        let there = || proc_maps::start_time(self.id.pid) == Some(self.id.start);
        // Its number may be somebody else's in our pid namespace, or by now.
        let maps = there().then(|| proc_maps::maps(self.id.pid, PATIENCE));
        if let Some(Ok(maps)) = maps
            && there()
        {
            self.code = maps.mappings.into_iter().filter(Mapping::executable).collect();
        }
    }

    /// The function that an address is in, and how far.
    pub(super) fn name(&mut self, address: u64) -> Option<(&str, u64)> {
        if self.stale {
            self.look();
        }
        let behind = self.code.partition_point(|m| m.start <= address);
        let mapping = self.code[..behind].last().filter(|m| address < m.end)?;
        let offset = address - mapping.start + mapping.offset;
        let path = std::str::from_utf8(&mapping.path).ok().filter(|p| p.starts_with('/'))?;
        let dso = self.resolver.dso(path, None, self.id.pid);
        let (symbol, within) = self.resolver.symbol(dso, offset)?;
        Some((self.resolver.name(symbol), within))
    }
}
