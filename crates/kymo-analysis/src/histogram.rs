//! The histogram of an event, or of several beside each other: stacks grouped by the sort keys. All call chains
//! lie in one tree; a group knows only where in it its own are, so that what is
//! drawn of a group is made when it is printed and forgotten afterwards.

use std::hash::Hash;

use kymo_model::{IndexVec, impl_vec_index};
use kymo_symbols::{DsoId, Resolver, SymId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::chain_tree::{ChainTree, Chains, NodeId};
use crate::profile::{EventProfile, Frame, FrameId, Frames, Profile, Stack};
use kymo_events::state::CommId;

/// Key by which stacks are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are perf's sort keys")]
pub enum Key {
    Comm,
    Dso,
    Symbol,
    Pid,
    Tid,
    Cpu,
    /// Threads that ran.
    Parallelism,
    Parent,
    Srcline,
    Srcfile,
    /// Part of a stack's label.
    Label(u8),
}

/// From which end call chains are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainOrder {
    /// Innermost first.
    Callee,
    /// Outermost first.
    Caller,
}

/// Options of grouping.
#[derive(Clone, Debug)]
pub struct HistogramOptions {
    /// The keys.
    pub keys: Vec<Key>,
    /// Each function also gets the weight of what it called.
    pub children: bool,
    /// Keep call chains of entries that weigh at least this.
    pub chains: Option<u64>,
    /// From which end they are read.
    pub order: ChainOrder,
    /// Keep stacks of different labels apart: of each part of a label, the
    /// place of each label in the order of that part.
    pub labels: Option<Vec<Vec<u32>>>,
    /// Entries weigh their latency instead of their period.
    pub by_latency: bool,
    /// They are put in the order of their periods, whatever they weigh.
    pub by_period: bool,
    /// Number of the event whose numbers the order goes by, of those counted together.
    pub sorted_by: usize,
}

impl HistogramOptions {
    fn weight(&self, stack: &Stack) -> u64 {
        if self.by_latency { stack.latency } else { stack.period }
    }
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
    /// Threads that ran, of the first sample.
    pub parallelism: u32,
    /// Label of the first sample.
    pub label: u32,
    /// Frame.
    pub frame: FrameId,
    /// Address that identifies code without a symbol: of a leaf the one in the binary's terms, of a
    /// caller the sampled one, as in perf.
    pub place: u64,
    /// `k`, `.`, …
    pub level: char,
    /// The first frame met that matches the parent pattern.
    pub parent: Option<FrameId>,
    /// Samples taken here.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
    /// Periods of samples in the kernel, and in user space.
    pub by_mode: (u64, u64),
    /// Weight of what was spent here: the same, or its latency.
    pub own: u64,
    /// Weight of what was spent here and in what was called from here.
    pub total: u64,
    /// The call chains, in [`Histogram::tree`].
    pub chains: Chains,
    /// Frames of the longest one.
    depth: u32,
    /// Numbers of the other events, where several are counted beside each other.
    pub members: Vec<EntryNumbers>,
}

/// Counts of an entry for one event.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryNumbers {
    /// As [`HistEntry::samples`].
    pub samples: u64,
    /// As [`HistEntry::period`].
    pub period: u64,
    /// As [`HistEntry::by_mode`].
    pub by_mode: (u64, u64),
    /// As [`HistEntry::own`].
    pub own: u64,
    /// As [`HistEntry::total`].
    pub total: u64,
}

impl EntryNumbers {
    /// Adds those of another entry.
    pub fn add(&mut self, other: &EntryNumbers) {
        self.samples += other.samples;
        self.period = self.period.saturating_add(other.period);
        self.by_mode.0 = self.by_mode.0.saturating_add(other.by_mode.0);
        self.by_mode.1 = self.by_mode.1.saturating_add(other.by_mode.1);
        self.own = self.own.saturating_add(other.own);
        self.total = self.total.saturating_add(other.total);
    }
}

impl HistEntry {
    /// Its numbers of the first event.
    pub fn numbers(&self) -> EntryNumbers {
        let HistEntry { samples, period, by_mode, own, total, .. } = *self;
        EntryNumbers { samples, period, by_mode, own, total }
    }

    /// Its numbers of event number `n` of those counted together.
    pub fn numbers_of(&self, n: usize) -> EntryNumbers {
        match n.checked_sub(1) {
            Some(n) => self.members.get(n).copied().unwrap_or_default(),
            None => self.numbers(),
        }
    }

