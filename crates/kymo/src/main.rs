//! Flags and exit codes. One file per command under `commands/`; each has an
//! `Args` (what was typed) and a `run` (what was meant).
#![forbid(unsafe_code)]

/// Says something on standard error, whether anybody can read it or not: the macros of
/// the standard library panic where that is closed or full, and nobody learns why.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(anstream::stderr(), $($text)*);
    }};
}

/// The same with a newline.
macro_rules! sayln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(anstream::stderr(), $($text)*);
    }};
}

mod args;
mod commands;
mod exit;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Count, profile and trace a running Linux system.
#[derive(Parser)]
#[command(name = "kymo", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Each variant is `Name(commands::name::Args)`.
#[derive(Subcommand)]
enum Command {
    /// List the events this machine offers
    List(commands::list::Args),
    /// Receive traces from other machines
    Listen(commands::listen::Args),
    /// Count events for a command, a process, a cgroup, the machine
    Stat(commands::stat::Args),
    /// Record samples and tracepoints into perf.data
    Record(commands::record::Args),
    /// Show where the samples of a recording come from
    Report(commands::report::Args),
    /// Show what each instruction and line of a function cost
    Annotate(Box<commands::annotate::Args>),
    /// Turn the stacks of a recording into other programs' formats
    Convert(Box<commands::convert::Args>),
    /// Write a bundle: symbols and unwinding information of a recording, for other machines
    Bundle(commands::bundle::Args),
    /// Show the events of a recording as text or JSON lines
    Script(commands::script::Args),
    /// Show who runs, who waits for a CPU, and why
    Sched(commands::sched::Args),
    /// Show who allocates memory of the kernel, and what stays
    Kmem(commands::kmem::Args),
    /// Show who waits for locks
    Lock(commands::lock::Args),
    /// Show where tasks were off CPU, and why
    Offcpu(commands::offcpu::Args),
    /// Show what interrupts, softirqs and work items do, and whom they hold up
    Kwork(commands::kwork::Args),
    /// Keep traces running, and take their last seconds
    Session(commands::session::Args),
    /// Switch, filter and look at the kernel's tracepoints
    Event(commands::event::Args),
    /// Watch events of the kernel as they happen, or record them into a trace.dat
    Trace(Box<commands::trace::Args>),
    /// Add new events to functions and lines of the kernel and of programs
    #[command(disable_version_flag = true)]
    Probe(commands::probe::Args),
    /// Find out what a command spends its time on
    Profile(commands::profile::Args),
    /// Show or remove what earlier runs found out about binaries
    Cache(commands::cache::Args),
    /// Print a manual page, or completions for a shell
    Manual(commands::manual::Args),
}

fn main() -> ExitCode {
    let cli = parse(std::env::args_os().collect());
    let result: anyhow::Result<ExitCode> = match cli.command {
        Command::List(args) => commands::list::run(args),
        Command::Listen(args) => commands::listen::run(args),
        Command::Stat(args) => commands::stat::run(args),
        Command::Record(args) => commands::record::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Annotate(args) => commands::annotate::run(*args),
        Command::Convert(args) => commands::convert::run(*args),
        Command::Bundle(args) => commands::bundle::run(args),
        Command::Script(args) => commands::script::run(args),
        Command::Sched(args) => commands::sched::run(args),
        Command::Kmem(args) => commands::kmem::run(args),
        Command::Lock(args) => commands::lock::run(args),
        Command::Offcpu(args) => commands::offcpu::run(args),
        Command::Kwork(args) => commands::kwork::run(args),
        Command::Session(args) => commands::session::run(args),
        Command::Event(args) => commands::event::run(args),
        Command::Trace(args) => commands::trace::run(*args),
        Command::Probe(args) => commands::probe::run(args),
        Command::Profile(args) => commands::profile::run(args),
        Command::Cache(args) => commands::cache::run(args),
        Command::Manual(args) => commands::manual::run(args, Cli::command()),
    };
    result.unwrap_or_else(|e| commands::fail(&e))
}

fn parse(args: Vec<OsString>) -> Cli {
    Cli::try_parse_from(&args).unwrap_or_else(|e| {
        match commands::record::level_with_equals(&args) {
            Some(args) => Cli::parse_from(args),
            None => e.exit(),
        }
    })
}
