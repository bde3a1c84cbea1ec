//! `kymo report` of CTF traces: which events, of which tasks, on which CPUs, with
//! which values in their fields and contexts.

mod count;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use kymo_files::ctf::read::{Ctf, Times};

use super::{Args, exit, keys, page};
use crate::commands::ctf::{damaged, ledger};

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    refuse(args)?;
    let keys = keys::parse(args.sort.as_deref().unwrap_or("event,comm"))?;
    let ctf = Ctf::open(path)?;
    count::check(&keys, &ctf)?;
    let (found, stats) = count::count(&ctf, &keys, args.comms.as_deref())?;
    let mut ledger = ledger(&ctf, &stats);
    found.note(&mut ledger);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let stacks = page::Stacks::None;
    let page = page::Page { args, keys: &keys, found: &found, clock: clock(&ctf), stacks };
    if args.json {
        page.json(&mut out, &ledger)?;
    } else {
        page.text(&mut out, &ledger)?;
    }
    out.flush()?;
    if damaged(&ctf, &stats) {
        anstream::eprintln!("kymo: {}: damaged; what can be read is counted", ctf.name());
        return Ok(ExitCode::FAILURE);
    }
    Ok(exit(&ledger, args.strict))
}

/// The name of the clock, or what stands for several.
fn clock(ctf: &Ctf) -> String {
    let first = ctf.traces().first().and_then(|t| t.clock());
    match (ctf.times(), first) {
        (Times::Real, _) => "real time".to_owned(),
        (Times::Clock, Some(clock)) => clock.name.clone(),
        (Times::Clock, None) => "none".to_owned(),
    }
}

/// Flags that mean nothing here.
fn refuse(args: &Args) -> anyhow::Result<()> {
    for (given, flag) in [
        (args.children, "--children"),
        (args.call_graph.is_some(), "-g"),
        (args.fields.is_some(), "-F"),
        (args.dsos.is_some(), "--dsos"),
        (args.symbols.is_some(), "--symbols"),
        (args.header || args.header_only, "--header (kymo script --header shows it)"),
        (args.finding.symfs.is_some(), "--symfs"),
        (args.finding.kallsyms.is_some(), "--kallsyms"),
    ] {
        if given {
            bail!("{flag} is not for a CTF trace");
        }
    }
    Ok(())
}
