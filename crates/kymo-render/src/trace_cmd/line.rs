//! Renders batches of events of a trace.dat: whose events they are, which of them are
//! wanted, and what could not be rendered.

use kymo_events::payload::KernelNames;
use kymo_events::trace_dat::{FormatTable, KnownEvent, TaskGroups, TaskNames};
use kymo_events::{ClockUnit, EventSelection};
use kymo_files::tracedat::TraceDat;
use kymo_format::ring::Missed;
use kymo_model::{Note, UntrustedText};
use rustc_hash::FxHashMap;

use super::TraceCmdOptions;
use super::batch::{BatchItem, TaskChange, TraceCmdBatch};
use super::kernel_line::{KernelLine, TraceCmdStarts, write_lost_json, write_lost_text};
use super::unrendered::Unrendered;

/// Properties common to all events of an instance.
#[derive(Clone)]
struct InstanceStyle {
    name: String,
    /// Start of its lines.
    prefix: Vec<u8>,
    /// Times are counts, not nanoseconds.
    counts: bool,
}

/// Renders events.
pub(crate) struct TraceCmdRenderer<'a> {
    formats: &'a FormatTable<'a>,
    names: &'a KernelNames,
    instances: Vec<InstanceStyle>,
    comms: TaskNames,
    groups: TaskGroups,
    filter: EventSelection,
    /// Whether the names in the filter are those of an event, by its number.
    wanted: FxHashMap<u16, bool>,
    options: TraceCmdOptions,
    starts: TraceCmdStarts,
    unrendered: Unrendered,
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
            groups: TaskGroups::default(),
            filter,
            wanted: FxHashMap::default(),
            options,
            starts: TraceCmdStarts::default(),
            unrendered: Unrendered::default(),
            shown: false,
        }
    }

    /// Renderer for another thread, which has seen nothing.
    pub(crate) fn fork_for_thread(&self) -> TraceCmdRenderer<'a> {
        TraceCmdRenderer {
            instances: self.instances.clone(),
            comms: self.comms.clone(),
            groups: self.groups.clone(),
            filter: self.filter.clone(),
            wanted: FxHashMap::default(),
            starts: TraceCmdStarts::default(),
            unrendered: Unrendered::default(),
            ..*self
        }
    }

    /// Something became known of a task.
    fn apply(&mut self, change: TaskChange) {
        match change {
            TaskChange::Name(tid, comm) => {
                self.comms.set(tid, comm);
                self.starts.forget(tid);
            }
            TaskChange::Group(tid, pid) => self.groups.set(tid, pid),
            TaskChange::NamesChange => self.comms.set_changes(),
        }
    }

    fn print(&mut self, item: &BatchItem, payload: &[u8], leaf: Option<u64>, out: &mut Vec<u8>) {
        let Some(instance) = self.instances.get(item.buffer as usize) else { return };
        let missed = item.missed.filter(|_| self.filter.wants_time(Some(item.time)));
        if let Some(missed) = missed {
            self.lost(instance, item, missed, out);
        }
        let Some(id) = self.formats.id(payload) else {
            self.unrendered.short += 1;
            return;
        };
        let known = self.formats.get(id);
        let pid = self.formats.pid(payload);
        if self.filter.is_restricted() && !self.wants(item, id, pid, known) {
            return;
        }
        let Some(instance) = self.instances.get(item.buffer as usize) else { return };
        let line = KernelLine {
            time: item.time,
            counts: instance.counts,
            cpu: item.cpu,
            tid: pid,
            pid: self.groups.get(pid),
            flags: self.formats.flags(payload),
            id,
            known,
            payload,
            endian: self.formats.endian,
            names: self.names,
            leaf,
        };
        if self.options.json {
            line.write_json(self.comms.get(pid).as_bytes(), &instance.name, out);
        } else {
            // trace-cmd names the instance once: before what was lost.
            let prefix = if missed.is_some() { &[][..] } else { &instance.prefix };
            out.extend_from_slice(prefix);
            line.write_text(self.options, &mut self.starts, || self.comms.get(pid), out);
        }
        if let Err(why) = known {
            self.unrendered.add(id, why);
        }
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
        let task = || {
            let comm = self.comms.get(pid);
            filter.wants_task(self.groups.get(pid), Some(pid as u32), comm.as_bytes())
        };
        *named
            && filter.wants_time(Some(item.time))
            && filter.wants_cpu(Some(item.cpu))
            && (!filter.has_task_conditions() || task())
    }

    /// A mark where events are missing.
    fn lost(&self, instance: &InstanceStyle, item: &BatchItem, missed: Missed, out: &mut Vec<u8>) {
        if self.options.json {
            return write_lost_json(item.cpu, missed, &instance.name, out);
        }
        out.extend_from_slice(&instance.prefix);
        write_lost_text(item.cpu, missed, out);
    }
}

/// Lines of several instances begin with their names, aligned.
fn instances(data: &TraceDat) -> Vec<InstanceStyle> {
    let widest = data.buffers().iter().map(|b| b.name.len()).max().unwrap_or(0);
    let widest = kymo_model::format_width(widest);
    let prefix = |name: &str| match (widest, name.is_empty()) {
        (0, _) => String::new(),
        (_, true) => " ".repeat(widest + 2),
        (_, false) => format!("{:>widest$}: ", UntrustedText::new(name).to_text()),
    };
    let converted = data.options().tsc2nsec.is_some();
    data.buffers()
        .iter()
        .map(|b| InstanceStyle {
            name: b.name.clone(),
            prefix: prefix(&b.name).into_bytes(),
            counts: !ClockUnit::of_trace_clock(&b.clock).is_time() && !converted,
        })
        .collect()
}

impl TraceCmdRenderer<'_> {
    /// Renders an event of a batch; `change` is the place of the first change of a task in it
    /// that was not applied yet.
    #[inline]
    pub(crate) fn render(
        &mut self,
        batch: &TraceCmdBatch,
        event: usize,
        change: &mut usize,
        out: &mut Vec<u8>,
    ) {
        while let Some((_, c)) = batch.changes.get(*change).filter(|(from, _)| *from <= event) {
            self.apply(*c);
            *change += 1;
        }
        if let Some((item, payload)) = batch.event(event) {
            let before = out.len();
            self.print(item, payload, batch.leaf(event), out);
            self.shown |= out.len() > before;
        }
    }

    /// Names of tasks at the current position.
    pub(crate) fn comms(&self) -> &TaskNames {
        &self.comms
    }

    /// Applies the changes of a batch to tasks, from a change on: of all events if another worker
    /// renders them.
    pub(crate) fn pass(&mut self, batch: &TraceCmdBatch, change: usize) {
        let rest = batch.changes.iter().skip(change);
        rest.for_each(|(_, change)| self.apply(*change));
    }
}

/// Notes on events of a recording that could not be rendered, and on names of tasks.
pub(crate) fn trace_cmd_notes<'p, 'a: 'p>(
    renderers: impl Iterator<Item = &'p TraceCmdRenderer<'a>> + Clone,
) -> Vec<Note> {
    let mut notes = Unrendered::notes(renderers.clone().map(|r| &r.unrendered));
    notes.extend(TaskNames::note_on(renderers.map(|r| &r.comms)));
    notes
}
