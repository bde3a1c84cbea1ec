//! From the request to the opened events: which fields samples carry, by the rules perf follows,
//! and what this kernel knows of it.

use kymo_kernel::events::{CounterSource, EventSpec};
use kymo_kernel::perf_event::{OpenFlags, PerfEvent, max_sample_rate};
use kymo_model::{
    Attr, AttrFlags, BranchType, EventType, ReadFormat, RegisterNames, SampleType, sw,
};

use crate::error::RecordError;
use crate::open::PlannedEvent;
use crate::options::{CallGraph, RecordOptions, Target};

/// Times that an event was enabled, and that it counted.
const BOTH_TIMES: ReadFormat = ReadFormat::TOTAL_TIME_ENABLED.union(ReadFormat::TOTAL_TIME_RUNNING);

/// perf's default sampling frequency.
const DEFAULT_FREQ: u64 = 4000;

/// Optional features of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    flags: AttrFlags,
    read: ReadFormat,
}

impl Kernel {
    /// Asks the kernel, by opening an event that never happens.
    pub(crate) fn probe() -> Kernel {
        let mut attr = Attr {
            kind: EventType::SOFTWARE,
            config: sw::DUMMY,
            flags: AttrFlags::DISABLED | AttrFlags::EXCLUDE_KERNEL,
            ..Attr::default()
        };
        let mut takes = |flags: AttrFlags, read: ReadFormat| {
            attr.flags |= flags;
            attr.read_format |= read;
            let ok = PerfEvent::open(&attr, 0, -1, None, OpenFlags::NONE).is_ok();
            if !ok {
                attr.flags -= flags;
                attr.read_format -= read;
            }
            ok
        };
        let none = (AttrFlags::empty(), ReadFormat::empty());
        if !takes(AttrFlags::BUILD_ID | AttrFlags::KSYMBOL, ReadFormat::LOST) {
            takes(AttrFlags::KSYMBOL, none.1);
            takes(AttrFlags::BUILD_ID, none.1);
            takes(none.0, ReadFormat::LOST);
        }
        Kernel { flags: attr.flags, read: attr.read_format }
    }

    fn optional(self, flags: AttrFlags) -> AttrFlags {
        self.flags & flags
    }
}

/// Plans all events of a recording.
pub(crate) fn plan(
    options: &RecordOptions,
    specs: &[EventSpec],
    kernel: Kernel,
) -> Result<Vec<PlannedEvent>, RecordError> {
    // A tracking event of its own where the first one cannot be it: it would
    // start late, be confined to a cgroup, or lie in a ring that overwrites.
    let apart = options.delay.is_some()
        || options.overwrite
        || matches!(options.target, Target::Cgroups(_))
        || specs.first().is_some_and(|s| s.sample_read || s.cpus.is_some());
    let several = specs.len() + usize::from(apart) > 1;
    let mut planned: Vec<PlannedEvent> = Vec::new();
    for spec in specs {
        if spec.source != CounterSource::Perf {
            return Err(RecordError::NotPerf(spec.name.clone()));
        }
        let leader =
            planned.iter().position(|p| p.spec.group.is_some() && p.spec.group == spec.group);
        let mut attr = sampled(options, spec, kernel, several);
        let read_group = match leader {
            Some(l) => planned.get(l).is_some_and(|l| l.spec.sample_read),
            None => spec.sample_read && spec.group.is_some(),
        };
        if spec.sample_read || read_group {
            attr.sample_type |= SampleType::READ;
            if options.running_time {
                attr.read_format |= BOTH_TIMES;
            }
        }
        if read_group {
            attr.read_format |= ReadFormat::GROUP;
            if leader.is_some() {
                // The leader's samples carry the counts of all.
                attr.sample_period = 0;
                attr.flags -= AttrFlags::FREQ;
            }
        }
        if leader.is_some() {
            attr.flags -= AttrFlags::DISABLED | AttrFlags::ENABLE_ON_EXEC;
        }
        if spec.terms.system_wide {
            attr.flags -= AttrFlags::INHERIT;
            // Stacks of programs that are not recorded are nobody's question.
            if attr.sample_type.contains(SampleType::CALLCHAIN) {
                attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
            }
            // What is of no task no exec starts.
            attr.flags -= AttrFlags::ENABLE_ON_EXEC;
        }
        if planned.is_empty() && !apart {
            attr.flags |= tracking(options, kernel);
        }
        planned.push(PlannedEvent {
            spec: spec.clone(),
            attr,
            leader,
            sideband_only: false,
            cgroup: None,
        });
    }
    if apart {
        planned.push(tracker(options, kernel, several));
    }
    Ok(planned)
}

