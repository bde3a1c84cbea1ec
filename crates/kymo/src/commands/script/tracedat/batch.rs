//! Events on their way to those who render them: copied together, with the
//! names of tasks that became known.

use std::ops::ControlFlow;

use kymo_files::tracedat::{Event, ReadError, ReadStats, Select, TraceDat};
use kymo_format::ring::Missed;
use rustc_hash::FxHashMap;

use crate::commands::script::filter::Filter;
use crate::commands::script::pool::Job;
use crate::commands::tracedat::{Comm, Comms, Formats, Known};

/// Bytes of payloads that go together.
const FULL: usize = 192 << 10;
/// Events that go together: with few bytes each they still are enough work.
const MANY: usize = 8 << 10;

/// An event of a batch.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) time: u64,
    at: u32,
    len: u32,
    pub(super) cpu: u32,
    pub(super) buffer: u32,
    pub(super) missed: Option<Missed>,
}

/// Events that are rendered together.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// Tasks whose names became known with these events, each with the event
    /// from which on it has the name.
    pub(super) names: Vec<(usize, i32, Comm)>,
    /// Functions that called no other, by their event, with their durations.
    /// Their exits are left out.
    pub(super) leaves: FxHashMap<usize, u64>,
}

impl Batch {
    fn with_room() -> Batch {
        Batch { bytes: Vec::with_capacity(FULL + 4096), ..Batch::default() }
    }

    pub(super) fn events(&self) -> impl Iterator<Item = (&Item, &[u8])> {
        self.items.iter().map(|i| {
            let at = i.at as usize;
            (i, self.bytes.get(at..at + i.len as usize).unwrap_or(&[]))
        })
    }

    /// The duration of the function that an event begins and the next one ends.
    #[inline]
    pub(super) fn leaf(&self, event: usize) -> Option<u64> {
        if self.leaves.is_empty() { None } else { self.leaves.get(&event).copied() }
    }

    #[inline]
    fn push(&mut self, e: &Event<'_>) {
        self.items.push(Item {
            time: e.time,
            at: self.bytes.len() as u32,
            len: e.payload.len() as u32,
            cpu: e.cpu,
            buffer: e.buffer as u32,
            missed: e.missed,
        });
        self.bytes.extend_from_slice(e.payload);
    }
}

/// What merges and gathers.
pub(super) struct Feed<'a> {
    data: &'a TraceDat,
    formats: &'a Formats<'a>,
    select: Select,
    until: u64,
    comms: Comms,
    /// Whether entries and exits of functions are put together.
    graph: bool,
    /// Where the last event of an instance is in the batch, if a function began with
    /// it. As in trace-cmd, an event of any CPU between an entry and its exit keeps
    /// them apart: both lines stay in the order of time.
    entered: FxHashMap<usize, (usize, u64, i32)>,
}

impl<'a> Feed<'a> {
    pub(super) fn new(
        data: &'a TraceDat,
        formats: &'a Formats<'a>,
        filter: &Filter,
        graph: bool,
    ) -> Feed<'a> {
        let select = Select { cpus: filter.cpus(), from: filter.from(), ..Select::default() };
        let comms = Comms::new(&data.machine().saved_cmdlines);
        let (until, entered) = (filter.until(), FxHashMap::default());
        Feed { data, formats, select, until, comms, graph, entered }
    }

    pub(super) fn run(
        mut self,
        give: &mut dyn FnMut(Job<Batch>) -> ControlFlow<()>,
    ) -> Result<ReadStats, ReadError> {
        let mut batch = Batch::with_room();
        let mut give = |batch: Batch| {
            let for_all = !batch.names.is_empty();
            give(Job { job: batch, for_all })
        };
        let mut teachers = Teachers::default();
        let (data, select) = (self.data, std::mem::take(&mut self.select));
        let stats = data.for_each(&select, &mut |e| {
            if e.time > self.until {
                return ControlFlow::Break(());
            }
            let special = teachers.is_special(self.formats, e.payload);
            if (special || !self.entered.is_empty()) && self.graph && self.leaf(e, &mut batch) {
                return ControlFlow::Continue(());
            }
            if special
                && let Some(known) =
                    self.formats.id(e.payload).and_then(|i| self.formats.get(i).ok())
            {
                let (names, at) = (&mut batch.names, batch.items.len());
                let new = |pid, comm| names.push((at, pid, comm));
                self.comms.learn(known, e.payload, self.formats.endian, new);
            }
            batch.push(e);
            if batch.bytes.len() < FULL && batch.items.len() < MANY {
                return ControlFlow::Continue(());
            }
            // What follows may be the exit of a function whose entry is in here.
            if !self.entered.is_empty() && batch.items.len() < 4 * MANY {
                return ControlFlow::Continue(());
            }
            self.entered.clear();
            give(std::mem::replace(&mut batch, Batch::with_room()))
        });
        if !batch.items.is_empty() {
            let _ = give(batch);
        }
        stats
    }
}

impl Feed<'_> {
    /// Takes note of an event of the function-graph tracer, or of any that comes
    /// between an entry and its exit. `true`: it is the exit of a leaf.
    fn leaf(&mut self, e: &Event<'_>, batch: &mut Batch) -> bool {
        let known = self.formats.id(e.payload).and_then(|i| self.formats.get(i).ok());
        let graph = known.and_then(|k| k.graph.as_ref());
        let before = self.entered.remove(&e.buffer);
        let Some(graph) = graph else { return false };
        let endian = self.formats.endian;
        let who = (graph.func(e.payload, endian), self.formats.pid(e.payload));
        match graph.duration(e.payload, endian) {
            Some(duration) => {
                let Some((at, func, pid)) = before.filter(|_| e.missed.is_none()) else {
                    return false;
                };
                if (func, pid) != who {
                    return false;
                }
                batch.leaves.insert(at, duration);
                true
            }
            None => {
                self.entered.insert(e.buffer, (batch.items.len(), who.0, who.1));
                false
            }
        }
    }
}

/// Which events are more than themselves, by their number: they name tasks, or
/// begin or end functions.
#[derive(Default)]
struct Teachers {
    /// 0: not known, 1: no, 2: yes.
    of: Vec<u8>,
}

impl Teachers {
    #[inline]
    fn is_special(&mut self, formats: &Formats<'_>, payload: &[u8]) -> bool {
        let Some(id) = formats.id(payload) else { return false };
        match self.of.get(usize::from(id)) {
            Some(1) => false,
            Some(2) => true,
            _ => self.find(formats, id),
        }
    }

    #[cold]
    fn find(&mut self, formats: &Formats<'_>, id: u16) -> bool {
        let special = |k: &Known| !k.names_of_tasks.is_empty() || k.graph.is_some();
        let yes = formats.get(id).is_ok_and(special);
        self.of.resize(self.of.len().max(usize::from(id) + 1), 0);
        if let Some(slot) = self.of.get_mut(usize::from(id)) {
            *slot = 1 + u8::from(yes);
        }
        yes
    }
}
