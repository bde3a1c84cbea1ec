//! Recordings of both sides as runs: read several at a time, checked for what they have in common.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, anyhow, bail};
use kymo_compare::{FunctionKey, Measure, MeasureKind, RunSums, StackFrameKey};
use kymo_events::{ClassOrigin, EventSelection, EventSource};
use kymo_files::RecordingFormat;
use kymo_files::stack_file::StackFile;
use kymo_model::{Note, NoteKind};
use kymo_view::Ledger;
use kymo_view::diff::StackSums;
use kymo_view::recording_stacks::{RecordingStacks, SampleWeight, StackPlan, TaskSplit, TimePart};

use super::{Args, Per};
use crate::commands::scratch::shown_name;

/// One recording.
pub(super) struct ReadRun {
    pub(super) path: PathBuf,
    /// Sums of samples; several for blocks of time.
    samples: Vec<RunSums>,
    /// Sums of time off the CPUs.
    off_cpu: Option<RunSums>,
    event: SampledEvent,
    facts: RunFacts,
    ledger: Ledger,
    damage: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct SampledEvent {
    name: String,
    unit: &'static str,
    period: u64,
}

/// Facts that should be alike on both sides.
#[derive(Clone, Debug, Default)]
struct RunFacts {
    span: Option<(u64, u64)>,
    kernel: Option<String>,
    cpus: Option<u32>,
    host: Option<String>,
    /// The recording is of a command from its start to its end.
    is_command: bool,
}

/// Both sides.
pub(super) struct Sides {
    pub(super) before: Vec<ReadRun>,
    pub(super) after: Vec<ReadRun>,
}

/// Reads recordings, several at a time.
pub(super) fn read_all(
    args: &Args,
    paths: &[PathBuf],
    per: &Per,
    blocks: bool,
) -> anyhow::Result<Vec<ReadRun>> {
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<anyhow::Result<ReadRun>>>> =
        paths.iter().map(|_| Mutex::new(None)).collect();
    let workers = kymo_events::worker_pool::worker_count().min(paths.len()).max(1);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(path), Some(slot)) = (paths.get(number), slots.get(number)) else {
                        break;
                    };
                    let read =
                        read(args, path, per, blocks).with_context(|| path.display().to_string());
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
                }
            });
        }
    });
    let read = slots.into_iter().map(|slot| {
        let read = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        read.unwrap_or_else(|| bail!("a recording was not read"))
    });
    read.collect()
}

/// Way out where one recording of a side is not enough.
const MORE_RUNS: &str =
    "compare several runs of each side (--before, --after), or record them: kymo diff --run";
/// Largest profile without times that is read, in bytes.
const LARGEST_STACK_FILE: u64 = 1 << 30;

/// Whether a file is a profile without times: of pprof, or folded stacks.
pub(super) fn is_stack_file(path: &Path) -> bool {
    path.is_file() && RecordingFormat::of(path).is_none()
}

