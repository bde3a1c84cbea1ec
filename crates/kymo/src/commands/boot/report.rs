//! `kymo boot report`: the critical path of a boot.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use kymo_analysis::boot::{
    BootConfig, BootReport, UnitTime, boot_notes, compare_answer, compare_boots, report_boot,
};
use kymo_analysis::critical_path::PathTarget;
use kymo_events::EventSource;
use kymo_kernel::terminal_output::output_is_terminal;
use kymo_symbols::ResolverOptions;
use kymo_view::Ledger;
use kymo_view::boot::{BootComparison, BootView};
use kymo_view::units::TimeUnits;

use super::super::analysis::stdout;
use crate::args::tables::{MainTable, TableArgs};
use crate::exit;

/// Flags of `kymo boot report`.
#[derive(clap::Args)]
#[command(mut_arg("limit", |limit| limit.short('E').visible_alias("entries")))]
#[command(after_help = "\
Reads a directory of `kymo boot record`, or a file of any format with the same events, for example
from `kymo trace -o x.dat -e initcall,module,sched,workqueue,scsi`.

EXAMPLES
  kymo boot report boot
  kymo boot report boot --until multi-user.target
  kymo boot report boot --until login          the first login
  kymo boot report x.dat --comm modprobe
  kymo boot report --compare serial async
  kymo boot report boot --json | jq '.rows[0]'")]
pub(super) struct Args {
    /// The boot
    #[arg(value_name = "DIR|FILE", default_value = "boot", conflicts_with = "compare")]
    boot: PathBuf,
    /// Compare two boots
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    compare: Vec<PathBuf>,
    /// End of the path: start of a program or activation of a systemd unit [default: first process]
    #[arg(long, value_name = "NAME")]
    until: Option<String>,
    /// Thread to analyze
    #[arg(long, value_name = "TID", conflicts_with = "comm")]
    tid: Option<u32>,
    /// Longest-lived task with this name
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    #[command(flatten)]
    table: TableArgs,
    /// Machine-readable output (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

/// A boot that was read.
struct ReadBoot {
    source: EventSource,
    report: BootReport,
    units: Vec<UnitTime>,
    ledger: Ledger,
}

/// Rows of tables in text.
const ROWS: usize = 15;
/// Rows of the two tables on a screen.
const SCREEN_ROWS: usize = 10;
const BOOT: MainTable = MainTable { answer: "boot", table: "rows", alike: &[], aliases: &[] };
const COMPARED: MainTable =
    MainTable { answer: "boot_compare", table: "rows", alike: &[], aliases: &[] };

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.table.check(if args.compare.is_empty() { &BOOT } else { &COMPARED })?;
    if let [a, b] = args.compare.as_slice() {
        return compare(args, a, b);
    }
    if !args.boot.exists() {
        bail!(
            "{}: no such recording; `kymo boot prepare` prints the kernel parameters that trace \
             the next boot, `kymo boot record` saves it",
            args.boot.display()
        );
    }
    let boot = read(args, &args.boot)?;
    let is_screen = output_is_terminal();
    let view = BootView {
        report: &boot.report,
        units: &boot.units,
        entries: args.table.most(Some(if is_screen { SCREEN_ROWS } else { ROWS })),
        is_screen,
        times: TimeUnits::default(),
        recording: boot.source.arguments().to_owned(),
    };
    let mut out = stdout();
    let mut answer = boot.report.answer(&boot.units);
    args.table.write(&mut out, (&mut answer, &BOOT), (args.json, &boot.ledger), |_, out| {
        view.write_text(out, &boot.ledger)
    })?;
    out.flush()?;
    let status = status(args, &boot, &boot.ledger);
    Ok(if boot.report.table.paths.is_empty() { ExitCode::FAILURE } else { status })
}

