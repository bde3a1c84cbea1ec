//! The page and its ledger of a profile and of the command that was run.

use std::collections::HashSet;
use std::time::Duration;

use kymo_analysis::chain_tree::{Branch, ChainTree, Chains, Limit, Viewer};
use kymo_analysis::offcpu::{OffCpuCause, WaitTable};
use kymo_analysis::oncpu::ThreadTime;
use kymo_analysis::profile::{EventProfile, Frame, FrameId, Frames, Profile};
use kymo_model::{IndexVec, Note, NoteKind};
use kymo_symbols::DsoId;
use rustc_hash::FxHashMap;

use super::{FunctionShare, PathStep, ProfilePage, ThreadShare, WaitSection};
use crate::Ledger;
use crate::trust::{
    HARMLESS_PERCENT, NamelessCode, note_frame_pointers, note_symbols, note_unwinding,
};

/// Branches of the tree below this share of all samples are not shown.
const PATH_SHARE: f64 = 0.05;
const PATH_LINES: usize = 30;
const THREADS: usize = 20;

/// Facts of the run of a command that was profiled, besides its samples.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named like those of getrusage(2)")]
pub struct CommandRun {
    /// The command as typed.
    pub command: String,
    /// From its start to its end.
    pub elapsed: Duration,
    /// The command has ended: without that the rest is not known.
    pub ended: bool,
    /// It was there before: the rest is not known.
    pub attached: bool,
    pub user: Duration,
    pub system: Duration,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Samples a second and CPU that were asked for.
    pub rate: u64,
    /// Notes of the recording.
    pub notes: Vec<Note>,
    /// The command's first thread, where it is known.
    pub first_thread: Option<u32>,
}

/// Times of a command's threads.
#[derive(Debug, Default)]
pub struct ProfileTimes {
    /// By thread.
    pub threads: FxHashMap<u32, ThreadTime>,
    /// What they waited for, where that was recorded.
    pub waits: Option<WaitTable>,
}

impl ProfileTimes {
    /// Times of these threads.
    pub fn new(threads: Vec<(u32, ThreadTime)>, waits: Option<WaitTable>) -> ProfileTimes {
        let threads = threads.into_iter().filter(|(_, t)| *t != ThreadTime::default());
        let mut threads: FxHashMap<u32, ThreadTime> = threads.collect();
        // Who was woken waits for a CPU, which switches alone do not tell.
        for (tid, causes) in waits.iter().flat_map(|waits| &waits.threads) {
            let woken = causes.iter().find(|(cause, _)| *cause == OffCpuCause::Woken);
            if let (Some(time), Some((_, woken))) = (threads.get_mut(tid), woken) {
                let woken = (*woken).min(time.blocked);
                time.blocked -= woken;
                time.ready += woken;
            }
        }
        ProfileTimes { threads, waits }
    }

    fn all(&self) -> ThreadTime {
        self.threads.values().fold(ThreadTime::default(), |a, t| a.plus(*t))
    }
}

/// Page of a profile that shows the first `top` functions.
pub fn build_page(
    run: &CommandRun,
    profile: &Profile,
    times: &ProfileTimes,
    top: usize,
) -> ProfilePage {
    let empty = EventProfile::default();
    let merged = MergedFrames::new(profile);
    let event = profile.events.first().unwrap_or(&empty);
    let all = times.all();
    let waits = times.waits.as_ref().map(|w| WaitSection::new(w, all.on_cpu));
    let times = &times.threads;
    let nanos = |n: u64| (!times.is_empty()).then(|| Duration::from_nanos(n));
    ProfilePage {
        command: run.command.clone(),
        elapsed: run.elapsed,
        attached: run.attached,
        on_cpu: nanos(all.on_cpu),
        user: run.user,
        system: run.system,
        ready: nanos(all.ready),
        blocked: nanos(all.blocked),
        minor_faults: run.minor_faults,
        major_faults: run.major_faults,
        voluntary_switches: run.voluntary_switches,
        involuntary_switches: run.involuntary_switches,
        samples: event.samples,
        event: event.desc.name.clone(),
        rate: Some(run.rate),
        waits,
        functions: functions(top, profile, event, &merged),
        path: path(profile, event, &merged),
        threads: threads(profile, event, times, &merged),
    }
}

/// For each frame the one that stands for it. Code of one binary without symbols is
/// one place: a list of its addresses tells a newcomer nothing.
struct MergedFrames(IndexVec<FrameId, FrameId>);

