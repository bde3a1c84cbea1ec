//! `kymo convert`: the stacks of recordings in the formats of other programs.

mod timeline;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use kymo_events::EventSource;
use kymo_model::NoteKind;
use kymo_view::Ledger;
use kymo_view::export::{firefox, flame, folded, pprof, speedscope};
use kymo_view::recording_stacks::{RecordingStacks, SampleWeight, StackPlan, TaskSplit};
use kymo_view::stacks::Stacks;

use super::output;
use crate::args::samples::{RecordingArgs, SampleArgs};
use crate::exit;

/// Flags of `kymo convert`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
kymo convert -o flame.svg                      open it in a browser\n  \
kymo convert -o profile.pb.gz                  go tool pprof -http : profile.pb.gz\n  \
kymo convert -o profile.json.gz                load it at profiler.firefox.com\n  \
kymo convert -f folded | sort -k2 -rn | head   the heaviest stacks\n  \
kymo trace -T -o t.dat -e kmem:kmalloc -- CMD; kymo convert t.dat --weight bytes_alloc -o m.svg\n                                                 \
kernel allocations by call chain\n  \
kymo profile -o p.data -- CMD; kymo convert p.data --weight wall -o wall.svg\n                                                 \
time on and off the CPU")]
pub(crate) struct Args {
    #[command(flatten)]
    source: RecordingArgs,
    /// Recordings to read; several of one machine are merged
    ///
    /// A perf.data, a trace.dat, or directories of CTF traces or of sessions.
    #[arg(value_name = "FILE", conflicts_with = "input")]
    files: Vec<PathBuf>,
    /// Earlier recording for a differential flame graph
    ///
    /// Frames have the width of the larger side; orange ones grew, blue ones shrank or disappeared.
    #[arg(long, value_name = "FILE")]
    diff: Option<PathBuf>,
    /// Output format [default: by the name of the output file]
    #[arg(short, long, visible_alias = "to", value_name = "FORMAT")]
    format: Option<Format>,
    /// File to write, which must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    chosen: SampleArgs,
    /// Weight: `period`, `samples`, FIELD, `on`, `off` or `wall`
    ///
    /// `period`: the amount that a sample represents (nanoseconds of a clock, counts of an event; 1
    /// for a tracepoint). `samples`: 1 per sample. FIELD or EVENT.FIELD: a numeric field of
    /// tracepoints. Task time, in recordings with context switches (kymo profile -o, kymo offcpu
    /// record, kymo sched record -g): `on` CPU, `off` CPU by cause and stack, or `wall` for both.
    #[arg(long, value_name = "WHAT", default_value = "period")]
    weight: SampleWeight,
    /// Group stacks by task
    #[arg(long, value_name = "BY")]
    split: Option<SplitBy>,
    /// Show inlined functions, from debugging information [default]
    #[arg(long, overrides_with = "no_inline")]
    inline: bool,
    /// Do not show inlined functions and source lines
    #[arg(long)]
    no_inline: bool,
    /// Title of a flame graph [default: the recorded command]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Omit frames below this percentage from a flame graph
    #[arg(long, value_name = "PERCENT", default_value_t = 0.04)]
    percent_limit: f64,
    /// Omit `_[k]` (kernel) and `_[i]` (inlined) suffixes in folded stacks
    #[arg(long)]
    no_marks: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

/// Formats of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line per stack, as from stackcollapse-perf (.folded)
    Folded,
    /// Interactive flame graph (.svg)
    #[value(alias = "svg")]
    Flamegraph,
    /// For pprof (.pb.gz)
    Pprof,
    /// For profiler.firefox.com (.json, or .json.gz)
    Firefox,
    /// For speedscope.app (.speedscope.json)
    Speedscope,
    /// For ui.perfetto.dev and chrome://tracing: CPUs, waits, system calls and samples
    /// (.trace.json)
    Chrome,
    /// For ui.perfetto.dev: process tree, ftrace events, slices, samples (.perfetto-trace,
    /// .pftrace)
    Perfetto,
}

impl Format {
    /// Derives the format from the name of the output.
    fn of(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        let ends = [
            (".folded", Format::Folded),
            (".collapsed", Format::Folded),
            (".pb.gz", Format::Pprof),
            (".pprof", Format::Pprof),
            (".svg", Format::Flamegraph),
            (".speedscope.json", Format::Speedscope),
            (".perfetto-trace", Format::Perfetto),
            (".pftrace", Format::Perfetto),
            (".trace.json", Format::Chrome),
            (".trace.json.gz", Format::Chrome),
            (".json", Format::Firefox),
            (".json.gz", Format::Firefox),
        ];
        ends.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
    }

    /// Default task separation of the format.
    fn split(self) -> SplitBy {
        match self {
            Format::Folded | Format::Flamegraph | Format::Pprof => SplitBy::Comm,
            Format::Firefox | Format::Speedscope | Format::Chrome | Format::Perfetto => {
                SplitBy::Tid
            }
        }
    }