    /// Own weight of the event that the order goes by; of the first where no such event.
    pub fn deciding_weight(&self, sorted_by: usize) -> u64 {
        let member = sorted_by.checked_sub(1).and_then(|n| self.members.get(n));
        member.map_or(self.own, |m| m.own)
    }

    /// Own weights that decide next: as in perf, those of the other events in their order, without
    /// the first, and not where an event is named that is none.
    pub fn further_weights(&self, sorted_by: usize) -> impl Iterator<Item = u64> {
        let is_one = sorted_by <= self.members.len();
        self.members.iter().filter(move |_| is_one).map(|m| m.own)
    }

    /// Sets its numbers of the first event.
    pub fn set_numbers(&mut self, numbers: EntryNumbers) {
        let EntryNumbers { samples, period, by_mode, own, total } = numbers;
        (self.samples, self.period, self.by_mode) = (samples, period, by_mode);
        (self.own, self.total) = (own, total);
    }
}

/// The groups, heaviest first.
#[derive(Debug)]
pub struct Histogram {
    /// The groups.
    pub entries: Vec<HistEntry>,
    /// All call chains.
    pub tree: ChainTree,
}

/// Selection of stacks and frames.
pub struct Choice<'a> {
    /// Only stacks for which this holds are shown.
    pub wanted: &'a dyn Fn(&Stack) -> bool,
    /// The frames that the parent key looks for.
    pub is_parent: &'a dyn Fn(FrameId) -> bool,
    /// The frames that what they called is counted for.
    pub takes_callees: Option<&'a dyn Fn(FrameId) -> bool>,
}

impl Choice<'_> {
    /// The stacks that count, without what was called from frames that take it.
    fn stacks<'s>(
        &'s self,
        profile: &'s Profile,
        event: &'s EventProfile,
    ) -> impl Iterator<Item = (Stack, Frames<'s>)> {
        let mut known: FxHashMap<FrameId, bool> = FxHashMap::default();
        let chosen = event.stacks().filter(|(stack, _)| (self.wanted)(stack));
        chosen.map(move |(stack, frames)| {
            let Some(takes) = self.takes_callees else { return (stack, frames) };
            let mut is_one = |frame: FrameId| *known.entry(frame).or_insert_with(|| takes(frame));
            // The outermost one.
            let Some(n) = frames.iter().rposition(&mut is_one) else { return (stack, frames) };
            let rest = frames.skip(n);
            let leaf = rest.iter().next().unwrap_or(stack.leaf);
            let level = if profile.frame(leaf).kernel { 'k' } else { '.' };
            (Stack { leaf, level, ..stack }, rest)
        })
    }
}

/// Groups the stacks of `events`. Entries have the numbers of each of them, and call chains of
/// the first.
pub fn histogram(
    profile: &Profile,
    events: &[&EventProfile],
    options: &HistogramOptions,
    choice: &Choice<'_>,
) -> Histogram {
    let Some((first, others)) = events.split_first() else {
        return Histogram { entries: Vec::new(), tree: ChainTree::default() };
    };
    let labels = if others.is_empty() { Vec::new() } else { equal_labels(options) };
    let mut groups = count(profile, first, (options, &labels), choice);
    let unchained = HistogramOptions { chains: None, ..options.clone() };
    for (place, event) in others.iter().enumerate() {
        let counted = count(profile, event, (&unchained, &labels), choice);
        groups.join(counted, place);
    }
    let Groups { entries, tree, .. } = groups;
    let mut entries = entries.into_vec();
    let missing = EntryNumbers::default();
    entries.iter_mut().for_each(|e| e.members.resize(others.len(), missing));
    sort(profile, options, &mut entries);
    Histogram { entries, tree }
}

/// For each label the first one that is equal to it in all parts: each event has its own.
fn equal_labels(options: &HistogramOptions) -> Vec<u32> {
    let Some(parts) = &options.labels else { return Vec::new() };
    let mut first: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
    let labels = 0..parts.first().map_or(0, Vec::len) as u32;
    let ranks = |label: u32| {
        parts.iter().map(|ranks| ranks.get(label as usize).copied().unwrap_or(0)).collect()
    };
    labels.map(|label| *first.entry(ranks(label)).or_insert(label)).collect()
}