fn compare(args: &Args, a: &Path, b: &Path) -> anyhow::Result<ExitCode> {
    let boots = [read(args, a)?, read(args, b)?];
    let reports = [&boots[0].report, &boots[1].report];
    if reports.iter().any(|r| r.table.paths.is_empty()) {
        bail!("one of them has no critical path: `kymo boot report` of each shows why");
    }
    let rows = compare_boots(reports);
    let mut ledger = Ledger::default();
    boots.iter().for_each(|boot| ledger.extend(boot.ledger.clone()));
    let names = [a, b].map(|path| path.display().to_string());
    let view = BootComparison { reports, names, rows: &rows, entries: args.table.most(Some(ROWS)) };
    let mut out = stdout();
    let mut answer = compare_answer(reports, &rows);
    args.table.write(&mut out, (&mut answer, &COMPARED), (args.json, &ledger), |_, out| {
        view.write_text(out, &ledger)
    })?;
    out.flush()?;
    Ok(status(args, &boots[1], &ledger))
}

fn status(args: &Args, boot: &ReadBoot, ledger: &Ledger) -> ExitCode {
    let summary = &boot.report.table.read.summary;
    let damage = summary.is_damaged(&boot.source).then_some("damaged; what can be read is counted");
    exit::status(boot.source.name(), damage, ledger, args.strict)
}

fn read(args: &Args, path: &Path) -> anyhow::Result<ReadBoot> {
    let file = path.join("trace.dat");
    let file = if file.is_file() { file } else { path.to_owned() };
    let source = EventSource::open(&[file], ResolverOptions::default())?.in_nanoseconds()?;
    if source.is_piped() {
        bail!("a path is read several times, which a pipe cannot be: write it to a file");
    }
    let task = args.tid.map(PathTarget::Thread);
    let task = task.or_else(|| args.comm.clone().map(PathTarget::Comm));
    let (units, processes) = units(path);
    let unit = args.until.as_ref().and_then(|name| units.iter().find(|u| u.name == *name));
    let end = unit.map(|u| u.to_us.saturating_mul(1000));
    let until = args.until.clone().filter(|_| unit.is_none());
    let config = BootConfig { task, until, end, units: processes };
    let mut report = report_boot(&source, &config)?;
    if let (Some(unit), Some(end), Some((_, last))) = (unit, end, report.span) {
        if last < end {
            bail!(
                "the recording ends before {} was active: a full ring keeps its first events \
                 (prepare: --buffer-size)",
                unit.name
            );
        }
        report.ends_with = Some(unit.name.clone());
    }
    if let (Some(name), None) = (&args.until, &report.ends_with) {
        bail!("no program {name} starts in the recording, and it has no such unit");
    }
    let notes = report.table.read.summary.notes(&source).into_iter().chain(boot_notes(&report));
    let ledger = Ledger::from_notes(notes);
    Ok(ReadBoot { source, report, units, ledger })
}

/// Units that systemd had started, those that took longest first; and their main processes.
fn units(directory: &Path) -> (Vec<UnitTime>, Vec<(u32, String)>) {
    let text = std::fs::read_to_string(directory.join("units")).unwrap_or_default();
    let mut processes = Vec::new();
    let mut unit = |block: &str| {
        let value =
            |name: &str| block.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
        let name = value("Id")?;
        let process = value("ExecMainPID").and_then(|v| v.parse().ok()).filter(|pid| *pid > 0);
        processes.extend(process.map(|pid: u32| (pid, name.to_owned())));
        let time = |name| value(name)?.parse::<u64>().ok().filter(|t| *t > 0);
        let from_us = time("InactiveExitTimestampMonotonic")?;
        let to_us = time("ActiveEnterTimestampMonotonic").filter(|to| *to >= from_us)?;
        Some(UnitTime { name: name.to_owned(), from_us, to_us })
    };
    let mut units: Vec<UnitTime> = text.split("\n\n").filter_map(&mut unit).collect();
    units.sort_by_key(|u| (std::cmp::Reverse(u.to_us - u.from_us), u.from_us));
    (units, processes)
}