/// The bits that make an event tell of mappings, names and births.
fn tracking(options: &RecordOptions, kernel: Kernel) -> AttrFlags {
    let mut flags = AttrFlags::MMAP
        | AttrFlags::MMAP2
        | AttrFlags::COMM
        | AttrFlags::COMM_EXEC
        | AttrFlags::TASK
        | kernel.optional(AttrFlags::KSYMBOL);
    // Kernels since 5.12 mark a mapping's record as having a build-id in the recordings of others,
    // too, once one of its watchers asked for it (perf_event_mmap_output(): `misc` stays as it is
    // for the next event); there it has none, and perf 6.1 aborts. Who watches the whole machine
    // meets the mappings of everybody: its build-ids are read at the end.
    if options.target != Target::System {
        flags |= kernel.optional(AttrFlags::BUILD_ID);
    }
    if options.takes_data_mappings() {
        flags |= AttrFlags::MMAP_DATA;
    }
    if options.switch_events {
        flags |= AttrFlags::CONTEXT_SWITCH;
    }
    if options.namespaces {
        flags |= AttrFlags::NAMESPACES;
    }
    if options.cgroup_records {
        flags |= AttrFlags::CGROUP;
    }
    flags
}

fn tracker(options: &RecordOptions, kernel: Kernel, several: bool) -> PlannedEvent {
    let spec = EventSpec::new(
        "dummy:HG",
        Attr { kind: EventType::SOFTWARE, config: sw::DUMMY, ..Attr::default() },
    );
    let mut attr = sampled(options, &spec, kernel, several);
    attr.sample_period = 0;
    attr.flags -= AttrFlags::FREQ | AttrFlags::WRITE_BACKWARD;
    attr.flags |= tracking(options, kernel);
    if options.delay.is_some() && options.target == Target::Command {
        attr.flags |= AttrFlags::DISABLED | AttrFlags::ENABLE_ON_EXEC;
    }
    attr.sample_type -= SampleType::CALLCHAIN
        | SampleType::REGS_USER
        | SampleType::STACK_USER
        | SampleType::REGS_INTR
        | SampleType::BRANCH_STACK;
    (attr.sample_regs_user, attr.sample_stack_user, attr.sample_regs_intr) = (0, 0, 0);
    attr.branch_sample_type = BranchType::empty();
    PlannedEvent { spec, attr, leader: None, sideband_only: true, cgroup: None }
}

/// Flags of an event that waits for its start.
pub(crate) fn start_flags(options: &RecordOptions) -> AttrFlags {
    if options.target == Target::Command && options.delay.is_none() {
        AttrFlags::DISABLED | AttrFlags::ENABLE_ON_EXEC
    } else {
        AttrFlags::DISABLED
    }
}

