//! The histogram of one event: stacks grouped by the sort keys, with the call
//! tree of each group and, on demand, what was called from it.

use rustc_hash::FxHashMap;

use crate::chain_tree::ChainTree;
use crate::profile::{EventProfile, FrameId, Profile, Stack};
use crate::state::CommId;

/// What stacks are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are perf's sort keys")]
pub enum Key {
    Comm,
    Dso,
    Symbol,
    Pid,
    Tid,
    Cpu,
    Parent,
}

/// From which end call chains are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainOrder {
    /// Innermost first.
    Callee,
    /// Outermost first.
    Caller,
}

/// How to group.
#[derive(Clone, Debug)]
pub struct HistogramOptions {
    /// The keys.
    pub keys: Vec<Key>,
    /// Each function also gets the weight of what it called.
    pub children: bool,
    /// Keep call trees, read from this end.
    pub chains: Option<ChainOrder>,
    /// Order in which callers are met when there are no trees.
    pub order: ChainOrder,
}

/// A group.
#[derive(Clone, Debug)]
pub struct HistEntry {
    /// Task name.
    pub comm: CommId,
    /// Process of the first sample.
    pub pid: u32,
    /// Thread of the first sample.
    pub tid: u32,
    /// CPU of the first sample.
    pub cpu: Option<u32>,
    /// Where.
    pub frame: FrameId,
    /// `k`, `.`, …
    pub level: char,
    /// The outermost frame that matches the parent pattern.
    pub parent: Option<FrameId>,
    /// Samples taken here.
    pub samples: u64,
    /// Period spent here.
    pub own: u64,
    /// Period spent here and in what was called from here.
    pub total: u64,
    /// The chains.
    pub tree: ChainTree,
}

/// Groups the stacks of `event`. `is_parent` tells which frames the parent
/// key looks for. Heaviest first.
pub fn histogram(
    profile: &Profile,
    event: &EventProfile,
    options: &HistogramOptions,
    is_parent: &dyn Fn(FrameId) -> bool,
) -> Vec<HistEntry> {
    let mut groups = Groups { profile, options, entries: Vec::new(), ids: FxHashMap::default() };
    let mut seen: Vec<u32> = Vec::new();
    for stack in &event.stacks {
        let parent = match options.keys.contains(&Key::Parent) {
            true => stack.frames.iter().rev().copied().find(|f| is_parent(*f)),
            false => None,
        };
        let own = groups.add(stack, stack.leaf, stack.level, parent);
        groups.weigh(own, stack, true, 0, stack.frames.len());
        if !options.children {
            continue;
        }
        seen.clear();
        seen.push(own);
        let mut level = stack.level;
        let count = stack.frames.len();
        for i in 0..count {
            let at = match options.order {
                ChainOrder::Callee => i,
                ChainOrder::Caller => count - 1 - i,
            };
            let Some(frame) = stack.frames.get(at).copied() else { break };
            let facts = profile.frame(frame);
            if facts.dso.is_some() || facts.symbol.is_some() {
                level = if facts.kernel { 'k' } else { '.' };
            }
            let id = groups.add(stack, frame, level, parent);
            if !seen.contains(&id) {
                seen.push(id);
                groups.weigh(id, stack, false, i, count);
            }
        }
    }
    let mut entries = groups.entries;
    sort(profile, options, &mut entries);
    entries
}

struct Groups<'a> {
    profile: &'a Profile,
    options: &'a HistogramOptions,
    entries: Vec<HistEntry>,
    ids: FxHashMap<[u64; 7], u32>,
}

