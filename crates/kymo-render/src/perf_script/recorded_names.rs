//! Task names and the text of addresses at the present place in the
//! recording. Each distinct address of an address space is resolved once.

use std::sync::Arc;

use kymo_events::ChainResolver;
use kymo_events::chain::{ChainAddress, Entries, Origin, Step, walk};
use kymo_events::state::Located;
use kymo_events::state_history::StateReader;
use kymo_events::unwind::Tally;
use kymo_files::perfdata::Entry;
use kymo_model::{Sample, UntrustedText};
use kymo_symbols::{KernelTable, Resolver};

use super::fields::FieldSet;
use crate::number;

/// Slots for task names, a power of two.
const COMMS: usize = 64;

/// An address space's state, the address, and the mode it was seen in.
pub(super) type AddressKey = (u64, u64, u64, u16);

/// Names of tasks and addresses as they were at the record that is rendered.
pub(super) struct RecordedNames {
    pub(super) state: StateReader,
    comms: Vec<Option<(u32, Arc<str>)>>,
    chains: ChainResolver,
}

impl RecordedNames {
    pub(super) fn new(state: StateReader) -> Self {
        RecordedNames {
            chains: ChainResolver::new(&state.symbols),
            state,
            comms: vec![None; COMMS],
        }
    }

    /// Names for another thread, which has seen nothing and shares what is read of files.
    pub(super) fn fork_for_thread(&self) -> Self {
        RecordedNames::new(self.state.fork_for_thread())
    }

    /// Forgets the names of tasks, which may have others now.
    pub(super) fn forget_tasks(&mut self) {
        self.comms.fill(None);
    }

    /// Name of a task; `:TID` when the recording does not tell it.
    #[inline]
    pub(super) fn comm(&mut self, tid: u32) -> &[u8] {
        let slot = tid as usize % COMMS;
        let stale = !matches!(&self.comms[slot], Some((t, _)) if *t == tid);
        if stale {
            self.comms[slot] = Some((tid, self.name_of(tid)));
        }
        self.comms[slot].as_ref().map_or(b"", |(_, comm)| comm.as_bytes())
    }

    fn name_of(&self, tid: u32) -> Arc<str> {
        // A task without a number is the kernel's -1.
        if tid == u32::MAX {
            return ":-1".into();
        }
        self.state.task_name(tid).unwrap_or_else(|| format!(":{tid}").into())
    }

    /// Appends the path of a cgroup.
    pub(super) fn write_cgroup(&self, id: u64, out: &mut Vec<u8>) {
        let cgroup = self.state.cgroup(id);
        UntrustedText::new(cgroup.as_deref().unwrap_or(b"unknown")).write_escaped(out);
    }

    /// The user part of a call chain that is recorded as registers and stack.
    pub(super) fn unwind(&mut self, entry: &Entry<'_>) -> Vec<u64> {
        let sample = entry.desc().and_then(|d| Sample::parse(&entry.raw, &d.attr).ok());
        let Some(sample) = sample else { return Vec::new() };
        self.chains.unwind(&mut self.state, entry, &sample).to_vec()
    }

    /// The recorded kernel's symbols.
    pub(super) fn kernel(&self) -> Option<Arc<KernelTable>> {
        Some(Arc::clone(self.state.symbols.kernel()))
    }

    pub(super) fn locate(&mut self, pid: u32, ip: u64, cpumode: u16) -> Located {
        self.chains.locate(&mut self.state, pid, ip, cpumode)
    }

    /// A frame as it is shown, and the instruction that is executed in it, in the
    /// binary's terms.
    pub(super) fn frame(&mut self, pid: u32, place: ChainAddress) -> (Located, u64) {
        self.chains.frame(&mut self.state, pid, place)
    }

    /// Symbol, offset and binary as `fields` ask for them.
    pub(super) fn write(&self, at: &Located, fields: FieldSet, out: &mut Vec<u8>) {
        write_located(&self.state.symbols, at, fields, out);
    }

    /// The path or bracketed name of the binary.
    pub(super) fn dso(&self, at: &Located) -> &str {
        dso_of(&self.state.symbols, at)
    }

    pub(super) fn symbol(&self, at: &Located) -> Option<&str> {
        at.symbol.map(|s| self.state.symbols.name(s))
    }

    /// Counts of how the stacks unwound here ended.
    pub(super) fn tally(&self) -> &Tally {
        self.chains.tally()
    }
}

/// Symbol, offset and binary of an address as `fields` ask for them.
pub(super) fn write_located(symbols: &Resolver, at: &Located, fields: FieldSet, out: &mut Vec<u8>) {
    if fields.has(FieldSet::SYM) {
        out.push(b' ');
        match at.symbol {
            Some(symbol) => {
                UntrustedText::new(symbols.name(symbol)).write_escaped(out);
                if fields.has(FieldSet::SYMOFF) {
                    out.extend_from_slice(b"+0x");
                    number::hex(out, at.offset, 0);
                }
            }
            None => out.extend_from_slice(b"[unknown]"),
        }
    }
    if fields.has(FieldSet::DSO) {
        out.extend_from_slice(b" (");
        UntrustedText::new(dso_of(symbols, at)).write_escaped(out);
        out.push(b')');
    }
}

/// The path or bracketed name of an address's binary.
pub(super) fn dso_of<'s>(symbols: &'s Resolver, at: &Located) -> &'s str {
    let dso = at.dso.and_then(|id| symbols.get(id));
    dso.map_or("[unknown]", |d| d.long_name.as_str())
}

/// The frames of a call chain.
pub(super) fn frames<'a>(
    chain: impl Iterator<Item = u64> + 'a,
    cpumode: u16,
    origin: Origin,
    entries: &'a impl Entries,
) -> impl Iterator<Item = ChainAddress> + 'a {
    walk(chain, cpumode, origin, entries).filter_map(|step| match step {
        Step::Frame(place) => Some(place),
        Step::Unknown => None,
    })
}
