//! Stacks put together piece by piece: tasks, events and stacks have one number each,
//! whichever recording they come from.

use rustc_hash::FxHashMap;

use super::plan::{StackPlan, TaskSplit};
use crate::stacks::{self, StackMoment, StackTask, Stacks};

/// Events that count one by one, whatever they are.
pub(super) const EVENTS: &str = "events";
/// Time in functions of the kernel's function-graph tracer.
pub(super) const FUNCTIONS: &str = "functions";

/// Stacks so far.
pub(super) struct StackBuilder {
    pub(super) made: Stacks,
    split: TaskSplit,
    moments: bool,
    /// Events of recordings that are already in it.
    complete: usize,
    tasks: FxHashMap<StackTask, u32>,
    stacks: FxHashMap<(u32, u32, Option<u32>), u32>,
    named_frames: FxHashMap<(String, bool), u32>,
}

impl StackBuilder {
    pub(super) fn new(plan: &StackPlan<'_>) -> StackBuilder {
        StackBuilder {
            made: Stacks::default(),
            split: plan.split,
            moments: plan.moments,
            complete: 0,
            tasks: FxHashMap::default(),
            stacks: FxHashMap::default(),
            named_frames: FxHashMap::default(),
        }
    }

    /// Another recording begins: its events may be those of the recordings before.
    pub(super) fn begin_recording(&mut self) {
        self.complete = self.made.events.len();
    }

    /// Number of an event of the recording.
    pub(super) fn event(&mut self, event: stacks::StackEvent) -> u32 {
        let is = |e: &stacks::StackEvent| e.name == event.name && e.unit == event.unit;
        let known = self.made.events.iter().take(self.complete).position(is);
        known.unwrap_or_else(|| {
            self.made.events.push(event);
            self.made.events.len() - 1
        }) as u32
    }

    /// Number of what stands for events that count one by one, or for time in functions.
    pub(super) fn shared_event(&mut self, name: &str, unit: &'static str) -> u32 {
        let is = |e: &stacks::StackEvent| e.name == name && e.unit == unit;
        let known = self.made.events.iter().position(is);
        known.unwrap_or_else(|| {
            let event = stacks::StackEvent { name: name.to_owned(), unit, period: 0 };
            self.made.events.push(event);
            self.made.events.len() - 1
        }) as u32
    }

    /// Number of the task that a sample is of, as far as tasks are distinguished.
    pub(super) fn task(&mut self, comm: impl FnOnce() -> String, pid: u32, tid: u32) -> u32 {
        let task = StackTask {
            comm: if self.split == TaskSplit::None { String::new() } else { comm() },
            pid: matches!(self.split, TaskSplit::Pid | TaskSplit::Tid).then_some(pid),
            tid: (self.split == TaskSplit::Tid).then_some(tid),
        };
        if let Some(known) = self.tasks.get(&task) {
            return *known;
        }
        let next = self.made.tasks.len() as u32;
        self.made.tasks.push(task.clone());
        self.tasks.insert(task, next);
        next
    }

    /// The frame that stands for events of a class.
    pub(super) fn event_frame(&mut self, name: &str) -> u32 {
        self.named_frame(name, false)
    }

    /// The frame of a function that has a name and nothing else.
    pub(super) fn named_frame(&mut self, name: &str, kernel: bool) -> u32 {
        let key = (name.to_owned(), kernel);
        if let Some(known) = self.named_frames.get(&key) {
            return *known;
        }
        let function = self.made.functions.len() as u32;
        let known = !name.starts_with('[');
        let named = stacks::Function { name: key.0.clone(), known, kernel, ..Default::default() };
        self.made.functions.push(named);
        let frame = self.made.frames.len() as u32;
        self.made.frames.push(stacks::StackFrame { function, addr: 0, line: 0, inlined: false });
        self.named_frames.insert(key, frame);
        frame
    }

    /// Number of a stack; one is made where it is new.
    pub(super) fn stack(&mut self, event: u32, task: u32, node: Option<u32>) -> u32 {
        let next = self.made.stacks.len() as u32;
        let number = *self.stacks.entry((event, task, node)).or_insert(next);
        if number == next {
            self.made.stacks.push(stacks::WeighedStack {
                task,
                event,
                node,
                samples: 0,
                weight: 0,
            });
        }
        number
    }

    /// Counts samples of a stack.
    pub(super) fn count(&mut self, stack: u32, samples: u64, weight: u64) {
        let Some(stack) = self.made.stacks.get_mut(stack as usize) else { return };
        stack.samples += samples;
        stack.weight = stack.weight.saturating_add(weight);
    }

    /// A sample in time, where these are wanted.
    pub(super) fn moment(&mut self, time: u64, stack: u32, weight: u64) {
        if self.moments {
            self.made.moments.push(StackMoment { time, stack, weight });
        }
    }

    /// Times that the result covers.
    pub(super) fn cover(&mut self, (from, to): (u64, u64)) {
        let (first, last) = self.made.span.get_or_insert((from, to));
        (*first, *last) = ((*first).min(from), (*last).max(to));
    }

    /// Returns the stacks, sorted by time.
    pub(super) fn finish(mut self) -> Stacks {
        self.made.moments.sort_by_key(|m| m.time);
        self.made
    }
}

