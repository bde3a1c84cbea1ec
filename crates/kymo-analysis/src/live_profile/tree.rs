//! Call trees of a live profile: from functions without a caller to the sampled one, functions of
//! one name beneath one caller as one node.

use std::cmp::Reverse;

use kymo_events::state::CommId;
use rustc_hash::FxHashMap;

use super::LiveProfile;
use super::names::FunctionId;
use super::rows::LiveQuery;

/// Number of a node; 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LiveNodeId(pub u32);

impl LiveNodeId {
    /// All samples.
    pub const ROOT: LiveNodeId = LiveNodeId(0);
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeKind {
    /// All samples.
    Root,
    /// Tasks of a name.
    Comm(CommId),
    /// A function.
    Function(FunctionId),
}

/// A node.
#[derive(Clone, Debug)]
pub struct LiveTreeNode {
    /// Kind of the node.
    pub kind: NodeKind,
    /// Its caller; of the root itself.
    pub parent: LiveNodeId,
    /// Samples with the processor there.
    pub samples: u64,
    /// Sum of their periods.
    pub own: u64,
    /// Sum of periods, with those of its callees.
    pub total: u64,
    /// Callees, heaviest first.
    pub children: Vec<LiveNodeId>,
}

/// A call tree.
#[derive(Clone, Debug)]
pub struct LiveTree {
    nodes: Vec<LiveTreeNode>,
}

impl LiveTree {
    /// The node with a number.
    pub fn node(&self, id: LiveNodeId) -> Option<&LiveTreeNode> {
        self.nodes.get(id.0 as usize)
    }

    /// Returns the callees of a node, heaviest first.
    pub fn children(&self, id: LiveNodeId) -> &[LiveNodeId] {
        self.node(id).map_or(&[], |n| &n.children)
    }

    /// The node that is reached by these kinds from the root, as far as that goes.
    pub fn find(&self, path: &[NodeKind]) -> LiveNodeId {
        let mut at = LiveNodeId::ROOT;
        for kind in path {
            let is = |id: &&LiveNodeId| self.node(**id).is_some_and(|n| n.kind == *kind);
            match self.children(at).iter().find(is) {
                Some(next) => at = *next,
                None => break,
            }
        }
        at
    }

    /// Kinds from below the root to a node.
    pub fn path(&self, mut id: LiveNodeId) -> Vec<NodeKind> {
        let mut path = Vec::new();
        while let Some(node) = self.node(id).filter(|_| id != LiveNodeId::ROOT) {
            path.push(node.kind);
            id = node.parent;
        }
        path.reverse();
        path
    }
}

impl LiveProfile {
    /// Call tree of the samples that count.
    pub fn tree(&self, query: &LiveQuery) -> LiveTree {
        let new = |kind, parent| LiveTreeNode {
            kind,
            parent,
            samples: 0,
            own: 0,
            total: 0,
            children: Vec::new(),
        };
        let mut nodes = vec![new(NodeKind::Root, LiveNodeId::ROOT)];
        let mut known: FxHashMap<(LiveNodeId, NodeKind), LiveNodeId> = FxHashMap::default();
        self.each_stack(query, &mut |counter, slot, weight| {
            let chain = self.stack(counter, slot).iter().rev();
            let functions = chain.map(|a| NodeKind::Function(self.names.of(*a)));
            let path = std::iter::once(NodeKind::Comm(slot.key.comm)).chain(functions);
            let mut at = LiveNodeId::ROOT;
            let add = |nodes: &mut Vec<LiveTreeNode>, at: LiveNodeId, is_leaf: bool| {
                let Some(node) = nodes.get_mut(at.0 as usize) else { return };
                node.total = node.total.saturating_add(weight.period);
                if is_leaf {
                    node.samples += weight.samples;
                    node.own = node.own.saturating_add(weight.period);
                }
            };
            add(&mut nodes, at, false);
            let mut path = path.peekable();
            while let Some(kind) = path.next() {
                let next = *known.entry((at, kind)).or_insert_with(|| {
                    let id = LiveNodeId(nodes.len() as u32);
                    nodes.push(new(kind, at));
                    if let Some(parent) = nodes.get_mut(at.0 as usize) {
                        parent.children.push(id);
                    }
                    id
                });
                at = next;
                add(&mut nodes, at, path.peek().is_none());
            }
        });
        let order: Vec<(u64, NodeKind)> = nodes.iter().map(|n| (n.total, n.kind)).collect();
        for node in &mut nodes {
            node.children.sort_by_key(|id| order.get(id.0 as usize).map(|o| (Reverse(o.0), o.1)));
        }
        LiveTree { nodes }
    }
}