/// Reads a profile without times as one run.
fn read_stack_file(args: &Args, path: &Path, per: &Per) -> anyhow::Result<ReadRun> {
    let chosen = [
        (args.time.is_some(), "--time"),
        (!args.pid.is_empty(), "--pid"),
        (!args.tid.is_empty(), "--tid"),
        (args.cpu.is_some(), "--cpu"),
        (!args.comms.is_empty(), "--comms"),
        (*per != Per::Run, "--per"),
    ];
    if let Some((_, option)) = chosen.iter().find(|(given, _)| *given) {
        bail!("{option}: stacks in it have no times and tasks");
    }
    let value = match &*args.events {
        [] => None,
        [value] => Some(value.as_str()),
        _ => bail!("-e: one value of a profile is compared at a time"),
    };
    let size = std::fs::metadata(path)?.len();
    if size > LARGEST_STACK_FILE {
        bail!("{size} bytes are too many for a profile (at most {LARGEST_STACK_FILE})");
    }
    let bytes = std::fs::read(path)?;
    let file = StackFile::parse(&bytes, value)
        .context("neither a recording nor a profile of pprof or folded stacks")?;
    let (unit, scale) = match &*file.unit {
        "nanoseconds" | "ns" => ("nanoseconds", 1.0),
        "microseconds" | "us" => ("nanoseconds", 1e3),
        "milliseconds" | "ms" => ("nanoseconds", 1e6),
        "seconds" | "s" => ("nanoseconds", 1e9),
        "bytes" => ("bytes", 1.0),
        _ => ("count", 1.0),
    };
    let mut run = RunSums::new(shown_name(path), 1.0).with_stacks(args.graph);
    let functions: Vec<(&str, u32)> = file
        .functions
        .iter()
        .map(|f| {
            let key = FunctionKey::new(&f.name, &f.binary, args.exact_names);
            (&*f.binary, run.function(key))
        })
        .collect();
    for stack in &file.stacks {
        let frames =
            || stack.frames.iter().filter_map(|f| Some((f, functions.get(f.function as usize)?)));
        let is_wanted = args.dsos.is_empty()
            || frames()
                .next()
                .is_some_and(|(_, (binary, _))| args.dsos.iter().any(|d| d == binary));
        if is_wanted {
            let key =
                |(frame, (_, function)): (&kymo_files::stack_file::FileFrame, &(&str, u32))| {
                    StackFrameKey { function: *function, is_inlined: frame.is_inlined }
                };
            let frames: Vec<StackFrameKey> = frames().map(key).collect();
            run.add_stack(&frames, stack.weight * scale, stack.samples);
        }
    }
    Ok(ReadRun {
        path: path.to_owned(),
        samples: vec![run],
        off_cpu: None,
        event: SampledEvent { name: file.value, unit, period: 0 },
        facts: RunFacts::default(),
        ledger: Ledger::default(),
        damage: None,
    })
}

fn read(args: &Args, path: &Path, per: &Per, blocks: bool) -> anyhow::Result<ReadRun> {
    if is_stack_file(path) {
        return read_stack_file(args, path, per);
    }
    let paths = [path.to_owned()];
    let source = EventSource::open(&paths, args.finding.options(path))?.in_nanoseconds()?;
    if source.is_piped() {
        bail!("a comparison needs recordings that can be read twice: files");
    }
    let mut selection = args.selection(&source)?;
    let classes = source.classes();
    let has_switches = classes.iter().any(|c| c.is_named("sched:sched_switch"));
    let sampled: Vec<String> = classes
        .iter()
        .filter(|c| c.origin == ClassOrigin::Sample)
        .map(|c| c.full_name.clone())
        .collect();
    let off_selection = selection.clone();
    if args.events.is_empty() && !sampled.is_empty() {
        selection.set_event_names(sampled);
    }
    let plan = StackPlan {
        selection: &selection,
        binaries: &args.dsos,
        split: TaskSplit::None,
        weight: SampleWeight::Period,
        moments: blocks,
        addresses: false,
        inlines: !args.no_inline,
        one_event: true,
    };
    let RecordingStacks { stacks, ledger, damage } = RecordingStacks::read(&source, &plan)?;
    // Where nothing can be compared, the reason is what the recording has in its place.
    let because = |error: anyhow::Error| anyhow!("{error}{}", reasons(ledger.notes()));
    let name = shown_name(path);
    let seconds = stacks.span.map_or(0.0, |(from, to)| to.saturating_sub(from) as f64 / 1e9);
    let work = match per {
        Per::Run => 1.0,
        Per::Second => seconds,
        Per::Event(event) => count_events(&source, event)? as f64,
    };
    if work <= 0.0 {
        match per {
            Per::Event(event) => bail!("no {event} in it: amounts per {event} are undefined"),
            _ => {
                let error = "no time passes between its samples: amounts per second are undefined";
                return Err(because(anyhow!(error)));
            }
        }
    }
    let sums = StackSums::new(&stacks, args.exact_names, false).with_stacks(args.graph);
    let samples = if blocks {
        sums.blocks(&name, work).map_err(|e| because(anyhow!("{e}; {MORE_RUNS}")))?
    } else {
        vec![sums.run(&name, work)]
    };
    let event = stacks.events.first().map_or_else(SampledEvent::default, |e| SampledEvent {
        name: e.name.clone(),
        unit: e.unit,
        period: e.period,
    });
    let mut read = ReadRun {
        path: path.to_owned(),
        samples,
        off_cpu: None,
        event,
        facts: facts(&source, stacks.span),
        ledger,
        damage,
    };
    let has_switches = has_switches && read.samples.iter().any(|run| run.whole > 0.0);
    if has_switches && !args.cpu_only && !blocks {
        let plan = StackPlan {
            selection: &off_selection,
            weight: SampleWeight::Time(TimePart::Off),
            moments: false,
            ..plan
        };
        let off = RecordingStacks::read(&source, &plan)?;
        let sums = StackSums::new(&off.stacks, args.exact_names, true).with_stacks(args.graph);
        read.off_cpu = Some(sums.run(&name, work));
        read.ledger.extend(off.ledger);
        read.damage = read.damage.or(off.damage);
    }
    Ok(read)
}

