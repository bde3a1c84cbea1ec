//! Running tasks and mappings at the time of each record.
//!
//! Feed every record, in time order, to [`MachineState::apply`]; then query the state for the
//! current sample. An address space is shared between a process and its forks until one of them
//! changes it, and each state of one has a number of its own, so that equal stacks in equal states
//! can be resolved once.

use std::sync::Arc;

use kymo_model::{Misc, Mmap, RawRecord, RecordKind, Sideband};
use kymo_symbols::{DsoId, DsoKind, Resolver, SymId};
use rustc_hash::FxHashMap;

use crate::address::{BinaryAddress, CodeAddress};
use crate::task_tree::TaskTree;

/// Number of a task name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommId(pub u32);

/// Mappings of code in front of data that may be of the same binary.
const NEAR_MAPPINGS: usize = 4;

/// A range of an address space and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind.
    pub end: u64,
    /// Offset of `start` in the file.
    pub pgoff: u64,
    /// The binary.
    pub dso: DsoId,
    /// Addresses are the binary's own (kernel, anonymous memory).
    pub identity: bool,
}

impl Mapping {
    /// Address of the binary at an address within the mapping.
    pub fn to_dso(&self, at: CodeAddress) -> BinaryAddress {
        let within = || at.get().wrapping_sub(self.start).wrapping_add(self.pgoff);
        BinaryAddress::new(if self.identity { at.get() } else { within() })
    }
}

/// One state of an address space.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    /// Distinguishes states.
    pub generation: u64,
    /// Distinguishes states in which one address means two things. An address
    /// that is mapped in one state is the same in all later ones of the line.
    pub line: u64,
    /// By start, without overlaps.
    ranges: Vec<Mapping>,
    /// Whether its program is one of 32 bits; `None` as long as no mapping shows it.
    pub is_32_bit: Option<bool>,
}

/// First address that programs of 32 bits do not have.
const WIDE_ADDRESS: u64 = 1 << 32;

impl Maps {
    /// The mapping of an address.
    pub fn find(&self, at: CodeAddress) -> Option<&Mapping> {
        let ip = at.get();
        let after = self.ranges.partition_point(|m| m.start <= ip);
        self.ranges.get(after.checked_sub(1)?).filter(|m| ip < m.end)
    }

    /// Puts a mapping over whatever was there; answers whether there was
    /// something.
    fn insert(&mut self, new: Mapping) -> bool {
        if new.start >= new.end {
            return false;
        }
        let from = self.ranges.partition_point(|m| m.end <= new.start);
        let to = self.ranges.partition_point(|m| m.start < new.end).max(from);
        let mut kept = Vec::with_capacity(3);
        if let Some(first) = self.ranges.get(from..to).and_then(|r| r.first())
            && first.start < new.start
        {
            kept.push(Mapping { end: new.start, ..*first });
        }
        kept.push(new);
        if let Some(last) = self.ranges.get(from..to).and_then(|r| r.last())
            && last.end > new.end
        {
            let pgoff = last.pgoff.wrapping_add(new.end - last.start);
            kept.push(Mapping { start: new.end, pgoff, ..*last });
        }
        self.ranges.splice(from..to, kept);
        from < to
    }
}

#[derive(Debug)]
struct Thread {
    pid: u32,
    comm: CommId,
    named: bool,
}

/// The part of the state that a record changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateChange {
    /// Task that has a name now.
    pub task: Option<u32>,
    /// Process whose mappings changed.
    pub space: Option<u32>,
    /// Mappings of the kernel changed.
    pub kernel: bool,
}

/// A resolved address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Located {
    /// The binary, when the address is mapped.
    pub dso: Option<DsoId>,
    /// The address in the binary's terms, or as it was when not mapped.
    pub addr: u64,
    /// The symbol.
    pub symbol: Option<SymId>,
    /// Distance from the symbol's start.
    pub offset: u64,
}

