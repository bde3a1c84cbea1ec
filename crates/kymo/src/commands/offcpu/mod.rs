//! `kymo offcpu`: where tasks were off CPU and why; `record` chooses the events, `report` reads
//! them out of recordings of any format.

mod record;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

/// Flags of `kymo offcpu`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Recordings are perf.data, trace.dat or directories of LTTng's kernel traces. sched_switch is
needed, with stacks for what tasks were blocked on; sched_waking or sched_wakeup for the time from
which they could run. All CPUs have to be recorded: a task may be woken and go on anywhere.

EXAMPLES
  kymo offcpu record -- ./server --once    everything that runs meanwhile, into perf.data
  kymo offcpu report --comm server         what server waited for, by stacks
  kymo offcpu record --call-graph dwarf -- ./server --once
                                           programs without frame pointers
  kymo offcpu record -o x.dat --timeout 5000
                                           a trace.dat: cheaper, with the kernel's stacks alone")]
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