/// Numbers of what is kept of a list, in the order in which it is asked for.
struct Kept<T> {
    numbers: FxHashMap<u32, u32>,
    items: Vec<T>,
}

impl<T> Kept<T> {
    fn new() -> Kept<T> {
        Kept { numbers: FxHashMap::default(), items: Vec::new() }
    }

    fn number(&mut self, old: u32, item: impl FnOnce() -> Option<T>) -> u32 {
        if let Some(known) = self.numbers.get(&old) {
            return *known;
        }
        let Some(item) = item() else {
            debug_assert!(false, "number {old} of a stack");
            return 0;
        };
        let next = self.items.len() as u32;
        self.items.push(item);
        self.numbers.insert(old, next);
        next
    }
}

/// Returns the number of samples of each event.
pub(super) fn samples_by_event(stacks: &Stacks) -> Vec<u64> {
    let mut samples = vec![0; stacks.events.len()];
    for s in &stacks.stacks {
        samples.get_mut(s.event as usize).into_iter().for_each(|n| *n += s.samples);
    }
    samples
}

/// Returns the stacks of one event, with only the functions, frames and tasks that they need.
pub(super) fn only_event(all: &Stacks, event: u32) -> Stacks {
    let (mut functions, mut frames, mut tasks) = (Kept::new(), Kept::new(), Kept::new());
    let mut stacks: Kept<stacks::WeighedStack> = Kept::new();
    let mut made = Stacks::default();
    made.binaries.clone_from(&all.binaries);
    made.events = all.events.get(event as usize).cloned().into_iter().collect();
    made.span = all.span;
    for (old, s) in (0u32..).zip(&all.stacks).filter(|(_, s)| s.event == event) {
        let mut path: Vec<u32> = all.outwards(s.node).collect();
        path.reverse();
        let mut node = None;
        for at in path {
            let Some((frame, _)) = all.place(at) else { continue };
            let function = all.functions.get(frame.function as usize);
            let function = functions.number(frame.function, || function.cloned());
            let old = all.nodes.get(at as usize).map_or(0, |n| n.frame);
            let frame = frames.number(old, || Some(stacks::StackFrame { function, ..*frame }));
            node = Some(made.node(node, frame));
        }
        let task = tasks.number(s.task, || all.tasks.get(s.task as usize).cloned());
        stacks.number(old, || Some(stacks::WeighedStack { task, event: 0, node, ..*s }));
    }
    let moments = all
        .moments
        .iter()
        .filter_map(|m| Some(StackMoment { stack: *stacks.numbers.get(&m.stack)?, ..*m }));
    made.moments = moments.collect();
    (made.functions, made.frames, made.tasks) = (functions.items, frames.items, tasks.items);
    made.stacks = stacks.items;
    made
}

#[cfg(test)]
mod tests {
    use super::super::plan::SampleWeight;
    use super::*;
    use kymo_events::EventSelection;

    fn plan(selection: &EventSelection) -> StackPlan<'_> {
        StackPlan {
            selection,
            binaries: &[],
            split: TaskSplit::Comm,
            weight: SampleWeight::Period,
            moments: true,
            addresses: false,
            inlines: false,
            one_event: true,
        }
    }

    #[test]
    fn what_only_other_events_need_is_left_out() {
        let selection = EventSelection::default();
        let mut builder = StackBuilder::new(&plan(&selection));
        builder.begin_recording();
        let (other, own) =
            (builder.shared_event(EVENTS, "count"), builder.shared_event(FUNCTIONS, "nanoseconds"));
        for (event, name, time, weight) in [(other, "a:b", 20, 1), (own, "f", 10, 700)] {
            let task = builder.task(|| name.to_uppercase(), 4, 4);
            let frame = builder.event_frame(name);
            let node = builder.made.node(None, frame);
            let stack = builder.stack(event, task, Some(node));
            builder.count(stack, 1, weight);
            builder.moment(time, stack, weight);
            builder.cover((time, time));
        }
        let all = builder.finish();
        assert!(all.moments.is_sorted_by_key(|m| m.time));
        assert_eq!((samples_by_event(&all), all.span), (vec![1, 1], Some((10, 20))));
        let one = only_event(&all, own);
        assert_eq!((one.events[0].name.as_str(), one.moments.len()), (FUNCTIONS, 1));
        assert_eq!((one.tasks.len(), one.tasks[0].comm.as_str()), (1, "F"));
        assert_eq!((one.functions.len(), one.functions[0].name.as_str()), (1, "f"));
        assert_eq!(
            (one.stacks[0].weight, one.moments[0].stack, one.span),
            (700, 0, Some((10, 20)))
        );
    }

    #[test]
    fn recordings_share_events_and_tasks_and_one_recording_keeps_its_events_apart() {
        let selection = EventSelection::default();
        let mut builder = StackBuilder::new(&plan(&selection));
        let clock =
            || stacks::StackEvent { name: "cpu-clock".into(), unit: "nanoseconds", period: 0 };
        builder.begin_recording();
        assert_eq!((builder.event(clock()), builder.event(clock())), (0, 1));
        builder.begin_recording();
        assert_eq!(builder.event(clock()), 0);
        let task = |b: &mut StackBuilder, pid| b.task(|| "x".into(), pid, pid);
        assert_eq!((task(&mut builder, 1), task(&mut builder, 2)), (0, 0));
    }
}
