//! Scheduler events of all formats and kernels as one enumeration. Which fields an event class has
//! is resolved once for each layout; fields are resolved by LTTng's names where ftrace's mean
//! something else there (`child_pid` is a thread in ftrace, a process in LTTng).

use kymo_events::{
    EventDigester, EventFields, FieldReader, LayoutMemo, RecordedClass, RecordedEvent, TaskComm,
};

use super::switch_state::SwitchOutState;

/// Events that are decoded, by their kernel names.
pub const SCHED_EVENTS: [&str; 7] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup",
    "sched:sched_wakeup_new",
    "sched:sched_migrate_task",
    "sched:sched_stat_runtime",
    "sched:sched_process_fork",
];

/// End of a task: decoded where a recording has it, and not needed.
pub const EXIT_EVENT: &str = "sched:sched_process_exit";

/// A task as an event states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRef {
    /// Thread id; 0 is the idle task of a CPU.
    pub tid: u32,
    /// Its name; empty where the event has none.
    pub comm: TaskComm,
}

/// Context of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WakeupContext {
    /// Code of the waking task itself.
    Task,
    /// A soft interrupt.
    SoftIrq,
    /// A hardware interrupt, of a timer or a device: it is not known of which.
    HardIrq,
    /// The interrupt of a timer.
    TimerIrq,
    /// The interrupt of a device.
    DeviceIrq,
    /// The recording does not tell.
    Unknown,
}

impl WakeupContext {
    /// Reads `common_flags`: TRACE_FLAG_HARDIRQ, TRACE_FLAG_SOFTIRQ.
    pub fn from_flags(flags: Option<i64>) -> WakeupContext {
        const HARDIRQ: i64 = 0x08;
        const SOFTIRQ: i64 = 0x10;
        match flags {
            None => WakeupContext::Unknown,
            Some(f) if f & HARDIRQ != 0 => WakeupContext::HardIrq,
            Some(f) if f & SOFTIRQ != 0 => WakeupContext::SoftIrq,
            Some(_) => WakeupContext::Task,
        }
    }

    /// Whether it is an interrupt, which comes upon anybody.
    pub fn is_interrupt(self) -> bool {
        use WakeupContext as W;
        matches!(self, W::SoftIrq | W::HardIrq | W::TimerIrq | W::DeviceIrq)
    }

    /// As it is called in JSON.
    pub fn code(self) -> &'static str {
        match self {
            WakeupContext::Task => "task",
            WakeupContext::SoftIrq => "softirq",
            WakeupContext::HardIrq => "hardirq",
            WakeupContext::TimerIrq => "timer",
            WakeupContext::DeviceIrq => "device",
            WakeupContext::Unknown => "unknown",
        }
    }

    /// As it is called in a sentence; nothing for a task.
    pub fn text(self) -> Option<&'static str> {
        match self {
            WakeupContext::SoftIrq => Some("a softirq"),
            WakeupContext::HardIrq => Some("an interrupt"),
            WakeupContext::TimerIrq => Some("a timer's interrupt"),
            WakeupContext::DeviceIrq => Some("a device's interrupt"),
            WakeupContext::Task | WakeupContext::Unknown => None,
        }
    }
}

/// Kind of a wake-up event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeupKind {
    /// `sched_waking`: in the waker, when it decides.
    Waking,
    /// `sched_wakeup`: when the task is on a run queue.
    Wakeup,
    /// `sched_wakeup_new`: its first.
    New,
}

/// An event of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedEvent {
    /// A CPU goes from one task to another.
    Switch {
        /// Task that leaves the CPU.
        prev: TaskRef,
        /// In which state.
        state: SwitchOutState,
        /// Task that gets the CPU.
        next: TaskRef,
    },
    /// A task becomes runnable.
    Wakeup {
        /// Kind of the event.
        kind: WakeupKind,
        /// Task that is woken.
        task: TaskRef,
        /// Context of the wake-up.
        context: WakeupContext,
    },
    /// A task gets another run queue.
    Migrate {
        /// Task that moves.
        task: TaskRef,
        /// From this CPU.
        from: Option<u32>,
        /// To this one.
        to: Option<u32>,
    },
    /// Time on the CPU is accounted.
    Runtime {
        /// Task on the CPU.
        task: TaskRef,
        /// Nanoseconds.
        runtime: u64,
    },
    /// A task is born.
    Fork {
        /// Its parent.
        parent: TaskRef,
        /// The new one.
        child: TaskRef,
    },
    /// A task begins to exit. It may still sleep, and runs once more.
    Exit {
        /// The task.
        task: TaskRef,
    },
}

/// A reader of a field by its name.
fn reader(class: &RecordedClass, name: &str) -> Option<FieldReader> {
    class.field(name).map(|id| class.reader(id))
}

#[derive(Clone, Copy, Debug)]
struct TaskFields {
    tid: FieldReader,
    comm: Option<FieldReader>,
}

impl TaskFields {
    fn of(class: &RecordedClass, tid: &str, comm: &str) -> Option<TaskFields> {
        Some(TaskFields { tid: reader(class, tid)?, comm: reader(class, comm) })
    }

