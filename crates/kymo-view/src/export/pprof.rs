//! pprof's profile: a gzip-packed Protocol Buffers message, `profile.proto` of
//! github.com/google/pprof. Written as it goes, so that memory does not hold it.
//!
//! Programs that ran at different addresses are put together: addresses are
//! offsets in their files, and each file is one mapping from 0 on.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;

use super::proto::Message;
use crate::stacks::{StackBinary, StackTask, Stacks, WeighedStack};

/// Fields of `Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Writes the profile.
pub fn write(stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    let mut texts = Texts::default();
    texts.number("");
    let locations = Locations::of(stacks);
    let mut m = Message::default();
    head(stacks, &mut m, &mut texts);
    let mut flush = |m: &mut Message| {
        let written = out.write_all(&m.0);
        m.0.clear();
        written
    };
    for stack in &stacks.stacks {
        sample(stacks, stack, &locations, &mut m, &mut texts);
        if m.0.len() > 64 << 10 {
            flush(&mut m)?;
        }
    }
    mappings(stacks, &locations, &mut m, &mut texts);
    for (frames, id) in locations.list.iter().zip(1..) {
        location(stacks, frames, id, &mut m);
    }
    flush(&mut m)?;
    for (function, id) in stacks.functions.iter().zip(1..) {
        let name = texts.number(&function.name);
        let file = function.file.as_deref().map_or(0, |f| texts.number(f));
        m.message(profile::FUNCTION, |m| {
            m.number(1, id);
            m.number(2, name);
            // No `system_name`: pprof takes one that equals the name for a mangled one, and
            // shortens both by what looks like arguments: `Box<int>::work` to `Box::work`.
            m.number(4, file);
        });
    }
    flush(&mut m)?;
    for text in &texts.list {
        m.bytes(profile::STRING_TABLE, text.as_bytes());
    }
    flush(&mut m)?;
    out.finish()?.flush()
}

/// Each event counts twice: its samples, and what they weigh.
fn head(stacks: &Stacks, m: &mut Message, texts: &mut Texts) {
    let single = stacks.events.len() == 1;
    for event in &stacks.events {
        let samples =
            if single { "samples".to_string() } else { format!("{} samples", event.name) };
        let (samples, name) = (texts.number(&samples), texts.number(&event.name));
        let (count, unit) = (texts.number("count"), texts.number(event.unit));
        for (what, unit) in [(samples, count), (name, unit)] {
            m.message(profile::SAMPLE_TYPE, |m| {
                m.number(1, what);
                m.number(2, unit);
            });
        }
    }
    if let Some(event) = stacks.events.first() {
        let (name, unit) = (texts.number(&event.name), texts.number(event.unit));
        m.message(profile::PERIOD_TYPE, |m| {
            m.number(1, name);
            m.number(2, unit);
        });
        m.number(profile::PERIOD, event.period);
        m.number(profile::DEFAULT_SAMPLE_TYPE, name);
    }
    m.number(profile::TIME_NANOS, stacks.recorded.unwrap_or(0));
    m.number(profile::DURATION_NANOS, stacks.span.map_or(0, |(a, b)| b.saturating_sub(a)));
    if !stacks.title.is_empty() {
        m.packed(profile::COMMENT, std::iter::once(texts.number(&stacks.title)));
    }
}

fn sample(
    stacks: &Stacks,
    stack: &WeighedStack,
    locations: &Locations,
    m: &mut Message,
    texts: &mut Texts,
) {
    let mut labels = Vec::new();
    if let Some(task) = stacks.tasks.get(stack.task as usize) {
        let comm = (!task.comm.is_empty()).then(|| texts.number(&task.comm));
        labels.extend(comm.map(|c| (texts.number("comm"), c, 0)));
        labels.extend(task.pid.map(|pid| (texts.number("pid"), 0, u64::from(pid))));
        labels.extend(task.tid.map(|tid| (texts.number("tid"), 0, u64::from(tid))));
    }
    let mut ids = Vec::new();
    let mut begins = true;
    for node in stacks.outwards(stack.node) {
        if begins {
            ids.extend(locations.id(node));
        }
        begins = stacks.place(node).is_none_or(|(frame, _)| !frame.inlined);
    }
    m.message(profile::SAMPLE, |m| {
        m.packed(1, ids.into_iter());
        let of = |event: usize| if event == stack.event as usize { 1 } else { 0 };
        let events = 0..stacks.events.len();
        m.packed(2, events.flat_map(|e| [of(e) * stack.samples, of(e) * stack.weight]));
        for (key, text, number) in labels {
            m.message(3, |m| {
                m.number(1, key);
                m.number(2, text);
                m.number(3, number);
            });
        }
    });
}

