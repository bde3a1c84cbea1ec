//! The page and its ledger of a profile and of the command that was run.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use kymo_analysis::chain_tree::{Branch, ChainTree, Chains, Limit, Viewer};
use kymo_analysis::offcpu::{OffCpuCause, OffCpuTable, WaitTable};
use kymo_analysis::oncpu::{ThreadAccounts, ThreadTime};
use kymo_analysis::profile::{EventProfile, Frame, FrameId, Frames, Profile};
use kymo_events::TaskComm;
use kymo_model::{IndexVec, Note, NoteKind, by_number, counted};
use kymo_symbols::DsoId;
use rustc_hash::FxHashMap;

use super::next::{ProfileTarget, next_steps};
use super::tree::time_steps;
use super::waits::idle_waits;
use super::{FunctionShare, PathStep, ProfilePage, ProgramShare, ThreadShare, WaitSection};
use crate::Ledger;
use crate::trust::{
    HARMLESS_PERCENT, NamelessCode, note_cut_chains, note_frame_pointers, note_symbols,
    note_unwinding,
};
use crate::units::shown;

/// Branches of the tree below this share of all samples are not shown.
const PATH_SHARE: f64 = 0.05;
/// Percentage of the samples from which a function is worth a look at its instructions.
const HOT: f64 = 5.0;
const PATH_LINES: usize = 30;
const THREADS: usize = 20;
const PROGRAMS: usize = 10;

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
    /// Programs in the command that the recording has nothing of.
    pub hidden: Vec<PathBuf>,
    /// Samples a second and CPU that were asked for.
    pub rate: u64,
    /// Notes of the recording.
    pub notes: Vec<Note>,
    /// The command's first thread, where it is known.
    pub first_thread: Option<u32>,
    /// Target as other commands name it.
    pub target: ProfileTarget,
}

/// Times of a command's threads.
#[derive(Debug, Default)]
pub struct ProfileTimes {
    /// By thread.
    pub threads: FxHashMap<u32, ThreadTime>,
    /// Waits of the threads, where recorded.
    pub waits: Option<WaitTable>,
    /// Their names and processes, as far as waits or events tell.
    pub names: FxHashMap<u32, (String, Option<u32>)>,
    /// Parts of their times in programs before the last one that they executed, by these programs.
    pub earlier: FxHashMap<u32, Vec<(String, ThreadTime)>>,
}

impl ProfileTimes {
    /// Times of these threads.
    pub fn new(accounts: ThreadAccounts, waits: Option<WaitTable>) -> ProfileTimes {
        let threads = accounts.threads.into_iter().filter(|(_, t)| *t != ThreadTime::default());
        let threads = threads.collect();
        let named = waits.iter().flat_map(|waits| &waits.names).map(|(tid, (comm, pid))| {
            let comm = &comm.padded()[..comm.len()];
            (*tid, (shown(comm), *pid))
        });
        let names = named.collect();
        let earlier = accounts.earlier.into_iter().map(|(tid, parts)| {
            let name = |comm: TaskComm| shown(&comm.padded()[..comm.len()]);
            (tid, parts.into_iter().map(|(comm, time)| (name(comm), time)).collect())
        });
        ProfileTimes { threads, waits, names, earlier: earlier.collect() }
    }

    /// Times of tasks whose switches are events of all CPUs.
    pub fn of_events(table: OffCpuTable) -> ProfileTimes {
        let mut threads: FxHashMap<u32, ThreadTime> = FxHashMap::default();
        let mut names: FxHashMap<u32, (String, Option<u32>)> = FxHashMap::default();
        for row in table.rows.iter().filter(|row| row.tasks == 1) {
            // What still waits at the end counts, too.
            let (mut ready, mut blocked) = (0u64, 0u64);
            for ((cause, _), cell) in &row.waits {
                let sum = if cause.is_runnable() { &mut ready } else { &mut blocked };
                *sum = sum.saturating_add(cell.total);
            }
            let time = threads.entry(row.tid).or_default();
            *time = time.plus(ThreadTime {
                on_cpu: row.running,
                ready,
                blocked,
                ..ThreadTime::default()
            });
            names.insert(row.tid, (shown(&row.comm), row.pid));
        }
        let (waits, earlier) = (Some(WaitTable::of_events(table)), FxHashMap::default());
        ProfileTimes { threads, waits, names, earlier }
    }

    fn all(&self) -> ThreadTime {
        self.threads.values().fold(ThreadTime::default(), |a, t| a.plus(*t))
    }
}

