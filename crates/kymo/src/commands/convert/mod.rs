//! `kymo convert`: the stacks of a recording in the formats of other programs. Samples
//! of a perf.data become the model here, events of other recordings in `events`.

mod events;
mod model;
mod output;

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use kymo_analysis::profile::{LoadOptions, Profile, has_chains};
use kymo_files::RecordingFormat;
use kymo_files::perfdata::PerfData;
use kymo_model::NoteKind;
use kymo_view::Ledger;
use kymo_view::export::{firefox, flame, folded, pprof, speedscope};
use kymo_view::profile_stacks::{StackPlan, profile_stacks};
use kymo_view::stacks::Stacks;
use kymo_view::trust::profile_ledger;

use crate::args::samples::{RecordingArgs, SampleArgs};
use crate::exit;
use model::{Split, Weight};

/// Flags of `kymo convert`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
kymo convert -o flame.svg                      open it in a browser\n  \
kymo convert -o profile.pb.gz                  go tool pprof -http : profile.pb.gz\n  \
kymo convert -o profile.json.gz                load it at profiler.firefox.com\n  \
kymo convert -f folded | sort -k2 -rn | head   the heaviest stacks\n  \
kymo trace -T -o t.dat -e kmem:kmalloc -- CMD; kymo convert t.dat --weight bytes_alloc -o m.svg\n                                                 \
who asked the kernel for memory")]
pub(crate) struct Args {
    #[command(flatten)]
    source: RecordingArgs,
    /// Recording to read, without -i
    #[arg(value_name = "FILE", conflicts_with = "input")]
    file: Option<PathBuf>,
    /// Output format; by default the one that the name of the output file tells
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Write to this file, which must not exist yet; otherwise to the standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    chosen: SampleArgs,
    /// Weight of a sample: `period` (what it stands for: nanoseconds of a clock, counts of
    /// an event), `samples` (one); for an event of trace.dat or CTF, which counts as one, also a
    /// field that is a number: FIELD or EVENT.FIELD
    #[arg(long, value_name = "WHAT", default_value = "period")]
    weight: Weight,
    /// Group stacks by task
    #[arg(long, value_name = "BY")]
    split: Option<Split>,
    /// Show functions that the compiler inlined, from debugging information (this is the default)
    #[arg(long, overrides_with = "no_inline")]
    inline: bool,
    /// Show no inlined functions and source lines
    #[arg(long)]
    no_inline: bool,
    /// Title of a flame graph; default: the recorded command
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Leave frames of less than this percentage out of a flame graph
    #[arg(long, value_name = "PERCENT", default_value_t = 0.04)]
    percent_limit: f64,
    /// Leave out `_[k]` and `_[i]` behind functions of the kernel and inlined ones in folded stacks
    #[arg(long)]
    no_marks: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

/// Formats of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line for each stack, as stackcollapse-perf makes them (.folded)
    Folded,
    /// A flame graph that browsers zoom and search in (.svg)
    #[value(alias = "svg")]
    Flamegraph,
    /// For pprof (.pb.gz)
    Pprof,
    /// For profiler.firefox.com (.json, or .json.gz)
    Firefox,
    /// For speedscope.app (.speedscope.json)
    Speedscope,
}

impl Format {
    /// What the name of the output says.
    fn of(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        let ends = [
            (".folded", Format::Folded),
            (".collapsed", Format::Folded),
            (".pb.gz", Format::Pprof),
            (".pprof", Format::Pprof),
            (".svg", Format::Flamegraph),
            (".speedscope.json", Format::Speedscope),
            (".json", Format::Firefox),
            (".json.gz", Format::Firefox),
        ];
        ends.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
    }

    /// How tasks are told apart unless it is stated.
    fn split(self) -> Split {
        match self {
            Format::Folded | Format::Flamegraph | Format::Pprof => Split::Comm,
            Format::Firefox | Format::Speedscope => Split::Tid,
        }
    }

    /// Whether each sample is in it with its time.
    fn is_timeline(self) -> bool {
        matches!(self, Format::Firefox | Format::Speedscope)
    }

    /// Whether several events can be in it.
    fn has_events(self) -> bool {
        matches!(self, Format::Pprof | Format::Speedscope)
    }

    /// Whether addresses are in it.
    fn has_addresses(self) -> bool {
        matches!(self, Format::Firefox | Format::Pprof)
    }

