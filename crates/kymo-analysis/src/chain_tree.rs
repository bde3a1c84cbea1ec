//! Call chains as one tree: chains with a common beginning share it. What is
//! shown of it, of a whole or of the parts below some nodes, is merged on
//! demand and no deeper than its weight asks for.

use kymo_model::{IndexVec, impl_vec_index};
use rustc_hash::FxHashMap;

use crate::profile::FrameId;

/// Number of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);
impl_vec_index!(NodeId, "node of call chains");

/// Stands for no node: above a trunk, below a leaf.
const NO_NODE: NodeId = NodeId(u32::MAX);

#[derive(Clone, Copy, Debug)]
struct Node {
    frame: FrameId,
    parent: NodeId,
    first_child: NodeId,
    next_sibling: NodeId,
    /// Period of all chains that pass or end here.
    total: u64,
    /// Nodes on the longest way from here to an end, this one included.
    height: u32,
}

/// The tree. Its trunks keep chains of different groups apart; they stand for
/// no frame.
#[derive(Clone, Debug, Default)]
pub struct ChainTree {
    nodes: IndexVec<NodeId, Node>,
    edges: FxHashMap<(NodeId, FrameId), NodeId>,
}

/// A stretch of a tree without a fork in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// From the root's side on.
    pub frames: Vec<FrameId>,
    /// Period of chains that end at the last frame.
    pub own: u64,
    /// Period of all chains that pass.
    pub total: u64,
    /// Heaviest first.
    pub children: Vec<Branch>,
}

/// A whole chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WholeChain {
    /// From the root's side on.
    pub frames: Vec<FrameId>,
    /// Period of chains that end here.
    pub own: u64,
    /// Period of these and of all that go on.
    pub total: u64,
}

/// The least weight that is shown.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// A period.
    Period(u64),
    /// A share (0 to 1) of what hangs below the parent.
    Share(f64),
}

/// Some of a tree's chains, or parts of them.
#[derive(Clone, Debug, Default)]
pub struct Chains {
    /// Whole chains by their last nodes, with their periods.
    pub whole: Vec<(NodeId, u64)>,
    /// The parts of chains from these nodes on. No node is below another one.
    pub below: Vec<NodeId>,
}

impl ChainTree {
    /// The trunk with a number.
    pub fn trunk(&mut self, number: u32) -> NodeId {
        self.child(NO_NODE, FrameId(number))
    }

    fn child(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        // Most nodes have one child.
        let first = self.node(parent).map_or(NO_NODE, |n| n.first_child);
        if self.node(first).is_some_and(|n| n.frame == frame) {
            return first;
        }
        let fresh = self.nodes.next_index();
        let at = *self.edges.entry((parent, frame)).or_insert(fresh);
        if at == fresh {
            let mut node = Node {
                frame,
                parent,
                first_child: NO_NODE,
                next_sibling: NO_NODE,
                total: 0,
                height: 1,
            };
            // A trunk has nothing above it.
            if let Some(above) = self.nodes.try_get_mut(parent) {
                node.next_sibling = std::mem::replace(&mut above.first_child, fresh);
            }
            self.nodes.push(node);
        }
        at
    }

    /// Adds a chain to a trunk; answers its last node.
    pub fn add(
        &mut self,
        trunk: NodeId,
        chain: impl ExactSizeIterator<Item = FrameId>,
        period: u64,
    ) -> NodeId {
        let mut at = trunk;
        let mut left = chain.len() as u32 + 1;
        self.enter(at, period, left);
        for frame in chain {
            at = self.child(at, frame);
            left -= 1;
            self.enter(at, period, left);
        }
        at
    }