/// Groups the stacks of one event.
fn count<'a>(
    profile: &'a Profile,
    event: &EventProfile,
    (options, labels): (&'a HistogramOptions, &'a [u32]),
    choice: &Choice<'_>,
) -> Groups<'a> {
    let mut groups = Groups {
        profile,
        options,
        labels,
        tree: ChainTree::default(),
        entries: IndexVec::default(),
        ids: FxHashMap::default(),
        trunks: FxHashMap::default(),
        heads: Vec::new(),
        entry_of: IndexVec::default(),
        levels: IndexVec::default(),
        namesakes: namesakes(&profile.machine.symbols),
    };
    let with_parent = options.keys.contains(&Key::Parent);
    let mut known: FxHashMap<FrameId, bool> = FxHashMap::default();
    let mut matches = |f: FrameId| *known.entry(f).or_insert_with(|| (choice.is_parent)(f));
    let mut entry_of_stack: Vec<EntryId> = Vec::new();
    for (stack, frames) in choice.stacks(profile, event) {
        // The first one met.
        let parent = match options.order {
            _ if !with_parent => None,
            ChainOrder::Callee => frames.iter().find(|f| matches(*f)),
            ChainOrder::Caller => frames.iter().rev().find(|f| matches(*f)),
        };
        let head = Head { stack, parent };
        let id = groups.own(&head);
        if options.children {
            groups.chain(head, id, frames);
        } else if options.chains.is_some() {
            entry_of_stack.push(id);
        }
    }
    match options.chains {
        _ if options.children => groups.weigh_callers(),
        // Few entries are heavy enough for a tree.
        Some(least) => {
            let stacks = choice.stacks(profile, event);
            for ((stack, frames), id) in stacks.zip(entry_of_stack) {
                if groups.entries.get(id).is_some_and(|e| e.own >= least) {
                    groups.chain(Head { stack, parent: None }, id, frames);
                }
            }
        }
        None => {}
    }
    groups
}

fn namesakes(symbols: &Resolver) -> Vec<u32> {
    let mut first: FxHashMap<&str, u32> = FxHashMap::default();
    let dsos = (0..).zip(symbols.binaries_from(0));
    dsos.map(|(n, dso)| *first.entry(&dso.short_name).or_insert(n)).collect()
}

/// Properties that all entries along a chain share.
#[derive(Clone, Copy)]
struct Head {
    stack: Stack,
    parent: Option<FrameId>,
}

struct Groups<'a> {
    profile: &'a Profile,
    options: &'a HistogramOptions,
    /// Representative of each label, where labels of several events are compared.
    labels: &'a [u32],
    tree: ChainTree,
    entries: IndexVec<EntryId, HistEntry>,
    ids: FxHashMap<[u64; KEYS], EntryId>,
    /// Trunks of the tree by the keys that do not depend on the frame.
    trunks: FxHashMap<[u64; KEYS], u32>,
    heads: Vec<Head>,
    /// Entry of each node of the tree, with `children`.
    entry_of: IndexVec<NodeId, EntryId>,
    levels: IndexVec<NodeId, char>,
    /// First binary that has the name of each binary.
    namesakes: Vec<u32>,
}

/// The frame that an entry is about.
#[derive(Clone, Copy)]
struct Spot {
    frame: FrameId,
    place: u64,
    level: char,
}

/// Number of an entry while it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryId(u32);
impl_vec_index!(EntryId, "entry of a histogram");

/// Entry of trunks, which stand for no frame.
const NO_ENTRY: EntryId = EntryId(u32::MAX);
/// One slot for each key there is, one for labels, and one for binaries.
const KEYS: usize = 12;

