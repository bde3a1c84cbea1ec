//! `kymo profile`: record a command and say what it spent its time on, for
//! someone who has never profiled. A recording into a temporary file (or `-o`),
//! then one pass over it.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use kymo_analysis::profile::{LoadOptions, Profile};
use kymo_record::{CallGraph, Output, RecordOptions, RecordSummary, record};
use kymo_view::Ledger;
use kymo_view::profile_page::{CommandRun, build_page, page_ledger};

use super::scratch::ScratchDirectory;
use crate::args::symbols::DebuginfodArgs;

/// Flags of `kymo profile`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kymo profile -- gzip -9 -c /usr/bin/perl > /dev/null")]
pub(crate) struct Args {
    /// Keep the recording in FILE (perf.data format) for `kymo report` and `kymo script`
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,

    /// Samples per second and CPU
    #[arg(short = 'F', long = "freq", value_name = "N", default_value_t = 4000)]
    freq: u64,

    /// Number of functions to show
    #[arg(short = 'n', long = "top", value_name = "N", default_value_t = 15)]
    top: usize,

    #[command(flatten)]
    servers: DebuginfodArgs,

    /// Exit with status 3 when anything limits the trust in the result
    #[arg(long)]
    strict: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let scratch = ScratchDirectory::new(args.output.is_none())?;
    let path = args.output.clone().unwrap_or_else(|| scratch.file());
    let options = RecordOptions {
        command: args.command.clone(),
        freq: Some(args.freq),
        call_graph: Some(CallGraph::FramePointers),
        switch_events: true,
        output: Output::File { path: path.clone(), force: false },
        command_line: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..RecordOptions::default()
    };
    let summary = record(&options)?;
    let symbols = kymo_symbols::ResolverOptions {
        debuginfod: args.servers.client(),
        ..kymo_symbols::ResolverOptions::default()
    };
    let mut profile = Profile::load(&path, LoadOptions { symbols, ..LoadOptions::default() })?;
    let run = command_run(&args, &summary);
    let page = build_page(&run, &mut profile, args.top);
    let ledger = page_ledger(&run, &profile);
    // Standard output is the command's: `kymo profile -- gzip -c FILE > FILE.gz`
    // must give the same file as without.
    let mut out = std::io::stderr().lock();
    out.write_all(b"\n")?;
    out.write_all(page.to_text().as_bytes())?;
    if args.output.is_some() {
        writeln!(out, "\nThe recording is in {}: kymo report -i {0}", path.display())?;
    }
    if !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    out.flush()?;
    Ok(status(&args, &summary, &ledger))
}

fn command_run(args: &Args, summary: &RecordSummary) -> CommandRun {
    let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
    let usage = summary.usage.unwrap_or_default();
    CommandRun {
        command: words.join(" "),
        elapsed: summary.elapsed,
        ended: summary.usage.is_some(),
        user: usage.user,
        system: usage.system,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        rate: args.freq,
        notes: summary.notes.clone(),
    }
}

/// The command's own status, unless `--strict` finds something to object to.
fn status(args: &Args, summary: &RecordSummary, ledger: &Ledger) -> ExitCode {
    match summary.exit {
        Some(code) if code != 0 => ExitCode::from(code),
        _ if args.strict && ledger.has_doubts() => ExitCode::from(Ledger::STRICT_STATUS),
        _ => ExitCode::SUCCESS,
    }
}