/// The state of the recorded machine.
#[derive(Debug)]
pub struct MachineState {
    /// The binaries and their symbols.
    pub symbols: Resolver,
    threads: FxHashMap<u32, Thread>,
    spaces: FxHashMap<u32, Arc<Maps>>,
    kernel: Arc<Maps>,
    comms: Vec<Arc<str>>,
    comm_ids: FxHashMap<Arc<str>, CommId>,
    /// Paths by number.
    cgroups: FxHashMap<u64, Arc<[u8]>>,
    generations: u64,
    tree: Option<TaskTree>,
}

impl MachineState {
    /// An empty machine.
    pub fn new(symbols: Resolver) -> MachineState {
        let mut machine = MachineState {
            symbols,
            threads: FxHashMap::default(),
            spaces: FxHashMap::default(),
            kernel: Arc::default(),
            comms: Vec::new(),
            comm_ids: FxHashMap::default(),
            cgroups: FxHashMap::default(),
            generations: 1,
            tree: None,
        };
        let idle = machine.comm_id("swapper");
        machine.threads.insert(0, Thread { pid: 0, comm: idle, named: true });
        machine
    }

    /// Takes note of the build-ids and kernel symbols a recording states.
    pub fn adopt(&mut self, features: &kymo_files::perfdata::Features) {
        self.symbols.set_recorded();
        for b in &features.build_ids {
            self.symbols.set_build_id(b.path(), b.build_id);
        }
        if let Some(release) = &features.osrelease {
            self.symbols.set_kernel_release(release.clone());
        }
        if let Some(hostname) = &features.hostname {
            self.symbols.set_hostname(hostname);
        }
        if let Some(t) = &features.tracing_data {
            self.symbols.set_embedded_kallsyms(Arc::clone(&t.machine.kallsyms));
        }
    }

    /// Adds tasks that start to the tree of a command's tasks.
    pub(crate) fn follow(&mut self, tree: &TaskTree) {
        self.tree = Some(tree.clone());
    }

    /// The tree, if samples tell who belongs to it.
    pub(crate) fn cgroup_tree(&self) -> Option<&TaskTree> {
        self.tree.as_ref().filter(|tree| tree.is_of_cgroups())
    }

    /// Path of a cgroup.
    pub fn cgroup(&self, id: u64) -> Option<&Arc<[u8]>> {
        self.cgroups.get(&id)
    }

    /// Takes note of a record and answers what it changed; samples and unknown kinds change
    /// nothing. A record cut short is ignored: the reader counts it.
    pub fn apply(&mut self, record: &RawRecord<'_>) -> StateChange {
        let mut change = StateChange::default();
        if record.kind == RecordKind::CGROUP {
            let mut c = record.cursor();
            if let Ok(id) = c.u64() {
                self.cgroups.insert(id, c.cstr().into());
            }
            return change;
        }
        match Sideband::parse(record) {
            Ok(Some(Sideband::Mmap(m))) => {
                self.map(&m, record.misc);
                match record.misc.cpumode() {
                    Misc::KERNEL | Misc::GUEST_KERNEL => change.kernel = true,
                    _ => change.space = Some(m.pid),
                }
            }
            Ok(Some(Sideband::Comm(c))) => {
                let comm = self.comm_id(&String::from_utf8_lossy(c.comm));
                self.threads.insert(c.tid, Thread { pid: c.pid, comm, named: true });
                change.task = Some(c.tid);
                if c.exec {
                    self.spaces.insert(c.pid, Arc::default());
                    change.space = Some(c.pid);
                }
            }
            Ok(Some(Sideband::Fork(t))) => {
                if let Some(tree) = &self.tree {
                    tree.fork(&t);
                }
                let comm = match self.threads.get(&t.ptid).or_else(|| self.threads.get(&t.ppid)) {
                    Some(parent) => parent.comm,
                    None => self.comm_id(&format!(":{}", t.ptid)),
                };
                self.threads.insert(t.tid, Thread { pid: t.pid, comm, named: true });
                change.task = Some(t.tid);
                if t.pid != t.ppid
                    && record.misc.0 & Misc::FORK_EXEC == 0
                    && let Some(space) = self.spaces.get(&t.ppid).cloned()
                {
                    self.spaces.insert(t.pid, space);
                    change.space = Some(t.pid);
                }
            }
            Ok(Some(Sideband::Ksymbol(k))) if k.flags & 1 == 0 => {
                let name = String::from_utf8_lossy(k.name).into_owned();
                // Type 2, out of line code, has its symbol in kallsyms.
                if k.ksym_type == 1 {
                    let dso = self.symbols.dso(&name, None, u32::MAX);
                    let end = k.addr.saturating_add(u64::from(k.len));
                    let new = Mapping { start: k.addr, end, pgoff: 0, dso, identity: false };
                    self.change_kernel(|m| m.insert(new));
                    change.kernel = true;
                }
            }
            _ => {}
        }
        change
    }