impl Groups<'_> {
    /// Takes over what was counted of another event, number `place` of them.
    fn join(&mut self, other: Groups<'_>, place: usize) {
        let mut keys = vec![[0; KEYS]; other.entries.len()];
        for (key, id) in other.ids {
            keys.get_mut(id.0 as usize).into_iter().for_each(|place| *place = key);
        }
        for (theirs, key) in other.entries.iter().zip(keys) {
            let entries = &mut self.entries;
            let mine = *self.ids.entry(key).or_insert_with(|| {
                let mut entry = theirs.clone();
                entry.set_numbers(EntryNumbers::default());
                (entry.depth, entry.chains) = (0, Chains::default());
                entries.push(entry)
            });
            let Some(entry) = self.entries.get_mut(mine) else { continue };
            entry.members.resize(place, EntryNumbers::default());
            entry.members.push(theirs.numbers());
        }
    }

    /// Counts a stack where the processor was.
    fn own(&mut self, head: &Head) -> EntryId {
        let stack = &head.stack;
        let place = self.profile.frame(stack.leaf).addr;
        let id = self.add(head, Spot { frame: stack.leaf, place, level: stack.level });
        if let Some(entry) = self.entries.get_mut(id) {
            let weight = self.options.weight(stack);
            entry.period = entry.period.saturating_add(stack.period);
            let (kernel, user) = &mut entry.by_mode;
            match stack.level {
                'k' => *kernel = kernel.saturating_add(stack.period),
                '.' => *user = user.saturating_add(stack.period),
                _ => {}
            }
            entry.own = entry.own.saturating_add(weight);
            entry.total = entry.total.saturating_add(weight);
            entry.samples += stack.samples;
        }
        id
    }

    /// Puts the chain of a stack, which belongs to an entry, into the tree.
    fn chain(&mut self, head: Head, id: EntryId, frames: Frames<'_>) {
        let trunk = if self.options.children { self.trunk(head) } else { self.tree.trunk(0) };
        let period = self.options.weight(&head.stack);
        let end = match self.options.order {
            ChainOrder::Callee => self.tree.add(trunk, frames.iter(), period),
            ChainOrder::Caller => self.tree.add(trunk, frames.iter().rev(), period),
        };
        if self.options.children {
            self.name_new_nodes(head);
        }
        if let Some(entry) = self.entries.get_mut(id) {
            entry.depth = entry.depth.max(frames.len() as u32);
            entry.chains.whole.push((end, period));
        }
    }

    fn trunk(&mut self, head: Head) -> NodeId {
        let key = self.key(&head, None);
        let heads = &mut self.heads;
        let number = *self.trunks.entry(key).or_insert_with(|| {
            heads.push(head);
            heads.len() as u32 - 1
        });
        self.tree.trunk(number)
    }

    /// Finds the entries of the nodes that the last stack brought. They were
    /// made in the order of its chain.
    fn name_new_nodes(&mut self, head: Head) {
        let named = self.entry_of.len();
        for node in self.tree.nodes_from(named) {
            let facts = self.tree.facts(node);
            let Some((Some(parent), frame, _)) = facts else {
                self.entry_of.push(NO_ENTRY);
                self.levels.push(head.stack.level);
                continue;
            };
            let facts = self.profile.frame(frame);
            let level = match facts {
                // Mapped nowhere: as the frame before it, or the sample.
                Frame { dso: None, symbol: None, .. } => match self.entry_at(parent) {
                    NO_ENTRY => head.stack.level,
                    _ => self.levels.get(parent).copied().unwrap_or('.'),
                },
                Frame { kernel: true, .. } => 'k',
                _ => '.',
            };
            self.levels.push(level);
            let id = self.add(&head, Spot { frame, place: facts.ip, level });
            self.entry_of.push(id);
        }
    }

    /// Gives each function the weight of what it called: once for each node
    /// that all its stacks share, not once for each stack.
    fn weigh_callers(&mut self) {
        for node in self.tree.nodes() {
            let id = self.entry_at(node);
            let inside = self.tree.ancestors(node).skip(1).any(|n| self.entry_at(n) == id);
            let Some((Some(_), _, total)) = self.tree.facts(node) else { continue };
            let height = self.tree.height(node);
            let Some(entry) = self.entries.get_mut(id) else { continue };
            if !inside {
                entry.total = entry.total.saturating_add(total);
                entry.depth = entry.depth.max(height);
                entry.chains.below.push(node);
            }
        }
        // What ends in an entry was counted as its own already.
        for id in self.entries.indices() {
            let Some(entry) = self.entries.get(id) else { break };
            let passes = |end: NodeId| self.tree.ancestors(end).any(|n| self.entry_at(n) == id);
            let twice = entry.chains.whole.iter().filter(|(end, _)| passes(*end));
            let twice = twice.fold(0u64, |sum, (_, period)| sum.saturating_add(*period));
            if let Some(entry) = self.entries.get_mut(id) {
                entry.total = entry.total.saturating_sub(twice);
                if self.options.chains.is_none_or(|least| entry.total < least) {
                    entry.chains = Chains::default();
                }
            }
        }
    }

    fn entry_at(&self, node: NodeId) -> EntryId {
        self.entry_of.get(node).copied().unwrap_or(NO_ENTRY)
    }

    fn key(&self, head: &Head, spot: Option<Spot>) -> [u64; KEYS] {
        let mut key = [0u64; KEYS];
        let frame = spot.map(|s| self.profile.frame(s.frame));
        let plain = self.options.keys.iter().filter(|k| !matches!(k, Key::Label(_)));
        for (slot, k) in key.iter_mut().zip(plain) {
            *slot = match k {
                Key::Comm => u64::from(head.stack.comm.0),
                // Binaries are distinguished by their shown name, as in perf.
                Key::Dso => frame.and_then(|f| f.dso).map_or(0, |d| self.name_of(d)),
                Key::Symbol => match (frame, spot) {
                    (Some(Frame { symbol: Some(s), inlined, .. }), _) => {
                        u64::from(s.0) | inlined.map_or(0, |t| u64::from(t.0) + 1) << 32
                    }
                    (_, Some(spot)) => spot.place,
                    _ => 0,
                },
                Key::Pid => u64::from(head.stack.pid),
                Key::Tid => u64::from(head.stack.tid),
                Key::Cpu => head.stack.cpu.map_or(0, |c| u64::from(c) + 1),
                Key::Parallelism => u64::from(head.stack.parallelism),
                Key::Parent => head.parent.map_or(0, |p| u64::from(p.0) + 1),
                // A place without a line is a frame of its own.
                Key::Srcline => match (frame, spot) {
                    (Some(Frame { line: Some(at), .. }), _) => {
                        u64::from(at.file.0) << 32 | u64::from(at.line)
                    }
                    (_, Some(spot)) => 1 << 63 | u64::from(spot.frame.0),
                    _ => 0,
                },
                Key::Srcfile => frame.and_then(|f| f.line).map_or(0, |at| u64::from(at.file.0) + 1),
                Key::Label(_) => continue,
            };
        }
        // A label stands for all of its parts.
        if let Some(slot) = key.get_mut(KEYS - 2).filter(|_| self.options.labels.is_some()) {
            let label = head.stack.label;
            *slot = u64::from(self.labels.get(label as usize).copied().unwrap_or(label));
        }
        // Equal addresses in two binaries are two, and so are an address and
        // the number of a symbol.
        if let (Some(frame), Some(last)) = (frame, key.last_mut())
            && self.options.keys.contains(&Key::Symbol)
        {
            let dso = frame.dso.map_or(0, |d| u64::from(d.0) + 1);
            *last = dso << 1 | u64::from(frame.symbol.is_some());
        }
        key
    }

    /// The first binary of that name, plus one.
    fn name_of(&self, dso: DsoId) -> u64 {
        self.namesakes.get(dso.0 as usize).map_or(u64::from(dso.0), |d| u64::from(*d)) + 1
    }

    fn add(&mut self, head: &Head, spot: Spot) -> EntryId {
        let key = self.key(head, Some(spot));
        let entries = &mut self.entries;
        *self.ids.entry(key).or_insert_with(|| {
            entries.push(HistEntry {
                comm: head.stack.comm,
                pid: head.stack.pid,
                tid: head.stack.tid,
                cpu: head.stack.cpu,
                parallelism: head.stack.parallelism,
                label: head.stack.label,
                frame: spot.frame,
                place: spot.place,
                level: spot.level,
                parent: head.parent,
                samples: 0,
                by_mode: (0, 0),
                period: 0,
                own: 0,
                total: 0,
                chains: Chains::default(),
                depth: 0,
                members: Vec::new(),
            })
        })
    }
}

