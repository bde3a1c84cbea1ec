//! A resolved profile as [`Stacks`], the form that other formats are written from.

use kymo_analysis::profile::{EventProfile, FrameId, Frames, Profile, Stack, StackId};
use kymo_analysis::sample_filter::SampleFilter;
use kymo_files::perfdata::EventDesc;
use kymo_model::{AttrFlags, EventType};
use kymo_symbols::{DsoId, SymId, TextId};
use rustc_hash::FxHashMap;

use crate::stacks::{self, Moment, Stacks, Task};

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

impl TaskSplit {
    /// The task that a sample is of, as far as tasks are told apart.
    fn task(self, comm: impl FnOnce() -> String, pid: u32, tid: u32) -> Task {
        Task {
            comm: if self == TaskSplit::None { String::new() } else { comm() },
            pid: matches!(self, TaskSplit::Pid | TaskSplit::Tid).then_some(pid),
            tid: (self == TaskSplit::Tid).then_some(tid),
        }
    }
}

/// Numbers of tasks, in the order in which they came.
#[derive(Debug)]
pub struct TaskNumbers {
    split: TaskSplit,
    numbers: FxHashMap<Task, u32>,
}

impl TaskNumbers {
    /// No tasks yet.
    pub fn new(split: impl Into<TaskSplit>) -> TaskNumbers {
        TaskNumbers { split: split.into(), numbers: FxHashMap::default() }
    }

    /// The number of the task that a sample is of; a new one joins `tasks`.
    pub fn number(
        &mut self,
        tasks: &mut Vec<Task>,
        comm: impl FnOnce() -> String,
        pid: u32,
        tid: u32,
    ) -> u32 {
        let task = self.split.task(comm, pid, tid);
        if let Some(known) = self.numbers.get(&task) {
            return *known;
        }
        let next = tasks.len() as u32;
        tasks.push(task.clone());
        self.numbers.insert(task, next);
        next
    }
}

/// Weight of a sample or event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleWeight {
    /// What it stands for: nanoseconds of a clock, counts of an event.
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
            None if word(text) => Ok(field(None, text)),
            Some((event, name)) if word(event) && word(name) => Ok(field(Some(event), name)),
            _ => Err("not `period`, `samples`, or a field as FIELD or EVENT.FIELD".to_owned()),
        }
    }
}

/// Selection and form of the samples of a profile.
#[derive(Debug)]
pub struct StackPlan<'a> {
    /// Filter of samples.
    pub chosen: SampleFilter<'a>,
    /// By number of the event.
    pub events: Vec<bool>,
    /// Distinction of tasks.
    pub split: TaskSplit,
    /// Weight of samples.
    pub weight: SampleWeight,
    /// Samples one by one.
    pub moments: bool,
}

/// Stacks of a profile.
pub fn profile_stacks(profile: &Profile, plan: &StackPlan<'_>) -> Stacks {
    let mut making = StackBuilder {
        profile,
        plan,
        made: Stacks::default(),
        functions: FxHashMap::default(),
        frames: FxHashMap::default(),
        tasks: TaskNumbers::new(plan.split),
        stacks: FxHashMap::default(),
    };
    making.made.span = profile.span;
    making.binaries();
    for (event, _) in profile.events.iter().zip(&plan.events).filter(|(_, wanted)| **wanted) {
        making.event(event);
    }
    making.made
}

struct StackBuilder<'a> {
    profile: &'a Profile,
    plan: &'a StackPlan<'a>,
    made: Stacks,
    functions: FxHashMap<FunctionKey, u32>,
    frames: FxHashMap<FrameId, u32>,
    tasks: TaskNumbers,
    stacks: FxHashMap<(u32, u32, Option<u32>), u32>,
}

/// Identity of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FunctionKey {
    /// A symbol, or a copy inlined into it.
    Symbol(SymId, Option<TextId>),
    /// What has no symbol, by binary.
    Nameless(Option<DsoId>),
}

