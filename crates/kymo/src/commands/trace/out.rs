//! `kymo trace -o`: into a trace.dat here, or to a listener (`tcp://HOST:PORT`).

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_files::tracedat::Compression;
use kymo_files::tracedat::write::Format;
use kymo_kernel::system::SystemRoot;
use kymo_record::SwitchOn;
use kymo_record::ftrace::stream::Secret;
use kymo_record::ftrace::{
    KernelSymbols, TraceEvent, TraceOptions, TraceOutput, TraceSummary, record_trace,
};
use kymo_view::Ledger;

use super::super::tracing;
use super::Args;
use crate::args::targets::note_kernel_numbers;
use crate::args::values::{bytes, switch_on};
use crate::exit;

/// Flags for where a trace goes.
#[derive(clap::Args)]
pub(super) struct OutArgs {
    /// File to write (trace.dat), or tcp://HOST:PORT of `kymo listen`
    ///
    /// An existing recording is renamed to FILE.old.
    #[arg(short = 'o', long, value_name = "FILE|tcp://HOST:PORT")]
    output: Option<OsString>,
    /// Overwrite a file that is not a recording
    #[arg(short = 'f', long)]
    force: bool,
    /// Version of the trace.dat: 6 or 7
    #[arg(long, value_name = "N", default_value = "7",
          value_parser = clap::value_parser!(u32).range(6..=7))]
    file_version: u32,
    /// Always store kernel symbols in the file (5 to 7 MB)
    #[arg(long, requires = "output")]
    kallsyms: bool,
    /// Compress the finished file: none, zlib, zstd
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = compression)]
    compression: Compression,
    /// Rotate the output file on SIGUSR2, or at a size (10M) or time (30s)
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "signal", value_parser = switch_on)]
    switch_output: Option<SwitchOn>,
    /// Number of newest rotated files to keep
    #[arg(long, value_name = "N", requires = "switch_output")]
    switch_max_files: Option<usize>,
    /// Stop when the events reach this size (10M)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_size: Option<u64>,
    /// File with the listener's secret
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Name of the recording's directory at the listener [default: host name]
    #[arg(long, value_name = "NAME")]
    sender: Option<String>,
}

fn compression(text: &str) -> Result<Compression, String> {
    Compression::named(text).ok_or_else(|| "there are none, zlib and zstd".into())
}

impl OutArgs {
    /// Whether the trace is to be kept and not shown.
    pub(super) fn given(&self) -> bool {
        self.output.is_some()
    }

    /// The directory for events of programs, if they are to be kept.
    pub(super) fn directory(&self) -> anyhow::Result<Option<&std::path::Path>> {
        let Some(output) = &self.output else { return Ok(None) };
        let files = self.switch_output.is_some() || self.max_size.is_some();
        if output.as_encoded_bytes().starts_with(b"tcp://") || files || self.secret_file.is_some() {
            bail!(
                "events of programs go into a directory: -u with -o DIR, and no more of the output"
            );
        }
        Ok(Some(std::path::Path::new(output)))
    }

    fn output(&self) -> anyhow::Result<TraceOutput> {
        let output = self.output.clone().unwrap_or_else(|| "trace.dat".into());
        if output == "-" {
            bail!(
                "-o -: a trace.dat cannot be written to a pipe; name a file, or use `kymo record \
                 -o -`, which writes a perf.data"
            );
        }
        let Some(address) = output.to_str().and_then(|o| o.strip_prefix("tcp://")) else {
            if self.secret_file.is_some() {
                bail!("--secret-file is for -o tcp://HOST:PORT");
            }
            return Ok(TraceOutput::File { path: output.into(), force: self.force });
        };
        if self.switch_output.is_some() || self.compression != Compression::None {
            bail!("--switch-output and --compression are for files, not for a listener");
        }
        let name = match &self.sender {
            Some(name) => name.clone(),
            None => SystemRoot::machine().hostname().context("the host's name cannot be read")?,
        };
        let secret = self.secret_file.as_deref().map(Secret::read).transpose()?;
        Ok(TraceOutput::Remote { address: address.trim_end_matches('/').to_owned(), secret, name })
    }

    fn format(&self) -> anyhow::Result<Format> {
        if self.file_version == 6 && self.compression != Compression::None {
            bail!("version 6 files are not compressed; take --file-version 7");
        }
        Ok(Format { version: self.file_version, compression: self.compression })
    }
}

/// Returns the options of a recording.
pub(super) fn options(
    args: &Args,
    events: Vec<TraceEvent>,
    output: TraceOutput,
) -> anyhow::Result<TraceOptions> {
    Ok(TraceOptions {
        symbols: match args.out.kallsyms {
            true => KernelSymbols::All,
            false => KernelSymbols::IfPrinted,
        },
        setup: args.setup(events)?,
        output,
        format: args.out.format()?,
        switch: args.out.switch_output,
        keep_files: args.out.switch_max_files,
        max_size: args.out.max_size,
    })
}

pub(super) fn record(args: &Args, events: Vec<TraceEvent>) -> anyhow::Result<ExitCode> {
    let options = options(args, events, args.out.output()?)?;
    let tracefs = tracing::open()?;
    let summary = record_trace(&tracefs, &options)?;
    let ledger = ledger(&summary);
    if !args.quiet {
        tell(&summary, &ledger);
    }
    let exit = match summary.running {
        Some(running) => Some(running.wait()?),
        None => summary.exit,
    };
    Ok(exit::of_command(exit, &ledger, args.strict))
}

pub(super) fn ledger(s: &TraceSummary) -> Ledger {
    Ledger::from_notes(s.ledger_notes().into_iter().chain(note_kernel_numbers()))
}

fn tell(s: &TraceSummary, ledger: &Ledger) {
    let mut text = String::new();
    for path in &s.switched {
        text.push_str(&format!("[ kymo trace: wrote {} ]\n", path.display()));
    }
    text.push_str(&format!(
        "[ kymo trace: wrote {:.3} MB {} ({} events) ]\n",
        s.bytes as f64 / (1024.0 * 1024.0),
        s.path.display(),
        s.events
    ));
    text.push_str(&ledger.to_text(""));
    // The message may have no reader; the recording is done all the same.
    let _ = crate::streams::stderr().write_all(text.as_bytes());
}
