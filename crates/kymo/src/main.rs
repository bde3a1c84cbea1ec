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
mod refused_options;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Command, FromArgMatches as _};

/// A command of kymo. Its flags are declared when it is the one that was typed: those of all
/// commands cost more than what many of them do.
struct CommandEntry {
    name: &'static str,
    about: &'static str,
    declare: fn(Command) -> Command,
    run: fn(&mut ArgMatches) -> Result<anyhow::Result<ExitCode>, clap::Error>,
}

/// Name of a command: its module's, unless it is no word of Rust.
macro_rules! command_name {
    ($module:ident $name:literal) => {
        $name
    };
    ($module:ident) => {
        stringify!($module)
    };
}

/// The entries of commands, each a module with `Args` and `run`, and what it does.
macro_rules! command_entries {
    ($($module:ident $(as $name:literal)?, $about:literal;)*) => {
        &[$(CommandEntry {
            name: command_name!($module $($name)?),
            about: $about,
            declare: |command| {
                // The comment of `Args` describes the type, not the command.
                <commands::$module::Args as clap::Args>::augment_args(command)
                    .about($about)
                    .long_about(None)
            },
            run: |matches| {
                commands::$module::Args::from_arg_matches_mut(matches).map(commands::$module::run)
            },
        }),*]
    };
}

const COMMANDS: &[CommandEntry] = command_entries! {
    list, "List the events this machine offers";
    listen, "Receive traces from other machines";
    stat, "Count events for a command, a process, a cgroup, the machine";
    record, "Record samples and tracepoints into perf.data";
    report, "Show where the samples of a recording come from";
    annotate, "Show what each instruction and line of a function cost";
    convert, "Turn the stacks of a recording into other programs' formats";
    bundle, "Write a bundle: symbols and unwinding information of a recording, for other machines";
    view, "Write a recording as one page to look at: tracks, flame graphs, events";
    script, "Show the events of a recording as text or JSON lines";
    sched, "Show who runs, who waits for a CPU, and why";
    kmem, "Show who allocates memory of the kernel, and what stays";
    lock, "Show who waits for locks";
    offcpu, "Show where tasks were off CPU, and why";
    why, "Show what a task or a request really waited for: its critical path";
    kwork, "Show what interrupts, softirqs and work items do, and whom they hold up";
    io, "Show how long requests to block devices take, for whom, and who waits";
    boot, "Trace a boot of the kernel, and show what made it slow";
    syscalls, "Show system calls by call and task, and what the slowest waited for";
    session, "Keep traces running, and take their last seconds";
    event, "Switch, filter and look at the kernel's tracepoints";
    trace, "Watch events of the kernel as they happen, or record them into a trace.dat";
    count, "Count and measure events in the kernel, by their fields";
    run, "Run programs of bpftrace's language in the kernel";
    probe, "Add new events to functions and lines of the kernel and of programs";
    top, "Show what the machine spends its time on, while it happens";
    profile, "Find out what a command spends its time on";
    cache, "Show or remove what earlier runs found out about binaries";
    evlist, "Show the events of a perf.data, and how they were opened";
    buildid_cache as "buildid-cache", "Put binaries into perf's build-id cache, list and remove them";
    buildid_list as "buildid-list", "Show build-ids of the binaries of a perf.data, or of the kernel";
    kallsyms, "Show where symbols of the running kernel are";
    version, "Show the version of this program";
    manual, "Print a manual page, or completions for a shell";
};

/// The option before commands that says where perf's build-id cache is.
const BUILD_ID_DIRECTORY: &str = "buildid-dir";

/// kymo's command line, where commands declare their flags when they are typed.
fn command_line() -> Command {
    with_commands(Command::defer)
}

/// The same with all flags of all commands: for manual pages and completions.
fn full_command_line() -> Command {
    with_commands(|command, declare| declare(command))
}

fn with_commands(declared: fn(Command, fn(Command) -> Command) -> Command) -> Command {
    let commands = COMMANDS.iter();
    Command::new("kymo")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Count, profile and trace a running Linux system")
        .propagate_version(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            clap::Arg::new(BUILD_ID_DIRECTORY)
                .long("buildid-dir")
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .help("perf's build-id cache, in place of ~/.debug"),
        )
        .subcommands(commands.map(|e| declared(Command::new(e.name).about(e.about), e.declare)))
}

fn main() -> ExitCode {
    let (command_line, mut matches) = parse(typed_args());
    if let Some(directory) = matches.remove_one::<PathBuf>(BUILD_ID_DIRECTORY) {
        kymo_symbols::BuildIdDirectory::choose(directory);
    }
    let Some((name, mut matches)) = matches.remove_subcommand() else {
        unreachable!("clap requires a command");
    };
    let Some(entry) = COMMANDS.iter().find(|entry| entry.name == name) else {
        unreachable!("clap knows the commands of the table only");
    };
    let refused = |e: clap::Error| e.format(&mut { command_line }).exit();
    let result = (entry.run)(&mut matches).unwrap_or_else(refused);
    result.unwrap_or_else(|e| commands::fail(&e))
}

/// Ends with what is wrong with the command line.
fn refuse(args: &[OsString], error: &clap::Error) -> ! {
    let command = args.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(text) = refused_options::explain(command, error) {
        say!("{text}");
        std::process::exit(2);
    }
    error.exit()
}

/// What was typed. Under the name `bpftrace` this is `kymo run`.
fn typed_args() -> Vec<OsString> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let name = args.first().map(std::path::Path::new).and_then(std::path::Path::file_name);
    if name.is_some_and(|name| name == "bpftrace") {
        args.insert(1, "run".into());
    }
    args
}

/// What was typed, and the command line that took it, for errors found later.
fn parse(args: Vec<OsString>) -> (Command, ArgMatches) {
    let try_parse = |args: &[OsString]| {
        let mut command_line = command_line();
        let matches = command_line.try_get_matches_from_mut(args)?;
        Ok::<_, clap::Error>((command_line, matches))
    };
    let mut args = args;
    loop {
        let error = match try_parse(&args) {
            Ok(parsed) => return parsed,
            Err(error) => error,
        };
        match commands::record::value_with_equals_instead(&args) {
            Some(changed) => args = changed,
            None => refuse(&args, &error),
        }
    }
}
