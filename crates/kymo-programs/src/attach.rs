//! Probes to their events. What is attached hangs on descriptors of this process.

use std::cell::{OnceCell, RefCell};
use std::io::Read as _;

use kymo_bpf::{AttachPoint, AttachTarget, BpfProgramType};
use kymo_kernel::bpf::{BpfLink, BpfProgram, ProbeEvent, ProbeEventPlace, open_iterator};
use kymo_kernel::cpus;
use kymo_kernel::perf_event::{OpenFlags, PerfEvent};
use kymo_kernel::target::{check_thread, threads_of};
use kymo_model::{Attr, AttrFlags, EventType, hw, hw_cache, sw};

use crate::facts::{BinaryPlace, MachineFacts, own_module, place_of};

/// Attaches programs.
pub(crate) struct ProbeAttacher<'f> {
    facts: &'f MachineFacts,
    cpus: Vec<u32>,
    kprobe: OnceCell<Option<ProbeEvent>>,
    uprobe: OnceCell<Option<ProbeEvent>>,
    /// Places of the probes of user space.
    pub places: RefCell<Vec<BinaryPlace>>,
}

type AttachResult = Result<Vec<BpfLink>, String>;

impl<'f> ProbeAttacher<'f> {
    pub(crate) fn new(facts: &'f MachineFacts) -> ProbeAttacher<'f> {
        let cpus = cpus::online();
        let places = RefCell::default();
        ProbeAttacher { facts, cpus, kprobe: OnceCell::new(), uprobe: OnceCell::new(), places }
    }

    /// Attaches a program to a point, which may be several places.
    pub(crate) fn attach(
        &self,
        program: &BpfProgram,
        program_type: BpfProgramType,
        point: &AttachPoint,
    ) -> AttachResult {
        match &point.target {
            AttachTarget::Begin
            | AttachTarget::End
            | AttachTarget::SelfSignal(_)
            | AttachTarget::Test(_) => Ok(Vec::new()),
            AttachTarget::Tracepoint { event, .. } | AttachTarget::RawTracepoint { event, .. }
                if program_type == BpfProgramType::RawTracepoint =>
            {
                raw(program, Some(event))
            }
            AttachTarget::Tracepoint { category, event } => {
                let tracefs = self.facts.tracefs()?;
                let id = tracefs.event_id(category, event).map_err(|e| e.to_string())?;
                let attr = Attr { kind: EventType::TRACEPOINT, config: id, ..sampling(1, 0) };
                let event = PerfEvent::open(&attr, -1, 0, None, OpenFlags::NONE);
                let event = event.map_err(|e| e.to_string())?;
                Ok(vec![BpfLink::to_tracepoint(program, event).map_err(|e| e.to_string())?])
            }
            AttachTarget::RawTracepoint { .. } | AttachTarget::Fentry { .. } => raw(program, None),
            AttachTarget::Iter { object, .. } => {
                let is_of_tasks = TASK_ITERATORS.contains(&object.as_str());
                iterate(program, self.facts.user_process().filter(|_| is_of_tasks))
            }
            AttachTarget::Kprobe { module, function, offset, address, at_return } => {
                let in_module = self.facts.function_of_module(module, function);
                let place = match address.or(in_module.map(|a| a.wrapping_add(*offset))) {
                    Some(address) => ProbeEventPlace::Address(address),
                    None => ProbeEventPlace::Function(function, *offset),
                };
                self.kprobe(program, place, *at_return)
            }
            AttachTarget::Uprobe { at_return, .. } => {
                self.uprobes(program, &place_of(&point.target, self.facts)?, *at_return)
            }
            AttachTarget::Usdt { .. } => {
                self.uprobes(program, &place_of(&point.target, self.facts)?, false)
            }
            // Its address comes with the function's call.
            AttachTarget::Watchpoint { function, .. } if !function.is_empty() => Ok(Vec::new()),
            AttachTarget::Watchpoint { address, .. } => match self.facts.user_process() {
                Some(pid) => watch(program, &point.target, *address, pid),
                None => {
                    let attr = watched(&point.target, *address).ok_or("it is not a watchpoint")?;
                    on_cpus(program, &attr, &self.cpus)
                }
            },
            _ => self.sampled(program, &point.target),
        }
    }

    /// Attaches a program to all of its points in one call, where the kernel can: `None` if it
    /// cannot or there is only one.
    pub(crate) fn addresses_of_kprobes(&self, points: &[AttachPoint]) -> Option<(Vec<u64>, bool)> {
        let mut names = rustc_hash::FxHashMap::default();
        let mut returns = None;
        for point in points {
            match &point.target {
                AttachTarget::Kprobe { module, function, offset: 0, address: None, at_return }
                    if returns.is_none_or(|known| known == *at_return) =>
                {
                    returns = Some(*at_return);
                    names.insert((own_module(module), function.as_str()), ());
                }
                _ => return None,
            }
        }
        let symbols = self.facts.symbols().iter();
        // Of a name that stands in several modules, the first one's; of a module's, its own.
        let found = symbols.filter(|(_, _, name, module)| {
            names.remove(&(None, *name)).is_some()
                || names.remove(&(Some(*module), *name)).is_some()
        });
        let addresses: Vec<u64> = found.map(|(address, ..)| address).collect();
        let is_whole = addresses.len() == points.len() && addresses.len() > 1;
        returns.filter(|_| is_whole).map(|returns| (addresses, returns))
    }

    /// Offsets of the functions of one binary: its path and the offsets.
    pub(crate) fn offsets_of_uprobes(
        &self,
        points: &[AttachPoint],
    ) -> Option<(String, Vec<u64>, bool)> {
        let mut found: Option<(String, Vec<u64>, bool)> = None;
        for point in points {
            let AttachTarget::Uprobe { at_return, .. } = &point.target else { return None };
            for place in place_of(&point.target, self.facts).ok()? {
                let path = place.path.to_string_lossy().into_owned();
                let (known, offsets, returns) =
                    found.get_or_insert_with(|| (path.clone(), Vec::new(), *at_return));
                if *known != path || returns != at_return {
                    return None;
                }
                offsets.push(place.offset);
                self.places.borrow_mut().push(place);
            }
        }
        found.filter(|(_, offsets, _)| offsets.len() > 1)
    }

    fn kprobe(
        &self,
        program: &BpfProgram,
        place: ProbeEventPlace<'_>,
        at_return: bool,
    ) -> AttachResult {
        let pmu = self.kprobe.get_or_init(|| ProbeEvent::of_pmu("kprobe"));
        let pmu = pmu.as_ref().ok_or("this kernel has no kprobes")?;
        let event = pmu.open(place, at_return, None).map_err(|e| match (e.errno, place) {
            (ENOENT, ProbeEventPlace::Function(name, _)) => {
                format!("the kernel has no function {name}, or its symbol is hidden")
            }
            (EINVAL, _) => "the kernel does not allow a probe there".to_owned(),
            _ => e.to_string(),
        })?;
        Ok(vec![BpfLink::to_perf_event(program, event).map_err(|e| e.to_string())?])
    }

    fn uprobes(
        &self,
        program: &BpfProgram,
        places: &[BinaryPlace],
        at_return: bool,
    ) -> AttachResult {
        let pmu = self.uprobe.get_or_init(|| ProbeEvent::of_pmu("uprobe"));
        let pmu = pmu.as_ref().ok_or("this kernel has no uprobes")?;
        let mut links = Vec::new();
        self.places.borrow_mut().extend_from_slice(places);
        for place in places {
            let path = place.path.to_string_lossy();
            let semaphore = u32::try_from(place.semaphore).unwrap_or(0);
            let at = ProbeEventPlace::File(&path, place.offset, semaphore);
            let event =
                pmu.open(at, at_return, self.facts.user_process()).map_err(|e| e.to_string())?;
            links.push(BpfLink::to_perf_event(program, event).map_err(|e| e.to_string())?);
        }
        if links.is_empty() { Err("no such probe".into()) } else { Ok(links) }
    }

    /// An event of all CPUs, or of the process of `-p` or `-c` with all that it will start.
    fn on_target(&self, program: &BpfProgram, attr: &Attr) -> AttachResult {
        match self.facts.target {
            Some(pid) => on_process(program, attr.clone(), pid),
            None => on_cpus(program, attr, &self.cpus),
        }
    }

    /// Events that are sampled: clocks and counters.
    fn sampled(&self, program: &BpfProgram, target: &AttachTarget) -> AttachResult {
        let clock = |period: u64, hertz: u64| Attr {
            kind: EventType::SOFTWARE,
            config: sw::CPU_CLOCK,
            ..sampling(period, hertz)
        };
        match target {
            AttachTarget::Profile { period_ns, hertz } => {
                self.on_target(program, &clock(*period_ns, *hertz))
            }
            AttachTarget::Interval { period_ns, hertz } => {
                let first = self.cpus.get(..1).unwrap_or_default();
                on_cpus(program, &clock(*period_ns, *hertz), first)
            }
            AttachTarget::Software { event, period } => {
                let (config, usual) = software_event(event)
                    .ok_or_else(|| format!("no such software event: {event}"))?;
                let period = if *period == 0 { usual } else { *period };
                let attr = Attr { kind: EventType::SOFTWARE, config, ..sampling(period, 0) };
                self.on_target(program, &attr)
            }
            AttachTarget::Hardware { event, period } => {
                let (kind, config, usual) = hardware_event(event)
                    .ok_or_else(|| format!("no such hardware event: {event}"))?;
                let period = if *period == 0 { usual } else { *period };
                let attr = Attr { kind, config, ..sampling(period, 0) };
                self.on_target(program, &attr)
            }
            _ => Err("such probes are not attached here".into()),
        }
    }
}

fn on_event(program: &BpfProgram, attr: &Attr, pid: i32, cpu: i32) -> AttachResult {
    let event = PerfEvent::open(attr, pid, cpu, None, OpenFlags::NONE);
    let event = event.map_err(|e| match e.errno {
        ENOSPC => "You are out of watchpoint registers".to_owned(),
        _ => e.to_string(),
    })?;
    Ok(vec![BpfLink::to_perf_event(program, event).map_err(|e| e.to_string())?])
}

fn on_cpus(program: &BpfProgram, attr: &Attr, cpus: &[u32]) -> AttachResult {
    let mut links = Vec::new();
    for cpu in cpus {
        links.extend(on_event(program, attr, -1, *cpu as i32)?);
    }
    Ok(links)
}

/// The event of a watchpoint.
fn watched(target: &AttachTarget, address: u64) -> Option<Attr> {
    let AttachTarget::Watchpoint { length, mode, .. } = target else { return None };
    let bit = |letter, value| if mode.contains(letter) { value } else { 0 };
    Some(Attr {
        kind: EventType::BREAKPOINT,
        bp_type: bit('r', 1) | bit('w', 2) | bit('x', 4),
        config1: address,
        // Of an instruction the kernel takes the size of a word alone.
        config2: if mode.contains('x') { 8 } else { (*length).into() },
        ..sampling(1, 0)
    })
}

/// Watches an address in all threads of a process, and in those that they make.
pub(crate) fn watch(
    program: &BpfProgram,
    target: &AttachTarget,
    address: u64,
    pid: u32,
) -> AttachResult {
    on_process(program, watched(target, address).ok_or("it is not a watchpoint")?, pid)
}

/// An event in all threads of a process, and in the threads and processes that they start.
fn on_process(program: &BpfProgram, mut attr: Attr, pid: u32) -> AttachResult {
    attr.flags |= AttrFlags::INHERIT;
    let mut links = Vec::new();
    let mut failure = None;
    for thread in threads_of(pid).map_err(|e| e.to_string())? {
        match on_event(program, &attr, thread as i32, -1) {
            Ok(more) => links.extend(more),
            // Threads may end meanwhile.
            Err(_) if thread != pid && !is_thread_there(thread) => {}
            Err(e) => failure = Some(e),
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(links),
    }
}

fn is_thread_there(tid: u32) -> bool {
    check_thread(tid).is_ok()
}

const ENOSPC: i32 = 28;
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;

fn raw(program: &BpfProgram, name: Option<&str>) -> AttachResult {
    let link = BpfLink::to_raw_tracepoint(program, name).map_err(|e| e.to_string())?;
    Ok(vec![link])
}

/// Iterators that the kernel can limit to one process.
const TASK_ITERATORS: [&str; 3] = ["task", "task_file", "task_vma"];

/// Runs an iterator over all its objects, or those of one process.
fn iterate(program: &BpfProgram, process: Option<u32>) -> AttachResult {
    let (link, mut output) = open_iterator(program, process).map_err(|e| e.to_string())?;
    let mut unused = [0u8; 4096];
    while output.read(&mut unused).map_err(|e| e.to_string())? > 0 {}
    Ok(vec![link])
}

fn sampling(period: u64, hertz: u64) -> Attr {
    let frequency = if hertz > 0 { AttrFlags::FREQ } else { AttrFlags::empty() };
    Attr {
        sample_period: if hertz > 0 { hertz } else { period },
        wakeup: 1,
        flags: AttrFlags::DISABLED | frequency,
        ..Attr::default()
    }
}

/// Names that [`software_event`] knows.
pub(crate) const SOFTWARE_EVENTS: [&str; 14] = [
    "alignment-faults",
    "bpf-output",
    "context-switches",
    "cpu",
    "cpu-clock",
    "cpu-migrations",
    "cs",
    "dummy",
    "emulation-faults",
    "faults",
    "major-faults",
    "minor-faults",
    "page-faults",
    "task-clock",
];

/// Names that [`hardware_event`] knows.
pub(crate) const HARDWARE_EVENTS: [&str; 13] = [
    "backend-stalls",
    "branch-instructions",
    "branch-misses",
    "branches",
    "bus-cycles",
    "cache-misses",
    "cache-references",
    "cpu-cycles",
    "cycles",
    "frontend-stalls",
    "instructions",
    "llc-misses",
    "ref-cycles",
];

/// `config` and usual period.
pub(crate) fn software_event(name: &str) -> Option<(u64, u64)> {
    Some(match name {
        "alignment-faults" => (sw::ALIGNMENT_FAULTS, 1),
        "bpf-output" => (sw::BPF_OUTPUT, 1),
        "context-switches" | "cs" => (sw::CONTEXT_SWITCHES, 1000),
        "cpu-clock" | "cpu" => (sw::CPU_CLOCK, 1_000_000),
        "cpu-migrations" => (sw::CPU_MIGRATIONS, 1),
        "dummy" => (sw::DUMMY, 1),
        "emulation-faults" => (sw::EMULATION_FAULTS, 1),
        "major-faults" => (sw::PAGE_FAULTS_MAJ, 1),
        "minor-faults" => (sw::PAGE_FAULTS_MIN, 100),
        "page-faults" | "faults" => (sw::PAGE_FAULTS, 100),
        "task-clock" => (sw::TASK_CLOCK, 1),
        _ => return None,
    })
}

/// Type, `config` and usual period.
pub(crate) fn hardware_event(name: &str) -> Option<(EventType, u64, u64)> {
    let plain = |config, period| Some((EventType::HARDWARE, config, period));
    match name {
        "backend-stalls" => plain(hw::STALLED_CYCLES_BACKEND, 1_000_000),
        "branch-instructions" | "branches" => plain(hw::BRANCH_INSTRUCTIONS, 100_000),
        "branch-misses" => plain(hw::BRANCH_MISSES, 100_000),
        "bus-cycles" => plain(hw::BUS_CYCLES, 100_000),
        "cache-misses" => plain(hw::CACHE_MISSES, 1_000_000),
        "cache-references" => plain(hw::CACHE_REFERENCES, 1_000_000),
        "cpu-cycles" | "cycles" => plain(hw::CPU_CYCLES, 1_000_000),
        "frontend-stalls" => plain(hw::STALLED_CYCLES_FRONTEND, 1_000_000),
        "instructions" => plain(hw::INSTRUCTIONS, 1_000_000),
        "ref-cycles" => plain(hw::REF_CPU_CYCLES, 1_000_000),
        // Misses of reads of the last level's cache.
        "llc-misses" => Some((EventType::HW_CACHE, hw_cache::config(2, 0, 1), 1_000_000)),
        _ => None,
    }
}