    fn enter(&mut self, at: NodeId, period: u64, height: u32) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.total = node.total.saturating_add(period);
            node.height = node.height.max(height);
        }
    }

    /// A node; none for [`NO_NODE`].
    fn node(&self, at: NodeId) -> Option<&Node> {
        self.nodes.try_get(at)
    }

    /// Numbers of all nodes, in the order in which they were made.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        self.nodes.indices()
    }

    /// Nodes that were added since that count.
    pub fn nodes_from(&self, len: usize) -> impl Iterator<Item = NodeId> + use<> {
        self.nodes.indices_from(len)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Parent (none for a trunk), frame, and period of all chains that pass.
    pub fn facts(&self, at: NodeId) -> Option<(Option<NodeId>, FrameId, u64)> {
        let node = self.node(at)?;
        Some(((node.parent != NO_NODE).then_some(node.parent), node.frame, node.total))
    }

    /// Frames from a node on to the farthest end, the node included.
    pub fn height(&self, at: NodeId) -> u32 {
        self.node(at).map_or(0, |n| n.height)
    }

    /// The nodes from an end to the beginning of its chain, the trunk left out.
    pub fn ancestors(&self, end: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut at = end;
        std::iter::from_fn(move || {
            let node = self.node(at).filter(|n| n.parent != NO_NODE)?;
            Some(std::mem::replace(&mut at, node.parent))
        })
    }

    fn children(&self, at: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut next = self.node(at).map_or(NO_NODE, |n| n.first_child);
        std::iter::from_fn(move || {
            let at = next;
            next = self.node(at)?.next_sibling;
            Some(at)
        })
    }
}

/// Weight of a node that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// That of chosen whole chains.
    Whole,
    /// That of all chains which are not among them.
    Rest,
}

type Item = (FrameId, u64, NodeId, Side);

/// Draws [`Chains`] of a tree. Holds memory for marks that is used again.
pub struct Viewer<'a> {
    tree: &'a ChainTree,
    /// Puts branches of equal weight in order.
    rank: &'a dyn Fn(FrameId) -> (u32, u64),
    /// Key of a frame; frames with equal keys are drawn as one.
    same: &'a dyn Fn(FrameId) -> (u64, u64),
    whole: IndexVec<NodeId, u64>,
    minus: IndexVec<NodeId, u64>,
    marked: Vec<NodeId>,
}