    fn map(&mut self, m: &Mmap<'_>, misc: Misc) {
        let name = String::from_utf8_lossy(m.filename);
        let end = m.start.saturating_add(m.len);
        if matches!(misc.cpumode(), Misc::KERNEL | Misc::GUEST_KERNEL) {
            if misc.cpumode() == Misc::GUEST_KERNEL {
                return;
            }
            if let Some(symbol) = name.strip_prefix("[kernel.kallsyms]") {
                self.symbols.set_kernel_reference(symbol, m.pgoff);
            }
            // /proc/modules has no addresses for those who may not see them, nor while one is loaded.
            if m.start == 0 && !name.starts_with("[kernel") {
                return;
            }
            let dso = self.symbols.dso(m.filename, m.build_id, u32::MAX);
            self.symbols.set_module_base(dso, m.start);
            // A hidden kernel states no place: all of its half is then it.
            let (start, end) = if m.start == 0 { (1 << 63, u64::MAX) } else { (m.start, end) };
            self.change_kernel(|maps| {
                maps.insert(Mapping { start, end, pgoff: 0, dso, identity: true })
            });
            return;
        }
        let dso = self.symbols.dso(m.filename, m.build_id, m.pid);
        let kind = self.symbols.get(dso).map(|d| d.kind);
        let identity = kind == Some(DsoKind::PerfMap);
        let new = Mapping { start: m.start, end, pgoff: m.pgoff, dso, identity };
        self.generations += 1;
        let generation = self.generations;
        let space = self.spaces.entry(m.pid).or_default();
        let shared = Arc::strong_count(space) > 1;
        let space = Arc::make_mut(space);
        space.generation = generation;
        if end > WIDE_ADDRESS {
            space.is_32_bit = Some(false);
        } else if name == "[vdso]" {
            // The kernel maps it near the top of what the program can address.
            space.is_32_bit = Some(true);
        }
        if space.insert(new) || shared || space.line == 0 {
            space.line = generation;
        }
        if !self.threads.contains_key(&m.tid) {
            let comm = self.comm_id(&format!(":{}", m.pid));
            self.threads.insert(m.tid, Thread { pid: m.pid, comm, named: false });
        }
    }

    /// Forgets a thread that has ended, and the address space of a process with its last one:
    /// nothing more is asked of them.
    pub fn forget_task(&mut self, pid: u32, tid: u32) {
        self.threads.remove(&tid);
        // While the first thread lives there is no need to look for others.
        if !self.threads.contains_key(&pid) && !self.threads.values().any(|t| t.pid == pid) {
            self.spaces.remove(&pid);
        }
    }

    fn change_kernel(&mut self, change: impl FnOnce(&mut Maps) -> bool) {
        self.generations += 1;
        let kernel = Arc::make_mut(&mut self.kernel);
        kernel.generation = self.generations;
        if change(kernel) || kernel.line == 0 {
            kernel.line = self.generations;
        }
    }

    fn comm_id(&mut self, name: &str) -> CommId {
        if let Some(id) = self.comm_ids.get(name) {
            return *id;
        }
        let id = CommId(self.comms.len() as u32);
        let name: Arc<str> = name.into();
        self.comms.push(Arc::clone(&name));
        self.comm_ids.insert(name, id);
        id
    }

