//! Events of any recording, counted by what they have in common: class, task, CPU, stack,
//! values of fields. Each event counts once, whatever its format.

use std::ops::ControlFlow;

use kymo_events::{
    ClassOrigin, EventConsumer, EventSelection, EventSource, FieldId, ReadSummary, RecordedClass,
    RecordedEvent, SourceError,
};
use kymo_model::{Note, NoteKind};
use rustc_hash::FxHashMap;

/// Entries that are kept apart at most; what comes later is counted together.
const MOST_ENTRIES: usize = 1 << 20;
/// Distinct stacks, over all entries.
const MOST_STACKS: usize = 1 << 20;
/// Distinct functions in stacks; what comes later is counted together.
const MOST_FRAMES: usize = 1 << 20;
/// Between the cells of an entry's name; no cell contains it.
const SEPARATOR: u8 = 0x1f;
/// The cell of a field that an event does not have.
const NOT_THERE: &[u8] = b"N/A";
const OTHERS: &str = "[others]";

/// Key by which events are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKey {
    /// The class.
    Event,
    /// Name of the task.
    Comm,
    /// Number of the thread.
    Pid,
    /// The CPU.
    Cpu,
    /// The instance of ftrace or the trace of a program.
    Instance,
    /// The stack that was recorded with the event.
    Stack,
    /// A field, of one class or of all that have it.
    Field {
        /// The class.
        event: Option<String>,
        /// The field.
        name: String,
    },
}

/// Keys that cannot be read, or that no event has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(String);

impl EventKey {
    /// Heading of its column.
    pub fn title(&self) -> String {
        match self {
            EventKey::Event => "Event".into(),
            EventKey::Comm => "Command".into(),
            EventKey::Pid => "Pid".into(),
            EventKey::Cpu => "CPU".into(),
            EventKey::Instance => "Instance".into(),
            EventKey::Stack => "Stack".into(),
            EventKey::Field { event: Some(event), name } => format!("{event}.{name}"),
            EventKey::Field { event: None, name } => name.clone(),
        }
    }

    /// Name in JSON.
    pub fn name(&self) -> String {
        match self {
            EventKey::Field { .. } => self.title(),
            EventKey::Comm => "comm".into(),
            other => other.title().to_lowercase(),
        }
    }

    /// Reads `--sort`: words between commas, each once.
    ///
    /// # Errors
    /// If there is no word.
    pub fn parse_list(text: &str) -> Result<Vec<EventKey>, KeyError> {
        let mut keys = Vec::new();
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let key = EventKey::parse(word);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        if keys.is_empty() { Err(KeyError("--sort names no key".into())) } else { Ok(keys) }
    }

    fn parse(word: &str) -> EventKey {
        match word {
            "event" => EventKey::Event,
            "comm" => EventKey::Comm,
            "pid" | "tid" => EventKey::Pid,
            "cpu" => EventKey::Cpu,
            "instance" => EventKey::Instance,
            "stack" => EventKey::Stack,
            _ => match word.rsplit_once('.') {
                Some((event, name)) => {
                    EventKey::Field { event: Some(event.to_owned()), name: name.to_owned() }
                }
                None => EventKey::Field { event: None, name: word.to_owned() },
            },
        }
    }

    /// The field of this key in a class.
    fn field(&self, class: &RecordedClass) -> Option<FieldId> {
        let EventKey::Field { event, name } = self else { return None };
        event.as_ref().is_none_or(|e| class.is_named(e)).then(|| class.field(name))?
    }

