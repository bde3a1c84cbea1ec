//! `kymo diff`: two versions, days or hosts compared, with the error of the result.

mod baseline;
mod interleaved;
mod of_answer;
mod perf_columns;
mod read;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_compare::{CompareOptions, Comparison, Gate, GateOutcome, GateResult, StackTree};
use kymo_events::{EventSelection, EventSource};
use kymo_model::NoteKind;
use kymo_record::CallGraph;
use kymo_view::Ledger;
use kymo_view::diff::{DiffReport, RowLimit};
use kymo_view::report::DiffComputation;

use crate::args::events::EventSelectionArgs;
use crate::args::symbols::SymbolArgs;
use crate::args::tables::{MainTable, TableArgs};
use crate::args::values::call_graph;
use crate::called_name::CalledName;
use crate::commands::page_command::become_view_since;
use crate::exit;
use read::Sides;

/// Exit statuses of gates.
const FAILED: u8 = 4;
const UNDECIDED: u8 = 5;
/// Functions of a quantity that are shown.
const ROWS: usize = 12;
const CHANGES: MainTable = MainTable { answer: "diff", table: "changes", alike: &[], aliases: &[] };

/// Flags of `kymo diff`.
#[derive(clap::Args)]
#[command(mut_arg("sort", |sort| {
    sort.help("Sort by columns (see docs/json.md); in perf's columns by keys [default: dso,symbol]")
}))]
#[command(after_help = "\
EXAMPLES
  kymo diff before.data after.data
  kymo diff --before a*.data --after b*.data
  kymo diff --run -n 20 -- ./old ARGS -- ./new ARGS
  kymo diff --run --gate 'self:parse < +5%' --gate 'total < +2%' -- ./old -- ./new

