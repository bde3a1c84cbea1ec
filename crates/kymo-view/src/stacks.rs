//! Weighed call stacks as data for those who write them in other programs' formats:
//! every name, frame and stack once, named by its number.

use rustc_hash::FxHashMap;

/// A file with code in it, or what stands for one (`[kernel.kallsyms]`).
#[derive(Clone, Debug, Default)]
pub struct StackBinary {
    /// Path or bracketed name.
    pub path: String,
    /// Its last part.
    pub name: String,
    /// In hexadecimal.
    pub build_id: Option<String>,
}

/// A function, or what stands for one where no symbol is known.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Readable name; the binary in brackets, or `[unknown]`, where there is none.
    pub name: String,
    /// Whether that is a symbol.
    pub known: bool,
    /// Number of its binary.
    pub binary: Option<u32>,
    /// Source file.
    pub file: Option<String>,
    /// Code of the kernel.
    pub kernel: bool,
}

/// A place in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// Number of the function.
    pub function: u32,
    /// Address in the binary's terms.
    pub addr: u64,
    /// Source line; 0 if not known.
    pub line: u32,
    /// No call happened: the code is part of the next outer frame's function.
    pub inlined: bool,
}

/// A task, or several under one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackTask {
    /// Name.
    pub comm: String,
    /// Process, where processes are distinguished.
    pub pid: Option<u32>,
    /// Thread, where threads are distinguished.
    pub tid: Option<u32>,
}

impl StackTask {
    /// The name, with the numbers that tell it from others: `comm-pid/tid`.
    pub fn title(&self) -> String {
        match (self.pid, self.tid) {
            (Some(pid), Some(tid)) => format!("{}-{pid}/{tid}", self.comm),
            (Some(pid), None) => format!("{}-{pid}", self.comm),
            (None, _) => self.comm.clone(),
        }
    }
}

/// Sampled event.
#[derive(Clone, Debug, Default)]
pub struct StackEvent {
    /// Its name.
    pub name: String,
    /// Unit of its weights: `nanoseconds`, `count`.
    pub unit: &'static str,
    /// Period of a sample, in the unit of the event; 0 if not known.
    pub period: u64,
}

/// A stack and what it weighs.
#[derive(Clone, Copy, Debug)]
pub struct WeighedStack {
    /// Number of the task.
    pub task: u32,
    /// Number of the event.
    pub event: u32,
    /// The innermost frame's node; none of an empty stack.
    pub node: Option<u32>,
    /// Samples.
    pub samples: u64,
    /// Sum of their weights.
    pub weight: u64,
}

/// A sample in time.
#[derive(Clone, Copy, Debug)]
pub struct StackMoment {
    /// Time in nanoseconds.
    pub time: u64,
    /// Number of the stack.
    pub stack: u32,
    /// Weight of the sample.
    pub weight: u64,
}

/// A frame below another one.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Caller.
    pub parent: Option<u32>,
    /// Number of the frame.
    pub frame: u32,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// Files.
    pub binaries: Vec<StackBinary>,
    /// Functions.
    pub functions: Vec<Function>,
    /// Places.
    pub frames: Vec<StackFrame>,
    /// The tree that all stacks share; parents come before their children.
    pub nodes: Vec<Node>,
    /// Tasks.
    pub tasks: Vec<StackTask>,
    /// Events.
    pub events: Vec<StackEvent>,
    /// Stacks in the order of their first samples.
    pub stacks: Vec<WeighedStack>,
    /// Samples in the order of time, where they were asked for.
    pub moments: Vec<StackMoment>,
    /// First and last time of a sample.
    pub span: Option<(u64, u64)>,
    /// Time of the recording, in nanoseconds since 1970, if known.
    pub recorded: Option<u64>,
    /// Name of the recorded target.
    pub title: String,
    edges: FxHashMap<(Option<u32>, u32), u32>,
}

impl Stacks {
    /// The node of a frame that another one called.
    pub fn node(&mut self, parent: Option<u32>, frame: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let node = *self.edges.entry((parent, frame)).or_insert(next);
        if node == next {
            self.nodes.push(Node { parent, frame });
        }
        node
    }

    /// The nodes from one outwards.
    pub fn outwards(&self, node: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        let mut at = node;
        std::iter::from_fn(move || {
            let node = at?;
            at = self.nodes.get(node as usize).and_then(|n| n.parent);
            Some(node)
        })
    }

    /// Frame and function of a node.
    pub fn place(&self, node: u32) -> Option<(&StackFrame, &Function)> {
        let frame = self.frames.get(self.nodes.get(node as usize)?.frame as usize)?;
        Some((frame, self.functions.get(frame.function as usize)?))
    }
}
