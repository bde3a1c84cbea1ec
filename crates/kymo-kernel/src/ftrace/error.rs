//! Why a trace directory could not be changed, in words that name the fact.

use std::io;
use std::path::{Path, PathBuf};

use super::error_log::Complaint;
use crate::lockdown;
use crate::tracefs::TracefsError;

/// A trace directory could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum FtraceError {
    /// The tree could not be read.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// The kernel did not take a value.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The kernel has no such file.
    #[error("{} does not exist: {why}", path.display())]
    Lacking {
        /// The file.
        path: PathBuf,
        /// Requirement on the kernel.
        why: String,
    },
    /// No event has this name.
    #[error("no {} in {}{hint}", named(wanted), root.display())]
    NoEvent {
        /// Requested event.
        wanted: String,
        /// Root of the tracing directory.
        root: PathBuf,
        /// Names that are near, in words; may be empty.
        hint: String,
    },
    /// A name that cannot be one.
    #[error("{text:?} is not an event: {why}")]
    BadName {
        /// The name.
        text: String,
        /// Reason.
        why: &'static str,
    },
    /// An instance could not be made.
    #[error("cannot make the trace instance {}: {}", path.display(),
        fact.as_deref().unwrap_or(&plain(error)))]
    Create {
        /// Its directory.
        path: PathBuf,
        /// Error of mkdir(2).
        error: io::Error,
        /// The fact behind it, where it is known.
        fact: Option<String>,
    },
    /// An instance could not be removed.
    #[error("cannot remove the trace instance {}: {error}", path.display())]
    Remove {
        /// Its directory.
        path: PathBuf,
        /// Error of rmdir(2).
        error: io::Error,
    },
    /// Reading or moving ring pages failed.
    #[error("cannot read {}: {error}", path.display())]
    Pipe {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A file holds something that is not understood.
    #[error("{} holds {text:?}, which is not {expected}", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// Start of the file's text.
        text: String,
        /// Expected contents.
        expected: &'static str,
    },
}

/// A value that the kernel did not take.
#[derive(Debug)]
pub struct Refusal {
    /// The file that was written.
    pub path: PathBuf,
    /// Refused value.
    pub value: String,
    /// Error of write(2) or open(2).
    pub source: io::Error,
    /// The fact behind it, where it is known.
    pub fact: Option<String>,
    /// Entry in the kernel's error log.
    pub complaint: Option<Complaint>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the kernel refuses {:?} in {}: ", self.value, self.path.display())?;
        match (&self.fact, &self.complaint) {
            (Some(fact), _) => f.write_str(fact)?,
            (None, Some(complaint)) => f.write_str(&complaint.what)?,
            (None, None) => write!(f, "{}", self.source)?,
        }
        match &self.complaint {
            Some(complaint) => write!(f, "\n{complaint}"),
            None => Ok(()),
        }
    }
}

impl FtraceError {
    /// The errno behind it, if a system call failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            FtraceError::Refused(r) => r.source.raw_os_error(),
            FtraceError::Create { error, .. }
            | FtraceError::Remove { error, .. }
            | FtraceError::Pipe { error, .. }
            | FtraceError::Tracefs(
                TracefsError::Io { error, .. } | TracefsError::Descriptors { error, .. },
            ) => error.raw_os_error(),
            FtraceError::Lacking { .. } => Some(libc::ENOENT),
            FtraceError::Tracefs(TracefsError::Denied { .. }) => Some(libc::EACCES),
            _ => None,
        }
    }

    /// Whether it is missing permission (and not a wrong value).
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES | libc::EROFS))
    }
}

/// Requested event or group in words; a group ends in a colon.
fn named(wanted: &str) -> String {
    match wanted.strip_suffix(':') {
        Some(group) => format!("group of events {group:?}"),
        None => format!("event {wanted:?}"),
    }
}

fn plain(e: &io::Error) -> String {
    e.to_string()
}

/// The fact behind a refused write, where the file and the errno tell it.
/// `root` is the mounted tree.
pub(super) fn fact(path: &Path, value: &str, source: &io::Error, root: &Path) -> Option<String> {
    let file = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    match source.raw_os_error()? {
        libc::EROFS => Some(format!(
            "tracefs is mounted read-only; as root: mount -o remount,rw {}",
            root.display()
        )),
        libc::EACCES => Some(format!("permission denied; {}", who())),
        libc::EPERM => Some(format!("operation not permitted; {}", not_permitted(file, value))),
        libc::ENODEV => Some("the event is gone (its module or probe was removed)".to_owned()),
        libc::EBUSY if file == "current_tracer" => {
            Some("the tracer is busy: a process reads this instance's trace_pipe".to_owned())
        }
        libc::EBUSY => Some("the file is in use".to_owned()),
        libc::ENOMEM => Some("not enough kernel memory".to_owned()),
        libc::EINVAL if file == "current_tracer" => Some(no_tracer(value, root)),
        libc::EINVAL if file == "trace_clock" => {
            let offered = std::fs::read_to_string(path).unwrap_or_default();
            Some(format!("no such clock; there are {}", offered.trim()))
        }
        _ => None,
    }
}

fn not_permitted(file: &str, value: &str) -> String {
    let functions = file.starts_with("set_ftrace")
        || file.starts_with("set_graph")
        || (file == "current_tracer" && value.starts_with("function"));
    if functions {
        return format!(
            "this kernel cannot trace functions ({}); tracepoints still work",
            lockdown::stated().unwrap_or_else(|| {
                "no lockdown is reported; probably a policy of the \
                                    host"
                    .to_owned()
            })
        );
    }
    lockdown::stated().unwrap_or_else(who)
}

fn who() -> String {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    match unsafe { libc::geteuid() } {
        0 => "even as root: a container, a security module or lockdown forbids it".to_owned(),
        uid => format!("the user id is {uid}; tracing needs root"),
    }
}

fn no_tracer(value: &str, root: &Path) -> String {
    let there = std::fs::read_to_string(root.join("available_tracers")).unwrap_or_default();
    format!("this kernel has no tracer {value:?}; available_tracers: {}", there.trim())
}

/// Kernel option or version that `file` requires.
pub(super) fn lacking(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let needs = match name {
        "instances" => "CONFIG_TRACING, Linux 3.10 or later",
        "set_event_pid" => "Linux 4.4 or later",
        "event-fork" => "Linux 4.7 or later",
        "set_event_notrace_pid" | "set_ftrace_notrace_pid" => "Linux 5.7 or later",
        "error_log" => "Linux 5.2 or later",
        "buffer_subbuf_size_kb" => "Linux 6.8 or later",
        "snapshot" => "CONFIG_TRACER_SNAPSHOT",
        "hist" => "CONFIG_HIST_TRIGGERS",
        "synthetic_events" => "CONFIG_SYNTH_EVENTS",
        "set_ftrace_filter" | "set_ftrace_notrace" | "set_ftrace_pid" => "CONFIG_FUNCTION_TRACER",
        "set_graph_function" | "set_graph_notrace" | "max_graph_depth" => {
            "CONFIG_FUNCTION_GRAPH_TRACER"
        }
        "kprobe_events" => "CONFIG_KPROBE_EVENTS",
        "uprobe_events" => "CONFIG_UPROBE_EVENTS",
        _ => return "this kernel does not have it".to_owned(),
    };
    format!("it needs {needs}")
}
