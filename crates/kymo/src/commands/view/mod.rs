//! `kymo view`: a recording as one page to look at.

pub(crate) mod door;
mod server;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use kymo_analysis::critical_path::{PathConfig, PathTarget, find_paths};
use kymo_analysis::tasks::sched_notes;
use kymo_analysis::tracks::{PyramidLevel, TraceTracks, TrackConfig, build_pyramids, read_tracks};
use kymo_events::{
    ClassOrigin, EventPass, EventSelection, EventSource, ReadSummary, RecordedClass, SourceError,
    parse_times,
};
use kymo_kernel::system::release_freed_memory;
use kymo_model::{NoteKind, SampleType};
use kymo_render::syscalls::{syscall_name, syscall_names};
use kymo_view::Ledger;
use kymo_view::recording_stacks::{RecordingStacks, SampleWeight, StackPlan, TaskSplit};
use kymo_view::trace_page::{TracePage, path_value};
use serde_json::Value;

use super::scratch::is_temporary;
use super::{default_recording, output};
use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Flags of `kymo view`.
#[derive(clap::Args)]
#[command(after_help = "\
The page shows CPUs and tasks over time with their waits and system calls, flame graphs of samples
and of the time off CPU, the events, and the ledger. Its contents depend on the recording: tracks
need sched_switch and sched_waking, system calls need raw_syscalls or syscalls events, flame graphs
need samples with call chains. Press `?` in the page for its keys. With -o the page is a single file
that makes no network requests. Without -o, kymo serves it on 127.0.0.1 until Ctrl-C, at an address
with a secret token.

EXAMPLES
  kymo view
  kymo view -i perf.data -o page.html
  kymo view perf.data traces/ -o page.html
  kymo view before.data after.data
  kymo record -a -g -e cpu-clock,sched:sched_switch,sched:sched_waking,'raw_syscalls:*' -- make
  kymo view -o make.html")]
