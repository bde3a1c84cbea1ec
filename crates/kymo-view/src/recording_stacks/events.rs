//! Events of a source as stacks: with the kernel's and the program's stack where the recording
//! was made with them, functions of the function tracer below their callers, and time in
//! functions of the function-graph tracer.

use std::ops::ControlFlow;

use kymo_events::{
    ClassOrigin, EventSource, FieldId, FunctionEvent, LayoutId, ReadOptions, ReadSummary,
    RecordedClass, RecordedEvent, SourceError,
};
use kymo_model::{NoteKind, by_number, counted};
use rustc_hash::FxHashMap;

use super::builder::{EVENTS, FUNCTIONS, StackBuilder};
use super::function_nesting::{FunctionNesting, NestingOwner};
use super::plan::StackPlan;
use crate::Ledger;
use crate::stacks;

/// Binary that functions of the kernel are in.
const KERNEL: &str = "[kernel.kallsyms]";

/// Events without a weight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WeightCounts {
    /// Events left out for they do not have the field that weighs.
    pub(super) weightless: u64,
    /// Events whose weight is negative.
    pub(super) negative: u64,
}

impl WeightCounts {
    pub(super) fn add(&mut self, other: &WeightCounts) {
        self.weightless += other.weightless;
        self.negative += other.negative;
    }

    pub(super) fn note(&self, plan: &StackPlan<'_>, ledger: &mut Ledger) {
        let Some(field) = plan.weight.field() else { return };
        let name = field.name;
        if self.weightless > 0 {
            let fact = format!(
                "{} no field {name} and {} left out",
                counted(self.weightless, "event has", "events have"),
                by_number(self.weightless, "is", "are")
            );
            ledger.tell(NoteKind::Weight, fact, Some("-e names those that have it".into()));
        }
        if self.negative > 0 {
            let fact = format!(
                "{} with a negative {name} {} left out",
                counted(self.negative, "event", "events"),
                by_number(self.negative, "is", "are")
            );
            ledger.note(NoteKind::Weight, fact, None);
        }
    }
}

/// Number of events in the result, by the kind of their stacks.
#[derive(Clone, Copy, Debug, Default)]
struct StackCounts {
    events: u64,
    /// Those with a stack of the kernel, or of the program.
    kernel: u64,
    user: u64,
    /// Those that are functions, with their callers.
    calls: u64,
}

/// Prepared facts about the events of one layout.
#[derive(Clone, Copy)]
struct ClassPlan {
    is_stack: bool,
    function: Option<FunctionEvent>,
    /// The event's own frame.
    frame: u32,
    weight: Option<FieldId>,
}

/// Stacks of events on their way into a result.
pub(super) struct EventStacks<'a> {
    plan: &'a StackPlan<'a>,
    builder: &'a mut StackBuilder,
    /// By layout.
    classes: Vec<Option<ClassPlan>>,
    functions: FxHashMap<(String, Option<u32>), u32>,
    frames: FxHashMap<(u32, u64), u32>,
    /// Frames of the kernel, by recording and address.
    kernel: FxHashMap<(usize, u64), u32>,
    binaries: FxHashMap<String, u32>,
    /// Recordings and their instances.
    instances: Vec<(usize, String)>,
    nesting: FunctionNesting,
    counts: StackCounts,
    pub(super) weights: WeightCounts,
}