/// Number of events of a name.
fn count_events(source: &EventSource, event: &str) -> anyhow::Result<u64> {
    let mut selection = EventSelection::default();
    selection.set_events(&[event.to_owned()])?;
    source.check_events(&selection)?;
    let plan = StackPlan {
        selection: &selection,
        binaries: &[],
        split: TaskSplit::None,
        weight: SampleWeight::Samples,
        moments: false,
        addresses: false,
        inlines: false,
        one_event: true,
    };
    let counted = RecordingStacks::read(source, &plan)?;
    Ok(counted.stacks.stacks.iter().map(|s| s.samples).sum())
}

fn facts(source: &EventSource, span: Option<(u64, u64)>) -> RunFacts {
    let Some(data) = source.perf(0) else { return RunFacts { span, ..RunFacts::default() } };
    let features = data.features();
    let is_attached = |word: &String| {
        let short = word.strip_prefix('-').filter(|w| !w.starts_with('-'));
        short.is_some_and(|w| w.starts_with(['a', 'p', 't', 'C', 'G']))
            || ["--all-cpus", "--pid", "--tid", "--cpu", "--cgroup"]
                .iter()
                .any(|long| word == long || word.starts_with(&format!("{long}=")))
    };
    // Options of the recorded command are not those of the recorder.
    let of_recorder = features.cmdline.iter().take_while(|word| *word != "--");
    RunFacts {
        span,
        kernel: features.osrelease.clone(),
        cpus: features.nrcpus.map(|(_, online)| online),
        host: features.hostname.clone(),
        is_command: !features.cmdline.is_empty() && !of_recorder.into_iter().any(is_attached),
    }
}

/// Unit of work where none is named: the run, unless one recording of a side is of a continuous
/// load.
pub(super) fn usual_unit(args: &Args, sides: [&[PathBuf]; 2]) -> anyhow::Result<Per> {
    if sides.iter().any(|side| side.len() > 1) {
        return Ok(Per::Run);
    }
    for path in sides.into_iter().flatten().filter(|path| !is_stack_file(path)) {
        let source = EventSource::open(std::slice::from_ref(path), args.finding.options(path))?;
        if !facts(&source, None).is_command {
            return Ok(Per::Second);
        }
    }
    Ok(Per::Run)
}

