//! `kymo syscalls`: system calls by call and task; `record` chooses the events, `report` reads
//! them out of recordings of any format.

mod record;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

/// Flags of `kymo syscalls`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Recordings are perf.data (of perf trace record, too), trace.dat or directories of LTTng's kernel
traces; calls come from raw_syscalls:sys_enter and sys_exit, or by syscalls:sys_enter_*. `kymo
trace -s` has the same table of what happens now.

WORDS
  blocked    time in which a call waited for something: disk, a lock, a pipe, time
  runnable   time in which it could have gone on, and had no CPU

EXAMPLES
  kymo syscalls record -- make -j4
  kymo syscalls report                       by call and by thread, and the slowest
  kymo syscalls record -g -- ./server        with what the slowest calls waited in
  kymo syscalls report --comm postgres --errno-summary")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record system calls of the machine, and switches of tasks
    Record(Box<record::Args>),
    /// Show calls, their errors and times, and what the slowest waited for
    Report(Box<report::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(&args),
        Action::Report(args) => report::run(*args),
    }
}