impl<'a> EventStacks<'a> {
    pub(super) fn new(plan: &'a StackPlan<'a>, builder: &'a mut StackBuilder) -> EventStacks<'a> {
        EventStacks {
            plan,
            builder,
            classes: Vec::new(),
            functions: FxHashMap::default(),
            frames: FxHashMap::default(),
            kernel: FxHashMap::default(),
            binaries: FxHashMap::default(),
            instances: Vec::new(),
            nesting: FunctionNesting::default(),
            counts: StackCounts::default(),
            weights: WeightCounts::default(),
        }
    }

    /// Reads the events that are not of perf.data.
    pub(super) fn read(&mut self, source: &EventSource) -> Result<ReadSummary, SourceError> {
        source.for_each(self.plan.selection, EventStacks::OPTIONS, &mut |event| self.event(event))
    }

    /// Form in which it takes events.
    pub(super) const OPTIONS: ReadOptions =
        ReadOptions { join_stacks: true, without_perf_data: true };

    /// Takes an event.
    pub(super) fn event(&mut self, event: &RecordedEvent<'_>) -> ControlFlow<()> {
        let class = self.class(event.class);
        match class.function {
            // A stack whose event is not there is nobody's.
            _ if class.is_stack => {}
            Some(FunctionEvent::Entry { func, depth }) => {
                let depth = integer(event, depth).map_or(0, |d| d.clamp(0, 500) as usize);
                let owner = self.nesting_owner(event);
                self.nesting.begin(owner, address(event, func), depth);
            }
            Some(FunctionEvent::Exit { func, calltime, rettime }) => {
                let time = |id| integer(event, id).map(|t| t as u64);
                if let (Some(from), Some(to)) = (time(calltime), time(rettime)) {
                    self.function(event, address(event, func), to.wrapping_sub(from));
                }
            }
            call => self.plain(event, class, call),
        }
        ControlFlow::Continue(())
    }

    /// A function ends.
    fn function(&mut self, event: &RecordedEvent<'_>, func: u64, duration: u64) {
        let owner = self.nesting_owner(event);
        let (own, path) = self.nesting.end(owner, func, duration);
        let frames: Vec<u32> = path.into_iter().map(|f| self.kernel_frame(event, f)).collect();
        let number = self.builder.shared_event(FUNCTIONS, "nanoseconds");
        self.add(event, number, &frames, own);
    }

    fn plain(&mut self, event: &RecordedEvent<'_>, class: ClassPlan, call: Option<FunctionEvent>) {
        let Some(weight) = self.weight(event, class) else { return };
        let stack = event.stack();
        self.counts.events += 1;
        self.counts.kernel += u64::from(!stack.kernel.is_empty());
        self.counts.user += u64::from(!stack.user.is_empty());
        let mut frames: Vec<u32> = Vec::new();
        for addr in stack.user.iter().rev() {
            frames.push(self.user_frame(event, *addr));
        }
        for addr in stack.kernel.iter().rev() {
            frames.push(self.kernel_frame(event, *addr));
        }
        match call {
            // A call says more than that there was one.
            Some(FunctionEvent::Call { ip, parent }) => {
                self.counts.calls += 1;
                if stack.kernel.is_empty() {
                    frames.push(self.kernel_frame(event, address(event, parent)));
                    frames.push(self.kernel_frame(event, address(event, ip)));
                }
            }
            _ => frames.push(class.frame),
        }
        let number = self.builder.shared_event(EVENTS, self.plan.weight.unit());
        self.add(event, number, &frames, weight);
    }

    /// Weight of an event, if it has one.
    fn weight(&mut self, event: &RecordedEvent<'_>, class: ClassPlan) -> Option<u64> {
        if self.plan.weight.field().is_none() {
            return Some(1);
        }
        let Some(value) = class.weight.and_then(|id| event.field(id).number()) else {
            self.weights.weightless += 1;
            return None;
        };
        let weight = u64::try_from(value).ok();
        self.weights.negative += u64::from(weight.is_none());
        weight
    }

    /// Adds an event; `frames` are those of its stack, outermost first.
    fn add(&mut self, event: &RecordedEvent<'_>, number: u32, frames: &[u32], weight: u64) {
        let task = event.task();
        // Where a recording has one number of a task only, it stands for both.
        let (pid, tid) = (task.pid.or(task.tid).unwrap_or(0), task.tid.or(task.pid).unwrap_or(0));
        let comm = || {
            if task.is_named || event.class.origin != ClassOrigin::Program {
                String::from_utf8_lossy(task.comm()).into_owned()
            } else {
                "[unknown]".to_owned()
            }
        };
        let task = self.builder.task(comm, pid, tid);
        let made = &mut self.builder.made;
        let node = frames.iter().fold(None, |node, frame| Some(made.node(node, *frame)));
        let stack = self.builder.stack(number, task, node);
        self.builder.count(stack, 1, weight);
        let time = event.time.unwrap_or(0);
        self.builder.moment(time, stack, weight);
        self.builder.cover((time, time));
    }

    fn class(&mut self, class: &RecordedClass) -> ClassPlan {
        let LayoutId(layout) = class.layout;
        let at = layout as usize;
        if let Some(Some(known)) = self.classes.get(at) {
            return *known;
        }
        let plan = ClassPlan {
            is_stack: class.is_stack,
            function: class.function_event(),
            frame: self.builder.event_frame(&class.full_name),
            weight: self.plan.weight.field_of(class),
        };
        if self.classes.len() <= at {
            self.classes.resize(at + 1, None);
        }
        if let Some(slot) = self.classes.get_mut(at) {
            *slot = Some(plan);
        }
        plan
    }

    /// Functions are nested by task; the idle tasks of all CPUs have one number.
    fn nesting_owner(&mut self, event: &RecordedEvent<'_>) -> NestingOwner {
        let (recording, instance) = (event.class.recording, event.instance());
        let is = |(n, name): &(usize, String)| *n == recording && name == instance;
        let known = self.instances.iter().position(is).unwrap_or_else(|| {
            self.instances.push((recording, instance.to_owned()));
            self.instances.len() - 1
        });
        let tid = event.task().tid.unwrap_or(0);
        let cpu = if tid == 0 { event.cpu().unwrap_or(0) } else { 0 };
        NestingOwner { instance: known, tid, cpu }
    }

    /// The frame of an address of the kernel.
    fn kernel_frame(&mut self, event: &RecordedEvent<'_>, addr: u64) -> u32 {
        let key = (event.class.recording, addr);
        if let Some(known) = self.kernel.get(&key) {
            return *known;
        }
        let name = event.function(addr, true);
        let text = name.as_deref().unwrap_or(KERNEL);
        let frame = self.frame((text, name.is_some()), Some(KERNEL), addr);
        self.kernel.insert(key, frame);
        frame
    }

    /// The frame of an address of a program, of which at most the binary is known.
    fn user_frame(&mut self, event: &RecordedEvent<'_>, addr: u64) -> u32 {
        let Some(path) = event.binary(addr) else {
            return self.frame(("[unknown]", false), None, addr);
        };
        let name = path.rsplit('/').next().unwrap_or(&path);
        let bracketed = if name.starts_with('[') { name.to_owned() } else { format!("[{name}]") };
        self.frame((&bracketed, false), Some(&path), addr)
    }

    fn binary(&mut self, path: &str) -> u32 {
        if let Some(known) = self.binaries.get(path) {
            return *known;
        }
        let all = &mut self.builder.made.binaries;
        let known = all.iter().position(|b| b.path == path).unwrap_or_else(|| {
            let name = path.rsplit('/').next().unwrap_or(path).to_owned();
            all.push(stacks::StackBinary { path: path.to_owned(), name, build_id: None });
            all.len() - 1
        }) as u32;
        self.binaries.insert(path.to_owned(), known);
        known
    }

    fn frame(&mut self, (name, known): (&str, bool), binary: Option<&str>, addr: u64) -> u32 {
        let kernel = binary == Some(KERNEL);
        let binary = binary.map(|path| self.binary(path));
        let made = &mut self.builder.made;
        let next = made.functions.len() as u32;
        let function = *self.functions.entry((name.to_owned(), binary)).or_insert(next);
        if function == next {
            let name = name.to_owned();
            made.functions.push(stacks::Function { name, known, binary, file: None, kernel });
        }
        let next = made.frames.len() as u32;
        let frame = *self.frames.entry((function, addr)).or_insert(next);
        if frame == next {
            made.frames.push(stacks::StackFrame { function, addr, line: 0, inlined: false });
        }
        frame
    }

    /// Notes what the result was made of.
    pub(super) fn note(&self, source: &EventSource, ledger: &mut Ledger) {
        let StackCounts { events, kernel, user, calls } = self.counts;
        if events == calls {
            // What the function tracer recorded is as it should be.
        } else if kernel == 0 && user == 0 {
            let fact = "no event has a stack: each is one frame under its task";
            let of_kernel = source.timeline().is_some_and(|t| !t.kernels().is_empty());
            let more = "kymo trace -T records the kernel's stack with each event";
            ledger.tell(NoteKind::Stacks, fact, of_kernel.then(|| more.to_owned()));
        } else {
            let user = match user {
                0 => String::new(),
                _ => format!(", {user} one of the program"),
            };
            let fact = format!("{kernel} of {events} events have a stack of the kernel{user}");
            ledger.tell(NoteKind::Stacks, fact, None);
        }
        let whole = if self.plan.selection.is_everything() { "recording" } else { "selection" };
        let ends = self.nesting.unopened;
        if ends > 0 {
            let fact = format!(
                "{} whose begin is not in the {whole}",
                counted(ends, "function ends", "functions end")
            );
            ledger.note(NoteKind::Functions, fact, None);
        }
        let begins = self.nesting.unended + self.nesting.still_open();
        if begins > 0 {
            let fact = format!(
                "{} no end in the {whole}, and {} for nothing",
                counted(begins, "function has", "functions have"),
                by_number(begins, "counts", "count")
            );
            ledger.tell(NoteKind::Functions, fact, None);
        }
        if let Some(clock) = source.counting_clock().filter(|_| self.plan.moments) {
            let fact = format!("times are counts of the clock {clock}, not nanoseconds");
            ledger.note(NoteKind::Clock, fact, None);
        }
    }
}

fn integer(event: &RecordedEvent<'_>, field: FieldId) -> Option<i128> {
    event.field(field).number()
}

fn address(event: &RecordedEvent<'_>, field: FieldId) -> u64 {
    integer(event, field).unwrap_or(0) as u64
}