/// Page of a profile that shows the first `top` functions; without a profile nothing is known of
/// what ran.
pub fn build_page(
    run: &CommandRun,
    profile: Option<&Profile>,
    times: &ProfileTimes,
    top: usize,
) -> ProfilePage {
    let all = times.all();
    let ran = |tid| times.threads.get(&tid).is_some_and(|t| t.on_cpu > 0);
    let waits = times.waits.as_ref().map(|w| WaitSection::new(w, all.on_cpu, &ran));
    let known = &times.threads;
    let nanos = |n: u64| (!known.is_empty()).then(|| Duration::from_nanos(n));
    let sampled = profile.and_then(|profile| {
        let event = profile.events.first()?;
        Some((profile, event, MergedFrames::new(profile)))
    });
    let seen = sampled.as_ref().map(|(profile, event, merged)| (*profile, *event, merged));
    let functions =
        seen.map_or_else(Vec::new, |(p, event, merged)| functions(top, p, event, merged));
    // What took more than a fifth of all is worth a look.
    let wall = all.on_cpu.saturating_add(all.ready).saturating_add(all.blocked);
    let much = |nanos: u64| nanos.saturating_mul(5) > wall;
    let cause = waits.as_ref().and_then(|w| w.cause);
    let waiting = all.ready.saturating_add(all.blocked);
    let hottest = functions.iter().find(|f| !f.name.starts_with('(') && f.own >= HOT);
    let hottest = hottest.filter(|_| much(all.on_cpu)).map(|f| f.name.as_str());
    let most = cause.filter(|_| much(waiting)).and_then(|cause| {
        let of = |all: &[(OffCpuCause, u64)]| {
            all.iter().find(|(c, _)| *c == cause).map_or(0, |(_, nanos)| *nanos)
        };
        let threads = times.waits.iter().flat_map(|w| &w.threads);
        let most = threads.max_by_key(|(tid, all)| (of(all), Reverse(**tid)))?;
        Some((cause, *most.0))
    });
    let next = next_steps(&run.target, most, hottest);
    let tree = times
        .waits
        .as_ref()
        .map_or_else(Vec::new, |w| time_steps(seen, known, w, &idle_waits(w, all.on_cpu, &ran)));
    ProfilePage {
        command: run.command.clone(),
        elapsed: run.elapsed,
        attached: run.attached,
        is_machine: matches!(run.target, ProfileTarget::Machine),
        lost: lost_of(&run.notes),
        unseen: unseen(run, all.on_cpu),
        hidden: run.hidden.first().map(|path| path.display().to_string()),
        on_cpu: nanos(all.on_cpu),
        user: run.user,
        system: run.system,
        ready: nanos(all.ready),
        blocked: nanos(all.blocked),
        minor_faults: run.minor_faults,
        major_faults: run.major_faults,
        voluntary_switches: run.voluntary_switches,
        involuntary_switches: run.involuntary_switches,
        samples: seen.map_or(0, |(_, event, _)| event.samples),
        event: seen.map_or_else(String::new, |(_, event, _)| event.desc.name.clone()),
        rate: (run.rate > 0).then_some(run.rate),
        waits,
        path: seen.map_or_else(Vec::new, |(p, event, merged)| path(p, event, merged)),
        threads: threads(seen, times),
        programs: programs(profile, times),
        functions,
        tree,
        next,
    }
}

/// Kinds of records that were lost.
fn lost_of(notes: &[Note]) -> Option<&'static str> {
    let has = |kind: NoteKind| notes.iter().any(|note| note.kind == kind);
    match (has(NoteKind::Lost), has(NoteKind::LostSamples)) {
        (true, true) => Some("events and samples"),
        (true, false) => Some("events"),
        (false, true) => Some("samples"),
        (false, false) => None,
    }
}

/// Why a command ran and the recording has little of it: the kernel accounts its time nevertheless.
fn unseen(run: &CommandRun, on_cpu: u64) -> Option<String> {
    /// The account of the kernel begins before the command is executed.
    const BEFORE: Duration = Duration::from_millis(50);
    let is_child = |note: &&Note| {
        run.hidden.iter().any(|child| note.fact.starts_with(&*child.to_string_lossy()))
    };
    let mut set_id = run.notes.iter().filter(|n| n.kind == NoteKind::Program);
    let set_id = set_id.find(|note| !is_child(note)).map(|n| n.fact.clone());
    if run.attached || set_id.is_some() {
        return set_id;
    }
    let accounted = run.user + run.system;
    let recorded = Duration::from_nanos(on_cpu);
    (on_cpu > 0 && accounted > recorded * 2 + BEFORE).then(|| {
        format!(
            "it had {} of CPU time, and {} of it were recorded",
            super::time(accounted),
            super::time(recorded)
        )
    })
}

