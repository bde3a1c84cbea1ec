//! Recordings into tables of events, in one pass over each.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kymo_analysis::sample_reads::SampleReads;
use kymo_analysis::tasks::{
    SchedReader, SchedStep, SpanState, StateSpan, TaskMachine, Transition, WaitCause,
    WakeupContext, ended_spans, open_spans, sched_notes, span_without_end,
};
use kymo_events::name_map::kernel_event;
use kymo_events::{
    ClassOrigin, EventSelection, EventSource, FieldId, FieldPart, FieldValue, LayoutMemo,
    ReadOptions, RecordedClass, RecordedEvent, SourceError,
};
use kymo_model::Note;
use kymo_table::ColumnTable;

use crate::answers::CallName;
use crate::build::{Put, TableBuilder};
use crate::schema::{TABLES, TableId};
use crate::stacks::StackTree;
use crate::threads::{ThreadNumbers, ucpu};
use crate::timelines::{EventOwner, Timelines};

/// Events between two looks at the clock and at memory.
const BETWEEN_LOOKS: u64 = 1 << 14;

/// Limits of reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits<'a> {
    pub(crate) deadline: Option<Instant>,
    pub(crate) interrupted: &'a AtomicBool,
    /// Bytes of tables.
    pub(crate) memory: u64,
}

/// Reading did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("stopped: the tables take more than {} MiB of memory (--memory-limit)", .0 >> 20)]
    Memory(u64),
    #[error("stopped while a recording was read (--time-limit)")]
    Time,
    #[error("interrupted")]
    Interrupted,
}

/// Facts on a recording that reading finds.
#[derive(Clone, Debug, Default)]
pub(crate) struct MachineFacts {
    pub(crate) notes: Vec<Note>,
    pub(crate) span: Option<(u64, u64)>,
    pub(crate) is_damaged: bool,
}

/// Table that events of a class are rows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventTable {
    Kernel,
    Program,
    Samples,
}

/// Begin or end of a thread that an event states.
#[derive(Clone, Copy, Debug)]
enum ThreadBirth {
    /// The field is the new thread.
    Start(FieldId),
    /// The thread of the event.
    End,
}

/// A class, as the tables have it.
#[derive(Clone, Debug)]
struct ClassPlan {
    table: EventTable,
    /// Words of name and system in their columns.
    name: u32,
    system: Option<u32>,
    priority: Option<FieldId>,
    birth: Option<ThreadBirth>,
    /// Fields with the words of their names in `args`.
    fields: Vec<(FieldId, u32, u32)>,
}

/// Name and system of a class, and the table that its events are in.
fn names_of(class: &RecordedClass) -> (EventTable, &str, String) {
    match class.origin {
        ClassOrigin::Sample => (EventTable::Samples, &class.full_name, String::new()),
        ClassOrigin::Kernel => (EventTable::Kernel, &class.name, class.system.clone()),
        ClassOrigin::Program => match kernel_event(&class.full_name) {
            Some(kernel) => {
                let system = kernel.split_once(':').map_or("", |(system, _)| system);
                (EventTable::Kernel, &class.name, system.to_owned())
            }
            None if ["syscall_", "lttng_statedump_"].iter().any(|p| class.name.starts_with(p)) => {
                (EventTable::Kernel, &class.name, String::new())
            }
            None => (EventTable::Program, &class.name, class.system.clone()),
        },
    }
}

fn birth_of(class: &RecordedClass) -> Option<ThreadBirth> {
    let start = |field: &str| class.field(field).map(ThreadBirth::Start);
    if class.is_named("sched:sched_process_fork") {
        // In a perf.data, and in a trace.dat of older kernels.
        start("child_tid").or_else(|| start("child_pid"))
    } else if class.is_named("task:task_newtask") {
        start("pid")
    } else if class.is_named("sched:sched_process_exit") {
        Some(ThreadBirth::End)
    } else {
        None
    }
}

