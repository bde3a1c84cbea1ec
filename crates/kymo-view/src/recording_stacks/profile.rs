//! Samples of a resolved profile as stacks.

use kymo_analysis::binary_filter::BinaryFilter;
use kymo_analysis::payload_weights::PayloadWeights;
use kymo_analysis::profile::{EventProfile, FrameId, Frames, Profile, Stack, StackId};
use kymo_files::perfdata::EventDesc;
use kymo_model::{AttrFlags, EventType, SampleType};
use kymo_symbols::{DsoId, SymId, TextId};
use rustc_hash::FxHashMap;

use super::builder::{EVENTS, StackBuilder};
use super::plan::{SampleWeight, StackPlan};
use crate::stacks;

/// A profile on its way into a result.
pub(super) struct ProfilePart<'a> {
    pub(super) profile: &'a Profile,
    pub(super) plan: &'a StackPlan<'a>,
    /// Weights by label, where a field weighs.
    pub(super) weights: Option<&'a PayloadWeights<'a>>,
    /// Time on CPU and sum of periods of each thread, where time on CPU is the weight.
    pub(super) running: Option<&'a RunningShares>,
}

/// By thread: nanoseconds on a CPU, and the sum of periods that stand for them.
pub(super) type RunningShares = FxHashMap<u32, (u64, u64)>;

/// Adds the stacks of a profile.
pub(super) fn add_profile(part: &ProfilePart<'_>, builder: &mut StackBuilder) {
    let first_binary = builder.made.binaries.len() as u32;
    let symbols = &part.profile.machine.symbols;
    let all = symbols.binaries_from(0).iter();
    builder.made.binaries.extend(all.map(|dso| stacks::StackBinary {
        path: dso.long_name.clone(),
        name: dso.short_name.clone(),
        build_id: dso.build_id.map(|id| id.to_string()),
    }));
    if let Some(span) = part.profile.span {
        builder.cover(span);
    }
    let mut adding = ProfileStacks {
        part,
        builder,
        first_binary,
        functions: FxHashMap::default(),
        frames: FxHashMap::default(),
    };
    let selection = part.plan.selection;
    let sampled = part.running.map(|_| time_event(part.profile));
    for event in &part.profile.events {
        if sampled.is_some_and(|sampled| sampled.is_none_or(|s| !std::ptr::eq(s, event))) {
            continue;
        }
        let name = event.desc.name.as_str();
        // A name without modifiers was decided by sample.
        if event.samples > 0 || selection.wants_event(&[name]) {
            adding.event(event);
        }
    }
}

/// The event whose samples stand for time on a CPU: the first one that is no tracepoint.
pub(super) fn time_event(profile: &Profile) -> Option<&EventProfile> {
    profile.events.iter().find(|e| e.samples > 0 && e.desc.attr.kind != EventType::TRACEPOINT)
}

struct ProfileStacks<'a> {
    part: &'a ProfilePart<'a>,
    builder: &'a mut StackBuilder,
    /// Number of the profile's first binary.
    first_binary: u32,
    functions: FxHashMap<FunctionKey, u32>,
    frames: FxHashMap<FrameId, u32>,
}

/// Target of an event's samples.
#[derive(Clone, Copy)]
struct EventSlot {
    event: u32,
    /// Frame of the event, if its samples count one each.
    frame: Option<u32>,
    /// Callers that the kernel recorded at most; with that many, more are missing.
    most: usize,
}

/// Identity of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FunctionKey {
    /// A symbol, or a copy inlined into it.
    Symbol(SymId, Option<TextId>),
    /// Code without a symbol, by binary.
    Nameless(Option<DsoId>),
}

