//! `kymo syscalls`: system calls by call and task; `record` chooses the events, `report` reads
//! them out of recordings of any format.

mod record;
pub(super) mod report;

use std::process::ExitCode;

use clap::Subcommand;

/// Flags of `kymo syscalls`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Reads perf.data (also from perf trace record), trace.dat, and directories of LTTng kernel traces.
They need raw_syscalls:sys_enter and sys_exit, or syscalls:sys_enter_* and sys_exit_*. `kymo trace
-s` shows the same table live.

WORDS
  blocked    time in which a call waited for a disk, a lock, a pipe, a timer or another event
  runnable   time in which it could have continued but had no CPU

EXAMPLES
  kymo syscalls record -- make -j4
  kymo syscalls report                       by call and by thread, with the slowest calls
  kymo syscalls record -g -- ./server        with the stacks of the slowest calls
  kymo syscalls report --comm postgres --errno-summary")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record system calls and task switches of the whole machine
    Record(Box<record::Args>),
    /// Show calls with their errors and times, and the waits of the slowest
    Report(Box<report::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(&args),
        Action::Report(args) => report::run(*args),
    }
}