fn sampled(options: &RecordOptions, spec: &EventSpec, kernel: Kernel, several: bool) -> Attr {
    let mut attr = spec.attr.clone();
    attr.read_format = ReadFormat::ID | (kernel.read & ReadFormat::LOST);
    attr.sample_type |= SampleType::IP | SampleType::TID | SampleType::TIME;
    attr.flags |= AttrFlags::SAMPLE_ID_ALL | start_flags(options);
    attr.flags |= options.exclude;
    rate(options, spec, &mut attr);
    if several {
        attr.sample_type |= SampleType::IDENTIFIER;
    }
    let everywhere = matches!(options.target, Target::System | Target::Cgroups(_));
    if everywhere || spec.is_tracepoint() || !options.cpus.is_empty() {
        attr.sample_type |= SampleType::CPU;
    }
    if spec.is_tracepoint() {
        attr.sample_type |= SampleType::RAW | SampleType::PERIOD;
    }
    contents(options, &mut attr);
    // As with perf, -t is about these threads alone.
    let inherit = options.inherit && !matches!(options.target, Target::Threads(_));
    if spec.terms.inherit.unwrap_or(inherit) && !everywhere {
        attr.flags |= AttrFlags::INHERIT;
    }
    if options.inherit_stat {
        attr.flags |= AttrFlags::INHERIT_STAT;
        attr.read_format |= BOTH_TIMES;
    }
    if options.no_buffering {
        attr.wakeup = 1;
    }
    if options.overwrite {
        attr.flags |= AttrFlags::WRITE_BACKWARD;
    }
    if let Some(id) = options.clock.id() {
        attr.flags |= AttrFlags::USE_CLOCKID;
        attr.clockid = id;
    }
    call_graph(options, spec, &mut attr);
    attr
}

/// The fields that were asked for, with the plain weight before Linux 5.12.
fn known_fields(asked: SampleType) -> SampleType {
    if !asked.contains(SampleType::WEIGHT_STRUCT) {
        return asked;
    }
    let attr = Attr {
        kind: EventType::SOFTWARE,
        config: sw::DUMMY,
        sample_type: SampleType::WEIGHT_STRUCT,
        flags: AttrFlags::DISABLED | AttrFlags::EXCLUDE_KERNEL,
        ..Attr::default()
    };
    match PerfEvent::open(&attr, 0, -1, None, OpenFlags::NONE) {
        Ok(_) => asked,
        Err(_) => (asked - SampleType::WEIGHT_STRUCT) | SampleType::WEIGHT,
    }
}

/// Adds the requested contents to the samples of all events.
fn contents(options: &RecordOptions, attr: &mut Attr) {
    let contents = options.contents;
    attr.sample_type |= known_fields(contents.fields);
    if contents.fields.contains(SampleType::RAW) {
        attr.sample_type |= SampleType::CPU;
    }
    if contents.fields.contains(SampleType::ADDR) {
        attr.sample_type |= SampleType::DATA_SRC;
    }
    if !contents.branches.is_empty() {
        attr.sample_type |= SampleType::BRANCH_STACK;
        attr.branch_sample_type = contents.branches;
    }
    if contents.user_registers != 0 {
        attr.sample_type |= SampleType::REGS_USER;
        attr.sample_regs_user = contents.user_registers;
    }
    if contents.interrupt_registers != 0 {
        attr.sample_type |= SampleType::REGS_INTR;
        attr.sample_regs_intr = contents.interrupt_registers;
    }
    if options.cgroup_records {
        attr.sample_type |= SampleType::CGROUP;
    }
}

fn rate(options: &RecordOptions, spec: &EventSpec, attr: &mut Attr) {
    let cap = max_sample_rate().unwrap_or(u64::MAX);
    let own = (spec.terms.period, spec.terms.freq);
    let (period, freq) = match (own, options.period, options.freq) {
        ((Some(p), _), _, _) => (Some(p), None),
        ((_, Some(f)), _, _) => (None, Some(f)),
        (_, Some(p), _) => (Some(p), None),
        (_, _, Some(f)) => (None, Some(f)),
        _ if attr.sample_period != 0 => (Some(attr.sample_period), None),
        _ => (None, Some(DEFAULT_FREQ)),
    };
    if let Some(period) = period {
        attr.sample_period = period;
    } else {
        attr.sample_period = freq.unwrap_or(DEFAULT_FREQ).min(cap);
        attr.flags |= AttrFlags::FREQ;
        attr.sample_type |= SampleType::PERIOD;
    }
    if options.no_samples {
        attr.sample_period = 0;
    }
}

