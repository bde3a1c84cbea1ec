//! Counting events of a trace.dat: each adds to the entry that its keys name. A kernel
//! stack is an event of its own behind the one it belongs to, so an event is counted
//! when the next of its CPU comes.

use kymo_files::tracedat::{Event, TraceDat};
use kymo_format::Field;
use kymo_symbols::Kallsyms;
use rustc_hash::FxHashMap;

use crate::commands::report::entries::{Entries, NOT_THERE, SEPARATOR, fill_in};
use crate::commands::report::keys::Key;
use kymo_events::trace_dat::{FormatTable, KnownEvent, TaskNames};

/// What is known of the events of one number.
struct Kind<'f> {
    known: Option<&'f KnownEvent>,
    name: Vec<u8>,
    /// For each key that is a field, where that is.
    fields: Vec<Option<&'f Field>>,
}

/// An event whose stack may follow.
#[derive(Default)]
struct Pending {
    key: Vec<u8>,
    waits: bool,
    pid: i32,
}

/// Counts the events of one recording.
pub(super) struct Counter<'f> {
    formats: &'f FormatTable<'f>,
    keys: &'f [Key],
    names: Vec<String>,
    comms: TaskNames,
    only: Option<Vec<&'f str>>,
    kinds: FxHashMap<u16, Kind<'f>>,
    pending: FxHashMap<(usize, u32), Pending>,
    /// Whether trees are drawn of stacks.
    trees: bool,
    /// Whether a stack is part of the key.
    by_stack: bool,
    kallsyms: Option<Kallsyms>,
    kallsyms_text: &'f str,
}

impl<'f> Counter<'f> {
    pub(super) fn new(
        data: &'f TraceDat,
        formats: &'f FormatTable<'f>,
        keys: &'f [Key],
        only: Option<&'f str>,
        trees: bool,
    ) -> Counter<'f> {
        Counter {
            formats,
            keys,
            names: data.buffers().iter().map(|b| b.name.clone()).collect(),
            comms: TaskNames::new(&data.machine().saved_cmdlines),
            only: only.map(|o| o.split(',').map(str::trim).collect()),
            kinds: FxHashMap::default(),
            pending: FxHashMap::default(),
            trees,
            by_stack: keys.contains(&Key::Stack),
            kallsyms: None,
            kallsyms_text: &data.machine().kallsyms,
        }
    }

    /// What tasks are called by now.
    pub(super) fn comms(&self) -> &TaskNames {
        &self.comms
    }

    /// Counts those whose stacks might still have come.
    pub(super) fn finish(&mut self, entries: &mut Entries) {
        let mut rest = std::mem::take(&mut self.pending);
        rest.values_mut().for_each(|p| self.settle(p, &[], entries));
    }

    pub(super) fn event(&mut self, e: &Event<'_>, entries: &mut Entries) {
        let id = self.formats.id(e.payload).unwrap_or(0);
        if !self.kinds.contains_key(&id) {
            let kind = self.kind(id);
            self.kinds.insert(id, kind);
        }
        let mut pending = self.pending.remove(&(e.buffer, e.cpu)).unwrap_or_default();
        let pid = self.formats.pid(e.payload);
        let stack = self.kinds.get(&id).and_then(|k| k.known).and_then(|k| k.stack.as_ref());
        match stack {
            Some(stack) if pending.waits && pending.pid == pid => {
                let addresses: Vec<u64> = stack.entries(e.payload, self.formats.endian).collect();
                self.settle(&mut pending, &addresses, entries);
            }
            _ => {
                self.settle(&mut pending, &[], entries);
                if self.key(e, id, pid, &mut pending.key) {
                    (pending.waits, pending.pid) = (true, pid);
                }
            }
        }
        self.pending.insert((e.buffer, e.cpu), pending);
    }

    fn kind(&self, id: u16) -> Kind<'f> {
        let known = self.formats.get(id).ok();
        let name = known.map_or_else(|| format!("[event {id}]"), |k| k.full_name.clone());
        let field = |k: &Key| known.and_then(|known| k.field(known));
        Kind { known, name: name.into_bytes(), fields: self.keys.iter().map(field).collect() }
    }

    /// Writes the cells of an event, but for the stack; `false`: it is not wanted.
    fn key(&mut self, e: &Event<'_>, id: u16, pid: i32, key: &mut Vec<u8>) -> bool {
        key.clear();
        let Some(kind) = self.kinds.get(&id) else { return false };
        if let Some(known) = kind.known.filter(|k| !k.names_of_tasks.is_empty()) {
            self.comms.learn(known, e.payload, self.formats.endian, |_, _| {});
        }
        let comm = self.comms.get(pid);
        let named = |only: &Vec<&str>| only.iter().any(|o| o.as_bytes() == comm.as_bytes());
        if !self.only.as_ref().is_none_or(named) {
            return false;
        }
        for (i, (k, field)) in self.keys.iter().zip(&kind.fields).enumerate() {
            if i > 0 {
                key.push(SEPARATOR);
            }
            match k {
                Key::Event => key.extend_from_slice(&kind.name),
                Key::Comm => key.extend_from_slice(comm.as_bytes()),
                Key::Pid => decimal(key, pid.into()),
                Key::Cpu => decimal(key, e.cpu.into()),
                Key::Instance => {
                    key.extend_from_slice(self.names.get(e.buffer).map_or("", |n| n).as_bytes());
                }
                // Its place is filled when the stack comes.
                Key::Stack => {}
                Key::Field { .. } => match field {
                    None => key.extend_from_slice(NOT_THERE),
                    Some(field) => value(field, e.payload, self.formats, key),
                },
            }
        }
        true
    }

    /// Counts an event whose stack is known now.
    fn settle(&mut self, pending: &mut Pending, stack: &[u64], entries: &mut Entries) {
        if !std::mem::take(&mut pending.waits) {
            return;
        }
        let wanted = self.trees || self.by_stack;
        let chain: Vec<u32> = match wanted {
            true => stack.iter().map(|a| entries.frame(self.function(*a))).collect(),
            false => Vec::new(),
        };
        if self.by_stack {
            fill_in(self.keys, &mut pending.key, &chain, entries);
        }
        entries.count_stack(&pending.key, if self.trees { &chain } else { &[] });
    }

    /// The function an address is in.
    fn function(&mut self, address: u64) -> String {
        let table = self.kallsyms.get_or_insert_with(|| {
            Kallsyms::parse_as_kernel(self.kallsyms_text.as_bytes().to_vec())
        });
        match table.lookup(address) {
            Some((_, _, name, _)) => name.to_owned(),
            None => format!("{address:#x}"),
        }
    }
}

fn decimal(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// A field's value: text as it is, all else as in JSON.
fn value(field: &Field, payload: &[u8], formats: &FormatTable<'_>, out: &mut Vec<u8>) {
    use kymo_format::Value;
    let from = out.len();
    match field.value(payload, formats.endian) {
        Value::Text(text) => out.extend_from_slice(text),
        Value::Pointer(p) => out.extend_from_slice(format!("{p:#x}").as_bytes()),
        other => other.write_json(out, formats.endian),
    }
    for b in out.iter_mut().skip(from).filter(|b| **b < 0x20) {
        *b = b'?';
    }
}