Exit status with --gate: 0 passed, 4 failed, 5 undecided.")]
pub(crate) struct Args {
    /// Recording of the old and of the new version
    ///
    /// Each is split into time blocks; use --before and --after for several runs of each.
    #[arg(value_name = "FILE", conflicts_with_all = ["before", "after"])]
    files: Vec<PathBuf>,
    /// Recordings of the old version, one per run
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "after")]
    before: Vec<PathBuf>,
    /// Recordings of the new version, one per run
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "before")]
    after: Vec<PathBuf>,
    /// Compare the table of another command: --of 'offcpu report'
    ///
    /// Its options go inside the quotes.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = [
        "run", "compute", "view", "save", "against", "per", "cpu_only", "exact_names", "no_inline",
        "comms", "dsos", "events", "time", "pid", "tid", "cpu",
    ])]
    of: Option<String>,
    /// Save the totals of FILEs, one per run, as a baseline
    #[arg(long, value_name = "BASE", conflicts_with_all = ["before", "after", "run", "compute"])]
    save: Option<PathBuf>,
    /// Compare FILEs, one per run, with this baseline
    #[arg(long, value_name = "BASE", conflicts_with_all = ["before", "after", "run", "compute", "save"])]
    against: Option<PathBuf>,
    /// Record two commands alternately and compare them
    #[arg(long, conflicts_with_all = ["files", "before", "after", "per", "compute"])]
    run: bool,
    /// Runs of each command with --run
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    runs: usize,
    /// Add runs until the verdict is decided, or --max-time
    #[arg(long, value_name = "WHEN", requires = "run")]
    until: Option<Until>,
    /// With --run: start no new run after this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    max_time: Duration,
    /// Keep the recordings of --run in this directory; with -c: sort by recording N (0: the first)
    #[arg(short, long, visible_alias = "order", value_name = "DIR|N")]
    output: Option<PathBuf>,
    /// Count these events instead of recording, with --run
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', requires = "run")]
    stat: Vec<String>,
    /// With --run: samples per second
    #[arg(long, value_name = "N", requires = "run")]
    freq: Option<u64>,
    /// With --run: run both commands on these CPUs only (`1`, `2-3`)
    #[arg(long, value_name = "LIST", requires = "run")]
    pin: Option<String>,
    /// With --run: call chain recording mode, fp or dwarf[,BYTES]
    #[arg(long, value_name = "MODE", value_parser = call_graph, requires = "run")]
    call_graph: Option<CallGraph>,
    /// Also compare runs with a nonzero exit status
    #[arg(long, requires = "run")]
    ignore_failure: bool,
    /// Unit of work: `run`, `second`, or an event of the recordings
    #[arg(long, value_name = "UNIT")]
    per: Option<Per>,
    /// Largest change treated as no change, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    margin: f64,
    /// Bound on a change: `self:FUNCTION < +5%`, `total < +2%`
    ///
    /// Quantities: `self:FUNCTION`, `total:FUNCTION`, `offcpu:FUNCTION`, `total`, `offcpu`,
    /// `elapsed`; patterns match several functions.
    #[arg(long, value_name = "BOUND")]
    gate: Vec<Gate>,
    /// Apply gates even if one side was recorded after the other
    #[arg(long, requires = "gate")]
    accept_sequential: bool,
    /// Compare time on CPU only
    #[arg(long)]
    cpu_only: bool,
    /// Keep compiler suffixes of names (`.isra.0`, `.llvm.1`)
    #[arg(long)]
    exact_names: bool,
    /// Do not show inlined functions
    #[arg(long)]
    no_inline: bool,
    /// Only tasks with these names
    #[arg(short = 'C', long, value_name = "NAMES", value_delimiter = ',')]
    comms: Vec<String>,
    /// Only samples taken in these binaries
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    dsos: Vec<String>,
    /// Only this event
    #[arg(short = 'e', long = "event", value_name = "NAMES", value_delimiter = ',')]
    events: Vec<String>,
    /// Only this time range: START,STOP in seconds, or a share (10%-20%)
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    time: Option<String>,
    /// Only these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Only these CPUs (`0,2-3`)
    #[arg(long, value_name = "LIST")]
    cpu: Option<String>,
    /// Show perf's columns, without error bounds: delta, delta-abs, ratio, wdiff:W1,W2
    #[arg(short, long, value_name = "HOW", value_parser = perf_columns::computation)]
    compute: Option<DiffComputation>,
    /// Only these symbols, in perf's columns
    #[arg(short = 'S', long, value_name = "NAMES", value_delimiter = ',')]
    symbols: Vec<String>,
    /// Show the sum of periods, in perf's columns
    #[arg(short, long)]
    period: bool,
    /// Show the formula of each number, in perf's columns
    #[arg(short = 'F', long)]
    formula: bool,
    /// Show only entries with a match in the first recording, in perf's columns
    #[arg(short, long)]
    baseline_only: bool,
    /// Separate perf's columns with SEP, without padding
    #[arg(short = 't', long, value_name = "SEP")]
    field_separator: Option<String>,
    /// Base of percentages: all samples (absolute) or the shown ones (relative), in perf's columns
    #[arg(long, value_name = "OF", value_parser = ["absolute", "relative"])]
    percentage: Option<String>,
    /// Print only rows, in perf's columns
    #[arg(short, long)]
    quiet: bool,
    /// Ignore the owner of the file [always on]
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    finding: SymbolArgs,
    /// Show a call tree with both sides and their difference
    #[arg(short, long, conflicts_with_all = ["compute", "of", "save", "against", "json", "csv"])]
    graph: bool,
    /// Show all functions
    #[arg(short, long)]
    verbose: bool,
    /// Machine-readable output (docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Summary for a pull request
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "csv"])]
    report: Option<ReportFormat>,
    /// Open both in the browser, with a differential flame graph
    #[arg(long, conflicts_with_all = ["before", "after", "run", "save", "against", "compute"])]
    view: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
    /// The two commands for --run, each after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// End of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Until {
    /// The verdict, or each gate, is decided
    Decided,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    let time = seconds.ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    time.filter(|t| !t.is_zero()).ok_or_else(|| "not a number of seconds".into())
}

/// Formats of summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReportFormat {
    /// Markdown
    Md,
}

/// Unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Per {
    Run,
    Second,
    Event(String),
}

impl FromStr for Per {
    type Err = String;

    fn from_str(text: &str) -> Result<Per, String> {
        match text {
            "run" => Ok(Per::Run),
            "second" => Ok(Per::Second),
            "" => Err("not `run`, `second` or an event".into()),
            event => Ok(Per::Event(event.to_owned())),
        }
    }
}

impl Per {
    fn word(&self) -> &str {
        match self {
            Per::Run => "run",
            Per::Second => "second",
            Per::Event(event) => event,
        }
    }
}

impl Args {
    /// Rows of a table of the text.
    fn rows(&self) -> RowLimit {
        let usual = (!self.verbose).then_some(ROWS);
        RowLimit { most: self.table.most(usual), keeps_changes: !self.table.is_limited() }
    }

