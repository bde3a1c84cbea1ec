//! Refusals of bpf(2), explained by the facts that cause them.

use std::io;

use super::map::ENOTSUPP;
use crate::lockdown;
use crate::process::has_capability;
use crate::system::KernelName;
use crate::system_root::system_path;

/// The kernel refused something about BPF.
#[derive(Debug)]
pub struct BpfError {
    /// Operation that failed: `create map @`, `load program`.
    pub action: String,
    /// The error.
    pub error: io::Error,
    /// The verifier's log, if it wrote one.
    pub log: String,
}

impl BpfError {
    pub(super) fn new(action: impl Into<String>, error: io::Error) -> BpfError {
        BpfError { action: action.into(), error, log: String::new() }
    }

    /// The cause as far as the machine's facts tell it, and the way out.
    pub fn advice(&self) -> Option<String> {
        Some(match self.error.raw_os_error()? {
            libc::EPERM | libc::EACCES if self.log.is_empty() => permission(),
            libc::ENOSYS => "this kernel is built without bpf(2)".into(),
            libc::E2BIG => "the program has more instructions than this kernel allows".into(),
            libc::ENOMEM => "use smaller maps, or raise the memory limit of this cgroup".into(),
            libc::EMFILE => "raise the open file limit (ulimit -n)".into(),
            ENOTSUPP if self.action.starts_with("attach to ") => {
                "this kernel cannot call programs from functions (AArch64 before Linux 6.4); \
                 kprobe and kretprobe can"
                    .into()
            }
            _ => return None,
        })
    }
}

fn permission() -> String {
    let missing: Vec<&str> = [("CAP_BPF", 39), ("CAP_PERFMON", 38)]
        .into_iter()
        .filter(|(_, bit)| !has_capability(*bit) && !has_capability(21))
        .map(|(name, _)| name)
        .collect();
    let path = system_path("/proc/sys/kernel/unprivileged_bpf_disabled");
    let setting = std::fs::read_to_string(path).unwrap_or_default();
    if missing.is_empty() {
        // The capabilities are there: the kernel was built or locked down to refuse it.
        return match () {
            () if lockdown::is_confidential() => {
                "kernel lockdown is in confidentiality mode".into()
            }
            () if KernelName::running().numbers() < (5, 11, 0) => {
                "this kernel counts maps and programs as locked memory: raise the limit \
                 (ulimit -l unlimited)"
                    .into()
            }
            () => "this kernel does not allow it".into(),
        };
    }
    let missing = missing.join(" and ");
    match setting.trim() {
        "" => format!("run as root, or with {missing}"),
        value => {
            format!("run as root, or with {missing} (kernel.unprivileged_bpf_disabled is {value})")
        }
    }
}

impl std::fmt::Display for BpfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.error.raw_os_error() {
            Some(ENOTSUPP) => write!(f, "cannot {}: not supported", self.action)?,
            _ => write!(f, "cannot {}: {}", self.action, self.error)?,
        }
        match self.advice() {
            Some(advice) => write!(f, ": {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for BpfError {}
