//! The commands, and what they share: how an error ends the program.

pub(crate) mod analysis;
pub(crate) mod annotate;
pub(crate) mod archive;
pub(crate) mod boot;
pub(crate) mod buildid_cache;
pub(crate) mod buildid_list;
pub(crate) mod bundle;
pub(crate) mod cache;
pub(crate) mod check;
pub(crate) mod config;
mod container_files;
pub(crate) mod convert;
pub(crate) mod count;
mod cpu_quotas;
pub(crate) mod data;
pub(crate) mod diff;
pub(crate) mod event;
pub(crate) mod event_recording;
pub(crate) mod evlist;
pub(crate) mod export;
mod features;
mod frame_pointers;
mod hit_binaries;
pub(crate) mod inject;
pub(crate) mod io;
pub(crate) mod kallsyms;
pub(crate) mod kmem;
pub(crate) mod kwork;
pub(crate) mod list;
pub(crate) mod listen;
mod live;
pub(crate) mod lock;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod offcpu;
mod output;
mod page_command;
pub(crate) mod probe;
pub(crate) mod profile;
mod profile_recording;
pub(crate) mod program_run;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sched;
pub(crate) mod scratch;
pub(crate) mod script;
pub(crate) mod session;
pub(crate) mod sql;
mod sql_words;
pub(crate) mod stat;
pub(crate) mod strace;
pub(crate) mod syscalls;
pub(crate) mod test;
pub(crate) mod timechart;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod tracing;
pub(crate) mod version;
pub(crate) mod view;
pub(crate) mod why;

use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kymo_files::perfdata::{PerfData, RecordOrder};
use kymo_kernel::process::SpawnError;
use kymo_record::RecordError;
use kymo_record::count::CountError;
use kymo_record::ftrace::TraceError;

use crate::called_name::CalledName;

/// Returns the default recording: perf's choice, or a trace.dat where there is no perf.data.
pub(crate) fn default_recording() -> PathBuf {
    let path = PerfData::default_path();
    let other = PathBuf::from("trace.dat");
    if path.as_os_str() != "-" && !path.exists() && other.exists() { other } else { path }
}

/// Opens a recording whose events and sections are wanted alone. Those of a pipe are among its
/// records, which are all read.
pub(crate) fn open_description(path: &Path) -> anyhow::Result<PerfData> {
    let mut file = PerfData::open(path)?;
    if file.is_pipe() {
        file.for_each_batch(RecordOrder::File, &mut |_| ControlFlow::Continue(()))?;
    }
    Ok(file)
}

/// Time of the last change of a recording's bytes, which perf uses as the time of the recording.
pub(crate) fn captured_on(path: &Path) -> Option<String> {
    let meta = if path.as_os_str() == "-" {
        std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned().ok()?).metadata()
    } else {
        std::fs::metadata(path)
    };
    let meta = meta.ok()?;
    // A pipe has no past; perf states its time all the same.
    let has_time = meta.is_file() || CalledName::get() == CalledName::Perf;
    has_time.then(|| kymo_kernel::calendar::local_time_of(meta.mtime()))
}

/// Words of the command whose `record` makes such a recording.
fn recorder() -> String {
    let word = CalledName::get().word();
    let typed = std::env::args().nth(1).unwrap_or_default();
    let has_own = ["io", "kmem", "kwork", "lock", "offcpu", "sched", "syscalls", "why"];
    if has_own.contains(&typed.as_str()) { format!("{word} {typed}") } else { word.to_owned() }
}

/// Prints an error with its causes and gives the exit status for it.
/// A reader that went away (`kymo … | head`) is not an error.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    crate::progress::end();
    let gone = error.chain().any(|e| {
        e.downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    });
    if gone {
        return ExitCode::SUCCESS;
    }
    // Where it is not said what was written, it was the result.
    let bare = error.downcast_ref::<std::io::Error>().filter(|_| error.chain().count() == 1);
    let full = bare.is_some_and(|e| e.kind() == std::io::ErrorKind::StorageFull);
    let what = if full { "cannot write the result: " } else { "" };
    let caller = CalledName::get();
    let who = if caller == CalledName::Bpftrace { "ERROR" } else { caller.word() };
    let text = format!("{error:#}");
    // It was not named.
    let is_default = text.starts_with("perf.data: ") && !std::path::Path::new("perf.data").exists();
    let next = if is_default {
        format!("; `{} record` makes it, and -i names another", recorder())
    } else {
        String::new()
    };
    sayln!("{who}: {what}{text}{next}");
    if caller == CalledName::Perf {
        return ExitCode::from(u8::MAX);
    }
    // A command that cannot be run gives the status that a shell would give.
    let spawn = error
        .downcast_ref::<SpawnError>()
        .or(match error.downcast_ref() {
            Some(RecordError::Spawn(e)) => Some(e),
            _ => None,
        })
        .or(match error.downcast_ref() {
            Some(CountError::Spawn(e)) => Some(e),
            _ => None,
        })
        .or(match error.downcast_ref() {
            Some(TraceError::Spawn(e)) => Some(e),
            _ => None,
        });
    spawn.map_or(ExitCode::FAILURE, |e| ExitCode::from(e.shell_status()))
}
