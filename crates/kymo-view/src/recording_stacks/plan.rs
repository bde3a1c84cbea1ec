//! Selection and form of stacks: which events, grouping of tasks, weights of events.

use kymo_analysis::payload_weights::WeightField;
use kymo_events::{ClassOrigin, EventSelection, FieldId, FieldType, RecordedClass};

/// Distinction of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskSplit {
    /// None: all samples together.
    None,
    /// By names.
    Comm,
    /// By processes.
    Pid,
    /// By threads.
    Tid,
}

/// Weight of a sample or event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleWeight {
    /// Period of the sample: nanoseconds of a clock, counts of an event.
    Period,
    /// One.
    Samples,
    /// The number in a field of the event.
    Field {
        /// Only of this event.
        event: Option<String>,
        /// The field's name.
        name: String,
    },
    /// The time of tasks, out of their switches.
    Time(TimePart),
}

/// Part of the time of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePart {
    /// On a CPU, by samples of it where there are any.
    On,
    /// Off the CPUs, by what was waited for, and where.
    Off,
    /// All of it.
    Wall,
}

impl TimePart {
    /// Name of what is weighed.
    pub(super) fn name(self) -> &'static str {
        match self {
            TimePart::On => "on-cpu",
            TimePart::Off => "off-cpu",
            TimePart::Wall => "wall",
        }
    }
}

impl SampleWeight {
    /// The part of the time of tasks that weighs, if it does.
    pub fn time_part(&self) -> Option<TimePart> {
        match self {
            SampleWeight::Time(part) => Some(*part),
            _ => None,
        }
    }

    /// The field that weighs, if one does.
    pub(super) fn field(&self) -> Option<WeightField<'_>> {
        match self {
            SampleWeight::Field { event, name } => {
                Some(WeightField { event: event.as_deref(), name })
            }
            _ => None,
        }
    }

    /// The field that weighs in a class: an integer, of the kernel's events an own one, of
    /// programs' a context, too.
    pub(super) fn field_of(&self, class: &RecordedClass) -> Option<FieldId> {
        let wanted = self.field()?;
        let id =
            class.field(wanted.name).filter(|_| wanted.event.is_none_or(|e| class.is_named(e)));
        let desc = class.field_desc(id?)?;
        let is_number =
            matches!(desc.field_type, FieldType::Integer { .. } | FieldType::Enumeration);
        let is_own = !desc.common || class.origin == ClassOrigin::Program;
        id.filter(|_| is_number && is_own)
    }

    /// Unit of events that count one by one.
    pub(super) fn unit(&self) -> &'static str {
        match self.field() {
            Some(field) if field.name.contains("bytes") => "bytes",
            _ => "count",
        }
    }
}

impl std::str::FromStr for SampleWeight {
    type Err = String;

    fn from_str(text: &str) -> Result<SampleWeight, String> {
        let word =
            |t: &str| !t.is_empty() && t.chars().all(|c| c.is_alphanumeric() || "_:-".contains(c));
        let field = |event: Option<&str>, name: &str| SampleWeight::Field {
            event: event.map(str::to_owned),
            name: name.to_owned(),
        };
        match text.split_once('.') {
            None if text == "period" => Ok(SampleWeight::Period),
            None if text == "samples" => Ok(SampleWeight::Samples),
            None if text == "on" => Ok(SampleWeight::Time(TimePart::On)),
            None if text == "off" => Ok(SampleWeight::Time(TimePart::Off)),
            None if text == "wall" => Ok(SampleWeight::Time(TimePart::Wall)),
            None if word(text) => Ok(field(None, text)),
            Some((event, name)) if word(event) && word(name) => Ok(field(Some(event), name)),
            _ => Err(
                "not `period`, `samples`, `on`, `off`, `wall`, or a field as FIELD or EVENT.FIELD"
                    .to_owned(),
            ),
        }
    }
}

/// Selection and form of the stacks of recordings.
#[derive(Debug)]
pub struct StackPlan<'a> {
    /// Selection of events.
    pub selection: &'a EventSelection,
    /// Short names of binaries that samples are in; all where there are none.
    pub binaries: &'a [String],
    /// Distinction of tasks.
    pub split: TaskSplit,
    /// Weight of samples.
    pub weight: SampleWeight,
    /// Samples one by one.
    pub moments: bool,
    /// Addresses are distinguished.
    pub addresses: bool,
    /// Functions that were inlined into others are frames of their own, and lines are shown.
    pub inlines: bool,
    /// Weights of one event only: they cannot be added up.
    pub one_event: bool,
}