/// Heaviest first; equals by depth of their chains, then by their names. Names
/// are compared once, not whenever two entries meet.
fn sort(profile: &Profile, options: &HistogramOptions, entries: &mut Vec<HistEntry>) {
    let symbols = &profile.machine.symbols;
    let frame = |e: &HistEntry| profile.frame(e.frame);
    // The only place where names are needed in great number.
    let used: FxHashSet<SymId> = entries.iter().filter_map(|e| frame(e).symbol).collect();
    symbols.prepare_names(&used.into_iter().collect::<Vec<_>>());
    let comms = Ranks::of(entries.iter().map(|e| e.comm), |c| profile.machine.comm(c));
    let dsos =
        Ranks::of(entries.iter().filter_map(|e| frame(e).dso), |d| symbols.dso_name(Some(d)));
    let function = |e: &HistEntry| frame(e).symbol.map(|s| (s, frame(e).inlined));
    let names = Ranks::of(entries.iter().filter_map(function), |(s, inlined)| match inlined {
        Some(name) => profile.sources.function(name),
        None => symbols.name(s),
    });
    let nameless = entries.iter().filter(|e| frame(e).symbol.is_none());
    let places = Ranks::of(nameless.map(|e| e.place), |p| p);
    let parents = Ranks::of(entries.iter().filter_map(|e| e.parent), |f| profile.frame_name(f));
    let with_lines = [Key::Srcline, Key::Srcfile].iter().any(|k| options.keys.contains(k));
    let places_of = || entries.iter().filter(|_| with_lines).map(|e| e.frame);
    let lines = Ranks::of(places_of(), |f| profile.srcline(f, true));
    let files = Ranks::of(places_of(), |f| profile.srcfile(f, true));
    let by_key = |key: &Key, e: &HistEntry| -> u64 {
        match key {
            Key::Comm => comms.get(e.comm),
            // What is unknown comes last.
            Key::Dso => frame(e).dso.map_or(u64::MAX, |d| dsos.get(d)),
            Key::Symbol => match function(e) {
                Some(f) => names.get(f),
                None => !places.get(e.place),
            },
            Key::Pid => u64::from(!e.pid),
            Key::Tid => u64::from(!e.tid),
            Key::Cpu => e.cpu.map_or(u64::MAX, |c| u64::from(!c)),
            Key::Parallelism => u64::from(e.parallelism),
            Key::Parent => e.parent.map_or(u64::MAX, |p| parents.get(p)),
            Key::Srcline => lines.get(e.frame),
            Key::Srcfile => files.get(e.frame),
            Key::Label(part) => {
                let ranks = options.labels.as_ref().and_then(|l| l.get(usize::from(*part)));
                ranks.and_then(|r| r.get(e.label as usize)).map_or(0, |r| u64::from(*r))
            }
        }
    };
    // perf compares depths within a thread only, which is no total order: sorting
    // by it would depend on where a tie starts, and the library's sort panics.
    let depth = |e: &HistEntry| match options.order {
        _ if options.chains.is_none() || !options.children => 0,
        ChainOrder::Caller => !e.depth,
        ChainOrder::Callee => e.depth,
    };
    let own = |e: &HistEntry| {
        if options.by_period { e.period } else { e.deciding_weight(options.sorted_by) }
    };
    let count = options.keys.len();
    let mut order: Vec<(u64, u32, u64, u32)> = Vec::with_capacity(entries.len());
    let mut keys: Vec<u64> = Vec::with_capacity(entries.len() * count);
    for (i, e) in entries.iter().enumerate() {
        let weight = if options.children { e.total } else { own(e) };
        order.push((!weight, depth(e), !own(e), i as u32));
        keys.extend(options.keys.iter().map(|k| by_key(k, e)));
    }
    let keys_of = |i: u32| keys.get(i as usize * count..(i as usize + 1) * count);
    let by_members = |a: u32, b: u32| {
        let [a, b] = [a, b].map(|i| entries.get(i as usize));
        let own = |e| HistEntry::further_weights(e, options.sorted_by);
        b.into_iter().flat_map(own).cmp(a.into_iter().flat_map(own))
    };
    order.sort_unstable_by(|a, b| {
        (a.0, a.1, a.2)
            .cmp(&(b.0, b.1, b.2))
            .then_with(|| by_members(a.3, b.3))
            .then_with(|| keys_of(a.3).cmp(&keys_of(b.3)).then(a.3.cmp(&b.3)))
    });
    let mut slots: Vec<Option<HistEntry>> = std::mem::take(entries).into_iter().map(Some).collect();
    let take = |o: (u64, u32, u64, u32)| slots.get_mut(o.3 as usize).and_then(Option::take);
    entries.extend(order.into_iter().filter_map(take));
}

/// Places of names in their order; equal names share one.
struct Ranks<T>(FxHashMap<T, u32>);

impl<T: Copy + Eq + Hash> Ranks<T> {
    fn of<N: Ord>(used: impl Iterator<Item = T>, name: impl Fn(T) -> N) -> Ranks<T> {
        let mut ranks: FxHashMap<T, u32> = used.map(|t| (t, 0)).collect();
        let mut named: Vec<(N, T)> = ranks.keys().map(|t| (name(*t), *t)).collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        let mut rank = 0;
        for run in named.chunk_by(|a, b| a.0 == b.0) {
            rank += 1;
            for (_, t) in run {
                ranks.insert(*t, rank);
            }
        }
        Ranks(ranks)
    }

    fn get(&self, t: T) -> u64 {
        self.0.get(&t).map_or(u64::MAX, |r| u64::from(*r))
    }
}
