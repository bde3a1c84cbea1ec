//! Maps of a program, where they are: in the kernel, or in this process.

use std::io;

use kymo_bpf::ProgramInterpreter;
use kymo_kernel::bpf::BpfMap;

/// Maps, by number.
pub(crate) enum ProgramMaps {
    Kernel(Vec<BpfMap>),
    /// With the programs that use them.
    UserSpace(Box<ProgramInterpreter>),
}

impl Default for ProgramMaps {
    fn default() -> Self {
        ProgramMaps::Kernel(Vec::new())
    }
}

impl ProgramMaps {
    /// Keys and values, those of all CPUs one after the other.
    pub(crate) fn entries(&self, map: usize) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self {
            ProgramMaps::Kernel(maps) => maps.get(map).map_or(Ok(Vec::new()), BpfMap::entries),
            ProgramMaps::UserSpace(interpreter) => Ok(interpreter.entries(map)),
        }
    }

    pub(crate) fn lookup(&self, map: usize, key: &[u8]) -> Option<Vec<u8>> {
        match self {
            ProgramMaps::Kernel(maps) => maps.get(map)?.lookup(key).ok()?,
            ProgramMaps::UserSpace(interpreter) => interpreter.lookup(map, key),
        }
    }

    /// Deletes all entries, or sets their values to zero.
    pub(crate) fn empty(&mut self, map: usize, deletes: bool) -> io::Result<()> {
        let entries = self.entries(map)?;
        let refused = || io::Error::from(io::ErrorKind::NotFound);
        match self {
            ProgramMaps::Kernel(maps) => {
                let Some(map) = maps.get(map) else { return Ok(()) };
                let zero = vec![0u8; map.value_size()];
                entries.iter().try_for_each(|(key, _)| match deletes {
                    true => map.delete(key),
                    false => map.update(key, &zero),
                })
            }
            ProgramMaps::UserSpace(interpreter) => {
                let zero = vec![0u8; interpreter.value_size(map)];
                entries.iter().try_for_each(|(key, _)| {
                    let done = match deletes {
                        true => interpreter.delete(map, key),
                        false => interpreter.update(map, key, &zero),
                    };
                    done.then_some(()).ok_or_else(refused)
                })
            }
        }
    }
}
