//! Counting events of CTF traces: each adds to the entry that its keys name.

use kymo_files::ctf::read::{Class, Ctf, Event, FieldInfo, Group, Part, Reader, TaskField, Visit};

use crate::commands::report::entries::{Entries, NOT_THERE, SEPARATOR, fill_in};
use crate::commands::report::keys::Key;
use kymo_events::ctf::{EventTask, TraceOwners, ValueText};
use kymo_events::trace_dat::TaskNames;

/// For each key that is a field, that field of an event: its own, or a context.
fn fields<'c>(keys: &[Key], class: &Class<'c>) -> Vec<Option<&'c FieldInfo>> {
    let find = |name: &str| {
        [Part::Fields, Part::EventContext, Part::StreamContext]
            .into_iter()
            .find_map(|part| class.field(part, name).map(|(_, field)| field))
    };
    let of = |key: &Key| match key {
        Key::Field { event, name } if is_of(class, event.as_deref()) => find(name),
        _ => None,
    };
    keys.iter().map(of).collect()
}

/// Whether a name, if there is one, is that of the event.
fn is_of(class: &Class<'_>, name: Option<&str>) -> bool {
    let full = class.event.name.as_str();
    let bare = full.split_once(':').map_or(full, |(_, bare)| bare);
    name.is_none_or(|n| n == full || n == bare)
}

/// Whether any event has the field of a key.
pub(super) fn has(ctf: &Ctf, key: &Key) -> bool {
    let one = std::slice::from_ref(key);
    let mut classes = (0..ctf.class_count() as u32).filter_map(|n| ctf.class(n));
    classes.any(|c| fields(one, &c).iter().any(Option::is_some))
}

/// The fields and contexts of an event.
pub(super) fn names(ctf: &Ctf, event: &str) -> Option<Vec<String>> {
    let mut classes = (0..ctf.class_count() as u32).filter_map(|n| ctf.class(n));
    let class = classes.find(|c| is_of(c, Some(event)))?;
    Some(class.fields().iter().filter(|f| f.top).map(|f| f.name.clone()).collect())
}

/// Contexts that are stacks, innermost first, as LTTng calls them.
const STACKS: [&str; 2] = ["callstack_user", "callstack_kernel"];

/// Whether any event has a stack.
pub(super) fn has_stacks(ctf: &Ctf) -> bool {
    let mut classes = (0..ctf.class_count() as u32).filter_map(|n| ctf.class(n));
    classes.any(|c| c.fields().iter().any(|f| f.top && STACKS.contains(&&*f.name)))
}

/// Counts the events of traces.
pub(super) struct Counter<'c> {
    ctf: &'c Ctf,
    keys: &'c [Key],
    reader: Reader<'c>,
    owner: TraceOwners,
    only: Option<Vec<&'c str>>,
    /// For each kind of event the field of each key.
    wanted: Vec<Vec<Option<&'c FieldInfo>>>,
    /// Whether anything in the events is asked for.
    looks: bool,
    /// The values of the keys that are fields.
    cells: Vec<Vec<u8>>,
    key: Vec<u8>,
    /// Addresses of the event's stack.
    stack: Vec<u64>,
    /// Whether trees are drawn of stacks.
    trees: bool,
}

