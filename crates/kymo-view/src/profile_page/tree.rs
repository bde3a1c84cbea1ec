//! One tree of all time: what ran, by samples, and what was waited for, by the stacks of waits.
//! Both are grouped by name, so that a function is one line whether it ran or waited.

use std::cmp::Reverse;
use std::time::Duration;

use kymo_analysis::offcpu::WaitTable;
use kymo_analysis::oncpu::ThreadTime;
use kymo_analysis::profile::{EventProfile, FrameId, Profile};
use rustc_hash::FxHashMap;

use super::build::{MergedFrames, label};
use super::waits::IdleWaits;
use super::{ratio, time};
use crate::units::visible;

/// Branches below this share of all time are not shown.
const SHARE: f64 = 0.05;
/// Lines at most.
const LINES: usize = 30;
/// Nodes that are kept; time of more stacks counts for the callers that are there.
const MOST_NODES: usize = 1 << 19;

/// A function called in one place, or a cause of waits.
#[derive(Clone, Debug, Default)]
struct Node {
    name: usize,
    on: u64,
    off: u64,
    children: Vec<usize>,
}

/// A line of the tree.
#[derive(Clone, Debug)]
pub struct TimeStep {
    /// Number of forks above it.
    pub depth: usize,
    /// Time on the CPUs, in it and in what it called.
    pub on: Duration,
    /// Time off them, likewise.
    pub off: Duration,
    /// Function, or in brackets what was waited for.
    pub name: String,
}

/// The tree while it grows.
#[derive(Default)]
struct TimeTree {
    nodes: Vec<Node>,
    by_edge: FxHashMap<(usize, usize), usize>,
    names: Vec<String>,
    by_name: FxHashMap<String, usize>,
}

impl TimeTree {
    fn name(&mut self, name: &str) -> usize {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let number = self.names.len();
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), number);
        number
    }

    /// Adds time of a stack, outermost first.
    fn add(&mut self, stack: impl Iterator<Item = usize>, on: u64, off: u64) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = 0;
        let mut last = None;
        self.count(at, on, off);
        for name in stack.filter(|name| last.replace(*name) != Some(*name)) {
            let next = match self.by_edge.get(&(at, name)) {
                Some(next) => *next,
                None if self.nodes.len() >= MOST_NODES => return,
                None => {
                    let next = self.nodes.len();
                    self.nodes.push(Node { name, ..Node::default() });
                    self.by_edge.insert((at, name), next);
                    if let Some(node) = self.nodes.get_mut(at) {
                        node.children.push(next);
                    }
                    next
                }
            };
            at = next;
            self.count(at, on, off);
        }
    }

    fn count(&mut self, at: usize, on: u64, off: u64) {
        if let Some(node) = self.nodes.get_mut(at) {
            (node.on, node.off) = (node.on.saturating_add(on), node.off.saturating_add(off));
        }
    }

    /// The branches that much time went to, the largest first.
    fn steps(&self) -> Vec<TimeStep> {
        let Some(root) = self.nodes.first() else { return Vec::new() };
        let least = ((root.on.saturating_add(root.off)) as f64 * SHARE) as u64;
        let mut steps = Vec::new();
        // Straight stretches keep their indentation, so that deep stacks stay on the screen.
        let mut open = vec![(0, 0)];
        while let Some((at, depth)) = open.pop() {
            let Some(node) = self.nodes.get(at) else { continue };
            if at > 0 {
                if steps.len() == LINES {
                    break;
                }
                steps.push(TimeStep {
                    depth,
                    on: Duration::from_nanos(node.on),
                    off: Duration::from_nanos(node.off),
                    name: self.names.get(node.name).cloned().unwrap_or_default(),
                });
            }
            let sum = |at: &usize| self.nodes.get(*at).map_or(0, |n| n.on.saturating_add(n.off));
            let large = node.children.iter().filter(|at| sum(at) >= least.max(1));
            let mut large: Vec<usize> = large.copied().collect();
            large.sort_by_key(|at| Reverse(sum(at)));
            let inner = if at == 0 { 0 } else { depth + usize::from(large.len() > 1) };
            open.extend(large.into_iter().rev().map(|at| (at, inner)));
        }
        steps
    }
}

