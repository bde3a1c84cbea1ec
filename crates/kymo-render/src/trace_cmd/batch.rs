//! Events of a recording on their way to those who render them: copied together,
//! with the names of tasks that became known.

use kymo_files::tracedat::{TraceDat, TraceDatEvent};
use kymo_format::ring::Missed;
use rustc_hash::FxHashMap;

use kymo_events::trace_dat::{
    FormatTable, GraphEntry, KnownEvent, NewName, TaskGroups, TaskName, TaskNames,
};

/// An event of a batch.
#[derive(Clone, Copy)]
pub(super) struct BatchItem {
    pub(super) time: u64,
    at: u32,
    len: u32,
    pub(super) cpu: u32,
    pub(super) buffer: u32,
    pub(super) missed: Option<Missed>,
}

/// New fact about a task.
#[derive(Clone, Copy)]
pub(super) enum TaskChange {
    /// Its name; `None`: no event states it any more.
    Name(i32, Option<TaskName>),
    /// The process that it is a thread of, or that this is not known any more.
    Group(i32, Option<u32>),
    /// Events state changes of names.
    NamesChange,
}

/// Events that are rendered together.
#[derive(Default)]
pub(crate) struct TraceCmdBatch {
    bytes: Vec<u8>,
    items: Vec<BatchItem>,
    /// New facts about tasks with these events, each with the event from which on it holds.
    pub(super) changes: Vec<(usize, TaskChange)>,
    /// Functions that called no other, by their event, with their durations.
    /// Their exits are left out.
    pub(super) leaves: FxHashMap<usize, u64>,
}

impl TraceCmdBatch {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it says something of tasks.
    pub(crate) fn defines_tasks(&self) -> bool {
        !self.changes.is_empty()
    }

    #[inline]
    pub(super) fn event(&self, number: usize) -> Option<(&BatchItem, &[u8])> {
        let item = self.items.get(number)?;
        let at = item.at as usize;
        Some((item, self.bytes.get(at..at + item.len as usize).unwrap_or(&[])))
    }

    /// The duration of the function that an event begins and the next one ends.
    #[inline]
    pub(super) fn leaf(&self, event: usize) -> Option<u64> {
        if self.leaves.is_empty() { None } else { self.leaves.get(&event).copied() }
    }

    #[inline]
    fn push(&mut self, e: &TraceDatEvent<'_>) {
        self.items.push(BatchItem {
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

/// Gathers the events of one recording.
pub(crate) struct TraceCmdFeed<'a> {
    formats: &'a FormatTable<'a>,
    comms: TaskNames,
    groups: TaskGroups,
    /// Whether entries and exits of functions are put together.
    graph: bool,
    /// Position in the batch of an instance's last event, if it is a function entry. As in
    /// trace-cmd, an event of any CPU between an entry and its exit keeps them apart: both lines
    /// stay in the order of time.
    entered: FxHashMap<usize, (usize, GraphEntry)>,
    special: SpecialEvents,
}

impl<'a> TraceCmdFeed<'a> {
    pub(crate) fn new(
        data: &TraceDat,
        formats: &'a FormatTable<'a>,
        graph: bool,
    ) -> TraceCmdFeed<'a> {
        let comms = TaskNames::new(&data.machine().saved_cmdlines);
        let (entered, special) = (FxHashMap::default(), SpecialEvents::default());
        let groups = TaskGroups::default();
        TraceCmdFeed { formats, comms, groups, graph, entered, special }
    }

    /// Adds an event to a batch. `false`: it is shown with one before.
    #[inline]
    pub(crate) fn add(&mut self, e: &TraceDatEvent<'_>, batch: &mut TraceCmdBatch) -> bool {
        let special = self.special.get(self.formats, e.payload);
        let within = special.is_graph || !self.entered.is_empty();
        if within && self.graph && self.leaf(e, batch) {
            return false;
        }
        if special.defines_tasks
            && let Some(known) = self.formats.id(e.payload).and_then(|i| self.formats.get(i).ok())
        {
            let (changes, at) = (&mut batch.changes, batch.items.len());
            let endian = self.formats.endian;
            let task = (self.formats.pid(e.payload), e.payload);
            // Groups come first: what holds after the event is applied with the next one.
            let new = |tid, pid| changes.push((at, TaskChange::Group(tid, pid)));
            self.groups.learn(known, task, endian, new);
            let new = |change: NewName| {
                let at = at + usize::from(change.is_after);
                changes.push((at, TaskChange::Name(change.tid, change.name)));
            };
            let had_changes = self.comms.has_changes();
            self.comms.learn(known, task, endian, new);
            if self.comms.has_changes() && !had_changes {
                changes.push((at, TaskChange::NamesChange));
            }
        }
        batch.push(e);
        true
    }

    /// Whether what follows may be the exit of a function whose entry is in the batch.
    pub(crate) fn is_within(&self) -> bool {
        !self.entered.is_empty()
    }

    /// Something lies between: what began will not be shown as one.
    pub(crate) fn separate(&mut self) {
        if !self.entered.is_empty() {
            self.entered.clear();
        }
    }
}

impl TraceCmdFeed<'_> {
    /// Takes note of an event of the function-graph tracer, or of any that comes
    /// between an entry and its exit. `true`: it is the exit of a leaf.
    fn leaf(&mut self, e: &TraceDatEvent<'_>, batch: &mut TraceCmdBatch) -> bool {
        let known = self.formats.id(e.payload).and_then(|i| self.formats.get(i).ok());
        let graph = known.and_then(|k| k.graph.as_ref());
        let before = self.entered.remove(&e.buffer);
        let Some(graph) = graph else { return false };
        let endian = self.formats.endian;
        let of = (self.formats.pid(e.payload), e.payload);
        if let Some(entry) = GraphEntry::of(graph, of, endian) {
            self.entered.insert(e.buffer, (batch.items.len(), entry));
            return false;
        }
        let Some((at, entry)) = before.filter(|_| e.missed.is_none()) else { return false };
        match entry.duration(graph, of, endian) {
            Some(duration) => {
                batch.leaves.insert(at, duration);
                true
            }
            None => false,
        }
    }
}

/// Whether events are more than themselves.
#[derive(Clone, Copy, Default)]
struct SpecialEvent {
    /// They say something of tasks.
    defines_tasks: bool,
    /// Functions begin or end with them.
    is_graph: bool,
}

/// Events that are more than themselves, by their number.
#[derive(Default)]
struct SpecialEvents {
    of: Vec<Option<SpecialEvent>>,
}

impl SpecialEvents {
    #[inline]
    fn get(&mut self, formats: &FormatTable<'_>, payload: &[u8]) -> SpecialEvent {
        let Some(id) = formats.id(payload) else { return SpecialEvent::default() };
        match self.of.get(usize::from(id)) {
            Some(Some(special)) => *special,
            _ => self.find(formats, id),
        }
    }

    #[cold]
    fn find(&mut self, formats: &FormatTable<'_>, id: u16) -> SpecialEvent {
        let of = |k: &KnownEvent| SpecialEvent {
            defines_tasks: k.states_names() || k.group.is_some(),
            is_graph: k.graph.is_some(),
        };
        let special = formats.get(id).map_or(SpecialEvent::default(), of);
        self.of.resize(self.of.len().max(usize::from(id) + 1), None);
        if let Some(slot) = self.of.get_mut(usize::from(id)) {
            *slot = Some(special);
        }
        special
    }
}
