//! `kymo trace`: the kernel's tracepoints through its own ring, into a trace.dat
//! or to a listener.

mod out;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_kernel::ftrace::Selection;
use kymo_kernel::{cpus, target};
use kymo_record::ftrace::TraceEvent;

use super::record::values::{bytes, millis};

/// Flags of `kymo trace`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    out: out::OutArgs,
    /// Events: GROUP:EVENT, GROUP, EVENT or a pattern (repeat, or separate by commas)
    #[arg(short = 'e', long = "event", value_name = "EVENT")]
    events: Vec<String>,
    /// Only events of the -e before it for which this holds, as the kernel writes filters
    #[arg(long, value_name = "FILTER")]
    filter: Vec<String>,
    /// Everybody's events, although there is a command
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// These processes
    #[arg(short = 'p', long, value_name = "PID,…")]
    pid: Option<String>,
    /// Only on these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<String>,
    /// The kernel's stack with each event
    #[arg(short = 'T', long)]
    stacks: bool,
    /// Clock of the timestamps
    #[arg(long, value_name = "CLOCK", default_value = "mono")]
    clock: String,
    /// Room in the ring for each CPU (8M)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    buffer_size: Option<u64>,
    /// Do not follow children
    #[arg(short = 'i', long)]
    no_inherit: bool,
    /// Stop after so many milliseconds
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Exit with status 3 if anything was lost
    #[arg(long)]
    strict: bool,
    /// The command to trace
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.events.is_empty() {
        bail!("which events? -e names them, `kymo event list` shows them");
    }
    out::record(&args)
}

impl Args {
    /// The events with their filters, in the order they were typed.
    fn wanted(&self) -> anyhow::Result<Vec<TraceEvent>> {
        let filters = attached(&self.filter)?;
        let mut wanted = Vec::new();
        for (n, names) in self.events.iter().enumerate() {
            for name in names.split(',').filter(|n| !n.is_empty()) {
                let selection = Selection::parse(name)?;
                let filter = filters.get(n).cloned().flatten();
                wanted.push(TraceEvent { selection, filter });
            }
        }
        Ok(wanted)
    }

    fn pids(&self) -> anyhow::Result<Vec<u32>> {
        Ok(self.pid.as_deref().map(target::parse_ids).transpose()?.unwrap_or_default())
    }

    fn cpus(&self) -> anyhow::Result<Vec<u32>> {
        let cpus = self.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
        Ok(cpus.unwrap_or_default())
    }
}

/// The filter that follows each `-e` on the command line.
fn attached(filters: &[String]) -> anyhow::Result<Vec<Option<String>>> {
    let mut found: Vec<Option<String>> = Vec::new();
    let mut given = filters.iter();
    let mut words = std::env::args_os().skip(2).map(|w| w.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        if let Some(short) = word.strip_prefix("-e") {
            found.push(None);
            if short.is_empty() {
                words.next();
            }
        } else if word == "--event" || word.starts_with("--event=") {
            found.push(None);
            if word == "--event" {
                words.next();
            }
        } else if word == "--filter" || word.starts_with("--filter=") {
            if word == "--filter" {
                words.next();
            }
            let filter = given.next().cloned();
            match found.last_mut() {
                Some(place) => *place = filter,
                None => bail!("--filter comes after the -e it is for"),
            }
        }
    }
    Ok(found)
}
