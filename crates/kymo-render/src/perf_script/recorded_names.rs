//! Task names and the text of addresses at the present place in the
//! recording. Each distinct address of an address space is resolved once.

use std::sync::Arc;

use kymo_events::BinaryAddress;
use kymo_events::chain::{ChainAddress, Entries, Origin, Step, returns_of_signals, walk};
use kymo_events::state::Located;
use kymo_events::state_history::StateReader;
use kymo_events::unwind::{Tally, Unwinder};
use kymo_files::perfdata::Entry;
use kymo_model::{Misc, Sample};
use kymo_symbols::{DsoId, KernelTable, Resolver};
use rustc_hash::FxHashMap;

use super::fields::FieldSet;
use crate::number;

/// Addresses remembered; more start the memory over.
const MAX_KNOWN: usize = 1 << 18;
/// Slots for task names, a power of two.
const COMMS: usize = 64;

/// An address space's state, the address, and the mode it was seen in.
pub(super) type AddressKey = (u64, u64, u64, u16);

/// Names of tasks and addresses as they were at the record that is rendered.
pub(super) struct RecordedNames {
    pub(super) state: StateReader,
    known: FxHashMap<AddressKey, Located>,
    comms: Vec<Option<(u32, Arc<str>)>>,
    unwinder: Unwinder,
    trampolines: FxHashMap<(DsoId, u64), bool>,
}

impl RecordedNames {
    pub(super) fn new(state: StateReader) -> Self {
        RecordedNames {
            unwinder: Unwinder::new(state.symbols.binaries()),
            state,
            known: FxHashMap::default(),
            comms: vec![None; COMMS],
            trampolines: FxHashMap::default(),
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
        out.extend_from_slice(self.state.cgroup(id).as_deref().unwrap_or(b"unknown"));
    }

    /// The user part of a call chain that is recorded as registers and stack.
    pub(super) fn unwind(&mut self, entry: &Entry<'_>) -> Vec<u64> {
        let sample = entry.desc().and_then(|d| Sample::parse(&entry.raw, &d.attr).ok());
        let Some(sample) = sample else { return Vec::new() };
        let maps = Arc::clone(self.state.space(sample.tid.map_or(0, |t| t.0)));
        let machine = entry.features.arch.as_deref();
        self.unwinder.chain(&sample, machine, entry.raw.endian, &maps).to_vec()
    }

    /// The recorded kernel's symbols.
    pub(super) fn kernel(&self) -> Option<Arc<KernelTable>> {
        Some(Arc::clone(self.state.symbols.kernel()))
    }

    pub(super) fn locate(&mut self, pid: u32, ip: u64, cpumode: u16) -> Located {
        let (user, kernel) = self.state.generation(pid);
        let key = (user, kernel, ip, cpumode);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let located = self.state.locate(pid, ip, cpumode);
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, located);
        located
    }

    /// A frame as it is shown, and the instruction that is executed in it, in the
    /// binary's terms.
    pub(super) fn frame(&mut self, pid: u32, place: ChainAddress) -> (Located, u64) {
        let at = self.locate(pid, place.code().get(), place.mode);
        if place.returns && place.mode == Misc::USER && self.is_trampoline(&at) {
            let at = self.locate(pid, place.ip, place.mode);
            return (at, at.addr);
        }
        let behind = u64::from(place.returns);
        (Located { addr: at.addr + behind, offset: at.offset + behind, ..at }, at.addr)
    }

    /// Whether a handler of a signal returned to what is behind a place.
    fn is_trampoline(&mut self, before: &Located) -> bool {
        let Some(dso) = before.dso else { return false };
        if self.trampolines.len() >= MAX_KNOWN {
            self.trampolines.clear();
        }
        let call = BinaryAddress::new(before.addr);
        let found = || returns_of_signals(&self.state.symbols, dso, &[call]) == [true];
        *self.trampolines.entry((dso, before.addr)).or_insert_with(found)
    }

    /// Symbol, offset and binary as `fields` ask for them.
    pub(super) fn write(&self, at: &Located, fields: FieldSet, out: &mut Vec<u8>) {
        if fields.has(FieldSet::SYM) {
            out.push(b' ');
            match at.symbol {
                Some(symbol) => {
                    out.extend_from_slice(self.state.symbols.name(symbol).as_bytes());
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
            out.extend_from_slice(self.dso(at).as_bytes());
            out.push(b')');
        }
    }

    /// The path or bracketed name of the binary.
    pub(super) fn dso(&self, at: &Located) -> &str {
        dso_of(&self.state.symbols, at)
    }

    pub(super) fn symbol(&self, at: &Located) -> Option<&str> {
        at.symbol.map(|s| self.state.symbols.name(s))
    }

    /// How the stacks that were unwound here ended.
    pub(super) fn tally(&self) -> &Tally {
        self.unwinder.tally()
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