impl Groups<'_> {
    fn add(&mut self, stack: &Stack, frame: FrameId, level: char, parent: Option<FrameId>) -> u32 {
        let mut key = [0u64; 7];
        for (slot, k) in key.iter_mut().zip(&self.options.keys) {
            *slot = match k {
                Key::Comm => u64::from(stack.comm.0),
                Key::Dso => self.profile.frame(frame).dso.map_or(0, |d| u64::from(d.0) + 1),
                Key::Symbol => u64::from(frame.0),
                Key::Pid => u64::from(stack.pid),
                Key::Tid => u64::from(stack.tid),
                Key::Cpu => stack.cpu.map_or(0, |c| u64::from(c) + 1),
                Key::Parent => parent.map_or(0, |p| u64::from(p.0) + 1),
            };
        }
        let entries = &mut self.entries;
        *self.ids.entry(key).or_insert_with(|| {
            entries.push(HistEntry {
                comm: stack.comm,
                pid: stack.pid,
                tid: stack.tid,
                cpu: stack.cpu,
                frame,
                level,
                parent,
                samples: 0,
                own: 0,
                total: 0,
                tree: ChainTree::default(),
            });
            entries.len() as u32 - 1
        })
    }

    /// Adds the weight of `stack`, whose frames from `from` on (in chain
    /// order) are the group's chain.
    fn weigh(&mut self, id: u32, stack: &Stack, own: bool, from: usize, count: usize) {
        let Some(entry) = self.entries.get_mut(id as usize) else { return };
        entry.total = entry.total.saturating_add(stack.period);
        if own {
            entry.own = entry.own.saturating_add(stack.period);
            entry.samples += stack.samples;
        }
        match self.options.chains {
            Some(ChainOrder::Callee) => {
                entry.tree.add(stack.frames.iter().skip(from).copied(), stack.period);
            }
            Some(ChainOrder::Caller) => {
                let chain = stack.frames.iter().take(count - from).rev().copied();
                entry.tree.add(chain, stack.period);
            }
            None => {}
        }
    }
}

/// Heaviest first; equals by depth of their chains, then by their names.
fn sort(profile: &Profile, options: &HistogramOptions, entries: &mut [HistEntry]) {
    use std::cmp::Ordering;
    let symbols = &profile.machine.symbols;
    let unknown_last = |a: bool, b: bool| b.cmp(&a);
    let by_key = |key: &Key, a: &HistEntry, b: &HistEntry| match key {
        Key::Comm => profile.machine.comm(a.comm).cmp(profile.machine.comm(b.comm)),
        Key::Dso => {
            let (x, y) = (profile.frame(a.frame).dso, profile.frame(b.frame).dso);
            unknown_last(x.is_some(), y.is_some())
                .then_with(|| symbols.dso_name(x).cmp(symbols.dso_name(y)))
        }
        Key::Symbol => {
            let (x, y) = (profile.frame(a.frame), profile.frame(b.frame));
            unknown_last(x.symbol.is_some(), y.symbol.is_some()).then_with(|| {
                match (x.symbol, y.symbol) {
                    (Some(x), Some(y)) => symbols.name(x).cmp(symbols.name(y)),
                    _ => y.addr.cmp(&x.addr),
                }
            })
        }
        Key::Pid => b.pid.cmp(&a.pid),
        Key::Tid => b.tid.cmp(&a.tid),
        Key::Cpu => b.cpu.cmp(&a.cpu),
        Key::Parent => a.parent.cmp(&b.parent),
    };
    let depth = |a: &HistEntry, b: &HistEntry| {
        // perf compares depths within a thread only, which is no total order: sorting
        // by it would depend on where a tie starts, and the library's sort panics.
        if options.chains.is_none() || !options.children {
            return Ordering::Equal;
        }
        match options.order {
            ChainOrder::Caller => b.tree.depth.cmp(&a.tree.depth),
            ChainOrder::Callee => a.tree.depth.cmp(&b.tree.depth),
        }
    };
    entries.sort_by(|a, b| {
        let weight = if options.children {
            b.total.cmp(&a.total).then_with(|| depth(a, b)).then(b.own.cmp(&a.own))
        } else {
            b.own.cmp(&a.own)
        };
        weight.then_with(|| {
            let mut keys = options.keys.iter();
            keys.find_map(|k| Some(by_key(k, a, b)).filter(|o| o.is_ne()))
                .unwrap_or(Ordering::Equal)
        })
    });
}
