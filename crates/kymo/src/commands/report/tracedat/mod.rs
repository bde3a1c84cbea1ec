//! `kymo report` of a trace.dat: which events, of which tasks, on which CPUs,
//! with which values in their fields, from where in the kernel.

mod count;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use kymo_files::tracedat::TraceDat;

use super::{Args, exit, keys, page};
use crate::commands::tracedat::{Formats, damaged, ledger};

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    refuse(args)?;
    let keys = keys::parse(args.sort.as_deref().unwrap_or("event,comm"))?;
    let stacks = page::Stacks::parse(args.call_graph.as_deref())?;
    let data = TraceDat::open(path)?;
    let formats = Formats::new(&data);
    keys::check(&keys, &formats)?;
    let (found, stats) =
        count::count(&data, &formats, &keys, args.comms.as_deref(), stacks.wanted())?;
    let mut ledger = ledger(&data, &stats);
    found.note(&mut ledger);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let clock = data.buffers().first().map_or("?", |b| &b.clock).to_owned();
    let page = page::Page { args, keys: &keys, found: &found, clock, stacks };
    if args.json {
        page.json(&mut out, &ledger)?;
    } else {
        page.text(&mut out, &ledger)?;
    }
    out.flush()?;
    if damaged(&data, &stats) {
        anstream::eprintln!("kymo: {}: damaged; what can be read is counted", data.name());
        return Ok(ExitCode::FAILURE);
    }
    Ok(exit(&ledger, args.strict))
}

/// Flags that mean nothing here.
fn refuse(args: &Args) -> anyhow::Result<()> {
    for (given, flag) in [
        (args.children, "--children"),
        (args.fields.is_some(), "-F"),
        (args.dsos.is_some(), "--dsos"),
        (args.symbols.is_some(), "--symbols"),
        (args.header || args.header_only, "--header (kymo script --header shows it)"),
        (args.finding.symfs.is_some(), "--symfs"),
        (args.finding.kallsyms.is_some(), "--kallsyms (a trace.dat has its own)"),
    ] {
        if given {
            bail!("{flag} is for perf.data, not for a trace.dat");
        }
    }
    Ok(())
}