    /// Checks that a class has the field of each key: otherwise it is a slip of the fingers.
    ///
    /// # Errors
    /// Names the field, and those that there are.
    pub fn check(keys: &[EventKey], source: &EventSource) -> Result<(), KeyError> {
        if !keys.iter().any(|k| matches!(k, EventKey::Field { .. })) {
            return Ok(());
        }
        let classes = source.classes();
        for key in keys {
            let EventKey::Field { event, name } = key else { continue };
            if classes.iter().any(|c| key.field(c).is_some()) {
                continue;
            }
            let Some(e) = event else {
                return Err(KeyError(format!(
                    "--sort: no event has a field `{name}`, nor a context; other keys are event, \
                     comm, pid, cpu, instance, stack"
                )));
            };
            let Some(class) = classes.iter().find(|c| c.is_named(e)) else {
                let why = format!("--sort {e}.{name}: the recording has no event `{e}`");
                return Err(KeyError(why));
            };
            let names = names_of_fields(class);
            let why = format!("--sort {e}.{name}: {e} has no such field; it has {names}");
            return Err(KeyError(why));
        }
        Ok(())
    }
}

/// The fields that may be named: of events of programs contexts, too, of the kernel's not what
/// all of them have.
fn names_of_fields(class: &RecordedClass) -> String {
    let contexts = class.fields.iter().filter(|f| f.common && class.origin == ClassOrigin::Program);
    let names = contexts.chain(class.own_fields()).map(|f| f.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

/// Events that agree in all keys.
#[derive(Clone, Debug, Default)]
pub struct EventEntry {
    /// Number of events.
    pub events: u64,
    /// Distinct stacks, innermost function first, by number of the function.
    pub stacks: FxHashMap<Box<[u32]>, u64>,
}

/// Events, counted.
#[derive(Debug, Default)]
pub struct EventTable {
    /// Cells and counts, most events first.
    pub entries: Vec<(Vec<String>, EventEntry)>,
    /// All events.
    pub events: u64,
    frames: Vec<String>,
    overflow: u64,
    dropped_stacks: u64,
}

/// Options of counting events.
pub struct EventTableConfig<'k> {
    /// The keys.
    pub keys: &'k [EventKey],
    /// Selection of events.
    pub selection: &'k EventSelection,
    /// Keep the stacks of each entry.
    pub stacks: bool,
}

impl EventTable {
    /// Counts the events of recordings.
    ///
    /// # Errors
    /// If reading fails.
    pub fn count(
        source: &EventSource,
        config: &EventTableConfig<'_>,
    ) -> Result<(EventTable, ReadSummary), SourceError> {
        let (summary, counters) =
            source.for_each_on_threads(config.selection, || Counter::new(config))?;
        let all = counters.into_iter().reduce(Counter::merge);
        Ok((all.map_or_else(EventTable::default, Counter::finish), summary))
    }

    /// Name of a function in stacks.
    pub fn function(&self, frame: u32) -> &str {
        debug_assert!((frame as usize) < self.frames.len(), "frame {frame}");
        self.frames.get(frame as usize).map_or(OTHERS, |f| f)
    }

    /// Notes on what is counted together.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        if self.overflow > 0 {
            let fact = format!(
                "{} events of more than {MOST_ENTRIES} entries are counted as one, `{OTHERS}`",
                self.overflow
            );
            let advice = Some("sort by fewer keys".to_owned());
            notes.push(Note::doubt(NoteKind::Entries, fact, advice));
        }
        if self.dropped_stacks > 0 {
            let n = self.dropped_stacks;
            let fact = format!("{n} stacks beyond {MOST_STACKS} distinct ones are not shown");
            notes.push(Note::doubt(NoteKind::Stacks, fact, None));
        }
        notes
    }
}

/// Source of a cell for the events of a layout.
enum Cell {
    /// Constant text.
    Fixed(Vec<u8>),
    Field(FieldId),
    /// By the key.
    Key,
}

/// A table that grows.
struct Counter<'k> {
    keys: &'k [EventKey],
    keeps_stacks: bool,
    by_stack: bool,
    /// The cells of each layout; none of those that had no event.
    plans: Vec<Vec<Cell>>,
    entries: FxHashMap<Box<[u8]>, EventEntry>,
    key: Vec<u8>,
    table: EventTable,
    frame_of: FxHashMap<String, u32>,
    stacks: usize,
}

impl EventConsumer for Counter<'_> {
    #[inline]
    fn event(&mut self, event: &RecordedEvent<'_>) -> ControlFlow<()> {
        self.add(event);
        ControlFlow::Continue(())
    }
}