/// A quantity of one side alone: kind, name, unit, runs.
type OneSide = (MeasureKind, String, &'static str, Vec<RunSums>);

impl Sides {
    /// The quantities that both sides have.
    pub(super) fn measures(&self) -> anyhow::Result<Vec<Measure>> {
        let event = self.common_event()?;
        let samples = |side: &[ReadRun]| side.iter().flat_map(|r| r.samples.clone()).collect();
        let mut measures = vec![Measure {
            kind: MeasureKind::Samples,
            name: event.name,
            unit: event.unit,
            before: samples(&self.before),
            after: samples(&self.after),
        }];
        let off = |side: &[ReadRun]| -> Option<Vec<RunSums>> {
            side.iter().map(|run| run.off_cpu.clone()).collect()
        };
        if let (Some(before), Some(after)) = (off(&self.before), off(&self.after)) {
            let (kind, name) = (MeasureKind::OffCpu, "off-cpu".to_owned());
            measures.push(Measure { kind, name, unit: "nanoseconds", before, after });
        }
        Ok(measures)
    }

    fn all(&self) -> impl Iterator<Item = &ReadRun> {
        self.before.iter().chain(&self.after)
    }

    /// Event that all recordings sampled.
    fn common_event(&self) -> anyhow::Result<SampledEvent> {
        let mut common: Option<&ReadRun> = None;
        for run in self.all().filter(|run| !run.event.name.is_empty()) {
            let first = *common.get_or_insert(run);
            let (one, other) = (&first.event, &run.event);
            if (&one.name, one.unit) != (&other.name, other.unit) {
                bail!(
                    "{} has samples of {}, and {} of {}: these cannot be compared; record the same \
                     event (-e), or choose one that both have (-e)",
                    first.path.display(),
                    one.name,
                    run.path.display(),
                    other.name
                );
            }
        }
        for (side, word) in [(&self.before, "before"), (&self.after, "after")] {
            let has_samples = |run: &ReadRun| run.samples.iter().any(|sums| sums.whole > 0.0);
            // A baseline has one side.
            if !side.is_empty() && !side.iter().any(has_samples) {
                let all = side.iter().flat_map(|run| run.ledger.notes());
                bail!("no samples {word}{}", reasons(all));
            }
        }
        let event = common.map(|run| run.event.clone());
        event.with_context(|| "no samples in any of the recordings")
    }

    /// Quantities of one side alone: kind, name, unit, runs.
    pub(super) fn quantities_after(&self) -> anyhow::Result<Vec<OneSide>> {
        let measures = self.measures()?;
        Ok(measures.into_iter().map(|m| (m.kind, m.name, m.unit, m.after)).collect())
    }

    /// Damage of the first recording that is damaged.
    pub(super) fn damage(&self) -> Option<(String, String)> {
        let damaged = self.all().find_map(|run| Some((run, run.damage.clone()?)));
        damaged.map(|(run, damage)| (shown_name(&run.path), damage))
    }

    /// Notes on the recordings and on what differs between them.
    pub(super) fn notes(&self, is_interleaved: bool, ledger: &mut Ledger) {
        let notes = self.all().flat_map(|run| {
            let name = shown_name(&run.path);
            // Of what is compared, functions are named and lines are not shown.
            let notes = run.ledger.notes().iter().filter(|note| note.kind != NoteKind::Lines);
            notes.map(move |note| (name.clone(), note.clone()))
        });
        note_once(notes, ledger);
        let rates = |side: &[ReadRun]| -> Vec<u64> {
            let mut rates: Vec<u64> = side.iter().map(|run| run.event.period).collect();
            rates.sort_unstable();
            rates.dedup();
            rates
        };
        let (before, after) = (rates(&self.before), rates(&self.after));
        if before != after && !before.is_empty() && !after.is_empty() {
            let unit = self.all().map(|run| run.event.unit).next().unwrap_or_default();
            let words = |side: &[u64]| match (side.first(), side.last()) {
                (Some(one), Some(last)) if one != last => format!("{one} to {last}"),
                (Some(one), _) => one.to_string(),
                _ => "nothing".to_owned(),
            };
            let (before, after) = (words(&before), words(&after));
            let fact = format!(
                "samples have different weights: each stands for {before} {unit} before and for \
                 {after} after, which the amounts take into account"
            );
            ledger.tell(NoteKind::Comparison, fact, None);
        }
        self.note_difference("kernels", |f| f.kernel.clone(), ledger);
        self.note_difference("numbers of CPUs", |f| f.cpus.map(|n| n.to_string()), ledger);
        self.note_difference("machines", |f| f.host.clone(), ledger);
        if !is_interleaved {
            let spans = |side: &[ReadRun]| side.iter().map(|r| r.facts.span).collect();
            note_sequential([spans(&self.before), spans(&self.after)], ledger);
        }
    }

    fn note_difference(
        &self,
        what: &str,
        fact: impl Fn(&RunFacts) -> Option<String>,
        ledger: &mut Ledger,
    ) {
        let of_side = |side: &[ReadRun]| {
            let mut facts: Vec<String> = side.iter().filter_map(|r| fact(&r.facts)).collect();
            facts.sort();
            facts.dedup();
            facts
        };
        let (before, after) = (of_side(&self.before), of_side(&self.after));
        if before != after && !before.is_empty() && !after.is_empty() {
            let (before, after) = (before.join(", "), after.join(", "));
            let fact = format!("the sides are of other {what}: {before} before, {after} after");
            ledger.note(NoteKind::Comparison, fact, None);
        }
    }
}

/// Notes that explain why there are no samples or rows, after an error that states it.
pub(super) fn reasons<'n>(notes: impl IntoIterator<Item = &'n Note>) -> String {
    let explains = |note: &&Note| matches!(note.kind, NoteKind::Empty | NoteKind::Damaged);
    let mut facts: Vec<&str> = Vec::new();
    for note in notes.into_iter().filter(explains) {
        if !facts.contains(&&*note.fact) {
            facts.push(&note.fact);
        }
    }
    facts.iter().map(|fact| format!("; {fact}")).collect()
}

