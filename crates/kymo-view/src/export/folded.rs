//! Folded stacks: one line for each distinct stack, frames from the outside in
//! with `;` between, and a weight; what stackcollapse-perf makes, and what flame
//! graph programs take.

use std::io::{self, Write};

use kymo_model::UntrustedText;
use rustc_hash::FxHashMap;

use crate::stacks::{Function, StackTask, Stacks};

/// Suffixes of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// `_[k]` behind functions of the kernel.
    pub kernel: bool,
    /// `_[i]` behind inlined ones.
    pub inlined: bool,
}

/// Stacks by the names in them, from the outside in. Equal names are one node,
/// whatever their addresses.
#[derive(Debug, Default)]
pub struct ByName {
    /// Names.
    pub labels: Vec<FoldedLabel>,
    /// Parents come before their children.
    pub nodes: Vec<NamedNode>,
}

/// A name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FoldedLabel {
    /// Text without `;`, escaped as [`UntrustedText`] does.
    pub text: String,
    /// Kind of the named object.
    pub kind: FrameKind,
}

/// Kind of a named object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// A task.
    Task,
    /// Code of a program.
    User,
    /// Code of the kernel.
    Kernel,
    /// Code that became part of its caller.
    Inlined,
    /// Code without a name.
    Unknown,
}

/// A name below other names.
#[derive(Clone, Copy, Debug)]
pub struct NamedNode {
    /// The name around it.
    pub parent: Option<u32>,
    /// Number of its label.
    pub label: u32,
    /// Weight of stacks that end here.
    pub own: u64,
}

impl ByName {
    /// Puts stacks together by the names in them.
    pub fn of(stacks: &Stacks) -> ByName {
        let mut made = Making::default();
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut path = Vec::new();
        for stack in &stacks.stacks {
            let task = stacks.tasks.get(stack.task as usize);
            let trunk = task.and_then(|t| made.task(t));
            let mut at = trunk;
            path.clear();
            for node in stacks.outwards(stack.node) {
                if let Some(named) = known.get(&(stack.task, node)) {
                    at = Some(*named);
                    break;
                }
                path.push(node);
            }
            for node in path.drain(..).rev() {
                let Some((frame, function)) = stacks.place(node) else { continue };
                let named = made.node(at, label(function, frame.inlined));
                known.insert((stack.task, node), named);
                at = Some(named);
            }
            if let Some(node) = at.and_then(|n| made.tree.nodes.get_mut(n as usize)) {
                node.own = node.own.saturating_add(stack.weight);
            }
        }
        made.tree
    }

    /// Weight of each node and of what is below it.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals: Vec<u64> = self.nodes.iter().map(|n| n.own).collect();
        for (i, node) in self.nodes.iter().enumerate().rev() {
            let weight = totals.get(i).copied().unwrap_or(0);
            if let Some(total) = node.parent.and_then(|p| totals.get_mut(p as usize)) {
                *total = total.saturating_add(weight);
            }
        }
        totals
    }

    /// Writes a line for each stack, in the order of their texts.
    pub fn write(&self, out: &mut dyn Write, marks: Marks) -> io::Result<()> {
        let mut lines: Vec<String> = Vec::new();
        let mut path = Vec::new();
        for (number, node) in self.nodes.iter().enumerate().filter(|(_, n)| n.own > 0) {
            path.clear();
            let mut at = Some(number as u32);
            while let Some(n) = at.and_then(|n| self.nodes.get(n as usize)) {
                path.extend(self.labels.get(n.label as usize));
                at = n.parent;
            }
            let mut line = String::new();
            for label in path.drain(..).rev() {
                if !line.is_empty() {
                    line.push(';');
                }
                line.push_str(&label.text);
                match label.kind {
                    FrameKind::Kernel if marks.kernel => line.push_str("_[k]"),
                    FrameKind::Inlined if marks.inlined => line.push_str("_[i]"),
                    _ => {}
                }
            }
            lines.push(format!("{line} {}", node.own));
        }
        lines.sort_unstable();
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

#[derive(Default)]
struct Making {
    tree: ByName,
    labels: FxHashMap<FoldedLabel, u32>,
    edges: FxHashMap<(Option<u32>, u32), u32>,
}

impl Making {
    fn node(&mut self, parent: Option<u32>, label: FoldedLabel) -> u32 {
        let next = self.tree.labels.len() as u32;
        let label = match self.labels.get(&label) {
            Some(known) => *known,
            None => {
                self.tree.labels.push(label.clone());
                self.labels.insert(label, next);
                next
            }
        };
        let next = self.tree.nodes.len() as u32;
        let node = *self.edges.entry((parent, label)).or_insert(next);
        if node == next {
            self.tree.nodes.push(NamedNode { parent, label, own: 0 });
        }
        node
    }

    /// The node of a task, as stackcollapse-perf names it: `comm`, `comm-pid`, `comm-pid/tid`. None
    /// where tasks are not distinguished.
    fn task(&mut self, task: &StackTask) -> Option<u32> {
        let text = clean(&task.title().replace(' ', "_"));
        (!text.is_empty()).then(|| self.node(None, FoldedLabel { text, kind: FrameKind::Task }))
    }
}

fn label(function: &Function, inlined: bool) -> FoldedLabel {
    let kind = match function {
        f if f.kernel => FrameKind::Kernel,
        _ if inlined => FrameKind::Inlined,
        f if !f.known => FrameKind::Unknown,
        _ => FrameKind::User,
    };
    FoldedLabel { text: clean(&function.name), kind }
}

/// Replaces the separator of frames in a name, and escapes invalid text.
fn clean(text: &str) -> String {
    UntrustedText::new(text).to_text().replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_within_a_line() {
        assert_eq!(clean("a;b\n\u{202e}\u{1b}[2Jé"), "a:b\\n\\u202e\\u001b[2Jé");
    }
}
