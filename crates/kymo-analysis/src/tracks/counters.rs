//! Numbers over time: the fields of programs' tracepoints, frequencies of CPUs, memory of
//! processes (`kmem:rss_stat`).

use kymo_events::{
    ClassOrigin, FieldId, FieldPart, FieldRole, FieldType, FieldValue, LayoutId, LayoutMemo,
    RecordedClass, RecordedEvent,
};
use rustc_hash::FxHashMap;

use super::packed::Columns;
use super::program_spans::pair_name;

/// Most counters that are distinguished.
const MOST_COUNTERS: usize = 1024;
/// Values that are kept in all.
const MOST_VALUES: u64 = 1 << 22;
/// Numbers up to here are exact in the script that draws them.
const MOST_EXACT: i128 = 1 << 53;

/// Owner of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterOwner {
    /// A CPU.
    Cpu(u32),
    /// A process.
    Process(u32),
}

/// One number over time.
#[derive(Clone, Debug)]
pub struct CounterTrack {
    /// Class and field.
    pub name: String,
    /// Owner of the counter.
    pub owner: CounterOwner,
    /// The bits of values are those of an `f32`.
    pub is_float: bool,
    /// For each value: time since the one before, and the value: the difference to the one
    /// before (zigzag), or the bits of a float.
    pub columns: Columns<2>,
    /// Number of values.
    pub count: u64,
    /// End time of its process.
    pub end: Option<u64>,
    before: (u64, i64),
}

/// A field that counts.
#[derive(Clone, Debug)]
struct CountedField {
    id: FieldId,
    name: String,
    is_float: bool,
}

/// A value of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CounterValue {
    Integer(i64),
    Float(f32),
    /// An integer that the script that draws it has no digits for.
    Inexact,
}

impl CounterValue {
    fn of_integer(value: i128) -> CounterValue {
        match i64::try_from(value) {
            Ok(number) if value.abs() <= MOST_EXACT => CounterValue::Integer(number),
            _ => CounterValue::Inexact,
        }
    }
}

/// Fields of a class.
#[derive(Clone, Debug)]
enum CounterPlan {
    /// It has none that count.
    Nothing,
    Program(Vec<CountedField>),
    /// Frequency and CPU.
    Frequency([FieldId; 2]),
    /// Whether it is the memory of the task itself, kind, bytes.
    Memory([FieldId; 3]),
}

/// All counters while they are read.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) tracks: Vec<CounterTrack>,
    /// Values that are left out.
    pub(super) left_out: u64,
    plans: LayoutMemo<CounterPlan>,
    numbers: FxHashMap<(u32, u32, CounterOwner), usize>,
    values: u64,
}

impl Counters {
    /// Whether events of a layout have a number that counts, if one came before.
    pub(super) fn takes(&self, layout: LayoutId) -> Option<bool> {
        self.plans.get(layout).map(|plan| !matches!(plan, CounterPlan::Nothing))
    }

    /// Takes an event of a process.
    pub(super) fn event(&mut self, event: &RecordedEvent<'_>, now: u64, pid: Option<u32>) {
        let make = |class: &RecordedClass| plan(class).unwrap_or(CounterPlan::Nothing);
        let Some(plan) = self.plans.get_or_make(event.class, make) else { return };
        let key = event.class.layout.0;
        let number = |id: FieldId| event.field(id).number();
        let mut found: Vec<(u32, CounterOwner, String, CounterValue)> = Vec::new();
        let class = &event.class.full_name;
        match (plan, pid.map(CounterOwner::Process)) {
            (CounterPlan::Program(fields), Some(owner)) => {
                for (n, field) in (0..).zip(fields) {
                    let known = self.numbers.contains_key(&(key, n, owner));
                    let name = || format!("{class} {}", field.name);
                    let name = if known { String::new() } else { name() };
                    let value = match event.field(field.id) {
                        FieldValue::Float(v) if field.is_float => CounterValue::Float(v as f32),
                        value => match value.number() {
                            Some(v) if !field.is_float => CounterValue::of_integer(v),
                            _ => continue,
                        },
                    };
                    found.push((n, owner, name, value));
                }
            }
            (CounterPlan::Frequency([state, cpu]), _) => {
                if let (Some(state), Some(cpu)) = (number(*state), number(*cpu)) {
                    let owner = CounterOwner::Cpu(cpu.clamp(0, i128::from(u32::MAX)) as u32);
                    let value = CounterValue::of_integer(state);
                    found.push((0, owner, "frequency, kHz".into(), value));
                }
            }
            (CounterPlan::Memory([own, kind, size]), Some(owner)) => {
                if let (Some(1), Some(kind), Some(size)) =
                    (number(*own), number(*kind), number(*size))
                {
                    // The order of the kernel's MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES.
                    let names = ["file", "anonymous", "swap", "shared"];
                    if let Some(name) = names.get(usize::try_from(kind).unwrap_or(9)) {
                        let name = format!("{name} memory, bytes");
                        found.push((kind as u32, owner, name, CounterValue::of_integer(size)));
                    }
                }
            }
            _ => {}
        }
        for (field, owner, name, value) in found {
            self.push((key, field, owner), name, now, value);
        }
    }

