//! `kymo convert`: the stacks of a recording in the formats of other programs.

mod model;
mod output;

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_analysis::profile::{LoadOptions, Profile};
use kymo_files::Kind;
use kymo_files::perfdata::PerfData;
use kymo_view::Ledger;
use kymo_view::export::{folded, pprof};

use super::chosen::{Chosen, Source};
use model::{Plan, Split, Weight};

/// Flags of `kymo convert`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
kymo convert -o profile.pb.gz                  go tool pprof -http : profile.pb.gz\n  \
kymo convert -f folded | sort -k2 -rn | head   the heaviest stacks")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Recording to read, without -i
    #[arg(value_name = "FILE", conflicts_with = "input")]
    file: Option<PathBuf>,
    /// What to make; without it the name of the output says it
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Write to this file, which must not exist yet; otherwise to the standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    chosen: Chosen,
    /// What a sample weighs
    #[arg(long, value_name = "WHAT", default_value = "period")]
    weight: Weight,
    /// What tells tasks apart
    #[arg(long, value_name = "BY")]
    split: Option<Split>,
    /// Leave out `_[k]` behind functions of the kernel in folded stacks
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
    /// For pprof (.pb.gz)
    Pprof,
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
        ];
        ends.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
    }

    /// How tasks are told apart unless it is stated.
    fn split(self) -> Split {
        Split::Comm
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
    if Kind::of(&path) == Some(Kind::TraceDat) {
        bail!(
            "{} is a trace.dat, which has no samples: record stacks with `kymo record -g`",
            path.display()
        );
    }
    if args.output.is_none() && !format.is_text() && std::io::stdout().is_terminal() {
        bail!("a terminal cannot show this format: name a file with -o");
    }
    let mut file = PerfData::open(&path)?;
    let mut plan = Plan {
        chosen: &args.chosen,
        events: args.chosen.events(file.events())?,
        split: args.split.unwrap_or_else(|| format.split()),
        weight: args.weight,
        moments: false,
    };
    let options = LoadOptions {
        symbols: args.source.symbols(),
        merge_threads: !matches!(plan.split, Split::Pid | Split::Tid) && !args.chosen.by_task(),
        by_address: format == Format::Pprof,
        moments: plan.moments,
        times: args.chosen.times(&file)?,
        ..LoadOptions::default()
    };
    let profile = Profile::read(&mut file, options).context("convert")?;
    let mut ledger = super::report::trust::ledger(&profile, file.notes());
    if format != Format::Pprof && !args.chosen.names_events() {
        one_event(&profile, &mut plan, &mut ledger);
    }
    let mut stacks = model::model(&profile, &plan);
    stacks.title = file.features().cmdline.join(" ");
    if stacks.stacks.is_empty() {
        ledger.note("empty", "no sample is in the result", None);
    }
    output::write(args.output.as_deref(), args.force, &mut |out: &mut dyn Write| match format {
        Format::Folded => {
            let marks = folded::Marks { kernel: !args.no_marks, inlined: !args.no_marks };
            folded::ByName::of(&stacks).write(out, marks)
        }
        Format::Pprof => pprof::write(&stacks, out),
    })?;
    finish(&args, &path, &profile, &ledger)
}

/// Weights of different events cannot be added up: where none is named, the first
/// one with samples it is.
fn one_event(profile: &Profile, plan: &mut Plan<'_>, ledger: &mut Ledger) {
    let sampled: Vec<&str> =
        profile.events.iter().filter(|e| e.samples > 0).map(|e| e.desc.name.as_str()).collect();
    let Some(first) = profile.events.iter().position(|e| e.samples > 0) else { return };
    for (number, wanted) in plan.events.iter_mut().enumerate() {
        *wanted = number == first;
    }
    if let [first, others @ ..] = &*sampled
        && !others.is_empty()
    {
        let fact = format!("{first} alone is in the result; recorded, too: {}", others.join(", "));
        ledger.tell("events", fact, Some("-e names another one".into()));
    }
}

fn finish(
    args: &Args,
    path: &Path,
    profile: &Profile,
    ledger: &Ledger,
) -> anyhow::Result<ExitCode> {
    anstream::eprint!("{}", ledger.to_text(""));
    if let Some(damage) = &profile.stats.damaged {
        anstream::eprintln!("kymo: {}: {damage}; what came before is converted", path.display());
        return Ok(ExitCode::FAILURE);
    }
    Ok(match args.strict && ledger.has_doubts() {
        true => ExitCode::from(Ledger::STRICT_STATUS),
        false => ExitCode::SUCCESS,
    })
}