/// Tables under way.
pub(crate) struct TablePass<'a> {
    builders: Vec<Option<TableBuilder>>,
    threads: ThreadNumbers,
    stacks: StackTree,
    machine: u32,
    arg_sets: u32,
    cpus: Vec<(u32, u32)>,
    has_tasks: bool,
    has_sched: bool,
    has_stacks: bool,
    timelines: Option<Box<Timelines>>,
    /// Names of system calls of an architecture.
    calls: fn(Option<&str>) -> CallName,
    /// Counts of groups of which only the leader is sampled.
    reads: Option<SampleReads>,
    limits: ReadLimits<'a>,
    /// Bytes of tables that are there already.
    held: usize,
}

impl<'a> TablePass<'a> {
    /// `wanted`: columns by table.
    pub(crate) fn new(
        wanted: &[Option<u64>],
        limits: ReadLimits<'a>,
        held: usize,
        calls: fn(Option<&str>) -> CallName,
    ) -> TablePass<'a> {
        let builders = TABLES
            .iter()
            .zip(wanted)
            .map(|(schema, wanted)| wanted.map(|columns| TableBuilder::new(schema, columns)));
        let builders: Vec<Option<TableBuilder>> = builders.collect();
        let wants = |table: TableId, column: &str| {
            builders.get(table as usize).and_then(Option::as_ref).is_some_and(|b| b.wants(column))
        };
        let is_there = |table: TableId| builders.get(table as usize).is_some_and(Option::is_some);
        let events = [TableId::FtraceEvent, TableId::ProgramEvent, TableId::PerfSample];
        // Numbers of threads and stacks are in the order of events: all of them, or none, so that
        // tables which are read one after the other have the same numbers.
        let has_sched = is_there(TableId::SchedSlice) || is_there(TableId::ThreadState);
        let has_timelines =
            [TableId::Slice, TableId::Counter, TableId::Track, TableId::CounterTrack]
                .into_iter()
                .any(is_there);
        // Tracks of overlapping slices follow all others: counters alone have the same numbers.
        let keeps_slices = is_there(TableId::Slice) || is_there(TableId::Track);
        let timelines = has_timelines.then(|| Box::new(Timelines::new(keeps_slices)));
        let has_tasks = has_sched
            || has_timelines
            || is_there(TableId::Thread)
            || is_there(TableId::Process)
            || events.iter().any(|table| wants(*table, "utid"));
        let has_stacks =
            [TableId::Callsite, TableId::Frame, TableId::Mapping].into_iter().any(is_there)
                || events.iter().any(|table| wants(*table, "callsite_id"));
        TablePass {
            builders,
            threads: ThreadNumbers::default(),
            stacks: StackTree::default(),
            machine: 0,
            arg_sets: 0,
            cpus: Vec::new(),
            has_tasks,
            has_sched,
            has_stacks,
            timelines,
            calls,
            reads: None,
            limits,
            held,
        }
    }

    fn table(&mut self, table: TableId) -> Option<&mut TableBuilder> {
        self.builders.get_mut(table as usize)?.as_mut()
    }

    fn size(&self) -> u64 {
        let builders = self.builders.iter().flatten().map(TableBuilder::size).sum::<usize>();
        let timelines = self.timelines.as_ref().map_or(0, |timelines| timelines.size());
        let numbers = self.threads.size() + self.stacks.size();
        (builders + timelines + numbers + self.held) as u64
    }

    /// Reads a recording.
    pub(crate) fn read(
        &mut self,
        machine: u32,
        source: &EventSource,
    ) -> Result<MachineFacts, ReadError> {
        self.machine = machine;
        self.threads.begin(machine);
        if let Some(timelines) = &mut self.timelines {
            timelines.begin(machine, (self.calls)(source.architecture().as_deref()));
        }
        // Stacks that ftrace records as events stay those: joined, events are not in order.
        let options = ReadOptions::default();
        let mut sched = SchedReader::new(source.losses());
        let mut plans: LayoutMemo<ClassPlan> = LayoutMemo::default();
        if let Some(data) = source.perf(0) {
            self.reads = SampleReads::of_recording(&data);
        }
        let mut span: Option<(u64, u64)> = None;
        let (mut events, mut stop) = (0u64, None);
        let everything = EventSelection::default();
        let summary = source.for_each(&everything, options, &mut |event| {
            events += 1;
            if events % BETWEEN_LOOKS == 0 {
                stop = self.over_limit();
                if stop.is_some() {
                    return ControlFlow::Break(());
                }
            }
            if let Some(time) = event.time {
                let (first, last) = span.unwrap_or((time, time));
                span = Some((first.min(time), last.max(time)));
            }
            if plans.get(event.class.layout).is_none() {
                let plan = self.plan(event.class);
                plans.insert(event.class.layout, plan);
            }
            let Some(plan) = plans.get(event.class.layout) else {
                return ControlFlow::Continue(());
            };
            self.event(event, plan, &mut sched);
            ControlFlow::Continue(())
        })?;
        if let Some(stop) = stop {
            return Err(stop);
        }
        let (mut notes, is_damaged) = (summary.notes(source), summary.is_damaged(source));
        let read = sched.finish(summary);
        if self.has_tasks {
            open_spans(&read.machine, |span| self.span(&span, &read.machine, None));
        }
        if self.has_sched {
            notes.extend(sched_notes(&read, "kymo sched record"));
        }
        if let Some(timelines) = &mut self.timelines {
            notes.extend(timelines.end());
        }
        Ok(MachineFacts { notes, span, is_damaged })
    }

    fn over_limit(&self) -> Option<ReadError> {
        if self.limits.interrupted.load(Ordering::Relaxed) {
            return Some(ReadError::Interrupted);
        }
        if self.limits.deadline.is_some_and(|end| Instant::now() >= end) {
            return Some(ReadError::Time);
        }
        (self.size() > self.limits.memory).then_some(ReadError::Memory(self.limits.memory))
    }

    #[cold]
    fn plan(&mut self, class: &RecordedClass) -> ClassPlan {
        let (table, name, system) = names_of(class);
        let mut word = |id: TableId, column: usize, text: &str| {
            self.table(id).map_or(0, |table| table.word(column, text))
        };
        let id = match table {
            EventTable::Kernel => TableId::FtraceEvent,
            EventTable::Program => TableId::ProgramEvent,
            EventTable::Samples => TableId::PerfSample,
        };
        let is_sample = table == EventTable::Samples;
        let name = word(id, if is_sample { 6 } else { 2 }, name);
        let system = (!is_sample && !system.is_empty()).then(|| word(id, 3, &system));
        let mut fields = Vec::new();
        for (number, field) in class.fields.iter().enumerate() {
            if field.part != FieldPart::Common && field.part != FieldPart::Sample {
                let flat = word(TableId::Args, 2, &field.name);
                let key = word(TableId::Args, 3, &field.name);
                fields.push((FieldId(number as u32), flat, key));
            }
        }
        ClassPlan {
            table,
            name,
            system,
            priority: class.field("prev_prio"),
            birth: birth_of(class),
            fields,
        }
    }

    #[inline]
    fn event(&mut self, event: &RecordedEvent<'_>, plan: &ClassPlan, sched: &mut SchedReader) {
        let time = event.time.unwrap_or(0);
        let mut utid = None;
        if self.has_tasks {
            utid = self.threads.of_task(event.task());
            match plan.birth {
                Some(ThreadBirth::Start(child)) => {
                    let child = event.field(child).number().and_then(|n| u32::try_from(n).ok());
                    child.into_iter().for_each(|child| self.threads.start(child, utid, time));
                }
                Some(ThreadBirth::End) => self.threads.exit(utid, time),
                None => {}
            }
            let _ = sched.event(event, &mut |step, machine| {
                self.step(step, machine, plan);
                ControlFlow::Continue(())
            });
        }
        let cpu = event.cpu();
        let site = if self.has_stacks { self.stacks.of_event(event) } else { None };
        let arg_set = (!plan.fields.is_empty()).then_some(self.arg_sets);
        if arg_set.is_some() {
            self.arg_sets = self.arg_sets.saturating_add(1);
        }
        if let Some(arg_set) = arg_set.filter(|_| self.has(TableId::Args)) {
            self.args(event, plan, arg_set);
        }
        if let (Some(cpu), true) = (cpu, self.has(TableId::Cpu))
            && !self.cpus.contains(&(self.machine, cpu))
        {
            self.cpus.push((self.machine, cpu));
        }
        let ucpu = cpu.map(|cpu| self.ucpu(cpu));
        if self.timelines.is_some() {
            self.timeline(event, plan, utid, arg_set);
        }
        let ts = event.time.into();
        match plan.table {
            EventTable::Samples => {
                let mut reads = self.reads.take();
                if let Some(table) = self.table(TableId::PerfSample) {
                    let wants_period = table.wants("period");
                    // A sample of a group's leader is one of each event that has counted since.
                    let parts = reads.as_mut().zip(event.perf_entry());
                    let parts =
                        parts.and_then(|(reads, entry)| Some((entry.events, reads.parts(entry)?)));
                    let mut row = |name: Put<'_>, period: u64| {
                        table.row([
                            ts,
                            utid.into(),
                            cpu.into(),
                            event.cpu_mode().into(),
                            site.into(),
                            name,
                            Put::Integer(period.cast_signed()),
                            ucpu.into(),
                        ]);
                    };
                    match parts {
                        None => {
                            let period = if wants_period { event.period() } else { 0 };
                            row(Put::Word(plan.name), period);
                        }
                        Some((events, parts)) => {
                            for (member, count) in &parts {
                                let member = events.get(*member).map(|e| e.name.as_str());
                                row(member.into(), *count);
                            }
                        }
                    }
                }
                self.reads = reads;
            }
            of => {
                let id = match of {
                    EventTable::Program => TableId::ProgramEvent,
                    _ => TableId::FtraceEvent,
                };
                let Some(table) = self.table(id) else { return };
                let instance = event.instance();
                table.row([
                    ts,
                    Put::Word(plan.name),
                    plan.system.map_or(Put::Null, Put::Word),
                    cpu.into(),
                    utid.into(),
                    arg_set.into(),
                    site.into(),
                    ucpu.into(),
                    if instance.is_empty() { Put::Null } else { Put::Text(instance) },
                ]);
            }
        }
    }

    /// Slices and counters of an event.
    fn timeline(
        &mut self,
        event: &RecordedEvent<'_>,
        plan: &ClassPlan,
        utid: Option<u32>,
        args: Option<u32>,
    ) {
        let Some(time) = event.time.filter(|_| plan.table != EventTable::Samples) else { return };
        let Some(mut timelines) = self.timelines.take() else { return };
        let owner = EventOwner {
            time,
            utid,
            upid: utid.and_then(|utid| self.threads.process(utid)),
            cpu: event.cpu().map(|cpu| (cpu, self.ucpu(cpu))),
            args,
            is_idle: event.task().tid == Some(0),
            is_program: plan.table == EventTable::Program,
        };
        let counters = self.table(TableId::Counter);
        match counters {
            None => timelines.event(event, &owner, &mut |_, _| {}),
            Some(table) => timelines.event(event, &owner, &mut |track, value| {
                let ts = Put::Integer(time.cast_signed());
                table.row([ts, Put::Small(track), Put::Real(value), args.into()]);
            }),
        }
        self.timelines = Some(timelines);
    }

    #[inline]
    fn has(&self, table: TableId) -> bool {
        self.builders.get(table as usize).is_some_and(Option::is_some)
    }

    fn ucpu(&self, cpu: u32) -> u32 {
        ucpu(self.machine, cpu)
    }

    fn args(&mut self, event: &RecordedEvent<'_>, plan: &ClassPlan, arg_set: u32) {
        let Some(table) = self.table(TableId::Args) else { return };
        let shows = table.wants("display_value");
        let mut shown = Vec::new();
        for (field, flat, key) in &plan.fields {
            let value = event.field(*field);
            shown.clear();
            if shows {
                event.write_field_cell(*field, &mut shown);
            }
            let (integer, text, real, of) = match &value {
                FieldValue::Signed(n) => (Put::Integer(*n), Put::Null, Put::Null, "int"),
                FieldValue::Unsigned(n) => {
                    (Put::Integer(n.cast_signed()), Put::Null, Put::Null, "uint")
                }
                FieldValue::Bool(yes) => {
                    (Put::Integer((*yes).into()), Put::Null, Put::Null, "bool")
                }
                FieldValue::Address(n) => {
                    (Put::Integer(n.cast_signed()), Put::Null, Put::Null, "pointer")
                }
                FieldValue::Float(n) => (Put::Null, Put::Null, Put::Real(*n), "real"),
                FieldValue::Text(text) => (Put::Null, Put::Bytes(text), Put::Null, "string"),
                FieldValue::Enumeration { value, signed, .. } => {
                    let of = if *signed { "int" } else { "uint" };
                    (Put::Integer(value.cast_signed()), Put::Null, Put::Null, of)
                }
                FieldValue::Compound(text) => (Put::Null, Put::Bytes(text), Put::Null, "json"),
                FieldValue::Unread | FieldValue::Absent => {
                    (Put::Null, Put::Null, Put::Null, "null")
                }
            };
            let display = if shows { Put::Bytes(&shown) } else { Put::Null };
            table.row([
                Put::Small(arg_set),
                Put::Word(*flat),
                Put::Word(*key),
                integer,
                text,
                real,
                Put::Text(of),
                display,
            ]);
        }
    }

    /// Number of a task of the state machine.
    fn utid(&mut self, machine: &TaskMachine, id: kymo_analysis::tasks::TaskId) -> Option<u32> {
        let task = machine.tasks.get(id)?;
        if task.info.tid == Some(task.tid) {
            self.threads.of_task(&task.info)
        } else {
            Some(self.threads.of_tid(task.tid))
        }
    }

    fn step(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine, plan: &ClassPlan) {
        let Transition::Switch { out, next } = step.transition else { return };
        let priority = plan
            .priority
            .filter(|_| self.has(TableId::SchedSlice))
            .and_then(|field| step.event.field(field).number().and_then(|n| i64::try_from(n).ok()));
        if let Some(lost) = machine.run_without_end() {
            self.span(&span_without_end(lost, step.cpu), machine, None);
        }
        let run = Run { state: out.state.text(), priority };
        ended_spans((step.time, step.cpu), (out, next), |span| {
            self.span(&span, machine, Some(&run));
        });
        // It is not seen any more.
        if matches!(out.state, kymo_analysis::tasks::SwitchOutState::Dead(_))
            && let Some(task) = machine.tasks.get(out.task)
        {
            if let Some(timelines) = &mut self.timelines
                && let Some(utid) = self.threads.at(task.tid, step.time)
            {
                timelines.end_thread(utid, step.time);
            }
            self.threads.end(task.tid, step.time);
        }
        // Who comes is named here, also where none of its own events follows.
        self.utid(machine, next.task);
    }

    fn span(&mut self, span: &StateSpan, machine: &TaskMachine, run: Option<&Run>) {
        let Some(utid) = self.utid(machine, span.task) else { return };
        let waker = span.waker.and_then(|waker| self.threads.at(waker.by?, waker.time));
        let ts = Put::Integer(span.from.cast_signed());
        let dur = span.to.map(|to| to.saturating_sub(span.from)).into();
        let uncertain = span.is_uncertain.into();
        let cpu = match span.state {
            SpanState::Running(cpu) => Some(cpu),
            _ => None,
        };
        let ucpu = cpu.map(|cpu| self.ucpu(cpu));
        // Waits of idle tasks are none.
        let is_idle = machine.tasks.get(span.task).is_none_or(|task| task.is_idle());
        if (!is_idle || cpu.is_some())
            && let Some(table) = self.table(TableId::ThreadState)
        {
            use WakeupContext::{DeviceIrq, HardIrq, SoftIrq, TimerIrq};
            let irq = span.waker.and_then(|waker| match waker.context {
                WakeupContext::Unknown => None,
                context => Some(matches!(context, SoftIrq | HardIrq | TimerIrq | DeviceIrq)),
            });
            table.row([
                ts,
                dur,
                cpu.into(),
                Put::Small(utid),
                Put::Text(span.state.text()),
                waker.into(),
                irq.map_or(Put::Null, Put::from),
                ucpu.into(),
                uncertain,
            ]);
        }
        if cpu.is_none() || !self.has(TableId::SchedSlice) {
            return;
        }
        let name = self.threads.name(utid).to_vec();
        let wait = span.wait.as_ref();
        let cause = wait.map(|wait| wait.cause);
        let delay = |causes: &[WaitCause]| {
            wait.filter(|wait| causes.contains(&wait.cause)).and_then(|wait| wait.delay())
        };
        let woken = wait.filter(|wait| wait.cause != WaitCause::Preempted).and_then(|w| w.woken);
        let waker = woken.and_then(|woken| self.threads.at(woken.by?, woken.time));
        let migrated = wait.filter(|wait| wait.knows_cpu()).map(|wait| wait.is_migrated);
        let lost = span.is_uncertain || wait.is_some_and(|wait| wait.touches_loss);
        let Some(table) = self.table(TableId::SchedSlice) else { return };
        table.row([
            ts,
            dur,
            cpu.into(),
            Put::Small(utid),
            run.map(|run| run.state).into(),
            run.and_then(|run| run.priority).map_or(Put::Null, Put::Integer),
            ucpu.into(),
            if name.is_empty() { Put::Null } else { Put::Bytes(&name) },
            delay(&[WaitCause::Woken, WaitCause::New]).into(),
            delay(&[WaitCause::Preempted]).into(),
            cause
                .and_then(|cause| match cause {
                    WaitCause::Woken => Some("woken"),
                    WaitCause::Preempted => Some("preempted"),
                    WaitCause::New => Some("new"),
                    WaitCause::Unknown => None,
                })
                .into(),
            waker.into(),
            woken.map(|woken| woken.context.code()).into(),
            migrated.map_or(Put::Null, Put::from),
            lost.into(),
        ]);
    }

    /// Fills the tables that are made of all events, and hands over those that are wanted.
    pub(crate) fn finish(
        mut self,
        fill: impl FnOnce(&mut dyn FnMut(TableId, &mut dyn FnMut(&mut TableBuilder))),
    ) -> Vec<Option<ColumnTable>> {
        let mut spare = |id: TableId| {
            let slot = self.builders.get_mut(id as usize).and_then(Option::take);
            slot.unwrap_or_else(|| TableBuilder::new(id.schema(), 0))
        };
        let (mut threads, mut processes) = (spare(TableId::Thread), spare(TableId::Process));
        let (mut sites, mut frames) = (spare(TableId::Callsite), spare(TableId::Frame));
        let mut mappings = spare(TableId::Mapping);
        self.threads.fill(&mut threads, &mut processes);
        self.stacks.fill(&mut sites, &mut frames, &mut mappings);
        if let Some(timelines) = self.timelines.take() {
            let take = |builders: &mut Vec<Option<TableBuilder>>, id: TableId| {
                builders.get_mut(id as usize).and_then(Option::take)
            };
            let ids = [TableId::Slice, TableId::Track, TableId::CounterTrack];
            let mut made = ids.map(|id| take(&mut self.builders, id));
            let [slices, tracks, counters] = &mut made;
            timelines.fill(slices.as_mut(), tracks.as_mut(), counters.as_mut());
            for (id, table) in ids.into_iter().zip(made) {
                if let Some(slot) = self.builders.get_mut(id as usize) {
                    *slot = table;
                }
            }
        }
        self.cpus.sort_unstable();
        let cpus = std::mem::take(&mut self.cpus);
        if let Some(table) = self.table(TableId::Cpu) {
            for (machine, cpu) in cpus {
                table.row([Put::Small(ucpu(machine, cpu)), Put::Small(cpu), Put::Small(machine)]);
            }
        }
        fill(&mut |id, with| {
            if let Some(table) = self.table(id) {
                with(table);
            }
        });
        let made = [
            (TableId::Thread, threads, self.has_tasks),
            (TableId::Process, processes, self.has_tasks),
            (TableId::Callsite, sites, self.has_stacks),
            (TableId::Frame, frames, self.has_stacks),
            (TableId::Mapping, mappings, self.has_stacks),
        ];
        for (id, table, is_read) in made {
            if let Some(slot) = self.builders.get_mut(id as usize).filter(|_| is_read) {
                *slot = Some(table);
            }
        }
        self.builders.into_iter().map(|builder| builder.map(TableBuilder::finish)).collect()
    }
}

/// A run that ends.
struct Run {
    state: &'static str,
    priority: Option<i64>,
}