impl MergedFrames {
    fn new(profile: &Profile) -> MergedFrames {
        let mut first: FxHashMap<Option<DsoId>, FrameId> = FxHashMap::default();
        let place = |(own, frame): (FrameId, &Frame)| {
            let nameless = frame.symbol.is_none();
            if nameless { *first.entry(frame.dso).or_insert(own) } else { own }
        };
        MergedFrames(profile.frames.iter_enumerated().map(place).collect())
    }

    fn at(&self, frame: FrameId) -> FrameId {
        self.0.get(frame).copied().unwrap_or(frame)
    }

    /// A chain with a run of one place as one frame.
    fn chain(&self, frames: Frames<'_>) -> Vec<FrameId> {
        let mut chain: Vec<FrameId> = frames.iter().map(|f| self.at(f)).collect();
        chain.dedup();
        chain
    }
}

/// A function's name, or that there is none.
fn label(profile: &Profile, frame: FrameId) -> String {
    match profile.frame(frame) {
        f if f.symbol.is_some() => profile.frame_name(frame),
        f => format!("(no symbols) in {}", profile.machine.symbols.dso_name(f.dso)),
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

fn functions(
    top: usize,
    profile: &Profile,
    event: &EventProfile,
    merged: &MergedFrames,
) -> Vec<FunctionShare> {
    let mut costs: FxHashMap<FrameId, (u64, u64)> = FxHashMap::default();
    let mut seen: HashSet<FrameId> = HashSet::new();
    for (s, frames) in event.stacks() {
        seen.clear();
        let leaf = merged.at(s.leaf);
        costs.entry(leaf).or_default().0 += s.period;
        for f in frames.iter().map(|f| merged.at(f)).chain([leaf]).filter(|f| seen.insert(*f)) {
            costs.entry(f).or_default().1 += s.period;
        }
    }
    let mut order: Vec<_> = costs.into_iter().filter(|(_, c)| c.0 > 0).collect();
    order.sort_by_key(|(f, c)| (std::cmp::Reverse(c.0), *f));
    let row = |(frame, (own, total)): (FrameId, (u64, u64))| FunctionShare {
        own: share(own, event.period),
        total: share(total, event.period),
        name: label(profile, frame),
        object: profile.machine.symbols.dso_name(profile.frame(frame).dso).to_owned(),
    };
    order.into_iter().map(row).take(top).collect()
}

/// The heavy branches of the call tree, outermost caller first.
fn path(profile: &Profile, event: &EventProfile, merged: &MergedFrames) -> Vec<PathStep> {
    let mut tree = ChainTree::default();
    let trunk = tree.trunk(0);
    let mut all = Chains::default();
    for (s, frames) in event.stacks().filter(|(_, frames)| !frames.is_empty()) {
        // What a chain holds beyond the first unmapped address is not code: code
        // without frame pointers keeps data where the kernel looks for a caller.
        let mut chain = merged.chain(frames);
        let mapped = chain.iter().take_while(|f| profile.frame(**f).dso.is_some()).count();
        chain.truncate(mapped);
        let end = tree.add(trunk, chain.into_iter().rev(), s.period);
        all.whole.push((end, s.period));
    }
    let rank = |f| profile.rank(f);
    let same = |f: FrameId| (u64::from(f.0), 0);
    let mut viewer = Viewer::new(&tree, &rank, &same);
    let share = (event.period as f64 * PATH_SHARE) as u64;
    // What one sample alone passed through is no path.
    let two = event.period.saturating_mul(2) / event.samples.max(1);
    let least = share.max(two);
    let mut steps = Vec::new();
    for b in viewer.branches(&all, Limit::Period(least.max(1))) {
        walk(profile, event, &b, 0, &mut steps);
    }
    steps
}

/// A stretch without forks keeps its indentation, so that deep stacks stay on the page.
fn walk(p: &Profile, event: &EventProfile, b: &Branch, depth: usize, steps: &mut Vec<PathStep>) {
    for f in &b.frames {
        if steps.len() == PATH_LINES {
            return;
        }
        steps.push(PathStep { depth, share: share(b.total, event.period), name: label(p, *f) });
    }
    let depth = depth + usize::from(b.children.len() > 1);
    for c in &b.children {
        walk(p, event, c, depth, steps);
    }
}

fn threads(
    p: &Profile,
    event: &EventProfile,
    times: &FxHashMap<u32, ThreadTime>,
    merged: &MergedFrames,
) -> Vec<ThreadShare> {
    struct Row {
        name: String,
        pid: u32,
        period: u64,
        places: FxHashMap<FrameId, u64>,
    }
    let mut rows: FxHashMap<u32, Row> = FxHashMap::default();
    for (s, _) in event.stacks() {
        let row = rows.entry(s.tid).or_insert_with(|| Row {
            name: String::new(),
            pid: s.pid,
            period: 0,
            places: FxHashMap::default(),
        });
        // Stacks come in the order they were first seen: the last name wins.
        p.machine.comm(s.comm).clone_into(&mut row.name);
        row.period += s.period;
        *row.places.entry(merged.at(s.leaf)).or_default() += s.period;
    }
    let mut order: Vec<(u32, Row)> = rows.into_iter().collect();
    order.sort_by_key(|(tid, r)| (std::cmp::Reverse(r.period), *tid));
    let view = |(tid, r): (u32, Row)| {
        let time = times.get(&tid);
        let hottest = r.places.iter().max_by_key(|(f, w)| (**w, std::cmp::Reverse(**f)));
        ThreadShare {
            name: r.name,
            pid: r.pid,
            tid,
            share: share(r.period, event.period),
            on_cpu: time.map(|t| Duration::from_nanos(t.on_cpu)),
            ready: time.map(|t| Duration::from_nanos(t.ready)),
            blocked: time.map(|t| Duration::from_nanos(t.blocked)),
            hottest: hottest.map_or(String::new(), |(f, _)| label(p, *f)),
        }
    };
    order.into_iter().take(THREADS).map(view).collect()
}

/// Ledger of the page.
pub fn page_ledger(run: &CommandRun, profile: &Profile, times: &ProfileTimes) -> Ledger {
    let empty = EventProfile::default();
    let event = profile.events.first().unwrap_or(&empty);
    let mut ledger = Ledger::default();
    // The page names the event itself.
    for n in run.notes.iter().filter(|n| n.kind != NoteKind::DefaultEvent) {
        ledger.push(n.clone());
    }
    if !run.ended && !run.attached {
        let fact = "the command had not ended: its times, faults and switches are not known";
        ledger.note(NoteKind::Unfinished, fact, None);
    }
    if event.samples < 100 {
        let fact = format!("only {} samples: shares are rough", event.samples);
        ledger.note(NoteKind::Few, fact, Some("a higher rate (-F), or a longer run".into()));
    }
    if let Some(d) = &profile.stats.damaged {
        ledger.note(NoteKind::Damaged, format!("the recording is damaged {d}"), None);
    }
    note_nameless(&mut ledger, profile, event);
    note_unwinding(&profile.unwinding, &profile.machine.symbols, &mut ledger);
    note_frame_pointers(profile, event, &mut ledger);
    note_symbols(&profile.machine.symbols, &mut ledger);
    note_times(&mut ledger, run, times);
    ledger
}

/// Notes what makes the times off the CPU doubtful.
fn note_times(ledger: &mut Ledger, run: &CommandRun, times: &ProfileTimes) {
    // The first thread is there from the start to the end.
    let first = run.first_thread.and_then(|tid| times.threads.get(&tid));
    if let Some(t) = first.filter(|_| run.ended) {
        let sum = Duration::from_nanos(t.on_cpu + t.ready + t.blocked);
        let apart = sum.abs_diff(run.elapsed);
        if apart > run.elapsed.mul_f64(0.01).max(Duration::from_millis(5)) {
            let fact = format!(
                "time on and off the CPU of the first thread is {:.1} ms, from start to end it is \
                 {:.1} ms",
                sum.as_secs_f64() * 1e3,
                run.elapsed.as_secs_f64() * 1e3
            );
            ledger.note(NoteKind::Unmatched, fact, None);
        }
    }
    let Some(waits) = &times.waits else { return };
    let (all, stacked) = waits.stacked;
    if share(all - stacked.min(all), all) >= HARMLESS_PERCENT {
        let fact = format!("{} of {all} waits have no stack", all - stacked);
        ledger.note(NoteKind::Stacks, fact, None);
    }
    if waits.stacks.left_out + waits.merged > 0 {
        let fact = "there are more stacks of waits than are told apart";
        ledger.note(NoteKind::Entries, fact, None);
    }
}

/// Notes the share of time in code without symbols, and where most of it is.
fn note_nameless(ledger: &mut Ledger, profile: &Profile, event: &EventProfile) {
    let spent = event.stacks().map(|(s, _)| (s.leaf, s.period));
    let nameless = NamelessCode::new(profile, spent);
    let all = share(nameless.sum, event.period);
    if let Some((worst, _)) = nameless.worst.first().filter(|_| all >= HARMLESS_PERCENT) {
        let fact =
            format!("{all:.1}% of the time is in code without symbols, most of it in {worst}");
        ledger.note(NoteKind::Unresolved, fact, nameless.advice());
    }
}
