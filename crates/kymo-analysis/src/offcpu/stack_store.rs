//! Stacks of events, each once: functions by name, chains as paths of one tree.

use kymo_events::RecordedEvent;
use kymo_model::Misc;
use kymo_symbols::{DsoId, SymId};
use rustc_hash::FxHashMap;

use super::cause::{OffCpuCause, StackFacts, ThrottleEvidence};
use crate::chain_tree::{ChainTree, NodeId};
use crate::profile::FrameId;
use crate::tasks::{SwitchOutState, WakeupContext};

/// Number of a stack: its innermost frame's node.
pub type StackNode = NodeId;

/// Frames of all stacks together; events whose stacks need more have none.
const MAX_NODES: usize = 1 << 20;
/// Names of functions, likewise.
const MAX_FRAMES: usize = 1 << 18;
/// Frames of a stack.
const MAX_DEPTH: usize = 512;

/// Role of a stack, which determines the functions that all stacks of the role share and that are
/// left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackRole {
    /// A task leaves its CPU: the scheduler.
    Sleeper,
    /// A task wakes another one: the wake-up.
    Waker,
    /// An interrupt wakes a task: the wake-up, and what the interrupt came upon.
    Interrupt,
    /// Any other event: none.
    Event,
}

impl StackRole {
    /// Functions up to which frames are left out, if one of the first has such a name.
    fn cuts(self) -> &'static [&'static str] {
        match self {
            StackRole::Sleeper => &["__schedule"],
            StackRole::Waker | StackRole::Interrupt => &["try_to_wake_up", "wake_up_new_task"],
            StackRole::Event => &[],
        }
    }
}

/// Functions that call the scheduler and say nothing.
const SCHEDULE: [&str; 4] =
    ["schedule", "preempt_schedule", "preempt_schedule_irq", "preempt_schedule_common"];

#[derive(Clone, Debug)]
struct StackFrame {
    name: String,
    kernel: bool,
    cause: Option<OffCpuCause>,
}

/// Key of a function that has no name yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum FrameKey {
    Symbol(SymId),
    Binary(Option<DsoId>),
    Address(u64),
}

/// The stacks.
#[derive(Debug, Default)]
pub struct StackStore {
    tree: ChainTree,
    frames: Vec<StackFrame>,
    /// By recording, side and function.
    by_key: FxHashMap<(usize, bool, FrameKey), u32>,
    by_name: FxHashMap<(String, bool), u32>,
    /// Frames of the event at hand, innermost first.
    path: Vec<u32>,
    /// Stacks by the kernel's part of the call chain, of each recording.
    by_kernel_chain: Vec<KernelStacks>,
    /// Events that have no stack because there is no room for it.
    pub left_out: u64,
}

/// Stacks by the kernel's part of the call chain, as it was recorded.
#[derive(Debug, Default)]
struct KernelStacks {
    known: FxHashMap<Box<[u8]>, Option<StackNode>>,
    /// Number of the kernel's state that they are of.
    generation: u64,
}

impl StackStore {
    /// The stack of an event; none where it has none.
    pub fn add(&mut self, event: &RecordedEvent<'_>, role: StackRole) -> Option<StackNode> {
        self.path.clear();
        if self.tree.len() >= MAX_NODES || self.frames.len() >= MAX_FRAMES {
            self.left_out += 1;
            return None;
        }
        let chain = event.call_chain();
        if chain.is_empty() {
            let stack = event.stack();
            for (addresses, kernel) in [(&stack.kernel, true), (&stack.user, false)] {
                for addr in addresses.iter().take(MAX_DEPTH) {
                    let frame = self.named_by_event(event, *addr, kernel);
                    self.path.push(frame);
                }
            }
        }
        let known = [Misc::KERNEL, Misc::USER];
        for frame in chain.iter().filter(|f| known.contains(&f.address.mode)).take(MAX_DEPTH) {
            let kernel = frame.address.mode == Misc::KERNEL;
            let key = match frame.shown.symbol {
                Some(symbol) => FrameKey::Symbol(symbol),
                None => FrameKey::Binary(frame.shown.dso),
            };
            let number = self.frame((event.class.recording, kernel, key), || {
                let mut name = String::new();
                event.with_symbols(&mut |symbols| {
                    name = match frame.shown.symbol {
                        Some(symbol) => symbols.name(symbol).to_owned(),
                        None => bracketed(symbols.dso_name(frame.shown.dso)),
                    };
                });
                name
            });
            self.path.push(number);
        }
        self.cut(role);
        if self.path.is_empty() {
            return None;
        }
        let trunk = self.tree.trunk(0);
        let chain = self.path.iter().rev().map(|f| FrameId(*f));
        Some(self.tree.add(trunk, chain, 0))
    }

