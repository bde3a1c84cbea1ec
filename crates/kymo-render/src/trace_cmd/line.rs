//! An event as `trace-cmd report` lays it out, or as a JSON object.
//!
//! ```text
//!   instance:             comm-pid   [cpu] seconds.micros: event:                payload
//! ```

use std::collections::BTreeMap;
use std::io::Write as _;

use kymo_events::payload::{self, KernelNames};
use kymo_events::{EventHead, EventSelection};
use kymo_files::tracedat::TraceDat;
use kymo_format::ring::Missed;
use kymo_format::{Symbols as _, flag_letters, json_string};
use kymo_model::{Note, NoteKind};
use rustc_hash::FxHashMap;

use super::batch::{BatchItem, TraceCmdBatch};
use crate::number;
use crate::perf_script::sample_json::write_head;
use crate::start_cache::StartCache;
use kymo_events::trace_dat::{
    FormatTable, GraphEvent, KnownEvent, TaskName, TaskNames, write_duration,
};

/// What is the same for all events of an instance.
#[derive(Clone)]
struct InstanceStyle {
    name: String,
    /// What its lines begin with.
    prefix: Vec<u8>,
    /// Times are counts, not nanoseconds.
    counts: bool,
}

/// Form of the lines of a trace.dat.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceCmdOptions {
    /// Lines are JSON objects.
    pub json: bool,
    /// Lines have the flags of events.
    pub latency: bool,
    /// Times are in nanoseconds.
    pub ns: bool,
}

/// Renders events.
pub(crate) struct TraceCmdRenderer<'a> {
    formats: &'a FormatTable<'a>,
    names: &'a KernelNames,
    instances: Vec<InstanceStyle>,
    comms: TaskNames,
    filter: EventSelection,
    /// Whether the names in the filter are those of an event, by its number.
    wanted: FxHashMap<u16, bool>,
    options: TraceCmdOptions,
    starts: TraceCmdStarts,
    /// Payloads that could not be rendered: event, reason, how many.
    unrendered: BTreeMap<u16, (String, u64)>,
    short: u64,
    /// Whether anything was printed.
    pub(crate) shown: bool,
}