impl ProfileStacks<'_> {
    /// Tracepoints count one by one, as they do in recordings of other formats; of those whose
    /// samples stand for something else, a time perhaps, the weights are their own.
    fn slot(&mut self, event: &EventProfile) -> EventSlot {
        let weight = &self.part.plan.weight;
        let attr = &event.desc.attr;
        let most = match attr.sample_max_stack {
            // What was unwound afterwards has no such end.
            _ if attr.sample_type.contains(SampleType::STACK_USER) => usize::MAX,
            0 => 127,
            most => usize::from(most),
        };
        if let Some(part) = weight.time_part() {
            let event = self.builder.shared_event(part.name(), "nanoseconds");
            return EventSlot { event, frame: None, most };
        }
        let counts_one = *weight != SampleWeight::Period || event.period == event.samples;
        if event.desc.attr.kind == EventType::TRACEPOINT && counts_one {
            return EventSlot {
                event: self.builder.shared_event(EVENTS, weight.unit()),
                frame: Some(self.builder.event_frame(&event.desc.name)),
                most,
            };
        }
        EventSlot { event: self.builder.event(describe(&event.desc, weight)), frame: None, most }
    }

    fn event(&mut self, event: &EventProfile) {
        let slot = self.slot(event);
        if !self.part.plan.moments {
            for (stack, frames) in event.stacks() {
                if let Some(weight) = self.weight(&stack, stack.samples, stack.period) {
                    let number = self.stack(slot, &stack, frames);
                    self.builder.count(number, stack.samples, weight);
                }
            }
            return;
        }
        let mut known: FxHashMap<StackId, Option<(Stack, u32)>> = FxHashMap::default();
        for moment in event.moments() {
            let stack = match known.get(&moment.stack) {
                Some(known) => *known,
                None => {
                    let stack = event.stack(moment.stack);
                    let wanted = stack.filter(|(s, _)| self.weight(s, 1, 1).is_some());
                    let numbered = wanted.map(|(s, frames)| (s, self.stack(slot, &s, frames)));
                    known.insert(moment.stack, numbered);
                    numbered
                }
            };
            let Some((stack, number)) = stack else { continue };
            let weight = self.weight(&stack, 1, moment.period).unwrap_or(0);
            self.builder.count(number, 1, weight);
            self.builder.moment(moment.time, number, weight);
        }
    }

    /// Weight of the samples of a stack; `None` if they do not count.
    fn weight(&self, stack: &Stack, samples: u64, period: u64) -> Option<u64> {
        let ProfilePart { profile, plan, weights, running } = self.part;
        let weight = match (&plan.weight, weights) {
            (SampleWeight::Period, _) => period,
            (SampleWeight::Time(_), _) => {
                let (running, total) = *running.as_ref()?.get(&stack.tid)?;
                let share = u128::from(period) * u128::from(running);
                u64::try_from(share / u128::from(total.max(1))).unwrap_or(u64::MAX)
            }
            (_, Some(weights)) => weights.weight(stack.label)?.saturating_mul(samples),
            (_, None) => samples,
        };
        BinaryFilter(plan.binaries).wants(profile, stack).then_some(weight)
    }

    /// The number of a stack; one is made where it is new.
    fn stack(&mut self, slot: EventSlot, stack: &Stack, frames: Frames<'_>) -> u32 {
        let profile = self.part.profile;
        let comm = || profile.machine.comm(stack.comm).to_string();
        let task = self.builder.task(comm, stack.pid, stack.tid);
        let mut node = None;
        let is_call = |frame: &FrameId| profile.frame(*frame).inlined.is_none();
        if frames.iter().filter(is_call).count() >= slot.most {
            let cut = self.builder.named_frame("[stack cut]", false);
            node = Some(self.builder.made.node(None, cut));
        }
        for frame in frames.iter().rev() {
            let frame = self.frame(frame);
            node = Some(self.builder.made.node(node, frame));
        }
        // Where a tracepoint was hit is worth a frame only if something is there.
        let leaf = profile.frame(stack.leaf);
        if frames.is_empty() && (slot.frame.is_none() || leaf.dso.is_some()) {
            let frame = self.frame(stack.leaf);
            node = Some(self.builder.made.node(None, frame));
        }
        if let Some(frame) = slot.frame {
            node = Some(self.builder.made.node(node, frame));
        }
        self.builder.stack(slot.event, task, node)
    }

    fn frame(&mut self, id: FrameId) -> u32 {
        if let Some(known) = self.frames.get(&id) {
            return *known;
        }
        let frame = self.part.profile.frame(id);
        let named = match frame.symbol {
            Some(symbol) => FunctionKey::Symbol(symbol, frame.inlined),
            None => FunctionKey::Nameless(frame.dso),
        };
        let next = self.builder.made.functions.len() as u32;
        let function = *self.functions.entry(named).or_insert(next);
        if function == next {
            let symbols = &self.part.profile.machine.symbols;
            let name = match (self.part.profile.function(id), frame.dso) {
                (Some(name), _) => name.to_string(),
                (None, None) => "[unknown]".to_string(),
                (None, dso) => match symbols.dso_name(dso) {
                    bracketed if bracketed.starts_with('[') => bracketed.to_string(),
                    name => format!("[{name}]"),
                },
            };
            self.builder.made.functions.push(stacks::Function {
                name,
                known: frame.symbol.is_some(),
                binary: frame.dso.map(|d| self.first_binary + d.0),
                file: frame.line.map(|at| self.part.profile.sources.file(at.file).to_string()),
                kernel: frame.kernel,
            });
        }
        let number = self.builder.made.frames.len() as u32;
        self.builder.made.frames.push(stacks::StackFrame {
            function,
            addr: frame.addr,
            line: frame.line.map_or(0, |at| at.line),
            inlined: frame.inlined.is_some(),
        });
        self.frames.insert(id, number);
        number
    }
}

fn describe(desc: &EventDesc, weight: &SampleWeight) -> stacks::StackEvent {
    // Numbers of PERF_COUNT_SW_CPU_CLOCK and PERF_COUNT_SW_TASK_CLOCK.
    let clock = desc.attr.kind == EventType::SOFTWARE && desc.attr.config <= 1;
    let unit = match weight {
        SampleWeight::Period if clock => "nanoseconds",
        _ => "count",
    };
    // Of an event with a frequency the field holds that; a clock's period follows from it.
    let period = match desc.attr.flags.contains(AttrFlags::FREQ) {
        true if clock => 1_000_000_000_u64.checked_div(desc.attr.sample_period).unwrap_or(0),
        true => 0,
        false => desc.attr.sample_period,
    };
    stacks::StackEvent { name: desc.name.clone(), unit, period }
}