    /// Whether each sample is in it with its time.
    fn is_timeline(self) -> bool {
        matches!(self, Format::Firefox | Format::Speedscope | Format::Chrome | Format::Perfetto)
    }

    /// Whether several events can be in it.
    fn has_events(self) -> bool {
        !matches!(self, Format::Folded | Format::Flamegraph | Format::Firefox)
    }

    /// Whether addresses are in it.
    fn has_addresses(self) -> bool {
        matches!(self, Format::Firefox | Format::Pprof)
    }

    fn is_text(self) -> bool {
        !matches!(self, Format::Pprof | Format::Perfetto)
    }
}

/// Property by which tasks are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SplitBy {
    /// All samples together
    None,
    /// By task name
    Comm,
    /// By process
    Pid,
    /// By thread
    Tid,
}

impl From<SplitBy> for TaskSplit {
    fn from(split: SplitBy) -> TaskSplit {
        match split {
            SplitBy::None => TaskSplit::None,
            SplitBy::Comm => TaskSplit::Comm,
            SplitBy::Pid => TaskSplit::Pid,
            SplitBy::Tid => TaskSplit::Tid,
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut paths = args.files.clone();
    paths.extend(args.source.input.clone());
    if paths.is_empty() {
        paths.push(super::default_recording());
    }
    let named = args.output.as_deref().and_then(Format::of);
    let Some(format) = args.format.or(named) else {
        bail!(
            "which format? name it with -f, or with the end of the output's name (-o profile.pb.gz)"
        );
    };
    if args.diff.is_some() && format != Format::Flamegraph {
        bail!("--diff draws a flame graph: -o NAME.svg, or -f flamegraph; `kymo diff` compares");
    }
    if args.output.is_none() && !format.is_text() && crate::streams::stdout().is_terminal() {
        bail!("a terminal cannot show this format: name a file with -o");
    }
    let first = paths.first().cloned().unwrap_or_default();
    crate::progress::begin(first.display());
    let mut source = EventSource::open(&paths, args.source.symbols(&first))?;
    if matches!(format, Format::Chrome | Format::Perfetto) || args.weight.time_part().is_some() {
        source = source.in_nanoseconds()?;
    }
    refuse(&args, &source)?;
    if args.weight.time_part().is_some() {
        refuse_time(&args, format)?;
    }
    let selection = args.chosen.selection(&source)?;
    if matches!(format, Format::Chrome | Format::Perfetto) {
        return timeline::convert(&args, format, &source, &selection);
    }
    let plan = StackPlan {
        selection: &selection,
        binaries: &args.chosen.dsos,
        split: args.split.unwrap_or_else(|| format.split()).into(),
        weight: args.weight.clone(),
        moments: format.is_timeline(),
        addresses: format.has_addresses(),
        inlines: !args.no_inline,
        one_event: !format.has_events(),
    };
    let RecordingStacks { mut stacks, mut ledger, damage } =
        RecordingStacks::read(&source, &plan).context("convert")?;
    if stacks.title.is_empty() && source.timeline().is_some() {
        let name = |p: &PathBuf| p.file_name().unwrap_or(p.as_os_str()).to_string_lossy().into();
        stacks.title = paths.iter().map(name).collect::<Vec<String>>().join(", ");
    }
    stacks.recorded = recorded(&paths, stacks.span);
    let base = match &args.diff {
        Some(path) => Some(base_stacks(&args, path, &plan, &mut ledger)?),
        None => None,
    };
    export(&args, format, (&stacks, base.as_ref()), &mut ledger)?;
    say!("{}", ledger.to_text(""));
    Ok(exit::status(source.name(), damage.as_deref(), &ledger, args.strict))
}

/// Stacks of the recording that another one is compared with.
fn base_stacks(
    args: &Args,
    path: &Path,
    plan: &StackPlan<'_>,
    ledger: &mut Ledger,
) -> anyhow::Result<Stacks> {
    let mut source = EventSource::open(&[path.to_owned()], args.source.symbols(path))?;
    if args.weight.time_part().is_some() {
        source = source.in_nanoseconds()?;
    }
    let selection = args.chosen.selection(&source)?;
    let plan = StackPlan { selection: &selection, weight: args.weight.clone(), ..*plan };
    let read = RecordingStacks::read(&source, &plan).with_context(|| path.display().to_string())?;
    for note in read.ledger.notes() {
        let fact = format!("{}: {}", path.display(), note.fact);
        ledger.push(kymo_model::Note { fact, ..note.clone() });
    }
    if let Some(damage) = read.damage {
        ledger.note(NoteKind::Damaged, format!("{}: {damage}", path.display()), None);
    }
    Ok(read.stacks)
}

/// Flags that mean nothing where there are no samples of code.
fn refuse(args: &Args, source: &EventSource) -> anyhow::Result<()> {
    let finding = &args.source.finding;
    let has_kernels = source.timeline().is_some_and(|t| !t.kernels().is_empty());
    if source.perf_count() > 0 {
        return Ok(());
    }
    for (given, flag) in [
        (!args.chosen.dsos.is_empty(), "--dsos"),
        (args.inline, "--inline"),
        (finding.symfs.is_some(), "--symfs"),
        (finding.bundle.is_some(), "--bundle"),
    ] {
        if given {
            bail!("{flag} needs a perf.data: this recording has no user-space code");
        }
    }
    if finding.vmlinux.is_some() && has_kernels {
        bail!("-k is for perf.data: a trace.dat has its kernel's symbols, --kallsyms names others");
    }
    Ok(())
}

/// Flags that mean nothing where the time of tasks weighs.
fn refuse_time(args: &Args, format: Format) -> anyhow::Result<()> {
    if format.is_timeline() {
        bail!(
            "--weight on, off and wall are for folded, flamegraph and pprof: waits are no samples"
        );
    }
    if !args.chosen.dsos.is_empty() {
        bail!("--dsos chooses samples, and waits are none");
    }
    Ok(())
}

/// Writes the result where it belongs.
fn export(
    args: &Args,
    format: Format,
    (stacks, base): (&Stacks, Option<&Stacks>),
    ledger: &mut Ledger,
) -> anyhow::Result<()> {
    let is_explained = ledger.notes().iter().any(|note| note.kind == NoteKind::Empty);
    if stacks.stacks.is_empty() && !is_explained {
        ledger.note(NoteKind::Empty, "no sample is in the result", None);
    }
    let mut drawn = flame::Drawn::default();
    output::write(args.output.as_deref(), args.force, &mut |out: &mut dyn Write| {
        drawn = match base {
            Some(base) => {
                let (before, after) = (folded::ByName::of(base), folded::ByName::of(stacks));
                flame::write_differential(&before, &after, &look(args, stacks), out)?
            }
            None => write(args, format, stacks, out)?,
        };
        Ok(())
    })?;
    if drawn.left_out > 0 {
        let fact = format!(
            "{} narrow parts of the graph are left out, {} frames are drawn",
            drawn.left_out, drawn.frames
        );
        ledger.tell(NoteKind::Narrow, fact, Some("--percent-limit 0 draws all of them".into()));
    }
    Ok(())
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gz")
}

/// Characters of the recorded command above a flame graph.
const LONGEST_TITLE: usize = 100;

fn look(args: &Args, stacks: &Stacks) -> flame::Look {
    let event = stacks.events.first();
    let title = args.title.clone().unwrap_or_else(|| {
        // A whole script may have been recorded.
        let mut command: String = stacks.title.chars().take(LONGEST_TITLE).collect();
        if command.len() < stacks.title.len() {
            command.push('…');
        }
        let parts = [command, event.map_or(String::new(), |e| e.name.clone())];
        parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(": ")
    });
    let unit = match event.map_or("count", |e| e.unit) {
        "count" if args.weight == SampleWeight::Samples => "samples",
        "count" if event.is_some_and(|e| e.name == "events") => "events",
        unit => unit,
    };
    flame::Look { title, unit, least: args.percent_limit }
}

/// Start time of the recordings: the time at which they were written, from their files, less their
/// length.
fn recorded(paths: &[PathBuf], span: Option<(u64, u64)>) -> Option<u64> {
    let written =
        |path: &PathBuf| std::fs::metadata(path).ok().filter(|m| m.is_file())?.modified().ok();
    let written = paths.iter().filter_map(written).max()?;
    let since = written.duration_since(std::time::UNIX_EPOCH).ok()?;
    let nanos = u64::try_from(since.as_nanos()).ok()?;
    nanos.checked_sub(span.map_or(0, |(first, last)| last.saturating_sub(first)))
}

/// Writes the result; answers what was drawn of it.
fn write(
    args: &Args,
    format: Format,
    stacks: &Stacks,
    out: &mut dyn Write,
) -> io::Result<flame::Drawn> {
    match format {
        Format::Folded => {
            let marks = folded::Marks { kernel: !args.no_marks, inlined: !args.no_marks };
            folded::ByName::of(stacks).write(out, marks)?;
        }
        Format::Flamegraph => {
            return flame::write(&folded::ByName::of(stacks), &look(args, stacks), out);
        }
        Format::Pprof => pprof::write(stacks, out)?,
        Format::Firefox if args.output.as_deref().is_some_and(is_packed) => {
            let mut packed = GzEncoder::new(out, Compression::default());
            firefox::write(stacks, &mut packed)?;
            packed.finish()?;
        }
        Format::Firefox => firefox::write(stacks, out)?,
        Format::Speedscope => speedscope::write(stacks, out)?,
        // What is over time goes another way.
        Format::Chrome | Format::Perfetto => {}
    }
    Ok(flame::Drawn::default())
}