impl<'a> TraceCmdRenderer<'a> {
    pub(crate) fn new(
        options: TraceCmdOptions,
        data: &TraceDat,
        formats: &'a FormatTable<'a>,
        names: &'a KernelNames,
        filter: EventSelection,
    ) -> TraceCmdRenderer<'a> {
        TraceCmdRenderer {
            formats,
            names,
            instances: instances(data),
            comms: TaskNames::new(&data.machine().saved_cmdlines),
            filter,
            wanted: FxHashMap::default(),
            options,
            starts: TraceCmdStarts::default(),
            unrendered: BTreeMap::new(),
            short: 0,
            shown: false,
        }
    }

    /// Renderer for another thread, which has seen nothing.
    pub(crate) fn fork_for_thread(&self) -> TraceCmdRenderer<'a> {
        TraceCmdRenderer {
            instances: self.instances.clone(),
            comms: self.comms.clone(),
            filter: self.filter.clone(),
            wanted: FxHashMap::default(),
            starts: TraceCmdStarts::default(),
            unrendered: BTreeMap::new(),
            ..*self
        }
    }

    /// The task has another name from now on.
    fn name(&mut self, pid: i32, comm: TaskName) {
        self.comms.add(pid, comm);
        self.starts.forget(pid);
    }

    fn print(&mut self, item: &BatchItem, payload: &[u8], leaf: Option<u64>, out: &mut Vec<u8>) {
        let Some(instance) = self.instances.get(item.buffer as usize) else { return };
        let missed = item.missed.filter(|_| self.filter.wants_time(Some(item.time)));
        if let Some(missed) = missed {
            self.lost(instance, item, missed, out);
        }
        let Some(id) = self.formats.id(payload) else {
            self.short += 1;
            return;
        };
        let known = self.formats.get(id);
        let pid = self.formats.pid(payload);
        if self.filter.is_restricted() && !self.wants(item, id, pid, known) {
            return;
        }
        let Some(instance) = self.instances.get(item.buffer as usize) else { return };
        if self.options.json {
            self.json(instance, item, pid, known, payload, out);
        } else {
            // trace-cmd names the instance once: before what was lost.
            let prefix = if missed.is_some() { &[][..] } else { &instance.prefix };
            out.extend_from_slice(prefix);
            let comms = &self.comms;
            if self.options.latency {
                latency_start(comms.get(pid), pid, item.cpu, self.formats.flags(payload), out);
            } else {
                self.starts.write(pid, item.cpu, || comms.get(pid), out);
            }
            time(item.time, instance.counts, self.options.ns, out);
            match known {
                Ok(k) => {
                    out.extend_from_slice(&k.column);
                    self.payload(k, payload, leaf, out);
                }
                Err(_) => _ = write!(out, "[unknown event {id}]"),
            }
            // Some texts end the line themselves.
            if out.last() != Some(&b'\n') {
                out.push(b'\n');
            }
        }
        if let Err(why) = known {
            self.unrendered.entry(id).or_insert_with(|| (why.to_owned(), 0)).1 += 1;
        }
    }

    #[inline]
    fn payload(&self, known: &KnownEvent, payload: &[u8], leaf: Option<u64>, out: &mut Vec<u8>) {
        let endian = self.formats.endian;
        if let Some(graph) = &known.graph {
            return self.graph(graph, payload, leaf, out);
        }
        if let Some(stack) = &known.stack {
            // The print format shows eight entries and no more.
            out.extend_from_slice(b"<stack trace >\n");
            for address in stack.entries(payload, endian) {
                out.extend_from_slice(b"=> ");
                match self.names.kernel(address) {
                    Some(symbol) => out.extend_from_slice(symbol.name.as_bytes()),
                    None => out.extend_from_slice(b"0"),
                }
                let _ = writeln!(out, " ({address:x})");
            }
            return;
        }
        payload::text(&known.format, payload, endian, self.names, false, out);
    }

    /// A function that begins, ends, or is a leaf.
    fn graph(&self, graph: &GraphEvent, payload: &[u8], leaf: Option<u64>, out: &mut Vec<u8>) {
        let endian = self.formats.endian;
        let duration = graph.duration(payload, endian).or(leaf);
        write_duration(duration, out);
        number::pad(out, 2 * graph.depth(payload, endian));
        if matches!(graph, GraphEvent::Exit { .. }) {
            out.push(b'}');
            return;
        }
        let address = graph.func(payload, endian);
        match self.names.kernel(address) {
            Some(symbol) => out.extend_from_slice(symbol.name.as_bytes()),
            None => _ = write!(out, "{address:x}"),
        }
        out.extend_from_slice(if leaf.is_some() { b"();" } else { b"() {" });
    }

    fn wants(
        &mut self,
        item: &BatchItem,
        id: u16,
        pid: i32,
        known: Result<&KnownEvent, &str>,
    ) -> bool {
        let filter = &self.filter;
        let named = self.wanted.entry(id).or_insert_with(|| match known {
            Ok(k) => filter.wants_event(&[&k.full_name, &k.format.name]),
            Err(_) => filter.wants_event(&[]),
        });
        *named && filter.wants_head(&head(item, pid, &self.comms.get(pid)))
    }

    /// A mark where events are missing.
    fn lost(&self, instance: &InstanceStyle, item: &BatchItem, missed: Missed, out: &mut Vec<u8>) {
        if self.options.json {
            let _ = write!(out, "{{\"cpu\":{},\"lost\":", item.cpu);
            let _ = match missed {
                Missed::Count(n) => write!(out, "{n}"),
                Missed::Unknown => write!(out, "null"),
            };
            instance_json(instance, out);
            out.extend_from_slice(b"}\n");
            return;
        }
        out.extend_from_slice(&instance.prefix);
        let _ = match missed {
            Missed::Count(n) => writeln!(out, "CPU:{} [{n} EVENTS DROPPED]", item.cpu),
            Missed::Unknown => writeln!(out, "CPU:{} [EVENTS DROPPED]", item.cpu),
        };
    }

    fn json(
        &self,
        instance: &InstanceStyle,
        item: &BatchItem,
        pid: i32,
        known: Result<&KnownEvent, &str>,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) {
        let comm = self.comms.get(pid);
        let mut head = head(item, pid, &comm);
        if instance.counts {
            head.time = None;
        }
        write_head(&head, known.map_or("", |k| &k.full_name), out);
        if instance.counts {
            let _ = write!(out, ",\"count\":{}", item.time);
        }
        let (flags, preempt) = self.formats.flags(payload);
        out.extend_from_slice(b",\"flags\":");
        json_string(out, &flag_letters(flags, preempt));
        instance_json(instance, out);
        if let Ok(k) = known {
            out.extend_from_slice(b",\"fields\":");
            payload::json(&k.format, payload, self.formats.endian, out);
        }
        out.extend_from_slice(b"}\n");
    }
}

fn instance_json(instance: &InstanceStyle, out: &mut Vec<u8>) {
    if !instance.name.is_empty() {
        out.extend_from_slice(b",\"instance\":");
        json_string(out, instance.name.as_bytes());
    }
}

fn head<'c>(item: &BatchItem, pid: i32, comm: &'c TaskName) -> EventHead<'c> {
    let pid = pid as u32;
    let (comm, time) = (comm.as_bytes(), Some(item.time));
    EventHead { comm, pid, tid: pid, cpu: Some(item.cpu), time }
}

/// Lines of several instances begin with their names, aligned.
fn instances(data: &TraceDat) -> Vec<InstanceStyle> {
    let widest = data.buffers().iter().map(|b| b.name.len()).max().unwrap_or(0);
    let widest = kymo_model::format_width(widest);
    let prefix = |name: &str| match (widest, name.is_empty()) {
        (0, _) => String::new(),
        (_, true) => " ".repeat(widest + 2),
        (_, false) => format!("{name:>widest$}: "),
    };
    let converted = data.options().tsc2nsec.is_some();
    data.buffers()
        .iter()
        .map(|b| InstanceStyle {
            name: b.name.clone(),
            prefix: prefix(&b.name).into_bytes(),
            counts: matches!(b.clock.as_str(), "counter" | "x86-tsc") && !converted,
        })
        .collect()
}

