//! Events of CTF traces, laid out as those of a perf.data. They are merged and
//! gathered on one thread, rendered on others.

mod batch;
mod header;
mod line;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use kymo_files::ctf::read::{Ctf, Times};
use kymo_view::Ledger;

use super::filter::Filter;
use super::{Args, output, pool};
use crate::commands::ctf::{damaged, ledger};
use line::Printer;

/// More threads than this only wait for the one that merges.
const MOST_PRINTERS: usize = 6;

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    refuse(args)?;
    let mut ctf = Ctf::open(path)?;
    if args.real_time {
        ctf.set_times(Times::Real);
    }
    let shares = args.time.as_ref().is_some_and(|t| t.contains('%'));
    let span = if shares { ctf.span()? } else { None };
    let filter = Filter::new(args, span)?;
    if args.header || args.header_only {
        output::write(header::text(&ctf).as_bytes())?;
        if args.header_only {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let first = Printer::new(args, &ctf, filter.clone())?;
    // A time since the line before is known to who wrote that line.
    let in_turn = args.reltime || args.deltatime;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let n = if in_turn { 1 } else { threads.min(MOST_PRINTERS) };
    let printers = std::iter::repeat_with(|| first.another()).take(n).collect();
    let (stats, printers) = pool::run(printers, |give| batch::feed(&ctf, &filter, give))?;
    let stats = stats?;
    let mut ledger = ledger(&ctf, &stats);
    line::note(&printers, &mut ledger);
    if !printers.iter().any(|p| p.shown) {
        ledger.tell("nothing", super::nothing(args), None);
    }
    std::io::stderr().write_all(ledger.to_text("").as_bytes())?;
    if damaged(&ctf, &stats) {
        anstream::eprintln!("kymo: {}: damaged; what can be read was printed", ctf.name());
        return Ok(ExitCode::FAILURE);
    }
    if args.strict && ledger.has_doubts() {
        return Ok(ExitCode::from(Ledger::STRICT_STATUS));
    }
    Ok(ExitCode::SUCCESS)
}

/// Flags that mean nothing here.
fn refuse(args: &Args) -> anyhow::Result<()> {
    let shows = args.show_task_events
        || args.show_mmap_events
        || args.show_lost_events
        || args.show_switch_events;
    for (given, flag) in [
        (args.dump_raw_trace, "-D"),
        (shows, "--show-…-events"),
        (args.latency, "-l"),
        (!args.symbols.is_empty(), "-S"),
    ] {
        if given {
            bail!("{flag} is not for a CTF trace");
        }
    }
    Ok(())
}
