//! Call trees: chains with a common beginning share it.

use rustc_hash::FxHashMap;

use crate::profile::FrameId;

#[derive(Clone, Debug, Default)]
struct Node {
    frame: Option<FrameId>,
    /// Period of chains that end here, and of all that pass.
    own: u64,
    total: u64,
    children: Vec<u32>,
}

/// A tree under construction; node 0 is the root and stands for no frame.
#[derive(Clone, Debug)]
pub struct ChainTree {
    nodes: Vec<Node>,
    edges: FxHashMap<(u32, FrameId), u32>,
    /// Frames of the longest chain.
    pub depth: usize,
}

impl Default for ChainTree {
    fn default() -> Self {
        ChainTree { nodes: vec![Node::default()], edges: FxHashMap::default(), depth: 0 }
    }
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

impl ChainTree {
    /// Adds a chain.
    pub fn add(&mut self, chain: impl Iterator<Item = FrameId>, period: u64) {
        let mut at = 0u32;
        let mut depth = 0;
        self.enter(at, period);
        for frame in chain {
            depth += 1;
            let fresh = self.nodes.len() as u32;
            let next = *self.edges.entry((at, frame)).or_insert(fresh);
            if next == fresh {
                self.nodes.push(Node { frame: Some(frame), ..Node::default() });
                if let Some(parent) = self.nodes.get_mut(at as usize) {
                    parent.children.push(fresh);
                }
            }
            at = next;
            self.enter(at, period);
        }
        if let Some(last) = self.nodes.get_mut(at as usize) {
            last.own = last.own.saturating_add(period);
        }
        self.depth = self.depth.max(depth);
    }

    fn enter(&mut self, at: u32, period: u64) {
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.total = node.total.saturating_add(period);
        }
    }

    /// The branches that weigh at least `min`, heaviest first. With
    /// `relative`, the least weight is that share of what hangs below the
    /// parent instead.
    pub fn branches(&self, min: Limit) -> Vec<Branch> {
        self.below(0, min, 0)
    }

    fn below(&self, at: u32, min: Limit, depth: usize) -> Vec<Branch> {
        // Stacks have at most some thousand frames; a file that says otherwise
        // is cut here.
        const DEEPEST: usize = 2048;
        let Some(node) = self.nodes.get(at as usize) else { return Vec::new() };
        let inside = node.total - node.own.min(node.total);
        let least = match min {
            Limit::Period(p) => p,
            Limit::Share(s) => (inside as f64 * s) as u64,
        };
        let mut branches: Vec<Branch> = node
            .children
            .iter()
            .filter(|c| self.nodes.get(**c as usize).is_some_and(|n| n.total >= least))
            .filter(|_| depth < DEEPEST)
            .map(|c| self.branch(*c, min, depth + 1))
            .collect();
        branches.sort_by_key(|b| std::cmp::Reverse(b.total));
        branches
    }

    fn branch(&self, mut at: u32, min: Limit, depth: usize) -> Branch {
        let mut frames = Vec::new();
        while let Some(node) = self.nodes.get(at as usize) {
            frames.extend(node.frame);
            match node.children.as_slice() {
                [only] if node.own == 0 => at = *only,
                _ => break,
            }
        }
        let (own, total) = self.nodes.get(at as usize).map_or((0, 0), |n| (n.own, n.total));
        Branch { frames, own, total, children: self.below(at, min, depth) }
    }

    /// Every whole chain with the period that ends with it, heaviest first.
    pub fn chains(&self, min: u64) -> Vec<(Vec<FrameId>, u64)> {
        let mut found = Vec::new();
        let mut path: Vec<FrameId> = Vec::new();
        // (node, depth), depth first without recursion.
        let mut todo: Vec<(u32, usize)> = vec![(0, 0)];
        while let Some((at, depth)) = todo.pop() {
            let Some(node) = self.nodes.get(at as usize) else { continue };
            path.truncate(depth.saturating_sub(1));
            path.extend(node.frame);
            if node.own > 0 && node.own >= min && !path.is_empty() {
                found.push((path.clone(), node.own));
            }
            todo.extend(node.children.iter().rev().map(|c| (*c, depth + 1)));
        }
        found.sort_by_key(|(_, own)| std::cmp::Reverse(*own));
        found
    }
}

/// The least weight that is shown.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// A period.
    Period(u64),
    /// A share (0 to 1) of what hangs below the parent.
    Share(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_share_their_beginning() {
        let f = |n| FrameId(n);
        let mut tree = ChainTree::default();
        tree.add([1, 2, 3].map(f).into_iter(), 10);
        tree.add([1, 2, 4].map(f).into_iter(), 30);
        tree.add([1, 2].map(f).into_iter(), 1);
        let roots = tree.branches(Limit::Period(0));
        assert_eq!(roots.len(), 1);
        assert_eq!(
            (roots[0].frames.clone(), roots[0].own, roots[0].total),
            (vec![f(1), f(2)], 1, 41)
        );
        let weights: Vec<u64> = roots[0].children.iter().map(|b| b.total).collect();
        assert_eq!((weights, tree.depth), (vec![30, 10], 3));
        let chains = tree.chains(5);
        assert_eq!(chains, [(vec![f(1), f(2), f(4)], 30), (vec![f(1), f(2), f(3)], 10)]);
    }
}
