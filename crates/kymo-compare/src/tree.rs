//! Call tree of both sides, with the mean amount of each branch.

use rustc_hash::FxHashMap;

use crate::comparison::{Measure, MeasureKind};
use crate::sums::{FunctionKey, RunSums};

/// A branch of a call tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeBranch {
    /// Function.
    pub key: FunctionKey,
    /// Mean amount of the runs before, per unit of work, of the function with all that it called.
    pub before: f64,
    /// Value after.
    pub after: f64,
    /// Callees, the largest difference first.
    pub branches: Vec<TreeBranch>,
}

/// Call tree of a quantity, the outermost functions first.
#[derive(Clone, Debug, PartialEq)]
pub struct StackTree {
    /// Kind of the quantity.
    pub kind: MeasureKind,
    /// Name of the quantity.
    pub name: String,
    /// Unit of the amounts.
    pub unit: &'static str,
    /// All of it.
    pub root: TreeBranch,
}

/// Frames of a stack that are distinguished, from the outermost one on.
const DEEPEST: usize = 128;

/// A node while stacks are added.
#[derive(Default)]
struct Node {
    before: f64,
    after: f64,
    children: FxHashMap<u32, usize>,
}

impl StackTree {
    /// The trees of all quantities whose runs kept their stacks.
    pub fn of_all(measures: &[Measure]) -> Vec<StackTree> {
        measures.iter().filter_map(StackTree::of).collect()
    }

    fn of(measure: &Measure) -> Option<StackTree> {
        let all = || measure.before.iter().chain(&measure.after);
        if !all().any(|run| run.stacks.is_some()) {
            return None;
        }
        let mut numbers: FxHashMap<FunctionKey, u32> = FxHashMap::default();
        let mut keys: Vec<FunctionKey> = Vec::new();
        let mut nodes = vec![Node::default()];
        for (runs, is_after) in [(&measure.before, false), (&measure.after, true)] {
            for run in runs {
                let of_run: Vec<u32> = run
                    .functions()
                    .map(|(key, _)| {
                        *numbers.entry(key.clone()).or_insert_with(|| {
                            keys.push(key.clone());
                            keys.len() as u32 - 1
                        })
                    })
                    .collect();
                add_run(run, &of_run, (runs.len() as f64, is_after), &mut nodes);
            }
        }
        let root = branch(&nodes, 0, FunctionKey::default(), &keys);
        let (kind, name, unit) = (measure.kind, measure.name.clone(), measure.unit);
        Some(StackTree { kind, name, unit, root })
    }
}

fn add_run(run: &RunSums, numbers: &[u32], (runs, is_after): (f64, bool), nodes: &mut Vec<Node>) {
    let add = |nodes: &mut Vec<Node>, at: usize, amount: f64| {
        let Some(node) = nodes.get_mut(at) else { return };
        if is_after { node.after += amount } else { node.before += amount }
    };
    for (stack, weight) in run.stacks.iter().flatten() {
        let amount = weight / run.work / runs;
        add(nodes, 0, amount);
        let mut at = 0;
        for function in stack.iter().rev().take(DEEPEST) {
            let Some(number) = numbers.get(*function as usize) else { break };
            let next = nodes.len();
            let Some(node) = nodes.get_mut(at) else { break };
            at = *node.children.entry(*number).or_insert(next);
            if at == next {
                nodes.push(Node::default());
            }
            add(nodes, at, amount);
        }
    }
}

/// A node with its branches. As deep as stacks are, which is bounded.
fn branch(nodes: &[Node], at: usize, key: FunctionKey, keys: &[FunctionKey]) -> TreeBranch {
    let Some(node) = nodes.get(at) else { return TreeBranch::default() };
    let mut branches: Vec<TreeBranch> = node
        .children
        .iter()
        .map(|(function, child)| {
            let key = keys.get(*function as usize).cloned().unwrap_or_default();
            branch(nodes, *child, key, keys)
        })
        .collect();
    let size = |b: &TreeBranch| (b.after - b.before).abs();
    branches.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.key.cmp(&b.key)));
    TreeBranch { key, before: node.before, after: node.after, branches }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::StackFrameKey;

    #[test]
    fn branches_have_means_of_their_side_and_the_largest_difference_first() {
        let run = |stacks: &[(&[&str], f64)]| {
            let mut run = RunSums::new("r", 2.0).with_stacks(true);
            for (names, weight) in stacks {
                let mut frame = |name: &&str| StackFrameKey {
                    function: run.function(FunctionKey::new(name, "", false)),
                    is_inlined: false,
                };
                let frames: Vec<StackFrameKey> = names.iter().map(&mut frame).collect();
                run.add_stack(&frames, *weight, 1);
            }
            run
        };
        let measure = Measure {
            kind: MeasureKind::Samples,
            name: "cpu-clock".into(),
            unit: "nanoseconds",
            before: vec![
                run(&[(&["leaf", "a", "main"], 8.0), (&["b", "main"], 4.0)]),
                run(&[(&["leaf", "a", "main"], 12.0)]),
            ],
            after: vec![run(&[(&["b", "main"], 20.0), (&["leaf", "a", "main"], 10.0)])],
        };
        let trees = StackTree::of_all(std::slice::from_ref(&measure));
        let main = &trees[0].root.branches[0];
        assert_eq!((&*main.key.name, main.before, main.after), ("main", 6.0, 15.0));
        let of_main: Vec<(&str, f64, f64)> =
            main.branches.iter().map(|b| (&*b.key.name, b.before, b.after)).collect();
        assert_eq!(of_main, [("b", 1.0, 10.0), ("a", 5.0, 5.0)]);
        assert_eq!(main.branches[1].branches[0].key.name, "leaf");
        let without =
            Measure { before: Vec::new(), after: vec![RunSums::new("r", 1.0)], ..measure };
        assert_eq!(StackTree::of_all(&[without]), []);
    }
}
