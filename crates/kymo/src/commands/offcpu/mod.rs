//! `kymo offcpu`: where tasks were off CPU and why; `record` chooses the events, `report` reads
//! them out of recordings of any format.

mod record;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

/// Flags of `kymo offcpu`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Reads perf.data, trace.dat, and directories of LTTng kernel traces. They need sched_switch of all
CPUs, with stacks for the causes of blocking; splitting waits into blocked and runnable time also
needs sched_waking or sched_wakeup.

EXAMPLES
  kymo offcpu record -- ./server --once    the whole machine, into perf.data
  kymo offcpu report --comm server         waits of `server`, by stack
  kymo offcpu record --call-graph dwarf -- ./server --once
                                           programs without frame pointers
  kymo offcpu record -o x.dat --timeout 5000
                                           a trace.dat: lower overhead, only kernel stacks")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record switches and wake-ups of the machine with their stacks
    Record(Box<record::Args>),
    /// Show where tasks were off CPU, and why
    Report(Box<report::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(*args),
        Action::Report(args) => report::run(*args),
    }
}