    fn is_text(self) -> bool {
        self != Format::Pprof
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = args.source.input.clone().or_else(|| args.file.clone());
    let path = path.unwrap_or_else(super::default_recording);
    let named = args.output.as_deref().and_then(Format::of);
    let Some(format) = args.format.or(named) else {
        bail!(
            "which format? name it with -f, or with the end of the output's name (-o profile.pb.gz)"
        );
    };
    if args.output.is_none() && !format.is_text() && std::io::stdout().is_terminal() {
        bail!("a terminal cannot show this format: name a file with -o");
    }
    match RecordingFormat::of(&path) {
        Some(kind @ (RecordingFormat::TraceDat | RecordingFormat::Ctf)) => {
            events::run(&args, &path, kind, format)
        }
        Some(RecordingFormat::Session) => {
            bail!("{} holds several recordings: name one of them", path.display())
        }
        // What is neither is explained there.
        _ => samples(&args, &path, format),
    }
}

/// The samples of a perf.data.
fn samples(args: &Args, path: &Path, format: Format) -> anyhow::Result<ExitCode> {
    if let Weight::Field { name, .. } = &args.weight {
        bail!("--weight {name}: samples of a perf.data weigh `period` or `samples`");
    }
    let mut file = PerfData::open(path)?;
    let split = args.split.unwrap_or_else(|| format.split());
    let mut plan = StackPlan {
        chosen: args.chosen.filter(),
        events: args.chosen.events(file.events())?,
        split: split.into(),
        weight: args.weight.clone(),
        moments: format.is_timeline(),
    };
    let options = LoadOptions {
        symbols: args.source.symbols(path),
        merge_threads: !matches!(split, Split::Pid | Split::Tid) && !args.chosen.by_task(),
        by_address: format.has_addresses(),
        inlines: !args.no_inline && file.events().iter().any(has_chains),
        lines: format.has_addresses() && !args.no_inline,
        moments: plan.moments,
        times: args.chosen.times(file.features().sample_time)?,
        ..LoadOptions::default()
    };
    let profile = Profile::read(&mut file, options).context("convert")?;
    let mut ledger = profile_ledger(&profile, &file);
    if !format.has_events() {
        one_event(args, &profile, &mut plan, &mut ledger)?;
    }
    let mut stacks = profile_stacks(&profile, &plan);
    stacks.title = file.features().cmdline.join(" ");
    stacks.recorded = recorded(path, stacks.span);
    export(args, format, &stacks, &mut ledger)?;
    let damage =
        profile.stats.damaged.as_ref().map(|d| format!("{d}; what came before is converted"));
    finish(args, path, damage.as_deref(), &ledger)
}

/// Writes the result where it belongs.
fn export(args: &Args, format: Format, stacks: &Stacks, ledger: &mut Ledger) -> anyhow::Result<()> {
    if stacks.stacks.is_empty() {
        ledger.note(NoteKind::Empty, "no sample is in the result", None);
    }
    let mut drawn = flame::Drawn::default();
    output::write(args.output.as_deref(), args.force, &mut |out: &mut dyn Write| {
        drawn = write(args, format, stacks, out)?;
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
        "count" if args.weight == Weight::Samples => "samples",
        "count" if event.is_some_and(|e| e.name == "events") => "events",
        unit => unit,
    };
    flame::Look { title, unit, least: args.percent_limit }
}

/// When the recording was written, as far as its file says, less its length.
fn recorded(path: &Path, span: Option<(u64, u64)>) -> Option<u64> {
    let written = std::fs::metadata(path).ok().filter(|m| m.is_file())?.modified().ok()?;
    let since = written.duration_since(std::time::UNIX_EPOCH).ok()?;
    let nanos = u64::try_from(since.as_nanos()).ok()?;
    nanos.checked_sub(span.map_or(0, |(first, last)| last.saturating_sub(first)))
}

/// Weights of different events cannot be added up: where none is named, the first
/// one with samples it is.
fn one_event(
    args: &Args,
    profile: &Profile,
    plan: &mut StackPlan<'_>,
    ledger: &mut Ledger,
) -> anyhow::Result<()> {
    let wanted = profile.events.iter().zip(&plan.events).filter(|(e, w)| **w && e.samples > 0);
    let sampled: Vec<&str> = wanted.map(|(e, _)| e.desc.name.as_str()).collect();
    let [first, others @ ..] = &*sampled else { return Ok(()) };
    let others = others.join(", ");
    if others.is_empty() {
        return Ok(());
    }
    if args.chosen.names_events() {
        bail!("-e: this format holds one event, and weights cannot be added up: {first}, {others}");
    }
    for (event, wanted) in profile.events.iter().zip(&mut plan.events) {
        *wanted = event.desc.name == *first;
    }
    let fact = format!("{first} alone is in the result; recorded, too: {others}");
    ledger.tell(NoteKind::Events, fact, Some("-e names another one".into()));
    Ok(())
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
    }
    Ok(flame::Drawn::default())
}

fn finish(
    args: &Args,
    path: &Path,
    damage: Option<&str>,
    ledger: &Ledger,
) -> anyhow::Result<ExitCode> {
    say!("{}", ledger.to_text(""));
    Ok(exit::status(path.display(), damage, ledger, args.strict))
}
