//! Counting: each event adds to the entry that its keys name. A kernel stack is
//! an event of its own behind the one it belongs to, so an event is counted
//! when the next of its CPU comes.

use std::ops::ControlFlow;

use kymo_files::tracedat::{Event, ReadStats, Select, TraceDat};
use kymo_format::Field;
use kymo_symbols::Kallsyms;
use rustc_hash::FxHashMap;

use crate::commands::report::entries::{Entries, Found, MOST_STACKS, NOT_THERE, SEPARATOR};
use crate::commands::report::keys::Key;
use crate::commands::tracedat::{Comms, Formats, Known};

/// Distinct functions in stacks; what comes later is counted together.
const MOST_FRAMES: usize = 1 << 20;

/// What is known of the events of one number.
struct Kind<'f> {
    known: Option<&'f Known>,
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

struct Counter<'f> {
    formats: &'f Formats<'f>,
    keys: &'f [Key],
    names: Vec<String>,
    comms: Comms,
    only: Option<Vec<&'f str>>,
    kinds: FxHashMap<u16, Kind<'f>>,
    pending: FxHashMap<(usize, u32), Pending>,
    entries: Entries,
    /// Whether trees are drawn of stacks.
    trees: bool,
    /// Whether a stack is part of the key.
    by_stack: bool,
    kallsyms: Option<Kallsyms>,
    kallsyms_text: &'f str,
    frames: Vec<String>,
    frame_of: FxHashMap<String, u32>,
    /// Distinct stacks, and those that were not kept.
    stacks: usize,
    dropped: u64,
}

pub(super) fn count(
    data: &TraceDat,
    formats: &Formats<'_>,
    keys: &[Key],
    only: Option<&str>,
    trees: bool,
) -> anyhow::Result<(Found, ReadStats)> {
    let mut c = Counter {
        formats,
        keys,
        names: data.buffers().iter().map(|b| b.name.clone()).collect(),
        comms: Comms::new(&data.machine().saved_cmdlines),
        only: only.map(|o| o.split(',').map(str::trim).collect()),
        kinds: FxHashMap::default(),
        pending: FxHashMap::default(),
        entries: Entries::default(),
        trees,
        by_stack: keys.contains(&Key::Stack),
        kallsyms: None,
        kallsyms_text: &data.machine().kallsyms,
        frames: Vec::new(),
        frame_of: FxHashMap::default(),
        stacks: 0,
        dropped: 0,
    };
    let stats = data.for_each(&Select::default(), &mut |e| {
        c.event(e);
        ControlFlow::Continue(())
    })?;
    let mut rest = std::mem::take(&mut c.pending);
    rest.values_mut().for_each(|p| c.settle(p, &[]));
    Ok((c.entries.done(c.frames, c.dropped), stats))
}

impl<'f> Counter<'f> {
    fn event(&mut self, e: &Event<'_>) {
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
                let entries: Vec<u64> = stack.entries(e.payload, self.formats.endian).collect();
                self.settle(&mut pending, &entries);
            }
            _ => {
                self.settle(&mut pending, &[]);
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
    fn settle(&mut self, pending: &mut Pending, stack: &[u64]) {
        if !std::mem::take(&mut pending.waits) {
            return;
        }
        let wanted = self.trees || self.by_stack;
        let chain: Vec<u32> = match wanted {
            true => stack.iter().map(|a| self.frame(*a)).collect(),
            false => Vec::new(),
        };
        if self.by_stack {
            self.fill_in(&mut pending.key, &chain);
        }
        let entry = self.entries.count(&pending.key);
        if !self.trees || chain.is_empty() {
            return;
        }
        match entry.stacks.get_mut(chain.as_slice()) {
            Some(n) => *n += 1,
            None if self.stacks >= MOST_STACKS => self.dropped += 1,
            None => {
                self.stacks += 1;
                entry.stacks.insert(chain.into(), 1);
            }
        }
    }

    /// Puts the text of a stack in its place among the cells.
    fn fill_in(&self, key: &mut Vec<u8>, chain: &[u32]) {
        let Some(at) = self.keys.iter().position(|k| *k == Key::Stack) else { return };
        let names: Vec<&str> =
            chain.iter().filter_map(|f| self.frames.get(*f as usize)).map(|n| &**n).collect();
        let text = if names.is_empty() { "N/A".to_owned() } else { names.join(" < ") };
        let mut cells: Vec<&[u8]> = key.split(|b| *b == SEPARATOR).collect();
        if let Some(cell) = cells.get_mut(at) {
            *cell = text.as_bytes();
        }
        *key = cells.join(&SEPARATOR);
    }

    /// The function an address is in.
    fn frame(&mut self, address: u64) -> u32 {
        let table = self.kallsyms.get_or_insert_with(|| {
            Kallsyms::parse_as_kernel(self.kallsyms_text.as_bytes().to_vec())
        });
        let name = match table.lookup(address) {
            Some((_, _, name, _)) => name.to_owned(),
            None if self.frames.len() < MOST_FRAMES => format!("{address:#x}"),
            None => "[others]".to_owned(),
        };
        if let Some(id) = self.frame_of.get(&name) {
            return *id;
        }
        let id = self.frames.len() as u32;
        self.frames.push(name.clone());
        self.frame_of.insert(name, id);
        id
    }
}

fn decimal(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// A field's value: text as it is, all else as in JSON.
fn value(field: &Field, payload: &[u8], formats: &Formats<'_>, out: &mut Vec<u8>) {
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