    fn selection(&self, source: &EventSource) -> anyhow::Result<EventSelection> {
        let select = EventSelectionArgs {
            time: self.time.clone(),
            cpu: self.cpu.clone(),
            pid: self.pid.clone(),
            tid: self.tid.clone(),
            events: self.events.clone(),
            ..EventSelectionArgs::default()
        };
        let selection = select.selection(self.comms.clone(), || Ok(source.span()?))?;
        source.check_events(&selection)?;
        Ok(selection)
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !(0.0..=1_000.0).contains(&args.margin) || args.margin == 0.0 {
        bail!("--margin {}: a margin is between 0 and 1000 %", args.margin);
    }
    let is_for_perf = args.compute.is_some() || CalledName::get() == CalledName::Perf;
    if !is_for_perf {
        args.table.check(&CHANGES)?;
    }
    if args.run {
        return interleaved::run(&args);
    }
    if !args.command.is_empty() {
        bail!("commands are recorded with --run: kymo diff --run -- ./old ARGS -- ./new ARGS");
    }
    if is_for_perf {
        return perf_columns::run(&args);
    }
    let for_perf = [
        (args.output.is_some(), "-o"),
        (!args.symbols.is_empty(), "-S"),
        (args.period, "-p"),
        (args.formula, "-F"),
        (args.baseline_only, "-b"),
        (args.field_separator.is_some(), "-t"),
        (args.percentage.is_some(), "--percentage"),
        (args.quiet, "-q"),
    ];
    if let Some((_, option)) = for_perf.iter().find(|(given, _)| *given) {
        bail!("{option} is for perf's columns: add -c delta, ratio or wdiff:1,2");
    }
    if args.save.is_some() || args.against.is_some() {
        return baseline::run(&args);
    }
    let (before, after) = match &*args.files {
        [] if !args.before.is_empty() => (args.before.clone(), args.after.clone()),
        [before, after] => (vec![before.clone()], vec![after.clone()]),
        [] => bail!(
            "which recordings? `kymo diff BEFORE AFTER`, or `kymo diff --run -- ./old -- ./new`"
        ),
        [one] => bail!("{} is the recording before; the one after is missing", one.display()),
        more => {
            bail!("{} recordings: assign them to the sides with --before and --after", more.len())
        }
    };
    crate::progress::begin(before.first().map_or("", |p| p.to_str().unwrap_or_default()));
    if let Some(words) = &args.of {
        return of_answer::run(&args, words, &before, &after);
    }
    let status = compare_files(&args, &before, &after)?;
    match (args.view, &*before, &*after) {
        (true, [base], [recording]) => {
            match become_view_since(Some(base), recording, None, None)? {}
        }
        _ => Ok(status),
    }
}

/// Compares recordings and shows the result.
fn compare_files(args: &Args, before: &[PathBuf], after: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let has_times = before.iter().chain(after).all(|path| !read::is_stack_file(path));
    let blocks = before.len() == 1 && after.len() == 1 && has_times;
    let per = match &args.per {
        Some(per) => per.clone(),
        None => read::usual_unit(args, [before, after])?,
    };
    let all: Vec<PathBuf> = before.iter().chain(after).cloned().collect();
    let mut read = read::read_all(args, &all, &per, blocks)?;
    let later = read.split_off(before.len());
    let sides = Sides { before: read, after: later };
    let mut ledger = Ledger::default();
    sides.notes(false, &mut ledger);
    note_unit(args, &per, blocks, &mut ledger);
    let options = CompareOptions { margin: args.margin / 100.0, ..CompareOptions::default() };
    let measures = sides.measures()?;
    let comparison = Comparison::new(&measures, &options)?;
    note_comparison(&comparison, &mut ledger);
    let names = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect();
    let report = DiffReport {
        gates: judge(args, &comparison, &ledger),
        comparison,
        sides: [names(before), names(after)],
        per: per.word().to_owned(),
        run_word: if blocks { "block" } else { "run" },
        trees: StackTree::of_all(&measures),
    };
    show(args, report, &ledger, sides.damage())
}

/// States what amounts are per, where that was chosen.
fn note_unit(args: &Args, per: &Per, blocks: bool, ledger: &mut Ledger) {
    if args.per.is_some() || !blocks {
        return;
    }
    let fact = if *per == Per::Run {
        "each recording is taken for one run of the same work, cut into blocks of time"
    } else {
        "amounts are per second of recording: a share of the time moves when another one does"
    };
    let advice = "--per EVENT counts work by an event; several runs of each side say more";
    ledger.tell(NoteKind::Work, fact, Some(advice.to_owned()));
}

/// Outcomes of the gates. Sides that are not known to have been recorded in turns pass and fail none: what changed on
/// the machine between them is larger than most bounds.
fn judge(args: &Args, comparison: &Comparison, ledger: &Ledger) -> Vec<GateResult> {
    let sequential = ledger.notes().iter().find(|note| note.kind == NoteKind::Sequential);
    let gates = args.gate.iter().map(|gate| gate.judge(comparison));
    let Some(note) = sequential.filter(|_| !args.accept_sequential) else {
        return gates.collect();
    };
    // The facts of these notes begin with the order of the recordings, and go on with its meaning.
    let order = note.fact.split(": ").next().unwrap_or_default();
    let reason = format!("{order} (--accept-sequential judges all the same)");
    gates.map(|gate| gate.undecided(&reason)).collect()
}

/// Notes on what may make functions look different.
fn note_comparison(comparison: &Comparison, ledger: &mut Ledger) {
    for stalled in &comparison.stalled {
        let fact = format!(
            "{}: {} is {:.1} times the median of its side",
            stalled.name, stalled.measure, stalled.times
        );
        ledger.note(NoteKind::Stalled, fact, None);
    }
    for (before, after) in &comparison.renamed {
        let fact = format!("{before} before is taken for {after} after: they share functions");
        ledger.tell(NoteKind::Comparison, fact, None);
    }
    for name in &comparison.nameless {
        let fact =
            format!("functions of {name} have names on one side only: it is compared as a whole");
        let advice = "install its symbols, or compare builds that are both unstripped";
        ledger.note(NoteKind::Comparison, fact, Some(advice.to_owned()));
    }
    let rows = comparison.measures.iter().flat_map(|m| &m.rows);
    let inlined: Vec<&str> = rows
        .filter(|r| r.inlined_on_one_side && r.own.is_some_and(|c| c.verdict.is_change()))
        .map(|r| r.key.name.as_str())
        .collect();
    if let [first, ..] = &*inlined {
        let fact = format!("{} functions are inlined on one side only ({first})", inlined.len());
        let advice = "their totals, and those of their callers, can be compared";
        ledger.tell(NoteKind::Comparison, fact, Some(advice.to_owned()));
    }
    if comparison.runs.0.min(comparison.runs.1) == 1 {
        let fact = "one run of a side shows no spread: nothing is decided";
        ledger.note(NoteKind::Few, fact, Some("four runs of each side can show a change".into()));
    } else if comparison.smallest_p > 0.05 {
        let fact = format!(
            "{} and {} runs cannot show any change: the smallest possible p-value is {:.2}",
            comparison.runs.0, comparison.runs.1, comparison.smallest_p
        );
        ledger.note(NoteKind::Few, fact, Some("four runs of each side can".to_owned()));
    }
}

fn show(
    args: &Args,
    mut report: DiffReport,
    ledger: &Ledger,
    damage: Option<(String, String)>,
) -> anyhow::Result<ExitCode> {
    crate::progress::end();
    let mut out = Vec::new();
    if args.report == Some(ReportFormat::Md) {
        out.extend(report.to_markdown(ledger).into_bytes());
    } else {
        let mut answer = report.answer();
        args.table.write(
            &mut out,
            (&mut answer, &CHANGES),
            (args.json, ledger),
            |answer, out| {
                crate::screen::page_tables();
                if args.table.is_sorted() {
                    report.order_like(answer);
                }
                out.write_all(report.to_text(args.rows()).as_bytes())?;
                if !ledger.is_empty() {
                    write!(out, "\n{}", ledger.to_text(""))?;
                }
                Ok(())
            },
        )?;
    }
    let mut stdout = crate::streams::stdout().lock();
    stdout.write_all(&out).context("cannot write the result")?;
    stdout.flush()?;
    let (name, damage) = damage.unzip();
    let status = exit::status(name.unwrap_or_default(), damage.as_deref(), ledger, args.strict);
    Ok(match report.gate_outcome() {
        Some(GateOutcome::Failed) => ExitCode::from(FAILED),
        Some(GateOutcome::Undecided) => ExitCode::from(UNDECIDED),
        _ => status,
    })
}
