//! Flags and exit codes. One file per command under `commands/`; each has an
//! `Args` (what was typed) and a `run` (what was meant).
#![forbid(unsafe_code)]
#![allow(rustdoc::broken_intra_doc_links, reason = "help texts have optional parts in brackets")]

/// Prints on standard error, if possible: the macros of the standard library panic where that is
/// closed or full, without a message.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(crate::streams::stderr(), $($text)*);
    }};
}

/// Prints a line on standard output, whether anybody can read it or not.
macro_rules! outln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(crate::streams::styled_stdout(), $($text)*);
    }};
}

/// Prints a message and a newline on standard error.
macro_rules! sayln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(crate::streams::stderr(), $($text)*);
    }};
}

mod args;
mod called_name;
mod commands;
mod examples;
mod exit;
mod help_layout;
mod perf_config;
mod perf_options;
mod progress;
mod refused_options;
mod sandbox;
mod screen;
mod shared_options;
mod streams;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use called_name::CalledName;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command, FromArgMatches as _};
use perf_config::{ConfigScope, PerfConfig, settings};
use screen::ScreenOptions;

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
                let command = <commands::$module::Args as clap::Args>::augment_args(command)
                    .about($about)
                    .long_about(None);
                let command = examples::append(command, command_name!($module $($name)?));
                let command = perf_options::declare(command, command_name!($module $($name)?));
                help_layout::arrange(command, command_name!($module $($name)?))
            },
            run: |matches| {
                commands::$module::Args::from_arg_matches_mut(matches).map(commands::$module::run)
            },
        }),*]
    };
}

const COMMANDS: &[CommandEntry] = command_entries! {
    list, "List the events of this machine";
    listen, "Receive traces from other machines";
    stat, "Count events of a command, a process, a cgroup or the machine";
    record, "Record samples and tracepoints into perf.data";
    report, "Show the functions in which the samples of a recording were taken";
    diff, "Compare two versions of a program, with confidence intervals";
    annotate, "Show the cost of each instruction and line of a function";
    convert, "Convert the stacks of a recording to other formats";
    data, "Convert a perf.data to JSON or a CTF trace";
    bundle, "Pack the symbols of a recording for other machines";
    view, "Open a recording in the browser: tracks, flame graphs, events";
    script, "Show the events of a recording as text or JSON lines";
    sql, "Query recordings with SQL";
    export, "Write tables of recordings as Parquet files";
    mcp, "Serve recordings to AI agents (Model Context Protocol)";
    sched, "Show which tasks run, which wait for a CPU, and why";
    kmem, "Show allocations of kernel memory, and what is not freed";
    lock, "Show lock contention, in the kernel and in programs";
    timechart, "Draw CPUs and tasks over time as an SVG";
    offcpu, "Show where tasks were off CPU, and why";
    why, "Show the critical path of a task or request through other tasks";
    kwork, "Show interrupts, softirqs and work items, and the tasks they delay";
    io, "Show the latency of block requests, by device, process and file";
    boot, "Trace a boot of the kernel, and show its critical path";
    syscalls, "Show system calls by call and task, and the waits of the slowest";
    session, "Keep a flight recorder running, and write its last seconds";
    event, "Enable, filter and show the kernel's tracepoints";
    trace, "Show events as they happen, or record them into a trace.dat";
    strace, "Show system calls and signals of a program as strace does";
    count, "Count and measure events in the kernel, by their fields";
    run, "Run programs in bpftrace's language in the kernel";
    probe, "Add dynamic probes to kernel and user code";
    top, "Show a live profile";
    profile, "Show where a command spends its time, on and off the CPU";
    cache, "Show or clear the cache of symbols and unwinding tables";
    evlist, "Show the events of a perf.data, and how they were opened";
    config, "Show and set variables of perf's configuration";
    archive, "Pack the binaries of a recording by build-id, or unpack them on another machine";
    buildid_cache as "buildid-cache", "Add binaries to perf's build-id cache, list and remove them";
    buildid_list as "buildid-list", "Show build-ids of the binaries of a perf.data, or of the kernel";
    inject, "Rewrite a perf.data, uncompressed, with build-ids";
    kallsyms, "Show the addresses of kernel symbols";
    test, "Run a small workload, or check the requirements of recording";
    check, "Report whether a feature is built in";
    version, "Show the version of this program";
    manual, "Print a manual page, or completions for a shell";
};