    /// The stack of a blocked thread by the names of its functions of the kernel, innermost first;
    /// none without any.
    pub(crate) fn add_functions(&mut self, names: &[String]) -> Option<StackNode> {
        self.path.clear();
        if self.tree.len() >= MAX_NODES || self.frames.len() >= MAX_FRAMES {
            self.left_out += 1;
            return None;
        }
        for name in names.iter().take(MAX_DEPTH) {
            let frame = self.name(name, true);
            self.path.push(frame);
        }
        self.cut(StackRole::Sleeper);
        if self.path.is_empty() {
            return None;
        }
        let trunk = self.tree.trunk(0);
        let chain = self.path.iter().rev().map(|f| FrameId(*f));
        Some(self.tree.add(trunk, chain, 0))
    }

    /// A stack in which a task leaves its CPU, whose frames of the kernel are the event's; of the
    /// program's there may be those of another event.
    pub(crate) fn kernel_stack(&mut self, event: &RecordedEvent<'_>) -> Option<StackNode> {
        const MOST_CHAINS: usize = 1 << 14;
        let Some((words, generation)) = event.kernel_chain() else {
            return self.add(event, StackRole::Sleeper);
        };
        let recording = event.class.recording;
        if self.by_kernel_chain.len() <= recording {
            self.by_kernel_chain.resize_with(recording + 1, KernelStacks::default);
        }
        if let Some(stacks) = self.by_kernel_chain.get_mut(recording) {
            if stacks.generation != generation || stacks.known.len() >= MOST_CHAINS {
                *stacks = KernelStacks { generation, ..KernelStacks::default() };
            }
            if let Some(known) = stacks.known.get(words) {
                return *known;
            }
        }
        let stack = self.add(event, StackRole::Sleeper);
        if let Some(stacks) = self.by_kernel_chain.get_mut(recording) {
            stacks.known.insert(words.into(), stack);
        }
        stack
    }

    /// Leaves out the frames that say nothing.
    fn cut(&mut self, role: StackRole) {
        let name = |f: &u32| self.frames.get(*f as usize).map_or("", |f| &f.name);
        if role == StackRole::Interrupt {
            let is_kernel = |f: &u32| self.frames.get(*f as usize).is_some_and(|f| f.kernel);
            let enters = |f: &u32| name(f).starts_with("asm_");
            let entry = self.path.iter().position(enters).map(|at| at + 1);
            let end = entry.or_else(|| self.path.iter().position(|f| !is_kernel(f)));
            self.path.truncate(end.unwrap_or(usize::MAX));
        }
        let name = |f: &u32| self.frames.get(*f as usize).map_or("", |f| &f.name);
        let cut = |f: &u32| role.cuts().contains(&name(f));
        let Some(at) = self.path.iter().take(8).position(cut) else { return };
        let calls = |f: &&u32| role == StackRole::Sleeper && SCHEDULE.contains(&name(f));
        let more = self.path.iter().skip(at + 1).take_while(calls).count();
        self.path.drain(..at + 1 + more);
    }

    fn named_by_event(&mut self, event: &RecordedEvent<'_>, addr: u64, kernel: bool) -> u32 {
        self.frame((event.class.recording, kernel, FrameKey::Address(addr)), || {
            match event.function(addr, kernel) {
                Some(name) => name,
                None if kernel => format!("{addr:#x}"),
                None => event.binary(addr).as_deref().map_or("[unknown]".to_owned(), |path| {
                    bracketed(path.rsplit('/').next().unwrap_or(path))
                }),
            }
        })
    }

    fn frame(&mut self, key: (usize, bool, FrameKey), name: impl FnOnce() -> String) -> u32 {
        if let Some(known) = self.by_key.get(&key) {
            return *known;
        }
        let number = self.name(&name(), key.1);
        if self.by_key.len() < MAX_FRAMES {
            self.by_key.insert(key, number);
        }
        number
    }