/// Name and process of a thread, as far as is known: the last name of its records, which tell
/// each change, else that of its last switch.
fn who(tid: u32, profile: Option<&Profile>, times: &ProfileTimes) -> (String, u32) {
    let (name, pid) = times.names.get(&tid).cloned().unwrap_or_default();
    let machine = profile.map(|p| &p.machine);
    let recorded = machine.and_then(|m| Some(m.comm(m.name_of(tid)?).to_owned()));
    let recorded = recorded.filter(|name| !name.is_empty());
    let name = recorded.or(Some(name).filter(|name| !name.is_empty()));
    let pid = pid.or_else(|| machine.and_then(|m| m.pid_of(tid)));
    (name.unwrap_or_else(|| format!(":{tid}")), pid.unwrap_or(tid))
}

/// Times by program. A process counts for the last program that it executed; what it did before
/// is time of the program that it was then.
fn programs(profile: Option<&Profile>, times: &ProfileTimes) -> Vec<ProgramShare> {
    // The first thread's name is that of the process.
    let mut names: FxHashMap<u32, String> = FxHashMap::default();
    for tid in times.threads.keys() {
        let (name, pid) = who(*tid, profile, times);
        if *tid == pid { _ = names.insert(pid, name) } else { _ = names.entry(pid).or_insert(name) }
    }
    let mut rows: FxHashMap<String, ProgramShare> = FxHashMap::default();
    let mut seen: HashSet<u32> = HashSet::new();
    for (tid, time) in &times.threads {
        let (_, pid) = who(*tid, profile, times);
        let Some(name) = names.get(&pid) else { continue };
        let mut own = *time;
        for (name, part) in times.earlier.get(tid).into_iter().flatten() {
            own = own.minus(*part);
            program_row(&mut rows, name).add(*part);
        }
        let row = program_row(&mut rows, name);
        row.processes += u64::from(seen.insert(pid));
        row.pid = (row.processes == 1).then_some(pid);
        row.threads += 1;
        row.add(own);
    }
    let mut rows: Vec<ProgramShare> = rows.into_values().collect();
    rows.sort_by(|a, b| (b.on_cpu, b.blocked, &a.name).cmp(&(a.on_cpu, a.blocked, &b.name)));
    rows.truncate(PROGRAMS);
    rows
}

fn program_row<'r>(
    rows: &'r mut FxHashMap<String, ProgramShare>,
    name: &str,
) -> &'r mut ProgramShare {
    let new = || ProgramShare { name: name.to_owned(), ..ProgramShare::default() };
    rows.entry(name.to_owned()).or_insert_with(new)
}

impl ProgramShare {
    fn add(&mut self, time: ThreadTime) {
        self.on_cpu += Duration::from_nanos(time.on_cpu);
        self.ready += Duration::from_nanos(time.ready);
        self.blocked += Duration::from_nanos(time.blocked);
    }
}

/// For each frame the one that stands for it. Code of one binary without symbols is
/// one place: a list of its addresses does not help a newcomer.
pub(super) struct MergedFrames(IndexVec<FrameId, FrameId>);

impl MergedFrames {
    fn new(profile: &Profile) -> MergedFrames {
        let mut first: FxHashMap<Option<DsoId>, FrameId> = FxHashMap::default();
        let place = |(own, frame): (FrameId, &Frame)| {
            let nameless = frame.symbol.is_none();
            if nameless { *first.entry(frame.dso).or_insert(own) } else { own }
        };
        MergedFrames(profile.frames.iter_enumerated().map(place).collect())
    }