impl<'c> Counter<'c> {
    pub(super) fn new(
        ctf: &'c Ctf,
        keys: &'c [Key],
        only: Option<&'c str>,
        trees: bool,
    ) -> Counter<'c> {
        let classes = 0..ctf.class_count() as u32;
        let wanted = |n| ctf.class(n).map_or(Vec::new(), |c| fields(keys, &c));
        // Nothing has to be looked for that is nowhere.
        let trees = trees && has_stacks(ctf);
        Counter {
            ctf,
            keys,
            reader: ctf.reader(),
            owner: TraceOwners::new(ctf),
            only: only.map(|o| o.split(',').map(str::trim).collect()),
            wanted: classes.map(wanted).collect(),
            looks: trees
                || only.is_some()
                || keys.iter().any(|k| !matches!(k, Key::Event | Key::Cpu)),
            cells: vec![Vec::new(); keys.len()],
            key: Vec::new(),
            stack: Vec::new(),
            trees,
        }
    }

    /// `comms`: what the kernel calls threads.
    pub(super) fn event(
        &mut self,
        e: &Event<'_>,
        comms: Option<&TaskNames>,
        entries: &mut Entries,
    ) {
        let mut task = self.owner.get(e.trace);
        if self.looks {
            self.cells.iter_mut().for_each(Vec::clear);
            let wanted = self.wanted.get(e.class as usize).map_or(&[][..], |w| w);
            self.stack.clear();
            let mut look = Look {
                task,
                wanted,
                cells: &mut self.cells,
                text: ValueText::default(),
                group: None,
                stack: &mut self.stack,
                in_stack: false,
            };
            // What is whole of an event counts: its kind, its contexts.
            let _ = self.reader.see(e.class, &e.body, &mut look);
            task = look.task;
            comms.into_iter().for_each(|c| task.rename(|tid| c.find(tid)));
        }
        let named = |only: &Vec<&str>| only.iter().any(|o| o.as_bytes() == task.comm());
        if !self.only.as_ref().is_none_or(named) {
            return;
        }
        self.write_key(e, &task);
        let chain: Vec<u32> = self.stack.iter().map(|a| entries.frame(format!("{a:#x}"))).collect();
        if self.keys.contains(&Key::Stack) {
            fill_in(self.keys, &mut self.key, &chain, entries);
        }
        entries.count_stack(&self.key, if self.trees { &chain } else { &[] });
    }

    fn write_key(&mut self, e: &Event<'_>, task: &EventTask) {
        let key = &mut self.key;
        key.clear();
        let decimal = |key: &mut Vec<u8>, n: Option<u32>| match n {
            Some(n) => key.extend_from_slice(itoa::Buffer::new().format(n).as_bytes()),
            None => key.extend_from_slice(NOT_THERE),
        };
        for (i, k) in self.keys.iter().enumerate() {
            if i > 0 {
                key.push(SEPARATOR);
            }
            match k {
                Key::Event => {
                    let name = self.ctf.class(e.class).map_or("", |c| &c.event.name);
                    key.extend_from_slice(name.as_bytes());
                }
                Key::Comm if task.named => key.extend_from_slice(task.comm()),
                Key::Pid => decimal(key, task.tid.or(task.pid)),
                Key::Cpu => decimal(key, e.cpu),
                Key::Instance => {
                    let name = self.ctf.traces().get(e.trace as usize).map_or("", |t| t.name());
                    key.extend_from_slice(name.as_bytes());
                }
                // Its place is filled when the stack is known.
                Key::Stack => {}
                Key::Comm => key.extend_from_slice(NOT_THERE),
                Key::Field { .. } => match self.cells.get(i) {
                    Some(cell) if !cell.is_empty() => key.extend_from_slice(cell),
                    _ => key.extend_from_slice(NOT_THERE),
                },
            }
        }
    }
}

/// Looks at an event: whose it is, and the fields that are keys.
struct Look<'l> {
    task: EventTask,
    wanted: &'l [Option<&'l FieldInfo>],
    cells: &'l mut [Vec<u8>],
    text: ValueText,
    /// The key whose value is a structure or row that is open.
    group: Option<usize>,
    stack: &'l mut Vec<u64>,
    in_stack: bool,
}

impl Look<'_> {
    /// The key that a field is.
    #[inline]
    fn key(&self, field: &FieldInfo) -> Option<usize> {
        self.wanted.iter().position(|w| w.is_some_and(|w| std::ptr::eq(w, field)))
    }

    /// Writes a value into the cells of all keys that are this field, or into the one
    /// whose group is open.
    fn write(&mut self, field: &FieldInfo, write: impl Fn(&mut ValueText, &mut Vec<u8>)) {
        let Some(at) = self.group.or_else(|| self.key(field)) else { return };
        let Some(cell) = self.cells.get_mut(at) else { return };
        let from = cell.len();
        write(&mut self.text, cell);
        // The heading names it already.
        if self.group.is_none() {
            cell.drain(from..(from + field.name.len() + 1).min(cell.len()));
        }
        for b in cell.iter_mut().skip(from).filter(|b| **b < 0x20) {
            *b = b'?';
        }
    }
}

impl Visit for Look<'_> {
    #[inline]
    fn int(&mut self, field: &FieldInfo, value: u64) {
        if self.in_stack {
            self.stack.push(value);
        }
        self.task.number(field, value);
        self.write(field, |text, out| text.int(field, value, true, out));
    }

    fn float(&mut self, field: &FieldInfo, value: f64, single: bool) {
        self.write(field, |text, out| text.float(field, value, single, true, out));
    }

    fn text(&mut self, field: &FieldInfo, value: &[u8]) {
        if field.task == Some(TaskField::Name) {
            self.task.name(value);
        }
        if self.group.is_some() {
            return self.write(field, |text, out| text.text(field, value, true, out));
        }
        // A cell of its own needs no quotes.
        self.write(field, |_, out| {
            out.extend_from_slice(field.name.as_bytes());
            out.push(b'=');
            out.extend_from_slice(value);
        });
    }

    fn open(&mut self, field: &FieldInfo, group: Group, _count: u64) {
        if field.top && STACKS.contains(&&*field.name) {
            self.in_stack = true;
        }
        self.write(field, |text, out| text.open(field, group, true, out));
        if self.group.is_none() {
            self.group = self.key(field);
        }
    }

    fn close(&mut self, group: Group) {
        self.in_stack &= group != Group::Row;
        let Some(at) = self.group else { return };
        if let Some(cell) = self.cells.get_mut(at) {
            self.text.close(group, cell);
        }
        if self.text.is_outside() {
            self.group = None;
        }
    }
}