impl<'a> Viewer<'a> {
    /// A viewer of a tree. `rank` puts branches of equal weight in order; frames with
    /// equal `same` are drawn as one.
    pub fn new(
        tree: &'a ChainTree,
        rank: &'a dyn Fn(FrameId) -> (u32, u64),
        same: &'a dyn Fn(FrameId) -> (u64, u64),
    ) -> Viewer<'a> {
        let zeros = || IndexVec::from(vec![0; tree.len()]);
        Viewer { tree, rank, same, whole: zeros(), minus: zeros(), marked: Vec::new() }
    }

    /// The branches that weigh at least `limit`, heaviest first.
    pub fn branches(&mut self, chains: &Chains, limit: Limit) -> Vec<Branch> {
        let items = self.mark(chains);
        let inside = items.iter().map(|i| i.1).sum();
        let branches = self.level(items, inside, limit, 0);
        self.unmark();
        branches
    }

    /// Every whole chain that ends with a period of at least `min`, heaviest
    /// first.
    pub fn chains(&mut self, chains: &Chains, min: u64) -> Vec<WholeChain> {
        let mut found = Vec::new();
        let mut path: Vec<FrameId> = Vec::new();
        // Groups still to be looked at and their depth; no recursion.
        let mut todo: Vec<(usize, u64, Vec<Item>)> = Vec::new();
        let items = self.mark(chains);
        let push = |todo: &mut Vec<_>, items, depth| {
            let groups = self.groups(items);
            // In order of rank, so that equal weights stay in it.
            for (total, items) in groups.into_iter().rev().filter(|g| g.0 >= min) {
                todo.push((depth, total, items));
            }
        };
        push(&mut todo, items, 0);
        while let Some((depth, total, items)) = todo.pop() {
            path.truncate(depth);
            path.extend(items.first().map(|i| i.0));
            let below = self.below(&items);
            let own = total.saturating_sub(below.iter().map(|i| i.1).sum());
            if own > 0 && own >= min {
                found.push(WholeChain { frames: path.clone(), own, total });
            }
            push(&mut todo, below, depth + 1);
        }
        found.sort_by_key(|c| std::cmp::Reverse(c.own));
        self.unmark();
        found
    }

    /// Spreads the chains' weights over the nodes; answers where they begin.
    fn mark(&mut self, chains: &Chains) -> Vec<Item> {
        let tree = self.tree;
        let below: rustc_hash::FxHashSet<NodeId> = chains.below.iter().copied().collect();
        let mut begins: Vec<NodeId> = Vec::new();
        for (end, period) in &chains.whole {
            let mut begin = None;
            let mut stop = None;
            for at in tree.ancestors(*end) {
                if let Some(w) = self.whole.get_mut(at) {
                    begin = (*w == 0).then_some(at);
                    *w = w.saturating_add(*period);
                }
                self.marked.push(at);
                if below.contains(&at) {
                    stop = Some(at);
                }
            }
            begins.extend(begin);
            let Some(stop) = stop else { continue };
            // A whole chain is no part as well.
            for at in tree.ancestors(*end) {
                if let Some(m) = self.minus.get_mut(at) {
                    *m = m.saturating_add(*period);
                }
                if at == stop {
                    break;
                }
            }
        }
        let whole = begins.into_iter().map(|at| (at, Side::Whole));
        let rest = chains.below.iter().map(|at| (*at, Side::Rest));
        whole.chain(rest).filter_map(|(at, side)| self.item(at, side)).collect()
    }

    fn unmark(&mut self) {
        for at in self.marked.drain(..) {
            for marks in [&mut self.whole, &mut self.minus] {
                if let Some(m) = marks.get_mut(at) {
                    *m = 0;
                }
            }
        }
    }

    fn item(&self, at: NodeId, side: Side) -> Option<Item> {
        let node = self.tree.node(at)?;
        let weight = match side {
            Side::Whole => *self.whole.get(at)?,
            Side::Rest => node.total.saturating_sub(*self.minus.get(at)?),
        };
        (weight > 0).then_some((node.frame, weight, at, side))
    }

    fn are_one(&self, a: FrameId, b: FrameId) -> bool {
        a == b || (self.same)(a) == (self.same)(b)
    }

    fn below(&self, items: &[Item]) -> Vec<Item> {
        let below = |(_, _, at, side): &Item| {
            let side = *side;
            self.tree.children(*at).filter_map(move |c| self.item(c, side))
        };
        items.iter().flat_map(below).collect()
    }

    /// Puts equal frames together, with their weight, in the order of rank.
    fn groups(&self, mut items: Vec<Item>) -> Vec<(u64, Vec<Item>)> {
        items.sort_by_cached_key(|(frame, _, at, _)| ((self.same)(*frame), *at));
        let mut groups: Vec<(u64, Vec<Item>)> = items
            .chunk_by(|a, b| self.are_one(a.0, b.0))
            .map(|run| (run.iter().map(|i| i.1).sum(), run.to_vec()))
            .collect();
        groups.sort_by_cached_key(|(_, items)| items.first().map(|i| (self.rank)(i.0)));
        groups
    }

    fn level(&self, items: Vec<Item>, inside: u64, limit: Limit, depth: usize) -> Vec<Branch> {
        // Stacks have at most some thousand frames; a file that says otherwise
        // is cut here.
        const DEEPEST: usize = 1024;
        let least = match limit {
            Limit::Period(p) => p,
            Limit::Share(s) => (inside as f64 * s) as u64,
        };
        if depth == DEEPEST {
            return Vec::new();
        }
        let mut groups = self.groups(items);
        groups.retain(|(total, _)| *total >= least);
        groups.sort_by_key(|(total, _)| std::cmp::Reverse(*total));
        groups.into_iter().map(|(_, items)| self.branch(items, limit, depth)).collect()
    }

    fn branch(&self, mut items: Vec<Item>, limit: Limit, depth: usize) -> Branch {
        let mut frames = Vec::new();
        loop {
            frames.extend(items.first().map(|i| i.0));
            let total: u64 = items.iter().map(|i| i.1).sum();
            let below = self.below(&items);
            let inside: u64 = below.iter().map(|i| i.1).sum();
            let own = total.saturating_sub(inside);
            let straight =
                below.first().is_some_and(|first| below.iter().all(|i| self.are_one(i.0, first.0)));
            if own == 0 && straight {
                items = below;
                continue;
            }
            let children = self.level(below, inside, limit, depth + 1);
            return Branch { frames, own, total, children };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: fn(u32) -> FrameId = FrameId;

    fn rank(f: FrameId) -> (u32, u64) {
        (0, u64::from(f.0))
    }

    fn same(f: FrameId) -> (u64, u64) {
        (u64::from(f.0), 0)
    }

    fn chain(frames: &[u32], own: u64, total: u64) -> WholeChain {
        WholeChain { frames: frames.iter().map(|f| F(*f)).collect(), own, total }
    }

    fn tree(chains: &[(&[u32], u64)]) -> (ChainTree, Chains) {
        let mut tree = ChainTree::default();
        let trunk = tree.trunk(7);
        let whole = chains
            .iter()
            .map(|(frames, period)| {
                (tree.add(trunk, frames.iter().map(|f| F(*f)), *period), *period)
            })
            .collect();
        (tree, Chains { whole, below: Vec::new() })
    }

    #[test]
    fn chains_share_their_beginning() {
        let (tree, all) = tree(&[(&[1, 2, 3], 10), (&[1, 2, 4], 30), (&[1, 2], 1)]);
        let mut viewer = Viewer::new(&tree, &rank, &same);
        for _ in 0..2 {
            let roots = viewer.branches(&all, Limit::Period(0));
            assert_eq!(roots.len(), 1);
            assert_eq!(
                (roots[0].frames.clone(), roots[0].own, roots[0].total),
                (vec![F(1), F(2)], 1, 41)
            );
            let weights: Vec<u64> = roots[0].children.iter().map(|b| b.total).collect();
            assert_eq!(weights, [30, 10]);
        }
        let chains = viewer.chains(&all, 5);
        assert_eq!(chains, [chain(&[1, 2, 4], 30, 30), chain(&[1, 2, 3], 10, 10)]);
        // Of the shortest the others are a part.
        assert_eq!(viewer.chains(&all, 1)[2], chain(&[1, 2], 1, 41));
        assert_eq!(viewer.branches(&all, Limit::Period(42)), []);
        assert_eq!(tree.height(tree.ancestors(all.whole[0].0).last().unwrap()), 3);
    }

    #[test]
    fn a_part_of_the_tree_leaves_whole_chains_out() {
        // What 2 called, and the chains that end at 2 from their beginning:
        // 1 → 2 → 3 and 5 → 2 → 2 belong to 2, the latter as a whole.
        let (tree, all) = tree(&[(&[1, 2, 3], 10), (&[5, 2, 2], 4), (&[1, 2], 1)]);
        let below: Vec<NodeId> = [0, 1]
            .iter()
            .map(|i| {
                let ways = tree.ancestors(all.whole[*i].0);
                ways.filter(|n| tree.facts(*n).unwrap().1 == F(2)).last().unwrap()
            })
            .collect();
        let chains = Chains { whole: vec![all.whole[1], all.whole[2]], below };
        let mut viewer = Viewer::new(&tree, &rank, &same);
        let mut found = viewer.chains(&chains, 0);
        found.sort();
        let expected = [chain(&[1, 2], 1, 1), chain(&[2, 3], 10, 10), chain(&[5, 2, 2], 4, 4)];
        assert_eq!(found, expected);
        let roots = viewer.branches(&chains, Limit::Period(2));
        let weights: Vec<(u64, Vec<FrameId>)> =
            roots.into_iter().map(|b| (b.total, b.frames)).collect();
        assert_eq!(weights, [(10, vec![F(2), F(3)]), (4, vec![F(5), F(2), F(2)])]);
    }
}