fn mappings(stacks: &Stacks, locations: &Locations, m: &mut Message, texts: &mut Texts) {
    let mut ends = vec![0; stacks.binaries.len()];
    let mut named = vec![(false, false, false); stacks.binaries.len()];
    for frame in locations.list.iter().flatten().filter_map(|f| stacks.frames.get(*f as usize)) {
        let Some(function) = stacks.functions.get(frame.function as usize) else { continue };
        let Some(binary) = function.binary else { continue };
        if let Some(end) = ends.get_mut(binary as usize) {
            *end = frame.addr.saturating_add(1).max(*end);
        }
        if let Some(named) = named.get_mut(binary as usize) {
            named.0 |= function.known;
            named.1 |= function.file.is_some();
            named.2 |= frame.inlined;
        }
    }
    let mut all: Vec<_> = stacks.binaries.iter().zip(1..).zip(ends).zip(named).collect();
    // The first one is taken for the program's own.
    if let Some(front) = program(stacks).and_then(|main| all.get_mut(..=main)) {
        front.rotate_right(1);
    }
    for (((binary, id), end), named) in all {
        let path = texts.number(&binary.path);
        let build_id = binary.build_id.as_deref().map_or(0, |b| texts.number(b));
        m.message(profile::MAPPING, |m| {
            m.number(1, id);
            m.number(3, end);
            m.number(5, path);
            m.number(6, build_id);
            m.number(7, u64::from(named.0));
            m.number(8, u64::from(named.1));
            m.number(9, u64::from(named.1));
            m.number(10, u64::from(named.2));
        });
    }
}

/// Bytes of a task's name that the kernel keeps.
const COMM: usize = 15;

/// The place of the binary that a task is called after; of any file if there is none.
fn program(stacks: &Stacks) -> Option<usize> {
    let is_file = |b: &StackBinary| !b.path.starts_with('[');
    let named = |task: &StackTask| {
        let name = |b: &StackBinary| b.name.get(..COMM).unwrap_or(&b.name) == task.comm;
        stacks.binaries.iter().position(|b| is_file(b) && name(b))
    };
    stacks.tasks.iter().find_map(named).or_else(|| stacks.binaries.iter().position(is_file))
}

fn location(stacks: &Stacks, frames: &[u32], id: u64, m: &mut Message) {
    let frame = |f: &u32| stacks.frames.get(*f as usize);
    // Inlined functions come first; the last one's code it is.
    let Some(outer) = frames.last().and_then(frame) else { return };
    let function = stacks.functions.get(outer.function as usize);
    m.message(profile::LOCATION, |m| {
        m.number(1, id);
        m.number(2, function.and_then(|f| f.binary).map_or(0, |b| u64::from(b) + 1));
        m.number(3, outer.addr);
        for frame in frames.iter().filter_map(frame) {
            m.message(4, |m| {
                m.number(1, u64::from(frame.function) + 1);
                m.number(2, u64::from(frame.line));
            });
        }
    });
}

/// Distinct addresses with all their frames.
struct Locations {
    /// From the innermost of the inlined to the one that was called.
    list: Vec<Vec<u32>>,
    /// Index in the list plus one, for each node that starts an address.
    of: Vec<u32>,
}

impl Locations {
    fn of(stacks: &Stacks) -> Locations {
        let mut known: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
        let mut made = Locations { list: Vec::new(), of: vec![0; stacks.nodes.len()] };
        for stack in &stacks.stacks {
            let mut frames = Vec::new();
            let mut first = None;
            for node in stacks.outwards(stack.node) {
                let Some((frame, _)) = stacks.place(node) else { continue };
                first.get_or_insert(node);
                frames.extend(stacks.nodes.get(node as usize).map(|n| n.frame));
                if frame.inlined {
                    continue;
                }
                let next = made.list.len() as u32 + 1;
                let id = *known.entry(std::mem::take(&mut frames)).or_insert_with_key(|frames| {
                    made.list.push(frames.clone());
                    next
                });
                let slot = first.take().and_then(|n| made.of.get_mut(n as usize));
                match slot {
                    // The rest was met with another stack.
                    Some(slot) if *slot != 0 => break,
                    Some(slot) => *slot = id,
                    None => {}
                }
            }
        }
        made
    }

    /// Number of the location that a node begins.
    fn id(&self, node: u32) -> Option<u64> {
        self.of.get(node as usize).filter(|id| **id != 0).map(|id| u64::from(*id))
    }
}

/// The string table.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    numbers: FxHashMap<String, u64>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let next = self.list.len() as u64;
        self.list.push(text.to_string());
        self.numbers.insert(text.to_string(), next);
        next
    }
}
