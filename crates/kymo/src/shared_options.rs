//! Options of perf's that mean the same of several commands: they are obeyed before a command
//! begins, by other runs of this program where there is something to show.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use kymo_kernel::output_file::{self, OutputPlace, SHARED};
use kymo_kernel::terminal_output;

use crate::called_name::CalledName;

/// Commands whose `-D` shows the records of a recording instead of the answer.
const DUMPING: &[&str] = &["report", "annotate", "sched *", "lock *", "kwork *"];
/// Commands whose result may go into a file of `-o`.
const WITH_OUTPUT: &[&str] = &["list", "lock report", "lock info", "lock contention"];
const PER_EVENT_DUMP: &str = "per-event-dump";
/// Internal ids of the other shared options, since commands may have options of their names.
const DUMP: &str = "shared-dump-raw-trace";
const OUTPUT: &str = "shared-output";
const TRACE: &str = "trace";

/// Adds those that a command has.
pub(crate) fn declare(mut command: Command, is_meant: &dyn Fn(&&str) -> bool) -> Command {
    let flag = |id, long| Arg::new(id).long(long).action(ArgAction::SetTrue);
    if DUMPING.iter().any(is_meant) {
        let dump = flag(DUMP, "dump-raw-trace").short('D');
        command = command.arg(dump.help("Dump raw records instead (same as `kymo script -D`)"));
    }
    let is_trace_of_perf = CalledName::get() == CalledName::Perf && is_meant(&TRACE);
    if is_trace_of_perf {
        // perf's is for text; recordings are made by `perf trace record`.
        command = command.mut_arg("output", |own| own.short(None).long("trace-dat"));
    }
    if is_trace_of_perf || WITH_OUTPUT.iter().any(is_meant) {
        let output = Arg::new(OUTPUT).long("output").short('o').value_name("FILE");
        let output = output.value_parser(clap::value_parser!(PathBuf));
        command = command.arg(output.help("Write the result to FILE"));
    }
    if is_meant(&"script") {
        let dump = flag(PER_EVENT_DUMP, PER_EVENT_DUMP);
        command = command.arg(dump.help("Write each event to its own file: perf.data.EVENT.dump"));
    }
    command
}

/// Does what these options ask for.
///
/// # Errors
/// If a file cannot be written, or this program cannot be started.
pub(crate) fn obey(name: &str, matches: &ArgMatches) -> anyhow::Result<()> {
    let is_set = |id| matches!(matches.try_get_one::<bool>(id), Ok(Some(true)));
    let path = |id| matches.try_get_one::<PathBuf>(id).ok().flatten();
    let input = path("input").or_else(|| path("files"));
    let is_trace_of_perf = CalledName::get() == CalledName::Perf && name == TRACE;
    if is_trace_of_perf && matches.value_source("output").is_none() {
        send_lines_of_trace(path(OUTPUT))?;
    } else if let Some(path) = path(OUTPUT) {
        let file = output_file::open(path, SHARED).with_context(|| path.display().to_string())?;
        terminal_output::send_to(file).with_context(|| path.display().to_string())?;
    }
    if is_set(DUMP) {
        let mut command = this_program()?;
        command.args(["script", "-D"]);
        if let Some(path) = input {
            command.arg("-i").arg(path);
        }
        return Err(command.exec()).context("cannot start kymo script");
    }
    if is_set(PER_EVENT_DUMP) {
        process::exit(dump_events(input.map_or(Path::new("perf.data"), PathBuf::as_path))?);
    }
    Ok(())
}

/// As perf's: to standard error, where they are apart from what the command prints, or into a
/// file, before which one of its name gets the suffix `.old`.
fn send_lines_of_trace(path: Option<&PathBuf>) -> anyhow::Result<()> {
    let Some(path) = path else {
        let errors = crate::streams::error_descriptor()?;
        return Ok(terminal_output::send_own_to(errors)?);
    };
    let context = || path.display().to_string();
    let place = OutputPlace::find(path).with_context(context)?;
    if place.has_contents() {
        let mut old = place.path.clone().into_os_string();
        old.push(".old");
        std::fs::rename(&place.path, old).with_context(context)?;
    }
    let file = output_file::open(path, SHARED).with_context(context)?;
    terminal_output::send_own_to(file).with_context(context)
}

fn this_program() -> anyhow::Result<process::Command> {
    let program = std::env::current_exe().context("cannot find this program")?;
    Ok(process::Command::new(program))
}

/// Prints each event of a recording into a file; the worst exit status.
fn dump_events(recording: &Path) -> anyhow::Result<i32> {
    if recording == Path::new("-") {
        bail!("--{PER_EVENT_DUMP} reads the recording once for each event: name a file with -i");
    }
    let mut list = this_program()?;
    let list = list.arg("evlist").arg("-i").arg(recording).stderr(Stdio::inherit()).output();
    let list = list.context("cannot start kymo evlist")?;
    if !list.status.success() {
        return Ok(list.status.code().unwrap_or(1));
    }
    let typed = std::env::args_os().skip(1);
    // It may have been cut short.
    let is_other = |arg: &std::ffi::OsString| {
        !arg.to_str().is_some_and(|arg| {
            arg.starts_with("--p") && format!("--{PER_EVENT_DUMP}").starts_with(arg)
        })
    };
    let typed: Vec<_> = typed.filter(is_other).collect();
    let mut worst = 0;
    let names = String::from_utf8_lossy(&list.stdout).into_owned();
    for event in names.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let path = format!("{}.{}.dump", recording.display(), event.replace('/', "_"));
        let file = output_file::open(Path::new(&path), SHARED).with_context(|| path.clone())?;
        let written = file.try_clone().with_context(|| path.clone())?;
        let mut script = this_program()?;
        let status =
            script.args(&typed).arg("-e").arg(globset::escape(event)).stdout(file).status();
        let status = status.context("cannot start kymo script")?;
        worst = worst.max(status.code().unwrap_or(1));
        let megabytes = written.metadata().map_or(0.0, |m| m.len() as f64 / 1_048_576.0);
        let caller = CalledName::get().word();
        sayln!("[ {caller} script: Wrote {megabytes:.3} MB {path} ]");
    }
    Ok(worst)
}