    pub(super) fn at(&self, frame: FrameId) -> FrameId {
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
pub(super) fn label(profile: &Profile, frame: FrameId) -> String {
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
    order.sort_by_key(|(f, c)| (Reverse(c.0), *f));
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
    let roots = viewer.branches(&all, Limit::Period(least.max(1)));
    let is_fork = roots.len() > 1;
    for root in &roots {
        walk(profile, event, root, (usize::from(is_fork), is_fork), &mut steps);
    }
    steps
}

/// A stretch without forks keeps its indentation, so that deep stacks stay on the page. A branch of
/// a fork is distinguished from its continuation.
fn walk(
    p: &Profile,
    event: &EventProfile,
    b: &Branch,
    (depth, mut is_branch): (usize, bool),
    steps: &mut Vec<PathStep>,
) {
    for f in &b.frames {
        if steps.len() == PATH_LINES {
            return;
        }
        let share = share(b.total, event.period);
        steps.push(PathStep { depth, is_branch, share, name: label(p, *f) });
        is_branch = false;
    }
    let is_fork = b.children.len() > 1;
    for c in &b.children {
        walk(p, event, c, (depth + usize::from(is_fork), is_fork), steps);
    }
}

fn threads(
    seen: Option<(&Profile, &EventProfile, &MergedFrames)>,
    times: &ProfileTimes,
) -> Vec<ThreadShare> {
    #[derive(Default)]
    struct Row {
        name: Option<String>,
        pid: Option<u32>,
        period: u64,
        places: FxHashMap<FrameId, u64>,
    }
    let mut rows: FxHashMap<u32, Row> = FxHashMap::default();
    // Those that only wait have no sample.
    times.threads.keys().for_each(|tid| _ = rows.entry(*tid).or_default());
    let all = seen.map_or(0, |(_, event, _)| event.period);
    if let Some((p, event, merged)) = seen {
        for (s, _) in event.stacks() {
            let row = rows.entry(s.tid).or_default();
            // Stacks come in the order they were first seen: the last name wins.
            row.name = Some(p.machine.comm(s.comm).to_owned());
            row.pid = Some(s.pid);
            row.period += s.period;
            *row.places.entry(merged.at(s.leaf)).or_default() += s.period;
        }
    }
    let profile = seen.map(|(p, ..)| p);
    let time = |tid: &u32| times.threads.get(tid).copied().unwrap_or_default();
    let mut order: Vec<(u32, Row)> = rows.into_iter().collect();
    order.sort_by_key(|(tid, r)| {
        let time = time(tid);
        (Reverse((r.period, time.on_cpu, time.ready, time.blocked)), *tid)
    });
    let view = |(tid, r): (u32, Row)| {
        let time = times.threads.get(&tid);
        let (name, pid) = who(tid, profile, times);
        let hottest = r.places.iter().max_by_key(|(f, w)| (**w, Reverse(**f)));
        let hottest = hottest.and_then(|(f, _)| Some(label(profile?, *f)));
        let causes = times.waits.as_ref().and_then(|w| w.threads.get(&tid));
        let longest = causes
            .and_then(|causes| causes.first())
            .filter(|(_, nanos)| time.is_none_or(|t| *nanos > t.on_cpu));
        ThreadShare {
            name: r.name.unwrap_or(name),
            pid: r.pid.unwrap_or(pid),
            tid,
            share: share(r.period, all),
            on_cpu: time.map(|t| Duration::from_nanos(t.on_cpu)),
            ready: time.map(|t| Duration::from_nanos(t.ready)),
            blocked: time.map(|t| Duration::from_nanos(t.blocked)),
            hottest: hottest.unwrap_or_default(),
            waits_for: longest.map(|(cause, _)| cause.text().to_owned()),
        }
    };
    order.into_iter().take(THREADS).map(view).collect()
}

/// Ledger of the page.
pub fn page_ledger(run: &CommandRun, profile: Option<&Profile>, times: &ProfileTimes) -> Ledger {
    let mut ledger = Ledger::default();
    // The page names the event itself.
    for n in run.notes.iter().filter(|n| n.kind != NoteKind::DefaultEvent) {
        ledger.push(n.clone());
    }
    if !run.ended && !run.attached {
        let fact = "the command was still running: its times, faults and switches are unknown";
        ledger.note(NoteKind::Unfinished, fact, None);
    }
    if let Some(profile) = profile {
        note_samples(&mut ledger, profile);
    }
    note_times(&mut ledger, run, times);
    ledger
}

/// Notes what makes samples doubtful.
fn note_samples(ledger: &mut Ledger, profile: &Profile) {
    let empty = EventProfile::default();
    let event = profile.events.first().unwrap_or(&empty);
    let stats = &profile.stats;
    if event.samples == 0 && stats.aux_bytes + stats.aux_records > 0 {
        // A higher rate would not help.
        let fact = "the recording has no samples of code, only hardware traces";
        ledger.note(NoteKind::Empty, fact, None);
    } else if event.samples < 100 {
        let samples = counted(event.samples, "sample", "samples");
        let fact = format!("only {samples}: shares are rough");
        ledger.note(NoteKind::Few, fact, Some("a higher rate (-F), or a longer run".into()));
    }
    if let Some(d) = &profile.stats.damaged {
        ledger.note(NoteKind::Damaged, format!("the recording is damaged {d}"), None);
    }
    note_nameless(ledger, profile, event);
    note_unwinding(&profile.unwinding, &profile.machine.symbols, ledger);
    note_cut_chains(event, ledger);
    note_frame_pointers(profile, event, ledger);
    note_symbols(&profile.machine.symbols, ledger);
}

/// Notes what makes the times off the CPU doubtful.
fn note_times(ledger: &mut Ledger, run: &CommandRun, times: &ProfileTimes) {
    // The first thread is there from the start to the end.
    let first = run.first_thread.and_then(|tid| times.threads.get(&tid));
    if let Some(t) = first.filter(|_| run.ended) {
        let sum = Duration::from_nanos(t.on_cpu + t.ready + t.blocked + t.uncertain);
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
        let missing = all - stacked;
        let have = by_number(missing, "has", "have");
        let fact = format!("{missing} of {all} waits {have} no stack");
        ledger.note(NoteKind::Stacks, fact, None);
    }
    if waits.stacks.left_out + waits.merged > 0 {
        let fact = "not all waits are attributed to their stack (table limit reached)";
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