/// The option before commands that says where perf's build-id cache is.
const BUILD_ID_DIRECTORY: &str = "buildid-dir";
/// The option of all commands that says where the ledger goes.
const LEDGER_FILE: &str = "ledger";
/// The options of all commands for terminals.
const NO_PAGER: &str = "no-pager";
const FULL_NAMES: &str = "full-names";
/// The option of all commands for the number of threads.
const JOBS: &str = "jobs";

/// Common questions and their commands, shown before the commands by name.
pub(crate) const QUESTIONS: &str = "\
Why is my program slow?                 kymo profile -- COMMAND
What is the machine doing now?          kymo top
Which task does it wait for?            kymo why -- COMMAND
Which functions use the CPU?            kymo record -g -- COMMAND, kymo report
Is the new version slower?              kymo diff --run -- ./old -- ./new
Which system calls does it make?        kymo trace -- COMMAND
How often does an event happen?         kymo count -e EVENT, kymo stat -- COMMAND
Which task waits for a CPU, lock, disk? kymo sched, kymo lock, kymo io
What happened before it failed?         kymo session
Which events can be traced?             kymo list";

/// kymo's command line, where commands declare their flags when they are typed.
fn command_line() -> Command {
    let command = with_commands(Command::defer);
    let is_long = std::env::args_os().any(|arg| arg == "--help" || arg == "help");
    if is_long { command } else { help_layout::list_names(command) }
}

/// Command line with all flags of all commands: for manual pages and completions.
fn full_command_line() -> Command {
    with_commands(|command, declare| declare(command))
}