/// The branches of the tree of all time.
pub(super) fn time_steps(
    profile: Option<(&Profile, &EventProfile, &MergedFrames)>,
    threads: &FxHashMap<u32, ThreadTime>,
    waits: &WaitTable,
    idle: &IdleWaits,
) -> Vec<TimeStep> {
    let mut tree = TimeTree::default();
    let mut sampled: FxHashMap<u32, u64> = FxHashMap::default();
    if let Some((profile, event, merged)) = profile {
        for (stack, _) in event.stacks() {
            *sampled.entry(stack.tid).or_default() += stack.period;
        }
        let mut names: FxHashMap<FrameId, usize> = FxHashMap::default();
        for (stack, frames) in event.stacks() {
            let on_cpu = threads.get(&stack.tid).map_or(0, |t| t.on_cpu);
            let all = sampled.get(&stack.tid).copied().unwrap_or(0);
            let on = ratio(stack.period as f64, all as f64) * on_cpu as f64;
            // What is no code is no caller.
            let chain = frames.iter().map(|f| merged.at(f));
            let chain = chain.take_while(|f| profile.frame(*f).dso.is_some());
            let mut chain: Vec<FrameId> = chain.collect();
            if chain.is_empty() {
                chain.push(merged.at(stack.leaf));
            }
            let numbers: Vec<usize> = chain
                .into_iter()
                .rev()
                .map(|f| *names.entry(f).or_insert_with(|| tree.name(&label(profile, f))))
                .collect();
            tree.add(numbers.into_iter(), on as u64, 0);
        }
    }
    let rest = threads.iter().filter(|(tid, _)| !sampled.contains_key(tid));
    let rest: u64 = rest.map(|(_, t)| t.on_cpu).sum();
    if rest > 0 {
        let name = tree.name("[running, without samples]");
        tree.add(std::iter::once(name), rest, 0);
    }
    for ((cause, stack, _), cell) in waits.cells.iter().filter(|((c, ..), _)| !c.is_idle()) {
        let mut names: Vec<usize> = Vec::new();
        let mut frames = stack.map_or_else(Vec::new, |s| waits.stacks.names(s));
        // What is no code is no caller.
        frames.truncate(frames.iter().position(|f| *f == "[unknown]").unwrap_or(usize::MAX));
        for frame in frames.into_iter().rev() {
            let binary = frame.strip_prefix('[').and_then(|f| f.strip_suffix(']'));
            let shown = match binary.filter(|b| !b.starts_with("futex ")) {
                Some(binary) => format!("(no symbols) in {binary}"),
                None => frame.to_owned(),
            };
            names.push(tree.name(&shown));
        }
        names.push(tree.name(&format!("[{}]", cause.text())));
        // Who never ran began to wait before there were stacks to record.
        let total = match stack {
            None => cell.total.saturating_sub(idle.nanos(*cause)),
            Some(_) => cell.total,
        };
        tree.add(names.into_iter(), 0, total);
    }
    tree.steps()
}

/// Appends the tree as text.
pub(super) fn write(steps: &[TimeStep], all: Duration, o: &mut String) {
    use std::fmt::Write as _;
    if steps.is_empty() {
        return;
    }
    let _ = writeln!(o, "\nCall tree, callers first (on and off the CPU)");
    let _ = writeln!(o, "   share      on CPU     off CPU  function");
    for step in steps {
        let share = 100.0 * ratio((step.on + step.off).as_secs_f64(), all.as_secs_f64());
        let cell = |d: Duration| if d.is_zero() { String::new() } else { time(d) };
        let indent = "  ".repeat(step.depth);
        let (on, off) = (cell(step.on), cell(step.off));
        let _ =
            writeln!(o, "  {share:>5.1}%  {on:>10}  {off:>10}  {indent}{}", visible(&step.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_one_line_whether_it_runs_or_waits() {
        let mut tree = TimeTree::default();
        let names: Vec<usize> = ["main", "work", "[blocked: disk]", "idle"]
            .iter()
            .map(|name| tree.name(name))
            .collect();
        tree.add([names[0], names[1], names[1]].into_iter(), 30, 0);
        tree.add([names[0], names[1], names[2]].into_iter(), 0, 60);
        tree.add([names[0], names[3]].into_iter(), 10, 0);
        let steps = tree.steps();
        let shown: Vec<_> = steps
            .iter()
            .map(|s| (s.depth, s.name.as_str(), s.on.as_nanos(), s.off.as_nanos()))
            .collect();
        let want = [
            (0, "main", 40, 60),
            (1, "work", 30, 60),
            (1, "[blocked: disk]", 0, 60),
            (1, "idle", 10, 0),
        ];
        assert_eq!(shown, want);
    }
}