    /// Number of a frame with a name.
    fn name(&mut self, name: &str, kernel: bool) -> u32 {
        let next = self.frames.len() as u32;
        let number = *self.by_name.entry((name.to_owned(), kernel)).or_insert(next);
        if number == next {
            let cause = kernel.then(|| OffCpuCause::of_function(name)).flatten();
            self.frames.push(StackFrame { name: name.to_owned(), kernel, cause });
        }
        number
    }

    /// Refines the context of a wake-up by its stack.
    pub fn context(&self, context: WakeupContext, stack: Option<StackNode>) -> WakeupContext {
        const TIMERS: [&str; 8] = [
            "hrtimer_interrupt",
            "__hrtimer_run_queues",
            "__sysvec_apic_timer_interrupt",
            "local_apic_timer_interrupt",
            "timer_interrupt",
            "tick_handle_periodic",
            "arch_timer_handler_virt",
            "arch_timer_handler_phys",
        ];
        const DEVICES: [&str; 3] =
            ["handle_irq_event_percpu", "__handle_irq_event_percpu", "handle_irq_event"];
        let Some(stack) = stack.filter(|_| context == WakeupContext::HardIrq) else {
            return context;
        };
        let names = || self.frames(stack).map(|f| self.frame_name(f));
        match (names().any(|n| TIMERS.contains(&n)), names().any(|n| DEVICES.contains(&n))) {
            (true, _) => WakeupContext::TimerIrq,
            (false, true) => WakeupContext::DeviceIrq,
            (false, false) => context,
        }
    }

    /// A stack with a frame in front that names the object of its wait.
    pub fn name_object(&mut self, stack: StackNode, object: &str) -> StackNode {
        if self.tree.len() >= MAX_NODES || self.frames.len() >= MAX_FRAMES {
            return stack;
        }
        let frame = FrameId(self.name(object, true));
        self.tree.add(stack, std::iter::once(frame), 0)
    }

    /// Number of a frame that stands for something that is no function.
    pub fn label(&mut self, text: &str) -> FrameId {
        FrameId(self.name(text, false))
    }

    /// Name of a frame.
    pub fn frame_name(&self, frame: FrameId) -> &str {
        self.frames.get(frame.0 as usize).map_or("", |f| &f.name)
    }

    /// Whether a frame is of the kernel.
    pub fn is_kernel(&self, frame: FrameId) -> bool {
        self.frames.get(frame.0 as usize).is_some_and(|f| f.kernel)
    }

    /// Frames of a stack, innermost first.
    pub fn frames(&self, stack: StackNode) -> impl Iterator<Item = FrameId> + '_ {
        let frame = |node| self.tree.facts(node).map(|(_, frame, _)| frame);
        self.tree.ancestors(stack).filter_map(frame)
    }

    /// Names of a stack's frames, innermost first.
    pub fn names(&self, stack: StackNode) -> Vec<&str> {
        self.frames(stack).map(|f| self.frame_name(f)).collect()
    }

    /// Cause of a wait of a task that left its CPU with this stack and state.
    pub fn cause(&self, stack: Option<StackNode>, state: SwitchOutState) -> OffCpuCause {
        match stack {
            Some(stack) => {
                let (causes, facts) = self.causes(stack);
                OffCpuCause::of_block(state, causes, facts)
            }
            None => OffCpuCause::of_state(state),
        }
    }

    /// The cause of a wait that has ended, of a task that left its CPU with this stack.
    pub fn cause_at_end(
        &self,
        cause: OffCpuCause,
        stack: Option<StackNode>,
        nanos: u64,
    ) -> OffCpuCause {
        if cause != OffCpuCause::Throttled {
            return cause;
        }
        let evidence = stack.map_or(ThrottleEvidence::None, |node| self.causes(node).1.throttled);
        cause.of_ended(evidence, nanos)
    }

    /// Causes of the kernel functions of a stack, innermost first, and its facts as a whole.
    pub(crate) fn causes(
        &self,
        stack: StackNode,
    ) -> (impl Iterator<Item = Option<OffCpuCause>> + '_, StackFacts) {
        let kernel = || {
            let frame = |f: FrameId| self.frames.get(f.0 as usize);
            self.frames(stack).filter_map(frame).take_while(|f| f.kernel)
        };
        let facts = StackFacts::of(kernel().map(|f| f.name.as_str()));
        (kernel().map(|f| f.cause), facts)
    }
}

fn bracketed(name: &str) -> String {
    if name.starts_with('[') { name.to_owned() } else { format!("[{name}]") }
}