pub(crate) struct Args {
    /// Recording to read
    ///
    /// A perf.data, a trace.dat, or a directory of CTF traces or of a session.
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Recordings to read; several of one machine are merged by time
    ///
    /// Of two profiles from different times, the page shows the later one, with both flame graphs.
    #[arg(value_name = "FILE", conflicts_with = "input")]
    files: Vec<PathBuf>,
    /// Show changes since this recording in the flame graph
    #[arg(long, value_name = "FILE")]
    diff: Option<PathBuf>,
    /// Write the page with all data to this file
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,
    /// Overwrite an existing page
    #[arg(long)]
    force: bool,
    /// Port on 127.0.0.1 for the page; 0: any free port
    #[arg(long, value_name = "PORT", default_value_t = 0, conflicts_with = "output")]
    port: u16,
    /// Only this time range: START,STOP in seconds, or a share (10%-20%)
    ///
    /// START or STOP may be omitted. Shares of the recording: 0%-10%, or 10%/2 for the second
    /// tenth. Earlier events are read for the state at START.
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    time: Option<String>,
    /// Time range to select initially
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    select: Option<String>,
    /// Thread to select initially, with its critical path (`kymo why`)
    #[arg(long, value_name = "TID")]
    path_of: Option<u32>,
    /// Title of the page [default: the recorded command, or the recording]
    #[arg(long)]
    title: Option<String>,
    /// Limit for the text of event fields, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 64)]
    max_text: usize,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    symbols: SymbolArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut paths = args.files.clone();
    paths.extend(args.input.clone());
    if paths.is_empty() {
        paths.push(default_recording());
    }
    let base = match &args.diff {
        Some(base) => Some(base.clone()),
        None => earlier_recording(&mut paths, &args.symbols)?,
    };
    let first = paths.first().cloned().unwrap_or_default();
    crate::progress::begin(first.display());
    let source = EventSource::open(&paths, args.symbols.options(&first))?.in_nanoseconds()?;
    anyhow::ensure!(!source.is_piped(), "a page needs a recording that can be read twice: a file");
    let mut selection = EventSelection::default();
    if let Some(text) = &args.time {
        let span = if text.contains('%') { source.span()? } else { None };
        selection.times = parse_times(text, span)?;
    }
    source.explain(&selection);
    let config = TrackConfig {
        selection: selection.clone(),
        name_of: source.architecture().as_deref().map_or(syscall_name, syscall_names),
        lists_switches: false,
        text_limit: args.max_text.saturating_mul(1 << 20),
        progress: Some(Arc::default()),
    };
    // Who looks sees the recording while it is read.
    let mut serving = None;
    if args.output.is_none() {
        let reading = server::Reading {
            title: first.display().to_string(),
            span: if source.timeline().is_none() { source.span()? } else { None },
            progress: config.progress.clone().unwrap_or_default(),
        };
        serving = Some(server::serve(reading, &paths, args.port)?);
    }
    let command = source.watch_command(None);
    let plan = StackSelection::new(&source, selection);
    let (tracks, pyramids, read) = match &plan {
        None => {
            let ((tracks, pyramids), _) = read_with_pyramids(&source, &config, None)?;
            (tracks, pyramids, RecordingStacks::default())
        }
        Some(plan) => {
            let tracks =
                |beside: Option<EventPass<'_>>| read_with_pyramids(&source, &config, beside);
            let read = RecordingStacks::read_beside(&source, &plan.plan(), tracks);
            let ((tracks, pyramids), stacks) = read.context("stacks")?;
            // Events of most recordings have none.
            let has_none = source.perf_count() == 0 && !tracks.may_have_stacks;
            let stacks = if has_none { RecordingStacks::default() } else { stacks };
            (tracks, pyramids, stacks)
        }
    };
    let RecordingStacks { stacks, ledger: told, damage } = read;
    // What reading took is not needed beside what packing takes.
    release_freed_memory();
    let mut ledger = Ledger::from_notes(tracks.summary().notes(&source));
    note(&tracks, &mut ledger);
    ledger.extend(told);
    let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    let title = args.title.clone().filter(|t| !t.is_empty());
    let title = title.or_else(|| (!stacks.title.is_empty()).then(|| stacks.title.clone()));
    let selected = match &args.select {
        Some(text) => parse_times(text, Some(tracks.span))?.first().copied(),
        None => None,
    };
    let path = match args.path_of {
        Some(tid) => find_path(&source, tid, selected.unwrap_or(tracks.span), tracks.span.0)?,
        None => Value::Null,
    };
    let base = match &base {
        Some(path) => {
            let source = EventSource::open(std::slice::from_ref(path), args.symbols.options(path))?;
            let read = match StackSelection::new(&source, EventSelection::default()) {
                Some(plan) => RecordingStacks::read(&source, &plan.plan()).context("stacks")?,
                None => RecordingStacks::default(),
            };
            anyhow::ensure!(!read.stacks.stacks.is_empty(), "{}: no samples", path.display());
            Some((read.stacks, recording_words(&[path.display().to_string()])))
        }
        None => None,
    };
    let fragment = fragment(&tracks, selected, args.path_of);
    // A page outlives the recording from which `profile --view` makes it.
    let is_kept = args.output.is_none() || !paths.iter().any(|path| is_temporary(path));
    let recordings = if is_kept { recording_words(&names) } else { String::new() };
    let page = TracePage {
        path,
        baseline: base.as_ref().map(|(stacks, name)| (stacks, &**name)),
        tracks: &tracks,
        pyramids: &pyramids,
        stacks: &stacks,
        ledger: &ledger,
        title: &title.unwrap_or_else(|| names.join(", ")),
        recordings: &recordings,
        command: command.and_then(|command| command.found()).map(|command| command.tid),
        chosen_times: args.time.is_some(),
        clock: &source.clock(),
        fragment: &fragment,
    };
    let Some(output) = &args.output else {
        let serving = serving.context("no server for the page")?;
        let served = page.to_served(serving.file()?)?;
        crate::progress::end();
        say!("{}", ledger.to_text(""));
        let begin = tracks.span.0;
        drop((tracks, pyramids, stacks, base));
        // It may serve for days.
        release_freed_memory();
        let find = Box::new(move |tid, times| find_path(&source, tid, times, begin));
        serving.show((served, find))?;
        return Ok(ExitCode::SUCCESS);
    };
    let fill = &mut |out: &mut dyn Write| page.write(out);
    output::write_contents(output, &paths, args.force, fill)?;
    let size = std::fs::metadata(output).map_or(0, |m| m.len());
    sayln!(
        "[ kymo view: wrote {:.3} MB {} ({} events, {} samples) ]",
        size as f64 / 1e6,
        output.display(),
        tracks.events.count,
        stacks.moments.len(),
    );
    say!("{}", ledger.to_text(""));
    let damaged = tracks.summary().is_damaged(&source);
    let damage = damage.or_else(|| damaged.then(|| "damaged; what can be read is shown".into()));
    Ok(exit::status(source.name(), damage.as_deref(), &ledger, args.strict))
}

/// Tracks, and what is drawn of them from afar: stacks take longer than the former.
fn read_with_pyramids(
    source: &EventSource,
    config: &TrackConfig,
    beside: Option<EventPass<'_>>,
) -> Result<(TracksAndPyramids, Option<ReadSummary>), SourceError> {
    let (tracks, beside) = read_tracks(source, config, beside)?;
    let pyramids = build_pyramids(&tracks.span_tracks());
    Ok(((tracks, pyramids), beside))
}