fn with_commands(declared: fn(Command, fn(Command) -> Command) -> Command) -> Command {
    let commands = COMMANDS.iter();
    Command::new("kymo")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Count, profile and trace a running Linux system")
        .propagate_version(true)
        .before_help(QUESTIONS)
        .subcommand_required(true)
        .arg_required_else_help(true)
        // As perf takes them: an option may be cut short as far as it stays the only one.
        .infer_long_args(true)
        .arg(
            clap::Arg::new(BUILD_ID_DIRECTORY)
                .long("buildid-dir")
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .help("perf's build-id cache [default: ~/.debug]"),
        )
        .arg(
            clap::Arg::new(LEDGER_FILE)
                .long("ledger")
                .value_name("FILE")
                .global(true)
                .display_order(help_layout::LAST)
                .hide_short_help(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Write warnings and notes to FILE as JSON"),
        )
        .arg(flag(NO_PAGER, "Do not use a pager"))
        .arg(flag(FULL_NAMES, "Do not shorten names to fit the terminal"))
        .arg(
            clap::Arg::new(JOBS)
                .long(JOBS)
                .value_name("N")
                .global(true)
                .display_order(help_layout::LAST)
                .hide_short_help(true)
                .value_parser(clap::value_parser!(u16).range(1..=1024))
                .help("Read recordings with N worker threads [default: one for each CPU]"),
        )
        .arg(flag(sandbox::NO_SANDBOX, "Read recordings without the sandbox"))
        .subcommands(commands.map(|e| declared(Command::new(e.name).about(e.about), e.declare)))
}

/// A flag of all commands.
fn flag(name: &'static str, help: &'static str) -> clap::Arg {
    clap::Arg::new(name)
        .long(name)
        .global(true)
        .display_order(help_layout::LAST)
        .hide_short_help(true)
        .action(clap::ArgAction::SetTrue)
        .help(help)
}

fn main() -> ExitCode {
    let tally = read_tally();
    kymo_kernel::process::outlive_file_limit();
    let code = run();
    progress::end();
    screen::end();
    if let Some(mut tally) = tally {
        // Only tests ask for it.
        let _ = writeln!(tally, "{}", kymo_files::bytes_read());
    }
    code
}

/// The file for the number of bytes that are read from recordings, where a test names one. It is
/// opened before the sandbox is entered; programs for users have no such file.
fn read_tally() -> Option<std::fs::File> {
    let path = std::env::var_os("KYMO_READ_TALLY").filter(|_| cfg!(debug_assertions))?;
    std::fs::OpenOptions::new().append(true).create(true).open(path).ok()
}

fn run() -> ExitCode {
    let (command_line, mut matches) = parse(typed_args());
    let ledger = ledger_output(&matches);
    screen_options(&matches, ledger.is_machine_readable).choose();
    ledger.choose();
    let (name, innermost) = innermost(&matches);
    if let Some(jobs) = innermost.try_get_one::<u16>(JOBS).ok().flatten() {
        kymo_events::worker_pool::choose_worker_count(usize::from(*jobs));
    }
    if let Err(e) = shared_options::obey(name, innermost) {
        return commands::fail(&e);
    }
    let Some((name, mut matches)) = matches.remove_subcommand() else {
        unreachable!("clap requires a command");
    };
    let Some(entry) = COMMANDS.iter().find(|entry| entry.name == name) else {
        unreachable!("clap knows the commands of the table only");
    };
    if let Err(e) = sandbox::enter(&name, &matches) {
        return commands::fail(&e);
    }
    let refused = |e: clap::Error| end_of_usage(&e.format(&mut { command_line }));
    let result = (entry.run)(&mut matches).unwrap_or_else(refused);
    result.unwrap_or_else(|e| commands::fail(&e))
}

/// The matches of the command that is within all others, and the name of the first one.
fn innermost(matches: &ArgMatches) -> (&str, &ArgMatches) {
    let (name, mut matches) = matches.subcommand().unwrap_or(("", matches));
    while let Some((_, within)) = matches.subcommand() {
        matches = within;
    }
    (name, matches)
}

/// Returns the output of a result's ledger.
fn ledger_output(matches: &ArgMatches) -> exit::LedgerOutput {
    let (name, matches) = innermost(matches);
    let is_set = |id: &str| matches!(matches.try_get_one::<bool>(id), Ok(Some(true)));
    let separated = || matches!(matches.try_get_one::<String>("field_separator"), Ok(Some(_)));
    exit::LedgerOutput {
        file: matches.try_get_one::<PathBuf>(LEDGER_FILE).ok().flatten().cloned(),
        is_machine_readable: is_set("json") || is_set("csv") || name == "report" && separated(),
        is_quiet: is_set("quiet"),
    }
}

/// Returns the options of showing results on a terminal.
fn screen_options(matches: &ArgMatches, is_machine_readable: bool) -> ScreenOptions {
    let matches = innermost(matches).1;
    ScreenOptions {
        no_pager: matches.get_flag(NO_PAGER),
        whole_lines: matches.get_flag(FULL_NAMES) || is_machine_readable,
    }
}

/// Ends where a command of perf's was typed that kymo does not have.
fn refuse_command(args: &[OsString], place: usize) {
    let word = |at: usize| args.get(at).and_then(|arg| arg.to_str()).unwrap_or_default();
    let words = [word(place), word(place + 1)];
    // A recording may be named as a command is.
    if std::path::Path::new(words[1]).exists() && COMMANDS.iter().any(|e| e.name == words[0]) {
        return;
    }
    if let Some(text) = refused_options::explain_command(words) {
        say!("{text}");
        std::process::exit(CalledName::get().usage_status());
    }
}

/// Puts kymo's command in the place of perf's where perf has two words for it: `trace record` is
/// `syscalls record`, `sched script` is `script`.
fn replace_command(args: &mut Vec<OsString>, place: usize) {
    let word = |at: usize| args.get(at).and_then(|arg| arg.to_str());
    match (word(place), word(place + 1)) {
        (Some("trace"), Some("record")) => args[place] = "syscalls".into(),
        (Some("sched"), Some("script")) => drop(args.remove(place)),
        _ => {}
    }
}

/// Ends with what is wrong with the command line.
fn refuse(args: &[OsString], error: &clap::Error) -> ! {
    let (path, options) = typed_path(args);
    if let Some(text) = refused_options::explain(&path, &options, error) {
        say!("{text}");
        std::process::exit(CalledName::get().usage_status());
    }
    end_of_usage(error)
}

/// The command and, of those that have some, the subcommand that were typed, and the options
/// behind them.
fn typed_path(args: &[OsString]) -> (String, Vec<String>) {
    let Some(place) = command_place(args) else { return Default::default() };
    let words: Vec<_> = args.iter().skip(place).map(|arg| arg.to_string_lossy()).collect();
    let mut path = words.first().map(ToString::to_string).unwrap_or_default();
    if let Some(within) = words.get(1).filter(|word| !word.starts_with('-'))
        && WITH_SUBCOMMANDS.contains(&path.as_str())
    {
        path = format!("{path} {within}");
    }
    let options = words.iter().filter(|word| word.starts_with('-'));
    (path, options.map(ToString::to_string).collect())
}

/// Commands with subcommands of whose options some are refused by name.
const WITH_SUBCOMMANDS: [&str; 9] =
    ["sched", "lock", "kmem", "kwork", "data", "offcpu", "why", "io", "syscalls"];

/// Help as scripts look for it in bpftrace's output.
fn help_as_bpftrace(error: &clap::Error) -> String {
    error.to_string().replacen("Usage: bpftrace run", "USAGE:\n    bpftrace", 1)
}

/// Shows help where it was asked for, or what is wrong with the command line.
fn end_of_usage(error: &clap::Error) -> ! {
    let called = CalledName::get();
    if !error.use_stderr() {
        if called != CalledName::Kymo && error.kind() == ErrorKind::DisplayVersion {
            let _ = writeln!(crate::streams::styled_stdout(), "{}", called.version_line());
            std::process::exit(0)
        }
        if called == CalledName::Bpftrace {
            let _ = write!(crate::streams::styled_stdout(), "{}", help_as_bpftrace(error));
            std::process::exit(0)
        }
        let text = error.render();
        // Through a pager, as long as it is open.
        if !std::env::args_os().any(|arg| arg.as_encoded_bytes() == b"--no-pager") {
            screen::page();
        }
        let _ = crate::streams::styled_stdout().write_all(text.ansi().to_string().as_bytes());
        screen::end();
        std::process::exit(0)
    }
    if called == CalledName::Bpftrace {
        say!("{}", help_as_bpftrace(error));
        std::process::exit(1)
    }
    // As with any error: if the message cannot be written, the status reports it. Arguments are
    // names of files, too, where a shell has completed a pattern.
    let is_control = |arg: OsString| arg.to_string_lossy().chars().any(char::is_control);
    if std::env::args_os().any(is_control) {
        say!("{}", error.render());
    } else {
        let _ = error.print();
    }
    std::process::exit(called.usage_status())
}

/// Index of the command's name in the arguments.
fn command_place(args: &[OsString]) -> Option<usize> {
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let mut args = args.iter().enumerate().skip(1);
    while let Some((at, arg)) = args.next() {
        if !is_option(arg) {
            return Some(at);
        }
        let name = arg.to_str().and_then(|arg| arg.strip_prefix("--"));
        if name.is_some_and(|name| [BUILD_ID_DIRECTORY, LEDGER_FILE].contains(&name)) {
            args.next();
        }
    }
    None
}

/// Returns the typed arguments. Under the name `bpftrace` the command is `kymo run`, under `strace`
/// `kymo strace`.
fn typed_args() -> Vec<OsString> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    match CalledName::get() {
        CalledName::Bpftrace => args.insert(1, "run".into()),
        CalledName::Strace => args.insert(1, "strace".into()),
        CalledName::Kymo | CalledName::Perf => {}
    }
    args
}