    fn push(&mut self, key: (u32, u32, CounterOwner), name: String, now: u64, value: CounterValue) {
        let at = match self.numbers.get(&key) {
            Some(at) => *at,
            None if self.tracks.len() >= MOST_COUNTERS => {
                self.left_out += 1;
                return;
            }
            None => {
                let is_float = matches!(value, CounterValue::Float(_));
                let (columns, owner) = (Columns::default(), key.2);
                self.tracks.push(CounterTrack {
                    name,
                    owner,
                    is_float,
                    columns,
                    count: 0,
                    end: None,
                    before: (0, 0),
                });
                self.numbers.insert(key, self.tracks.len() - 1);
                self.tracks.len() - 1
            }
        };
        if self.values >= MOST_VALUES || value == CounterValue::Inexact {
            self.left_out += 1;
            return;
        }
        let Some(track) = self.tracks.get_mut(at) else { return };
        self.values += 1;
        let now = now.max(track.before.0);
        let passed = now - track.before.0;
        track.before.0 = now;
        let number = match value {
            CounterValue::Float(v) => v.to_bits().into(),
            CounterValue::Integer(v) => {
                let step = v - track.before.1;
                track.before.1 = v;
                ((step << 1) ^ (step >> 63)) as u64
            }
            CounterValue::Inexact => return,
        };
        track.columns.push([passed, number]);
        track.count += 1;
    }
}

impl CounterTrack {
    /// Notes the last end of threads by thread number.
    pub(super) fn set_end(&mut self, exits: &FxHashMap<u32, u64>) {
        if let CounterOwner::Process(pid) = self.owner {
            self.end = exits.get(&pid).copied().filter(|end| *end >= self.before.0);
        }
    }
}

fn plan(class: &RecordedClass) -> Option<CounterPlan> {
    let field = |name: &str| class.field(name);
    if class.is_named("power:cpu_frequency") {
        return Some(CounterPlan::Frequency([field("state")?, field("cpu_id")?]));
    }
    if class.is_named("kmem:rss_stat") {
        return Some(CounterPlan::Memory([field("curr")?, field("member")?, field("size")?]));
    }
    let fields = counted_fields(class)?.into_iter();
    let fields = fields.map(|(id, name, is_float)| CountedField { id, name, is_float });
    Some(CounterPlan::Program(fields.collect()))
}

/// Fields of a program's class that count, with their names and whether they are floating-point
/// numbers; `None` of other classes.
pub fn counted_fields(class: &RecordedClass) -> Option<Vec<(FieldId, String, bool)>> {
    // Numbers of pairs distinguish spans.
    if class.origin != ClassOrigin::Program || pair_name(&class.full_name).is_some() {
        return None;
    }
    let own = (0u32..).zip(&class.fields);
    let own = own.filter(|(_, f)| !f.common && f.part == FieldPart::Own && f.labels.is_none());
    let fields = own.filter_map(|(id, f)| {
        let is_float = f.field_type == FieldType::Float;
        let counts = is_float || matches!(f.field_type, FieldType::Integer { .. });
        let is_plain = matches!(f.role, FieldRole::Plain | FieldRole::Size | FieldRole::Duration);
        (counts && is_plain).then(|| (FieldId(id), f.name.clone(), is_float))
    });
    Some(fields.collect())
}