    #[inline(always)]
    fn read(&self, fields: &EventFields<'_, '_>) -> Option<TaskRef> {
        let tid = u32::try_from(fields.read_integer(&self.tid)?).ok()?;
        // Inlined, which a closure is not.
        let comm = match &self.comm {
            Some(comm) => fields.read_comm(comm),
            None => TaskComm::default(),
        };
        Some(TaskRef { tid, comm })
    }
}

/// Fields of a class that is decoded.
#[derive(Clone, Copy, Debug)]
enum EventPlan {
    Switch { prev: TaskFields, state: FieldReader, next: TaskFields },
    Wakeup { kind: WakeupKind, task: TaskFields, flags: Option<FieldReader> },
    Migrate { task: TaskFields, from: Option<FieldReader>, to: Option<FieldReader> },
    Runtime { task: TaskFields, runtime: FieldReader },
    Fork { parent: TaskFields, child: TaskFields },
    Exit { task: TaskFields },
}

impl EventPlan {
    fn of(class: &RecordedClass) -> Option<EventPlan> {
        let known = SCHED_EVENTS.into_iter().chain([EXIT_EVENT]);
        let name = known.into_iter().find(|name| class.is_named(name))?;
        let task = || TaskFields::of(class, "tid", "comm");
        let wakeup = |kind| {
            let flags = reader(class, "common_flags");
            Some(EventPlan::Wakeup { kind, task: task()?, flags })
        };
        match name {
            "sched:sched_switch" => Some(EventPlan::Switch {
                prev: TaskFields::of(class, "prev_tid", "prev_comm")?,
                state: reader(class, "prev_state")?,
                next: TaskFields::of(class, "next_tid", "next_comm")?,
            }),
            "sched:sched_waking" => wakeup(WakeupKind::Waking),
            "sched:sched_wakeup" => wakeup(WakeupKind::Wakeup),
            "sched:sched_wakeup_new" => wakeup(WakeupKind::New),
            "sched:sched_migrate_task" => Some(EventPlan::Migrate {
                task: task()?,
                from: reader(class, "orig_cpu"),
                to: reader(class, "dest_cpu"),
            }),
            "sched:sched_stat_runtime" => {
                Some(EventPlan::Runtime { task: task()?, runtime: reader(class, "runtime")? })
            }
            EXIT_EVENT => Some(EventPlan::Exit { task: task()? }),
            _ => Some(EventPlan::Fork {
                parent: TaskFields::of(class, "parent_tid", "parent_comm")?,
                child: TaskFields::of(class, "child_tid", "child_comm")?,
            }),
        }
    }

    #[inline(always)]
    fn decode(&self, event: &RecordedEvent<'_>) -> Option<SchedEvent> {
        let fields = event.fields();
        let cpu =
            |field: &Option<FieldReader>| u32::try_from(fields.read_integer(field.as_ref()?)?).ok();
        Some(match self {
            EventPlan::Switch { prev, state, next } => SchedEvent::Switch {
                prev: prev.read(&fields)?,
                state: SwitchOutState::from_kernel(fields.read_integer(state)?),
                next: next.read(&fields)?,
            },
            EventPlan::Wakeup { kind, task, flags } => SchedEvent::Wakeup {
                kind: *kind,
                task: task.read(&fields)?,
                context: flags.as_ref().map_or(WakeupContext::Unknown, |f| {
                    WakeupContext::from_flags(fields.read_integer(f))
                }),
            },
            EventPlan::Migrate { task, from, to } => {
                SchedEvent::Migrate { task: task.read(&fields)?, from: cpu(from), to: cpu(to) }
            }
            EventPlan::Runtime { task, runtime } => SchedEvent::Runtime {
                task: task.read(&fields)?,
                runtime: u64::try_from(fields.read_integer(runtime)?).ok()?,
            },
            EventPlan::Fork { parent, child } => {
                SchedEvent::Fork { parent: parent.read(&fields)?, child: child.read(&fields)? }
            }
            EventPlan::Exit { task } => SchedEvent::Exit { task: task.read(&fields)? },
        })
    }
}

/// Decodes events, class by class.
#[derive(Debug, Default)]
pub struct SchedDecoder {
    plans: LayoutMemo<Option<EventPlan>>,
    /// Events that lack a field, or end before it.
    pub malformed: u64,
}

impl EventDigester for SchedDecoder {
    /// CPU and event.
    type Digest = (Option<u32>, SchedEvent);

    #[inline(always)]
    fn digest(&mut self, event: &RecordedEvent<'_>) -> Option<Self::Digest> {
        Some((event.cpu(), self.decode(event)?))
    }
}

impl SchedDecoder {
    /// The event, if it is one of the scheduler's.
    #[inline(always)]
    pub fn decode(&mut self, event: &RecordedEvent<'_>) -> Option<SchedEvent> {
        let plan = self.plans.get_or_make(event.class, EventPlan::of)?.as_ref()?;
        let decoded = plan.decode(event);
        self.malformed += u64::from(decoded.is_none());
        decoded
    }
}