/// Parses the typed arguments with those from perf's configuration. Returns also the command line
/// that accepted them, for errors found later.
fn parse(args: Vec<OsString>) -> (Command, ArgMatches) {
    let (args, mut parsed) = parse_typed(args);
    let config = match parsed.1.subcommand_name() {
        // They are about the files, or about no recording.
        None | Some("config" | "manual" | "version") => PerfConfig::default(),
        Some(_) => PerfConfig::read(ConfigScope::All),
    };
    let mut problems = config.problems.clone();
    let directory = parsed.1.remove_one::<PathBuf>(BUILD_ID_DIRECTORY);
    let directory = directory.or_else(|| settings::build_id_directory(&config));
    if let Some(directory) = directory {
        kymo_symbols::BuildIdDirectory::choose(directory);
    }
    if !config.variables().is_empty() {
        parsed = parse_configured(&args, parsed, &config, &mut problems);
    }
    for problem in problems {
        sayln!("kymo: {problem}");
    }
    parsed
}

/// Parses the typed arguments, and returns them as accepted.
fn parse_typed(mut args: Vec<OsString>) -> (Vec<OsString>, (Command, ArgMatches)) {
    if let Some(place) = command_place(&args) {
        refuse_command(&args, place);
        replace_command(&mut args, place);
        args = perf_options::put_behind_subcommand(args, place);
    }
    loop {
        let error = match try_parse(&args) {
            Ok(parsed) => return (args, parsed),
            Err(error) => error,
        };
        match commands::record::value_with_equals_instead(&args) {
            Some(changed) => args = changed,
            None => refuse(&args, &error),
        }
    }
}