fn call_graph(options: &RecordOptions, spec: &EventSpec, attr: &mut Attr) {
    let graph = match spec.terms.call_graph.as_deref() {
        Some("no") => None,
        Some("dwarf") => {
            let size = spec.terms.stack_size.unwrap_or(8192).min(65528) as u32;
            Some(CallGraph::Dwarf(size.next_multiple_of(8)))
        }
        Some(_) => Some(CallGraph::FramePointers),
        None => options.call_graph,
    };
    let Some(graph) = graph else { return };
    attr.sample_type |= SampleType::CALLCHAIN;
    attr.sample_max_stack = spec.terms.max_stack.unwrap_or(0);
    if let CallGraph::Dwarf(size) = graph {
        attr.sample_type |= SampleType::REGS_USER | SampleType::STACK_USER;
        attr.sample_regs_user |= USER_REGS;
        attr.sample_stack_user = size;
        // The user part is unwound from the stack's copy.
        attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
    }
}

/// The registers perf records: all general ones.
const USER_REGS: u64 = RegisterNames::NATIVE.general();

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> EventSpec {
        EventSpec::new("cpu-clock", Attr { kind: EventType::SOFTWARE, ..Attr::default() })
    }

    fn plan_of(options: &RecordOptions, specs: &[EventSpec]) -> Vec<PlannedEvent> {
        let kernel = Kernel { flags: AttrFlags::empty(), read: ReadFormat::empty() };
        plan(options, specs, kernel).unwrap()
    }

    #[test]
    fn one_event_of_a_command_carries_what_perfs_does() {
        let options = RecordOptions { freq: Some(99), ..RecordOptions::default() };
        let p = plan_of(&options, &[clock()]);
        let a = &p[0].attr;
        let base = SampleType::IP | SampleType::TID | SampleType::TIME | SampleType::PERIOD;
        assert_eq!((a.sample_type, a.sample_period), (base, 99));
        assert!(a.flags.contains(
            AttrFlags::FREQ | AttrFlags::INHERIT | AttrFlags::ENABLE_ON_EXEC | AttrFlags::MMAP2
        ));
    }

    #[test]
    fn a_read_group_samples_its_leader_only_and_is_tracked_apart() {
        let mut specs = [clock(), clock()];
        specs.iter_mut().for_each(|s| (s.group, s.sample_read) = (Some(0), true));
        let p =
            plan_of(&RecordOptions { target: Target::System, ..RecordOptions::default() }, &specs);
        assert_eq!(p.iter().map(|p| p.leader).collect::<Vec<_>>(), [None, Some(0), None]);
        assert!(p[0].attr.flags.contains(AttrFlags::DISABLED));
        assert!(!p[1].attr.flags.intersects(AttrFlags::DISABLED | AttrFlags::FREQ));
        assert_eq!((p[1].attr.sample_period, p[2].sideband_only), (0, true));
        assert!(p.iter().all(|p| p.attr.sample_type.contains(SampleType::IDENTIFIER)));
    }

    #[test]
    fn dwarf_asks_for_registers_and_stack() {
        let options = RecordOptions {
            call_graph: Some(CallGraph::Dwarf(8192)),
            period: Some(7),
            ..RecordOptions::default()
        };
        let a = &plan_of(&options, &[clock()])[0].attr;
        assert!(a.sample_type.contains(SampleType::REGS_USER | SampleType::STACK_USER));
        assert_eq!((a.sample_stack_user, a.sample_period), (8192, 7));
        assert!(!a.flags.contains(AttrFlags::FREQ));
    }
}