type TracksAndPyramids = (TraceTracks, Vec<Vec<PyramidLevel>>);

/// The earlier of two recordings, of which neither begins before the other ends; the later one
/// stays in `paths`.
fn earlier_recording(
    paths: &mut Vec<PathBuf>,
    symbols: &SymbolArgs,
) -> anyhow::Result<Option<PathBuf>> {
    let [first, second] = &**paths else { return Ok(None) };
    let span = |path: &PathBuf| -> anyhow::Result<Option<(u64, u64)>> {
        let source = EventSource::open(std::slice::from_ref(path), symbols.options(path))?;
        let is_profile = !source.is_piped() && source.timeline().is_none();
        if is_profile { Ok(source.span()?) } else { Ok(None) }
    };
    let (Some(one), Some(other)) = (span(first)?, span(second)?) else { return Ok(None) };
    let earlier = match (one.1 < other.0, other.1 < one.0) {
        (true, _) => 0,
        (_, true) => 1,
        _ => return Ok(None),
    };
    Ok(Some(paths.remove(earlier)))
}

/// The critical path of a thread between two times.
fn find_path(
    source: &EventSource,
    tid: u32,
    (from, to): (u64, u64),
    base: u64,
) -> anyhow::Result<Value> {
    let config = PathConfig { target: PathTarget::Thread(tid), times: Some((from, to)) };
    Ok(path_value(&find_paths(source, &config)?, base))
}

/// Fragment of the page's address with the initial view.
fn fragment(tracks: &TraceTracks, selected: Option<(u64, u64)>, tid: Option<u32>) -> String {
    let (begin, end) = tracks.span;
    let mut parts = Vec::new();
    if let Some((from, to)) = selected.map(|(f, t)| (f.max(begin), t.min(end)))
        && from < to
    {
        let room = (to - from) / 10;
        let seen = (from.saturating_sub(room).max(begin), to.saturating_add(room).min(end));
        parts.push(format!("v={}-{}", seen.0 - begin, seen.1 - begin));
        parts.push(format!("s={}-{}", from - begin, to - begin));
    }
    if let Some(number) = tracks.tasks.iter().position(|t| Some(t.tid) == tid) {
        parts.push(format!("row=task{number}"));
    }
    if parts.is_empty() { String::new() } else { format!("#{}", parts.join("&")) }
}

/// Samples of code, and the stacks in which tasks left their CPUs.
struct StackSelection(EventSelection);

impl StackSelection {
    /// None if the recordings have no such events.
    fn new(source: &EventSource, mut selection: EventSelection) -> Option<StackSelection> {
        let classes = source.classes();
        let is_wanted = |name: &str| name == "sched_switch" || name.ends_with(":sched_switch");
        // A switch without a stack says nothing that the tracks do not.
        let has_chain = |c: &RecordedClass| {
            c.attr.as_ref().is_none_or(|a| a.sample_type.contains(SampleType::CALLCHAIN))
        };
        let chosen = classes
            .iter()
            .filter(|c| c.origin == ClassOrigin::Sample || is_wanted(&c.name) && has_chain(c));
        let names: Vec<String> = chosen.map(|c| c.full_name.clone()).collect();
        if names.is_empty() {
            return None;
        }
        selection.set_event_names(names);
        Some(StackSelection(selection))
    }

    fn plan(&self) -> StackPlan<'_> {
        StackPlan {
            selection: &self.0,
            binaries: &[],
            split: TaskSplit::Tid,
            weight: SampleWeight::Period,
            moments: true,
            addresses: false,
            inlines: true,
            one_event: false,
        }
    }
}

fn note(tracks: &TraceTracks, ledger: &mut Ledger) {
    if tracks.sched.machine.counts.switches > 0 {
        let record = "kymo record -a -e sched:sched_switch -e sched:sched_waking";
        sched_notes(&tracks.sched, record).into_iter().for_each(|n| ledger.push(n));
    } else {
        let advice = "record them: -e sched:sched_switch -e sched:sched_waking";
        let fact = "tracks have no states of tasks: there are no sched_switch events";
        ledger.tell(NoteKind::Events, fact, Some(advice.into()));
    }
    if tracks.events.textless > 0 {
        let fact = format!("fields of {} events are left out", tracks.events.textless);
        ledger.tell(NoteKind::Events, fact, Some("--max-text keeps more, --time chooses".into()));
    }
    tracks.counts.notes().into_iter().for_each(|n| ledger.push(n));
}

/// The recordings as they are typed in a shell.
fn recording_words(names: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    let word = |name: &String| {
        if !name.is_empty() && name.chars().all(is_plain) {
            name.clone()
        } else {
            format!("'{}'", name.replace('\'', "'\\''"))
        }
    };
    names.iter().map(word).collect::<Vec<String>>().join(" ")
}
