//! Reading the allocators' events of recordings into tables.

use std::ops::ControlFlow;

use kymo_events::{
    EventSelection, EventSource, FieldId, ReadOptions, ReadSummary, RecordedEvent, SourceError,
};
use kymo_files::perfdata::feature::Feature;
use kymo_files::perfdata::read::FeatureSection;

use super::decode::{KmemDecoder, KmemEvent, PAGE_EVENTS, PAGE_STEP_EVENTS, SLAB_EVENTS};
use super::page_chains::PageChains;
use super::page_processes::PageProcesses;
use super::pages::{FreedBlock, PageAllocation, PageTable};
use super::slab::{SlabAllocation, SlabTable};
use super::stack_wait::StackWait;
use crate::call_sites::{CallSites, SiteId};
use crate::losses::{LossWindows, MOST_CPUS, select_events};
use kymo_format::print_argument::FlagNames;

/// Event with the parent of a new task.
const FORK: &str = "sched:sched_process_fork";

/// Options of counting allocations.
#[derive(Debug, Default)]
pub struct KmemConfig {
    /// Selection of allocations: by time, CPU and task; frees count with them.
    pub selection: EventSelection,
    /// The slab allocator.
    pub slab: bool,
    /// A row for each address of an object.
    pub slab_by_ptr: bool,
    /// The page allocator.
    pub pages: bool,
    /// A row for each page.
    pub pages_by_page: bool,
    /// All events of the page allocator, by process.
    pub processes: bool,
}

/// Allocations that were counted.
#[derive(Debug)]
pub struct KmemRead {
    /// Objects.
    pub slab: SlabTable,
    /// Pages.
    pub pages: PageTable,
    /// Pages by call chain.
    pub chains: PageChains,
    /// Events of the page allocator by process.
    pub processes: PageProcesses,
    /// Addresses of code that allocates.
    pub sites: CallSites,
    /// Names of the flags of requests for pages.
    pub gfp_names: FlagNames,
    /// Whether pages are numbered; else they have the addresses of their `struct page`.
    pub has_pfns: bool,
    /// Number of events of the slab and of the page allocator, selected or not.
    pub events: (u64, u64),
    /// Times at which events were found to be lost.
    pub losses: u64,
    /// Events without time or CPU.
    pub unplaced: u64,
    /// Events that lack a field.
    pub malformed: u64,
    /// Times of the first and the last event.
    pub span: Option<(u64, u64)>,
    /// Summary of the readers.
    pub summary: ReadSummary,
}

/// NUMA nodes of CPUs, where a perf.data has them.
fn cpu_nodes(source: &EventSource) -> Vec<Option<u32>> {
    let mut nodes = Vec::new();
    if source.perf_count() != 1 || source.timeline().is_some() {
        return nodes;
    }
    let Some(data) = source.perf(0) else { return nodes };
    let features = data.features();
    let Some((FeatureSection::NumaTopology(list), _)) =
        features.section(Feature::NUMA_TOPOLOGY, data.endian())
    else {
        return nodes;
    };
    for node in list {
        for part in node.cpus.trim().split(',') {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            let (Ok(a), Ok(b)) = (a.parse::<u32>(), b.parse::<u32>()) else { continue };
            for cpu in a..=b.min(MOST_CPUS) {
                if nodes.len() <= cpu as usize {
                    nodes.resize(cpu as usize + 1, None);
                }
                nodes[cpu as usize] = Some(node.node);
            }
        }
    }
    nodes
}

/// Bytes of a page of the machine that was recorded.
fn page_size(source: &EventSource) -> u64 {
    let of_perf = source
        .perf(0)
        .and_then(|data| data.features().tracing_data.as_ref().map(|t| u64::from(t.page_size)));
    let of_kernel = || {
        let kernel = source.timeline()?.kernels().first()?;
        Some(u64::from(kernel.page_size()))
    };
    let is_size = |size: &u64| size.is_power_of_two() && (1 << 10..=1 << 20).contains(size);
    of_perf.or_else(of_kernel).filter(is_size).unwrap_or(4096)
}

