//! Task names and the text of addresses at the present place in the
//! recording. Each distinct address of an address space is resolved once.

use std::sync::Arc;

use kymo_events::BinaryAddress;
use kymo_events::chain::{ChainAddress, Entries, Origin, Step, returns_of_signals, walk};
use kymo_events::state::{Located, Machine};
use kymo_events::unwind::{Tally, Unwinder};
use kymo_files::perfdata::{Entry, Features};
use kymo_model::{Misc, RawRecord, RecordKind, Sample};
use kymo_symbols::{DsoId, KernelTable, Options, Resolver};
use rustc_hash::FxHashMap;

use super::fields::FieldSet;
use crate::number;

/// Addresses remembered; more start the memory over.
const MAX_KNOWN: usize = 1 << 18;
/// Slots for task names, a power of two.
const COMMS: usize = 64;

/// An address space's state, the address, and the mode it was seen in.
type AddressKey = (u64, u64, u64, u16);

/// The recorded machine, asked for names.
pub(super) struct RecordedNames {
    pub(super) machine: Machine,
    known: FxHashMap<AddressKey, Located>,
    comms: Vec<Option<(u32, Vec<u8>)>>,
    adopted: bool,
    unwinder: Unwinder,
    trampolines: FxHashMap<(DsoId, u64), bool>,
    cgroups: FxHashMap<u64, Vec<u8>>,
}

impl RecordedNames {
    pub(super) fn new(options: Options) -> Self {
        RecordedNames::of(Resolver::new(options))
    }

    /// One for another thread that has seen nothing, and shares what is read of files.
    pub(super) fn fork_for_thread(&self) -> Self {
        RecordedNames::of(self.machine.symbols.another())
    }

    fn of(resolver: Resolver) -> Self {
        RecordedNames {
            unwinder: Unwinder::new(resolver.binaries()),
            machine: Machine::new(resolver),
            known: FxHashMap::default(),
            comms: vec![None; COMMS],
            adopted: false,
            trampolines: FxHashMap::default(),
            cgroups: FxHashMap::default(),
        }
    }
}

impl RecordedNames {
    pub(super) fn apply(&mut self, entry: &Entry<'_>) {
        // A pipe tells them bit by bit.
        let told = [RecordKind::HEADER_BUILD_ID, RecordKind::HEADER_FEATURE];
        self.adopted &= !told.contains(&entry.raw.kind);
        self.adopt(entry.features);
        if matches!(entry.raw.kind, RecordKind::COMM | RecordKind::FORK) {
            self.comms.fill(None);
        }
        self.machine.apply(&entry.raw);
    }

    /// The name of a task; `:TID` when the recording does not tell it.
    #[inline]
    pub(super) fn comm(&mut self, pid: u32, tid: u32) -> &[u8] {
        let slot = tid as usize % COMMS;
        let stale = !matches!(&self.comms[slot], Some((t, _)) if *t == tid);
        if stale {
            let id = self.machine.comm_of(pid, tid);
            let comm = self.machine.comm(id);
            // A task without a number is the kernel's -1.
            let comm = if tid == u32::MAX { ":-1" } else { comm };
            self.comms[slot] = Some((tid, comm.as_bytes().to_vec()));
        }
        self.comms[slot].as_ref().map_or(b"", |(_, comm)| comm)
    }

    /// Takes note of a CGROUP record: an id and its path.
    pub(super) fn name_cgroup(&mut self, record: &RawRecord<'_>) {
        let mut c = record.cursor();
        if let Ok(id) = c.u64()
            && self.cgroups.len() < MAX_KNOWN
        {
            self.cgroups.insert(id, c.cstr().to_vec());
        }
    }

    /// The path of a cgroup.
    pub(super) fn cgroup(&self, id: u64) -> &[u8] {
        self.cgroups.get(&id).map_or(b"unknown", |path| path)
    }

    fn adopt(&mut self, features: &Features) {
        if !self.adopted {
            self.adopted = true;
            self.machine.adopt(features);
        }
    }

    /// The user part of a call chain that is recorded as registers and stack.
    pub(super) fn unwind(&mut self, entry: &Entry<'_>) -> Vec<u64> {
        self.adopt(entry.features);
        let sample = entry.desc().and_then(|d| Sample::parse(&entry.raw, &d.attr).ok());
        let Some(sample) = sample else { return Vec::new() };
        let maps = self.machine.space(sample.tid.map_or(0, |t| t.0));
        let machine = entry.features.arch.as_deref();
        self.unwinder.chain(&sample, machine, entry.raw.endian, &maps).to_vec()
    }

    /// The recorded kernel's symbols.
    pub(super) fn kernel(&mut self, features: &Features) -> Option<Arc<KernelTable>> {
        self.adopt(features);
        Some(Arc::clone(self.machine.symbols.kernel()))
    }

    pub(super) fn locate(
        &mut self,
        features: &Features,
        pid: u32,
        ip: u64,
        cpumode: u16,
    ) -> Located {
        self.adopt(features);
        let (user, kernel) = self.machine.generation(pid);
        let key = (user, kernel, ip, cpumode);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let located = self.machine.locate(pid, ip, cpumode);
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, located);
        located
    }

    /// A frame as it is shown, and the instruction that is executed in it, in the
    /// binary's terms.
    pub(super) fn frame(
        &mut self,
        features: &Features,
        pid: u32,
        place: ChainAddress,
    ) -> (Located, u64) {
        let at = self.locate(features, pid, place.code().get(), place.mode);
        if place.returns && place.mode == Misc::USER && self.is_trampoline(&at) {
            let at = self.locate(features, pid, place.ip, place.mode);
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
        let found = || returns_of_signals(&self.machine.symbols, dso, &[call]) == [true];
        *self.trampolines.entry((dso, before.addr)).or_insert_with(found)
    }

    /// Symbol, offset and binary as `fields` ask for them.
    pub(super) fn write(&self, at: &Located, fields: FieldSet, out: &mut Vec<u8>) {
        if fields.has(FieldSet::SYM) {
            out.push(b' ');
            match at.symbol {
                Some(symbol) => {
                    out.extend_from_slice(self.machine.symbols.name(symbol).as_bytes());
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
        dso_of(&self.machine, at)
    }

    pub(super) fn symbol(&self, at: &Located) -> Option<&str> {
        at.symbol.map(|s| self.machine.symbols.name(s))
    }

    /// How the stacks that were unwound here ended.
    pub(super) fn tally(&self) -> &Tally {
        self.unwinder.tally()
    }
}

/// The path or bracketed name of an address's binary.
pub(super) fn dso_of<'m>(machine: &'m Machine, at: &Located) -> &'m str {
    let dso = at.dso.and_then(|id| machine.symbols.get(id));
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
