//! Counting: each event adds to the entry that its keys name.

use std::ops::ControlFlow;

use anyhow::bail;
use kymo_files::ctf::read::{
    Class, Ctf, Event, FieldInfo, Group, Part, ReadStats, Reader, Select, TaskField, Visit,
};

use crate::commands::ctf::{Owner, Task, Text};
use crate::commands::report::entries::{Entries, Found, NOT_THERE, SEPARATOR};
use crate::commands::report::keys::Key;

pub(super) fn count(
    ctf: &Ctf,
    keys: &[Key],
    only: Option<&str>,
) -> anyhow::Result<(Found, ReadStats)> {
    let classes = 0..ctf.class_count() as u32;
    let wanted = |n| ctf.class(n).map_or(Vec::new(), |c| fields(keys, &c));
    let mut counter = Counter {
        ctf,
        keys,
        reader: ctf.reader(),
        owner: Owner::new(ctf),
        only: only.map(|o| o.split(',').map(str::trim).collect()),
        wanted: classes.map(wanted).collect(),
        looks: only.is_some() || keys.iter().any(|k| !matches!(k, Key::Event | Key::Cpu)),
        cells: vec![Vec::new(); keys.len()],
        key: Vec::new(),
        entries: Entries::default(),
    };
    let stats = ctf.for_each(&Select::default(), &mut |e| {
        counter.event(e);
        ControlFlow::Continue(())
    })?;
    Ok((counter.entries.done(Vec::new(), 0), stats))
}

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

/// Fields must exist in some event; otherwise it is a slip of the fingers.
pub(super) fn check(keys: &[Key], ctf: &Ctf) -> anyhow::Result<()> {
    let classes = || (0..ctf.class_count() as u32).filter_map(|n| ctf.class(n));
    for key in keys {
        let Key::Field { event, name } = key else { continue };
        let one = std::slice::from_ref(key);
        if classes().any(|c| fields(one, &c).iter().any(Option::is_some)) {
            continue;
        }
        let Some(event) = event else {
            bail!(
                "--sort: no event has a field or context `{name}`; other keys are event, comm, \
                 pid, cpu, instance"
            )
        };
        let Some(class) = classes().find(|c| is_of(c, Some(event))) else {
            bail!("--sort {event}.{name}: the trace has no event `{event}`")
        };
        let names: Vec<&str> =
            class.fields().iter().filter(|f| f.top).map(|f| f.name.as_str()).collect();
        bail!("--sort {event}.{name}: {event} has no such field; it has {}", names.join(", "))
    }
    Ok(())
}

struct Counter<'c> {
    ctf: &'c Ctf,
    keys: &'c [Key],
    reader: Reader<'c>,
    owner: Owner,
    only: Option<Vec<&'c str>>,
    /// For each kind of event the field of each key.
    wanted: Vec<Vec<Option<&'c FieldInfo>>>,
    /// Whether anything in the events is asked for.
    looks: bool,
    /// The values of the keys that are fields.
    cells: Vec<Vec<u8>>,
    key: Vec<u8>,
    entries: Entries,
}

impl Counter<'_> {
    fn event(&mut self, e: &Event<'_>) {
        let mut task = self.owner.get(e.trace);
        if self.looks {
            self.cells.iter_mut().for_each(Vec::clear);
            let wanted = self.wanted.get(e.class as usize).map_or(&[][..], |w| w);
            let mut look =
                Look { task, wanted, cells: &mut self.cells, text: Text::default(), group: None };
            // What is whole of an event counts: its kind, its contexts.
            let _ = self.reader.see(e.class, &e.body, &mut look);
            task = look.task;
        }
        let named = |only: &Vec<&str>| only.iter().any(|o| o.as_bytes() == task.comm());
        if !self.only.as_ref().is_none_or(named) {
            return;
        }
        self.write_key(e, &task);
        self.entries.count(&self.key);
    }

    fn write_key(&mut self, e: &Event<'_>, task: &Task) {
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
                Key::Comm | Key::Stack => key.extend_from_slice(NOT_THERE),
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
    task: Task,
    wanted: &'l [Option<&'l FieldInfo>],
    cells: &'l mut [Vec<u8>],
    text: Text,
    /// The key whose value is a structure or row that is open.
    group: Option<usize>,
}

impl Look<'_> {
    /// The key that a field is.
    #[inline]
    fn key(&self, field: &FieldInfo) -> Option<usize> {
        self.wanted.iter().position(|w| w.is_some_and(|w| std::ptr::eq(w, field)))
    }

    /// Writes a value into the cells of all keys that are this field, or into the one
    /// whose group is open.
    fn write(&mut self, field: &FieldInfo, write: impl Fn(&mut Text, &mut Vec<u8>)) {
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
        self.write(field, |text, out| text.open(field, group, true, out));
        if self.group.is_none() {
            self.group = self.key(field);
        }
    }

    fn close(&mut self, group: Group) {
        let Some(at) = self.group else { return };
        if let Some(cell) = self.cells.get_mut(at) {
            self.text.close(group, cell);
        }
        if self.text.is_outside() {
            self.group = None;
        }
    }
}