/// Fields of the event of a fork.
struct ForkFields {
    layout: usize,
    parent: FieldId,
    child: FieldId,
    comm: Option<FieldId>,
}

struct KmemReader<'c> {
    config: &'c KmemConfig,
    /// Allocations whose stacks are events of their own, and may follow.
    stacks: StackWait,
    decoder: KmemDecoder,
    nodes: Vec<Option<u32>>,
    fork: Option<ForkFields>,
    names: Option<usize>,
    /// An allocation is certain to be the one that a free ends if as many windows had ended
    /// before the first as had started before the second.
    losses: LossWindows,
    read: KmemRead,
}

/// A number of spans as rows hold it.
fn span_number(spans: usize) -> u16 {
    u16::try_from(spans).unwrap_or(u16::MAX)
}

impl KmemReader<'_> {
    #[inline]
    fn event(&mut self, event: &RecordedEvent<'_>) {
        let Some(kmem) = self.decoder.decode(event) else {
            if event.class.is_stack {
                self.take_stack(event);
            } else if self.config.processes {
                self.note_fork(event);
            }
            return;
        };
        let read = &mut self.read;
        let (Some(time), Some(cpu)) = (event.time, event.cpu().filter(|c| *c < MOST_CPUS)) else {
            read.unplaced += 1;
            return;
        };
        let (first, last) = read.span.unwrap_or((time, time));
        read.span = Some((first.min(time), last.max(time)));
        let selection = &self.config.selection;
        if !selection.times.is_empty() && time > selection.until() {
            return;
        }
        let timely = selection.wants_time(event.time);
        let chosen = timely && selection.wants_cpu(Some(cpu)) && {
            !selection.has_task_conditions() || {
                let task = event.task();
                selection.wants_task(task.pid, task.tid, task.comm())
            }
        };
        let passed = self.losses.passed(time);
        let (begun, ended) = (span_number(passed.started), span_number(passed.ended));
        match kmem {
            KmemEvent::SlabAlloc { site, ptr, requested, allocated, node } => {
                read.events.0 += 1;
                let of_cpu = self.nodes.get(cpu as usize).copied().flatten();
                // No node asked for is none crossed.
                let is_cross = of_cpu.map(|cpu| node.is_some_and(|node| node != cpu));
                let a = SlabAllocation { site, ptr, requested, allocated, is_cross };
                read.slab.allocate(&a, (cpu, ended), chosen, &mut read.sites, event);
            }
            KmemEvent::SlabFree { ptr } => {
                read.events.0 += 1;
                read.slab.free(ptr, (cpu, begun), chosen);
            }
            _ => {
                self.page_event(event, &kmem, chosen, (begun, ended));
            }
        }
    }

    fn page_event(
        &mut self,
        event: &RecordedEvent<'_>,
        kmem: &KmemEvent,
        chosen: bool,
        (begun, ended): (u16, u16),
    ) {
        let read = &mut self.read;
        let process = if self.config.processes && chosen { read.processes.find(event) } else { 0 };
        if self.config.processes && chosen {
            read.processes.count(process, kmem);
        }
        read.events.1 += 1;
        self.stacks.pass(event);
        let freed = match *kmem {
            KmemEvent::PageAlloc { page, order, gfp, migrate_type } => {
                self.learn_names(event);
                let read = &mut self.read;
                let (mut chain, mut site) = (0, SiteId(0));
                let counts = chosen && page.is_some();
                if counts {
                    let stack = event.stack();
                    (chain, site) = read.chains.find(&stack.kernel, event, &mut read.sites);
                    let bytes = read.pages.page_size << order;
                    read.chains.add(chain, bytes);
                    read.processes.allocated(process, bytes);
                }
                let a = PageAllocation { page, order, gfp, migrate_type, chain, process };
                let has_pfn = self.decoder.has_pfns;
                let reused = read.pages.allocate(&a, site, ended, chosen, has_pfn);
                if counts && chain == 0 {
                    self.stacks.push(event, a, read.pages.last_number());
                }
                reused
            }
            KmemEvent::PageFree { page, order } => read.pages.free(page, order, begun, chosen),
            _ => None,
        };
        if let Some(FreedBlock { chain, process, bytes }) = freed {
            self.read.chains.free(chain, bytes);
            self.read.processes.ended(process, bytes);
        }
    }

    #[inline]
    fn learn_names(&mut self, event: &RecordedEvent<'_>) {
        let layout = event.class.layout.index();
        if self.names.is_none() {
            self.names = Some(layout);
            let format = event.class.print_format.as_deref().unwrap_or("");
            self.read.gfp_names = FlagNames::from_print_format(format, "gfp_flags=", "gfp_flags");
        }
    }

    /// Gives an allocation the stack that follows it.
    fn take_stack(&mut self, event: &RecordedEvent<'_>) {
        let Some((mut a, number)) = self.stacks.take(event) else { return };
        let read = &mut self.read;
        let addresses = event.stack_entries();
        let (chain, site) = read.chains.find(&addresses, event, &mut read.sites);
        a.chain = chain;
        let lives = read.pages.settle(&a, number, (SiteId(0), site));
        read.chains.settle(chain, read.pages.page_size << a.order, lives);
    }

    #[cold]
    fn note_fork(&mut self, event: &RecordedEvent<'_>) {
        let layout = event.class.layout.index();
        if self.fork.as_ref().is_none_or(|fork| fork.layout != layout) {
            let field = |name: &str| event.class.field(name);
            let (true, Some(parent), Some(child)) =
                (event.class.is_named(FORK), field("parent_tid"), field("child_tid"))
            else {
                return;
            };
            self.fork = Some(ForkFields { layout, parent, child, comm: field("parent_comm") });
        }
        let Some(fork) = &self.fork else { return };
        let fields = event.fields();
        let tid = |id| fields.integer(id).and_then(|n| u32::try_from(n).ok());
        if let (Some(parent), Some(child)) = (tid(fork.parent), tid(fork.child)) {
            let comm = fork.comm.map_or_else(Vec::new, |c| fields.text(c).into_owned());
            self.read.processes.fork(child, (comm, parent));
        }
    }
}