fn try_parse(args: &[OsString]) -> Result<(Command, ArgMatches), clap::Error> {
    let mut command_line = command_line();
    let matches = command_line.try_get_matches_from_mut(args)?;
    Ok((command_line, matches))
}

/// The command line with the options of the configuration before those that were typed, without
/// which it was parsed to `typed`.
fn parse_configured(
    args: &[OsString],
    typed: (Command, ArgMatches),
    config: &PerfConfig,
    problems: &mut Vec<String>,
) -> (Command, ArgMatches) {
    let Some(mut place) = command_place(args) else { return typed };
    let (mut path, mut matches) = (Vec::new(), &typed.1);
    while let Some((name, within)) = matches.subcommand() {
        // Options between a command and one within it belong to neither's table.
        if args.get(place + path.len()).is_none_or(|arg| arg != name) {
            return typed;
        }
        path.push(name);
        matches = within;
    }
    place += path.len();
    let (options, wrong) = settings::options_of(config, &path.join(" "), matches);
    problems.extend(wrong);
    let (head, tail) = args.split_at(place);
    let mut taken: Vec<OsString> = Vec::new();
    let mut parsed = None;
    for option in options {
        taken.push(option.option);
        let with = [head, &taken, tail].concat();
        match try_parse(&with) {
            Ok(configured) => parsed = Some(configured),
            Err(error) => {
                taken.pop();
                // What was typed excludes it, and counts more.
                if error.kind() != ErrorKind::ArgumentConflict {
                    let text = error.to_string();
                    let why = text.lines().next().unwrap_or_default();
                    let why = why.strip_prefix("error: ").unwrap_or(why);
                    problems.push(settings::problem(config, option.key, why));
                }
            }
        }
    }
    parsed.unwrap_or(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each option that a variable stands for, and each that stands against it, is one of the
    /// command.
    #[test]
    fn commands_have_the_options_of_the_configuration() {
        let line = full_command_line();
        for setting in settings::SETTINGS {
            for path in setting.commands {
                let command = path.split(' ').fold(&line, |command, name| {
                    command.find_subcommand(name).unwrap_or_else(|| panic!("{path}"))
                });
                for id in setting.typed_instead.iter().chain(&setting.only_with) {
                    let known = command.get_arguments().any(|arg| arg.get_id() == id);
                    assert!(known, "{path} has no {id}");
                }
            }
        }
    }

    #[test]
    fn the_command_is_found_behind_options() {
        let place =
            |args: &str| command_place(&args.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(place("kymo report -i x"), Some(1));
        assert_eq!(place("kymo --buildid-dir report record"), Some(3));
        assert_eq!(place("kymo --buildid-dir=x record"), Some(2));
        assert_eq!(place("kymo --ledger x record"), Some(3));
        assert_eq!(place("kymo --help"), None);
    }
}
