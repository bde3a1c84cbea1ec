//! Events of interrupts, softirqs and work items as one enumeration. Which fields an event class
//! has is resolved once for each layout.

use std::borrow::Cow;
use std::str::FromStr;

use kymo_events::{FieldId, LayoutId, LayoutMemo, RecordedClass, RecordedEvent};

use kymo_format::print_argument::FlagNames;

/// Kind of a work item: interrupt, softirq or workqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KworkKind {
    /// Handler of an interrupt.
    Irq,
    /// Softirq.
    Softirq,
    /// Item of a workqueue.
    Workqueue,
}

impl KworkKind {
    /// All of them, as perf orders them.
    pub const ALL: [KworkKind; 3] = [KworkKind::Irq, KworkKind::Softirq, KworkKind::Workqueue];

    /// perf's name of it.
    pub fn name(self) -> &'static str {
        match self {
            KworkKind::Irq => "irq",
            KworkKind::Softirq => "softirq",
            KworkKind::Workqueue => "workqueue",
        }
    }

    /// Its events: raised or activated, begun, ended.
    pub fn events(self) -> &'static [&'static str] {
        match self {
            KworkKind::Irq => &["irq:irq_handler_entry", "irq:irq_handler_exit"],
            KworkKind::Softirq => &["irq:softirq_raise", "irq:softirq_entry", "irq:softirq_exit"],
            KworkKind::Workqueue => &[
                "workqueue:workqueue_activate_work",
                "workqueue:workqueue_execute_start",
                "workqueue:workqueue_execute_end",
            ],
        }
    }
}

impl FromStr for KworkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<KworkKind, String> {
        let found = KworkKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            format!("unknown kind {text:?}; the kinds are irq, softirq and workqueue")
        })
    }
}

/// Part of a work item's life that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KworkPhase {
    /// It is asked for.
    Raise,
    /// It begins.
    Entry,
    /// It ends.
    Exit,
}

/// An event of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KworkEvent<'e> {
    /// Its kind.
    pub kind: KworkKind,
    /// Phase of the work item.
    pub phase: KworkPhase,
    /// Number of the interrupt or softirq, or address of the work item.
    pub id: u64,
    /// Address of a work item's function, where the event states it.
    pub function: Option<u64>,
    /// Name of an interrupt, where the event states it.
    pub name: Cow<'e, [u8]>,
}

#[derive(Clone, Copy, Debug)]
struct EventPlan {
    kind: KworkKind,
    phase: KworkPhase,
    id: FieldId,
    function: Option<FieldId>,
    name: Option<FieldId>,
}

impl EventPlan {
    fn of(class: &RecordedClass) -> Option<EventPlan> {
        let named = |kind: &KworkKind| kind.events().iter().copied().find(|n| class.is_named(n));
        let kind = KworkKind::ALL.into_iter().find(|kind| named(kind).is_some())?;
        let name = named(&kind)?;
        let phase = match name {
            "irq:softirq_raise" | "workqueue:workqueue_activate_work" => KworkPhase::Raise,
            _ if name.ends_with("_exit") || name.ends_with("_end") => KworkPhase::Exit,
            _ => KworkPhase::Entry,
        };
        let id = match kind {
            KworkKind::Irq => "irq",
            KworkKind::Softirq => "vec",
            KworkKind::Workqueue => "work",
        };
        let is = |other| kind == other;
        Some(EventPlan {
            kind,
            phase,
            id: class.field(id)?,
            function: class.field("function").filter(|_| is(KworkKind::Workqueue)),
            name: class.field("name").filter(|_| is(KworkKind::Irq)),
        })
    }
}

/// Decodes events, class by class.
#[derive(Debug, Default)]
pub struct KworkDecoder {
    plans: LayoutMemo<Option<EventPlan>>,
    /// Names of softirqs, by the print format of the kernel.
    pub softirq_names: FlagNames,
    /// Events that lack a field, or end before it.
    pub malformed: u64,
}

impl KworkDecoder {
    /// Whether events of a layout are of work items, if one came before.
    pub fn takes(&self, layout: LayoutId) -> Option<bool> {
        self.plans.get(layout).map(Option::is_some)
    }

    /// The event, if it is of a piece of work.
    #[inline]
    pub fn decode<'a>(&mut self, event: &'a RecordedEvent<'_>) -> Option<KworkEvent<'a>> {
        let plan = match self.plans.get(event.class.layout) {
            Some(plan) => *plan,
            None => self.learn(event.class),
        }?;
        let fields = event.fields();
        let Some(id) = fields.integer(plan.id) else {
            self.malformed += 1;
            return None;
        };
        Some(KworkEvent {
            kind: plan.kind,
            phase: plan.phase,
            id: id as u64,
            function: plan.function.and_then(|f| fields.integer(f)).map(|f| f as u64),
            name: plan.name.map_or(Cow::Borrowed(&[][..]), |name| fields.text(name)),
        })
    }

    #[cold]
    fn learn(&mut self, class: &RecordedClass) -> Option<EventPlan> {
        let plan = EventPlan::of(class);
        let is_softirq = plan.is_some_and(|p| p.kind == KworkKind::Softirq);
        if is_softirq && !self.softirq_names.is_known() {
            let format = class.print_format.as_deref().unwrap_or("");
            self.softirq_names = FlagNames::from_print_format(format, "action=", "vec");
        }
        self.plans.insert(class.layout, plan);
        plan
    }
}