    /// The name of a thread now; perf's `:TID` when it never said.
    pub fn comm_of(&mut self, pid: u32, tid: u32) -> CommId {
        if let Some(t) = self.threads.get(&tid).filter(|t| t.named) {
            return t.comm;
        }
        let comm = self.comm_id(&format!(":{tid}"));
        self.threads.insert(tid, Thread { pid, comm, named: true });
        comm
    }

    /// The name a thread has now, where known.
    pub fn name_of(&self, tid: u32) -> Option<CommId> {
        self.threads.get(&tid).filter(|t| t.named).map(|t| t.comm)
    }

    /// The text of a task name.
    pub fn comm(&self, id: CommId) -> &str {
        self.comms.get(id.0 as usize).map_or("", |c| c)
    }

    /// The process of a thread, where known.
    pub fn pid_of(&self, tid: u32) -> Option<u32> {
        self.threads.get(&tid).map(|t| t.pid)
    }

    /// The address space of a process now.
    pub fn space(&self, pid: u32) -> Arc<Maps> {
        self.spaces.get(&pid).cloned().unwrap_or_default()
    }

    /// Numbers of the states that addresses of a process and of the kernel resolve in.
    pub fn generation(&self, pid: u32) -> (u64, u64) {
        (self.spaces.get(&pid).map_or(0, |space| space.generation), self.kernel.generation)
    }

    /// Whether the program of a process is one of 32 bits, as its mappings tell.
    pub fn is_32_bit(&self, pid: u32) -> Option<bool> {
        self.spaces.get(&pid)?.is_32_bit
    }

    /// The kernel's address space now.
    pub fn kernel(&self) -> Arc<Maps> {
        Arc::clone(&self.kernel)
    }

    /// The mapping of an address now.
    pub fn lookup(&self, pid: u32, at: CodeAddress, cpumode: u16) -> Option<Mapping> {
        match cpumode {
            Misc::KERNEL => self.kernel.find(at).copied(),
            Misc::USER => self.spaces.get(&pid)?.find(at).copied(),
            _ => None,
        }
    }

    /// The variable of a program at an address of a process.
    pub fn variable(&self, pid: u32, addr: u64) -> Option<String> {
        // Data lies behind the code of its binary, and not far.
        let maps = self.spaces.get(&pid)?;
        let behind = maps.ranges.partition_point(|m| m.start <= addr);
        let near = maps.ranges.get(..behind)?.iter().rev().filter(|m| !m.identity);
        near.take(NEAR_MAPPINGS).find_map(|m| self.symbols.variable(m.dso, m.start, m.pgoff, addr))
    }

    /// Binary and symbol now of an address that was sampled: it is resolved unchanged.
    pub fn locate(&mut self, pid: u32, ip: u64, cpumode: u16) -> Located {
        let at = CodeAddress::exact(ip);
        let mapping = self.lookup(pid, at, cpumode);
        Located::in_mapping(&mut self.symbols, mapping, at)
    }

    /// The text of a task name, to keep.
    pub(crate) fn comm_text(&self, id: CommId) -> Option<&Arc<str>> {
        self.comms.get(id.0 as usize)
    }
}

impl Located {
    /// Binary and symbol of an address in a mapping.
    pub fn in_mapping(
        symbols: &mut Resolver,
        mapping: Option<Mapping>,
        at: CodeAddress,
    ) -> Located {
        let Some(m) = mapping else {
            return Located { dso: None, addr: at.get(), symbol: None, offset: 0 };
        };
        let within = m.to_dso(at).get();
        let found = symbols.symbol(m.dso, within);
        // Programs of BPF have no file: what is shown is where they are in the kernel.
        let is_bpf = symbols.get(m.dso).is_some_and(|dso| dso.kind == DsoKind::Bpf);
        let addr = if is_bpf { at.get() } else { within };
        Located {
            dso: Some(m.dso),
            addr,
            symbol: found.map(|f| f.0),
            offset: found.map_or(0, |f| f.1),
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