/// Counts what the allocators did.
///
/// # Errors
/// If reading fails.
pub fn read_kmem(source: &EventSource, config: &KmemConfig) -> Result<KmemRead, SourceError> {
    let mut names: Vec<&str> = Vec::new();
    if config.slab {
        names.extend(SLAB_EVENTS);
    }
    if config.pages {
        names.extend(PAGE_EVENTS);
        // Joined by the reader (`join_stacks`), events would come in another order than that of
        // time, and frees would miss their allocations.
        names.push("ftrace:kernel_stack");
    }
    if config.processes {
        names.extend(PAGE_STEP_EVENTS);
        names.push(FORK);
    }
    let read = KmemRead {
        slab: SlabTable::new(config.slab_by_ptr),
        pages: PageTable::new(page_size(source), config.pages_by_page),
        chains: PageChains::default(),
        processes: PageProcesses::default(),
        sites: CallSites::default(),
        gfp_names: FlagNames::default(),
        has_pfns: false,
        events: (0, 0),
        losses: 0,
        unplaced: 0,
        malformed: 0,
        span: None,
        summary: ReadSummary::default(),
    };
    let mut reader = KmemReader {
        config,
        stacks: StackWait::default(),
        decoder: KmemDecoder::default(),
        nodes: cpu_nodes(source),
        fork: None,
        names: None,
        losses: source.losses(),
        read,
    };
    let selection = select_events(&names);
    let summary = source.for_each(&selection, ReadOptions::default(), &mut |event| {
        reader.event(event);
        ControlFlow::Continue(())
    })?;
    let KmemReader { decoder, mut read, losses, .. } = reader;
    read.losses = losses.len() as u64;
    let losses = span_number(losses.passed(u64::MAX).started);
    read.slab.finish(losses);
    let KmemRead { pages, chains, processes, .. } = &mut read;
    pages.finish(losses, &mut |block| {
        chains.doubt(block.chain, block.bytes);
        processes.doubt(block.process, block.bytes);
    });
    read.processes.finish();
    (read.malformed, read.has_pfns) = (decoder.malformed, decoder.has_pfns);
    read.summary = summary;
    Ok(read)
}
