//! `kymo listen`: takes the recordings that `kymo trace -o tcp://…` sends, each
//! into a directory of its own.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use kymo_kernel::process::{Signal, Signals};
use kymo_record::ftrace::stream::{ListenEvent, ListenOptions, Secret, listen};
use kymo_view::Ledger;

use crate::args::values::bytes;

/// Flags of `kymo listen`.
#[derive(clap::Args)]
#[command(after_long_help = "\
FILES
Each recording is written to DIR/SENDER/trace.dat (or SENDER.2, … if that exists). It can be read
while it grows. If either side dies, it is valid up to the last acknowledged data.

NETWORK SECURITY
The connection is not encrypted. An SSH tunnel is, and needs no open port:
  kymo listen --dir traces &
  ssh -R 7411:127.0.0.1:7411 root@HOST kymo trace -o tcp://127.0.0.1:7411 -e sched
On a trusted network, use a shared secret:
  head -c 32 /dev/urandom | base64 > secret; chmod 600 secret     (copy it to the sender)
  kymo listen --dir traces --bind 192.0.2.1:7411 --secret-file secret
  kymo trace -o tcp://192.0.2.1:7411 --secret-file secret -e sched
It authenticates both sides.")]
pub(crate) struct Args {
    /// Directory for the recordings
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7411")]
    bind: SocketAddr,
    /// File with a shared secret (at least 16 bytes)
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Allow a non-loopback address without a secret
    #[arg(long, conflicts_with = "secret_file")]
    no_secret: bool,
    /// Maximum size of one recording, such as 10G
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_size: Option<u64>,
    /// Maximum number of concurrent recordings
    #[arg(long, value_name = "N", default_value = "64")]
    max_senders: usize,
    /// Exit after this many recordings
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Acknowledge data only after it is on disk, not in the page cache
    #[arg(long)]
    sync: bool,
    /// Print only errors
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Exit with status 3 if a recording ended early
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let secret = args.secret_file.as_deref().map(Secret::read).transpose()?;
    let options = ListenOptions {
        dir: args.dir,
        bind: args.bind,
        secret,
        allow_unauthenticated: args.no_secret,
        max_size: args.max_size,
        max_senders: args.max_senders,
        count: args.count,
        sync: args.sync,
    };
    let ends = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
    let signals = Signals::listen(&ends).context("cannot listen for signals")?;
    let quiet = args.quiet;
    let listened = listen(&options, &signals, &|event| {
        if let Some(line) = line(&event, quiet) {
            // The message may have no reader; the recordings matter more.
            let _ = writeln!(crate::streams::stderr(), "[ kymo listen: {line} ]");
        }
    })?;
    let strict = args.strict && listened.broken > 0;
    Ok(if strict { ExitCode::from(Ledger::STRICT_STATUS) } else { ExitCode::SUCCESS })
}

fn line(event: &ListenEvent, quiet: bool) -> Option<String> {
    let reason = |e: &dyn std::error::Error| {
        let mut text = e.to_string();
        let mut cause = e.source();
        while let Some(c) = cause {
            text = format!("{text}: {c}");
            cause = c.source();
        }
        text
    };
    Some(match event {
        ListenEvent::Broken { from, path, stored, error } => format!(
            "{from}: the recording ended early: {}; {} holds what came before, {stored} bytes of \
             events",
            reason(error),
            path.display()
        ),
        ListenEvent::Refused { from, error } => format!("{from}: refused: {}", reason(error)),
        ListenEvent::Full { from } => format!("{from}: refused: too many senders (--max-senders)"),
        _ if quiet => return None,
        ListenEvent::Listening { address } => format!("listening on {address}"),
        ListenEvent::Started { from, path } => format!("{from}: writing {}", path.display()),
        ListenEvent::Complete { from, path, stored } => {
            format!("{from}: {} is complete, {stored} bytes of events", path.display())
        }
    })
}