impl TraceCmdRenderer<'_> {
    /// Renders an event of a batch; `name` is the place of the first name in it that is
    /// not known yet.
    #[inline]
    pub(crate) fn render(
        &mut self,
        batch: &TraceCmdBatch,
        event: usize,
        name: &mut usize,
        out: &mut Vec<u8>,
    ) {
        while let Some((_, pid, comm)) = batch.names.get(*name).filter(|(from, ..)| *from <= event)
        {
            self.name(*pid, *comm);
            *name += 1;
        }
        if let Some((item, payload)) = batch.event(event) {
            let before = out.len();
            self.print(item, payload, batch.leaf(event), out);
            self.shown |= out.len() > before;
        }
    }

    /// What tasks are called at the place where the rendering is.
    pub(crate) fn comms(&self) -> &TaskNames {
        &self.comms
    }

    /// Takes note of names in a batch that somebody else renders.
    pub(crate) fn pass(&mut self, batch: &TraceCmdBatch) {
        batch.names.iter().for_each(|(_, pid, comm)| self.name(*pid, *comm));
    }
}

/// ` seconds.micros: `, rounded as trace-cmd rounds, or a plain count.
#[inline]
pub(crate) fn time(time: u64, counts: bool, ns: bool, out: &mut Vec<u8>) {
    if counts {
        number::decimal(out, time, 12);
    } else if ns {
        out.push(b' ');
        number::decimal(out, time / 1_000_000_000, 5);
        out.push(b'.');
        number::zeros(out, time % 1_000_000_000, 9);
    } else {
        let micros = time.saturating_add(500) / 1000;
        out.push(b' ');
        number::decimal(out, micros / 1_000_000, 5);
        out.push(b'.');
        out.extend_from_slice(&number::six((micros % 1_000_000) as u32));
    }
    out.extend_from_slice(b": ");
}

/// `comm-pid cpu` and the flags, as `trace-cmd report -l`.
fn latency_start(comm: TaskName, pid: i32, cpu: u32, flags: (u8, u8), out: &mut Vec<u8>) {
    let comm = comm.as_bytes();
    let comm = comm.get(..8).unwrap_or(comm);
    number::pad(out, 8 - comm.len());
    out.extend_from_slice(comm);
    let _ = write!(out, "-{pid:<5} {cpu:>3}");
    out.extend_from_slice(&flag_letters(flags.0, flags.1));
}

/// `comm-pid [cpu]`, remembered: a task on a CPU writes many lines.
#[derive(Default)]
pub(crate) struct TraceCmdStarts(StartCache<(i32, u32)>);

impl TraceCmdStarts {
    /// The task has another name from now on.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.0.forget(|(task, _)| *task == pid);
    }

    /// `cpu`: `u32::MAX` if it is not known.
    #[inline]
    pub(crate) fn write(
        &mut self,
        pid: i32,
        cpu: u32,
        comm: impl FnOnce() -> TaskName,
        out: &mut Vec<u8>,
    ) {
        let at = (pid as u32 ^ cpu.wrapping_mul(37)) as usize;
        if let Some(start) = self.0.get(at, |key| *key == (pid, cpu)) {
            return number::some_of(out, &start.text, start.len);
        }
        let from = out.len();
        let comm = comm();
        number::pad(out, 16 - comm.as_bytes().len());
        out.extend_from_slice(comm.as_bytes());
        let _ = match cpu {
            u32::MAX => write!(out, "-{pid:<5} [---]"),
            _ => write!(out, "-{pid:<5} [{cpu:03}]"),
        };
        self.0.put(at, (pid, cpu), out.get(from..).unwrap_or(&[]));
    }
}

/// Notes on events of a recording that could not be rendered.
pub(crate) fn trace_cmd_notes<'p, 'a: 'p>(
    renderers: impl Iterator<Item = &'p TraceCmdRenderer<'a>> + Clone,
) -> Vec<Note> {
    let mut notes = Vec::new();
    let short: u64 = renderers.clone().map(|r| r.short).sum();
    if short > 0 {
        let fact = format!("{short} events are too short to name their kind");
        notes.push(Note::doubt(NoteKind::Malformed, fact, None));
    }
    let mut all = BTreeMap::<u16, (&str, u64)>::new();
    for (id, (why, n)) in renderers.flat_map(|r| &r.unrendered) {
        all.entry(*id).or_insert((why, 0)).1 += n;
    }
    for (id, (why, n)) in all {
        let fact = format!("{n} payloads of event {id} are not shown: {why}");
        notes.push(Note::doubt(NoteKind::Payload, fact, None));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_to_the_nearest_microsecond() {
        let of = |t, counts, ns| {
            let mut out = Vec::new();
            time(t, counts, ns, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(of(11_368_843_602_601, false, false), " 11368.843603: ");
        assert_eq!(of(999_999_500, false, false), "     1.000000: ");
        assert_eq!(of(1_000, false, true), "     0.000001000: ");
        assert_eq!(of(2, true, false), "           2: ");
    }
}