impl<'k> Counter<'k> {
    fn new(config: &EventTableConfig<'k>) -> Counter<'k> {
        Counter {
            keys: config.keys,
            keeps_stacks: config.stacks,
            by_stack: config.keys.contains(&EventKey::Stack),
            plans: Vec::new(),
            entries: FxHashMap::default(),
            key: Vec::new(),
            table: EventTable::default(),
            frame_of: FxHashMap::default(),
            stacks: 0,
        }
    }

    fn add(&mut self, event: &RecordedEvent<'_>) {
        if self.plans.get(event.class.layout.index()).is_none_or(Vec::is_empty) {
            self.plan(event.class);
        }
        let chain = if self.keeps_stacks || self.by_stack {
            event.stack_names().into_iter().map(|f| self.frame(f)).collect()
        } else {
            Vec::new()
        };
        self.write_key(event, &chain);
        self.count(&chain);
    }

    /// Prepares the cells of a class.
    #[cold]
    fn plan(&mut self, class: &RecordedClass) {
        let cell = |key: &EventKey| match key {
            EventKey::Event => Cell::Fixed(class.full_name.clone().into_bytes()),
            EventKey::Field { .. } => {
                key.field(class).map_or_else(|| Cell::Fixed(NOT_THERE.to_vec()), Cell::Field)
            }
            _ => Cell::Key,
        };
        let layout = class.layout.index();
        self.plans.resize_with(self.plans.len().max(layout + 1), Vec::new);
        if let Some(plan) = self.plans.get_mut(layout) {
            *plan = self.keys.iter().map(cell).collect();
        }
    }

    fn write_key(&mut self, event: &RecordedEvent<'_>, chain: &[u32]) {
        let Counter { keys, key, plans, table, .. } = self;
        let Some(plan) = plans.get(event.class.layout.index()) else {
            debug_assert!(false, "no plan for {}", event.class.full_name);
            return;
        };
        key.clear();
        let decimal = |key: &mut Vec<u8>, n: Option<i64>| match n {
            Some(n) => key.extend_from_slice(itoa::Buffer::new().format(n).as_bytes()),
            None => key.extend_from_slice(NOT_THERE),
        };
        for (i, (k, cell)) in keys.iter().zip(plan).enumerate() {
            if i > 0 {
                key.push(SEPARATOR);
            }
            match cell {
                Cell::Fixed(text) => {
                    key.extend_from_slice(text);
                    continue;
                }
                Cell::Field(id) => {
                    event.write_field_cell(*id, key);
                    continue;
                }
                Cell::Key => {}
            }
            match k {
                EventKey::Event | EventKey::Field { .. } => {}
                EventKey::Comm => {
                    let comm = event.task().comm().iter();
                    key.extend(comm.map(|b| if *b < 0x20 { b'?' } else { *b }));
                }
                EventKey::Pid => {
                    let task = event.task();
                    decimal(key, task.tid.or(task.pid).map(|n| i64::from(n as i32)));
                }
                EventKey::Cpu => decimal(key, event.cpu().map(|n| i64::from(n as i32))),
                EventKey::Instance => key.extend_from_slice(event.instance().as_bytes()),
                EventKey::Stack if chain.is_empty() => key.extend_from_slice(NOT_THERE),
                EventKey::Stack => {
                    for (n, frame) in chain.iter().enumerate() {
                        key.extend_from_slice(if n > 0 { b" < " } else { b"" });
                        key.extend_from_slice(table.function(*frame).as_bytes());
                    }
                }
            }
        }
    }

    /// Counts the event whose key was written.
    fn count(&mut self, chain: &[u32]) {
        self.table.events += 1;
        if chain.is_empty()
            && let Some(entry) = self.entries.get_mut(&*self.key)
        {
            entry.events += 1;
            return;
        }
        if !self.entries.contains_key(&*self.key) {
            self.add_entry(1);
        }
        let Some(entry) = self.entries.get_mut(&*self.key) else {
            debug_assert!(false, "an entry that was just made");
            return;
        };
        entry.events += 1;
        if chain.is_empty() || !self.keeps_stacks {
            return;
        }
        match entry.stacks.get_mut(chain) {
            Some(n) => *n += 1,
            None if self.stacks >= MOST_STACKS => self.table.dropped_stacks += 1,
            None => {
                entry.stacks.insert(chain.into(), 1);
                self.stacks += 1;
            }
        }
    }

    /// Makes room for the key that was written. Only the first event of an entry needs memory
    /// for its name.
    #[cold]
    fn add_entry(&mut self, events: u64) {
        if self.entries.len() >= MOST_ENTRIES {
            self.table.overflow += events;
            self.key.clear();
            self.key.extend_from_slice(OTHERS.as_bytes());
        }
        self.entries.entry(self.key.as_slice().into()).or_default();
    }

    /// The number of a function in stacks.
    fn frame(&mut self, name: String) -> u32 {
        if let Some(id) = self.frame_of.get(&name) {
            return *id;
        }
        let name = if self.table.frames.len() < MOST_FRAMES { name } else { OTHERS.to_owned() };
        let next = self.table.frames.len() as u32;
        let id = *self.frame_of.entry(name.clone()).or_insert(next);
        if id == next {
            self.table.frames.push(name);
        }
        id
    }

    /// Adds what another thread counted.
    fn merge(mut self, other: Counter<'k>) -> Counter<'k> {
        let frames: Vec<u32> = other.table.frames.into_iter().map(|f| self.frame(f)).collect();
        self.table.events += other.table.events;
        self.table.overflow += other.table.overflow;
        self.table.dropped_stacks += other.table.dropped_stacks;
        for (key, entry) in other.entries {
            self.key.clear();
            self.key.extend_from_slice(&key);
            let stacks = entry.stacks.into_iter().map(|(stack, n)| {
                let frame = |f: &u32| frames.get(*f as usize).copied().unwrap_or(u32::MAX);
                (stack.iter().map(frame).collect(), n)
            });
            self.merge_entry(entry.events, stacks);
        }
        self
    }

    /// Adds to the entry whose key was written.
    fn merge_entry(&mut self, events: u64, stacks: impl Iterator<Item = (Box<[u32]>, u64)>) {
        if !self.entries.contains_key(&*self.key) {
            self.add_entry(events);
        }
        let Some(entry) = self.entries.get_mut(&*self.key) else {
            debug_assert!(false, "an entry that was just made");
            return;
        };
        entry.events += events;
        for (stack, n) in stacks {
            match entry.stacks.get_mut(&stack) {
                Some(known) => *known += n,
                None if self.stacks >= MOST_STACKS => self.table.dropped_stacks += n,
                None => {
                    entry.stacks.insert(stack, n);
                    self.stacks += 1;
                }
            }
        }
    }

    fn finish(self) -> EventTable {
        let mut entries: Vec<_> = self.entries.into_iter().collect();
        entries.sort_by(|a, b| b.1.events.cmp(&a.1.events).then_with(|| a.0.cmp(&b.0)));
        let cells = |key: &[u8]| {
            let cells = key.split(|b| *b == SEPARATOR);
            cells.map(|c| String::from_utf8_lossy(c).into_owned()).collect()
        };
        let entries = entries.into_iter().map(|(key, e)| (cells(&key), e)).collect();
        EventTable { entries, ..self.table }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_keys_once() {
        let keys =
            EventKey::parse_list("event,comm, event,sched:sched_switch.next_comm,ret").unwrap();
        let titles: Vec<_> = keys.iter().map(EventKey::title).collect();
        assert_eq!(titles, ["Event", "Command", "sched:sched_switch.next_comm", "ret"]);
        let names: Vec<_> = keys.iter().map(EventKey::name).collect();
        assert_eq!(names, ["event", "comm", "sched:sched_switch.next_comm", "ret"]);
        assert!(EventKey::parse_list(" , ").is_err());
    }
}