impl StackBuilder<'_> {
    fn binaries(&mut self) {
        let symbols = &self.profile.machine.symbols;
        let all = symbols.binaries_from(0).iter();
        self.made.binaries = all
            .map(|dso| stacks::Binary {
                path: dso.long_name.clone(),
                name: dso.short_name.clone(),
                build_id: dso.build_id.map(|id| id.to_string()),
            })
            .collect();
    }

    fn event(&mut self, event: &EventProfile) {
        self.made.events.push(describe(&event.desc, &self.plan.weight));
        if !self.plan.moments {
            for (stack, frames) in event.stacks() {
                if self.plan.chosen.wants(self.profile, &stack) {
                    let number = self.stack(&stack, frames);
                    self.count(number, stack.samples, stack.period);
                }
            }
            return;
        }
        let mut known: FxHashMap<StackId, Option<u32>> = FxHashMap::default();
        for moment in event.moments() {
            let number = match known.get(&moment.stack) {
                Some(known) => *known,
                None => {
                    let stack = event.stack(moment.stack);
                    let wanted = stack.filter(|(s, _)| self.plan.chosen.wants(self.profile, s));
                    let number = wanted.map(|(s, frames)| self.stack(&s, frames));
                    known.insert(moment.stack, number);
                    number
                }
            };
            let Some(stack) = number else { continue };
            self.count(stack, 1, moment.period);
            let weight = match self.plan.weight {
                SampleWeight::Period => moment.period,
                _ => 1,
            };
            self.made.moments.push(Moment { time: moment.time, stack, weight });
        }
    }

    fn count(&mut self, stack: u32, samples: u64, period: u64) {
        let Some(stack) = self.made.stacks.get_mut(stack as usize) else { return };
        stack.samples += samples;
        stack.weight = stack.weight.saturating_add(match self.plan.weight {
            SampleWeight::Period => period,
            _ => samples,
        });
    }

    /// The number of a stack; one is made where it is new.
    fn stack(&mut self, stack: &Stack, frames: Frames<'_>) -> u32 {
        let task = self.task(stack);
        let mut node = None;
        for frame in frames.iter().rev() {
            let frame = self.frame(frame);
            node = Some(self.made.node(node, frame));
        }
        if frames.is_empty() {
            let frame = self.frame(stack.leaf);
            node = Some(self.made.node(None, frame));
        }
        let event = self.made.events.len() as u32 - 1;
        let next = self.made.stacks.len() as u32;
        let number = *self.stacks.entry((event, task, node)).or_insert(next);
        if number == next {
            self.made.stacks.push(stacks::Stack { task, event, node, samples: 0, weight: 0 });
        }
        number
    }

    fn task(&mut self, stack: &Stack) -> u32 {
        let comm = || self.profile.machine.comm(stack.comm).to_string();
        self.tasks.number(&mut self.made.tasks, comm, stack.pid, stack.tid)
    }

    fn frame(&mut self, id: FrameId) -> u32 {
        if let Some(known) = self.frames.get(&id) {
            return *known;
        }
        let frame = self.profile.frame(id);
        let named = match frame.symbol {
            Some(symbol) => FunctionKey::Symbol(symbol, frame.inlined),
            None => FunctionKey::Nameless(frame.dso),
        };
        let next = self.made.functions.len() as u32;
        let function = *self.functions.entry(named).or_insert(next);
        if function == next {
            let symbols = &self.profile.machine.symbols;
            let name = match (self.profile.function(id), frame.dso) {
                (Some(name), _) => name.to_string(),
                (None, None) => "[unknown]".to_string(),
                (None, dso) => match symbols.dso_name(dso) {
                    bracketed if bracketed.starts_with('[') => bracketed.to_string(),
                    name => format!("[{name}]"),
                },
            };
            self.made.functions.push(stacks::Function {
                name,
                known: frame.symbol.is_some(),
                binary: frame.dso.map(|d| d.0),
                file: frame.line.map(|at| self.profile.sources.file(at.file).to_string()),
                kernel: frame.kernel,
            });
        }
        let number = self.made.frames.len() as u32;
        self.made.frames.push(stacks::Frame {
            function,
            addr: frame.addr,
            line: frame.line.map_or(0, |at| at.line),
            inlined: frame.inlined.is_some(),
        });
        self.frames.insert(id, number);
        number
    }
}

fn describe(desc: &EventDesc, weight: &SampleWeight) -> stacks::Event {
    // Numbers of PERF_COUNT_SW_CPU_CLOCK and PERF_COUNT_SW_TASK_CLOCK.
    let clock = desc.attr.kind == EventType::SOFTWARE && desc.attr.config <= 1;
    let unit = match weight {
        SampleWeight::Period if clock => "nanoseconds",
        _ => "count",
    };
    let period = match desc.attr.flags.contains(AttrFlags::FREQ) {
        true => 0,
        false => desc.attr.sample_period,
    };
    stacks::Event { name: desc.name.clone(), unit, period }
}