/// Notes of several recordings, each kind once.
pub(super) fn note_once(notes: impl Iterator<Item = (String, Note)>, ledger: &mut Ledger) {
    let mut kinds: Vec<(String, Note, usize)> = Vec::new();
    for (name, note) in notes {
        let is_alike = |(_, known, _): &&mut (String, Note, usize)| {
            known.kind == note.kind && known.weight == note.weight
        };
        match kinds.iter_mut().find(is_alike) {
            Some((first, _, others)) if *first != name => *others += 1,
            Some(_) => {}
            None => kinds.push((name, note, 0)),
        }
    }
    for (name, note, others) in kinds {
        let others = if others > 0 {
            format!(" (and {others} more notes of this kind, on other recordings)")
        } else {
            String::new()
        };
        let fact = format!("{name}: {}{others}", note.fact);
        ledger.push(Note { fact, ..note });
    }
}

/// Notes on sides that are not known to have been recorded in turns: one ends before the other
/// begins, or a recording has no times. `spans`: first and last time of the recordings before and
/// after.
pub(super) fn note_sequential(spans: [Vec<Option<(u64, u64)>>; 2], ledger: &mut Ledger) {
    let has_times = spans.iter().flatten().all(Option::is_some);
    let ends = |side: Vec<Option<(u64, u64)>>| {
        let first = side.iter().flatten().map(|s| s.0).min()?;
        Some((first, side.iter().flatten().map(|s| s.1).max()?))
    };
    let is_sequential = match spans.map(ends) {
        [Some(before), Some(after)] => before.1 <= after.0 || after.1 <= before.0,
        _ => false,
    };
    let order = if is_sequential {
        "one side was recorded after the other"
    } else if has_times {
        return;
    } else {
        "no times show that the sides were recorded in turns"
    };
    let fact = format!(
        "{order}: anything else that changed on the machine looks like a change of the program, \
         and the rate of false alarms is higher"
    );
    let advice = Some("kymo diff --run -- BEFORE -- AFTER records in turns".to_owned());
    ledger.note(NoteKind::Sequential, fact, advice);
}
