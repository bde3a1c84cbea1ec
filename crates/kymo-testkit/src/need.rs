//! Requirements of a test on the machine, and the handling of missing ones: a loud line, and under
//! `CI=true` a failure, because a green run that skipped the privileged tests proves nothing.

use std::path::Path;
use std::process::{Command, Stdio};

/// One thing that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Effective user 0.
    Root,
    /// tracefs at /sys/kernel/tracing; mounted when that is allowed.
    Tracefs,
    /// A kernel with perf events.
    PerfEvents,
    /// The installed `perf`, as the peer to compare with.
    Perf,
    /// The installed `trace-cmd`, likewise.
    TraceCmd,
    /// The installed `babeltrace2`, which reads and writes CTF.
    Babeltrace,
    /// LTTng's session daemon, and what programs need to be traced by it.
    Lttng,
    /// A C compiler, for the programs of [`crate::Workload`].
    Gcc,
    /// A program on the search path; its Debian package is installed by `cargo xtask setup`.
    Tool(&'static str),
    /// The tools of Debian's testing release, unpacked by `cargo xtask peers`, which
    /// `cargo xtask test` does where the network allows. Their absence is said but never a
    /// failure.
    NewestPeers,
    /// Debian's kernel with debugging information, unpacked by
    /// `cargo xtask vm fetch --debug`, which `cargo xtask test` does where the network
    /// allows. 283 MB to download, so its absence is said but never a failure.
    KernelDebug,
    /// The kernel's sources with perf's own tests, which `cargo xtask vm fetch --debug` fetches
    /// too. Their absence is said but never a failure.
    KernelSource,
    /// A PMU that counts cycles. Virtual machines often lack it, so its absence
    /// is said but never a failure.
    HardwareCounters,
}

impl Need {
    /// Name of the missing part, or `None` when it is present.
    fn missing(self) -> Option<String> {
        match self {
            Need::Root => (effective_uid() != Some(0)).then(|| "root".into()),
            Need::Tracefs => tracefs_missing(),
            Need::PerfEvents => (!Path::new("/proc/sys/kernel/perf_event_paranoid").exists())
                .then(|| "a kernel with perf events".into()),
            Need::Perf => program_missing("perf", "linux-perf"),
            // Programs are compiled on the host and lie ready in the guest.
            Need::Gcc if crate::guest() => None,
            Need::TraceCmd => {
                let there = Path::new("/usr/bin/trace-cmd").exists();
                (!there).then(|| "trace-cmd (Debian: trace-cmd)".into())
            }
            Need::Babeltrace => program_missing("babeltrace2", "babeltrace2"),
            Need::Lttng => {
                let there = Path::new("/usr/bin/lttng-sessiond").exists()
                    && Path::new("/usr/include/x86_64-linux-gnu/lttng/tracepoint.h").exists();
                (!there).then(|| "LTTng (Debian: lttng-tools and liblttng-ust-dev)".into())
            }
            Need::Gcc => program_missing("gcc", "gcc and libc6-dev"),
            Need::Tool(name) => (!on_path(name)).then(|| format!("{name} (cargo xtask setup)")),
            Need::NewestPeers => crate::newest_peers()
                .is_none()
                .then(|| "the newest peers (cargo xtask peers)".into()),
            Need::KernelDebug => crate::kernel_debug()
                .is_none()
                .then(|| "the kernel's debug package (cargo xtask vm fetch --debug)".into()),
            Need::KernelSource => crate::kernel_source()
                .is_none()
                .then(|| "the kernel's sources (cargo xtask vm fetch --debug)".into()),
            Need::HardwareCounters => (!Path::new("/sys/bus/event_source/devices/cpu/type")
                .exists())
            .then(|| "a PMU that counts cycles".into()),
        }
    }

    /// Whether every machine that runs the tests is expected to have it.
    fn expected_in_ci(self) -> bool {
        !matches!(
            self,
            Need::HardwareCounters | Need::KernelDebug | Need::KernelSource | Need::NewestPeers
        )
    }
}

/// Whether all of `needs` are met. Says loudly what is missing otherwise, and
/// panics if `CI=true` and a test machine should have it.
///
/// A test in a file `tests/guest_*.rs` is for the guest alone: anywhere else this
/// says so and returns `false`, before it looks at the needs.
#[must_use]
pub fn require(needs: &[Need]) -> bool {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    if let Some(file) = crate::guest::left_for_it() {
        announce(&format!("{}: {file}::{test}", crate::LEFT_FOR_THE_GUEST));
        return false;
    }
    let mut met = true;
    for need in needs {
        if let Some(what) = need.missing() {
            met = false;
            assert!(
                !(need.expected_in_ci() && in_ci()),
                "{test} needs {what}; CI=true, so this is a failure and not a skip"
            );
            announce(&format!("SKIPPED: {test}: needs {what}"));
        }
    }
    met
}

/// Past the capture of the test harness: to the log named by
/// `KYMO_SKIP_LOG` (which `cargo xtask test` reads back) and to stderr.
fn announce(line: &str) {
    eprintln!("{line}");
    let Some(log) = std::env::var_os("KYMO_SKIP_LOG") else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
    if let Ok(mut file) = file {
        // The line is on stderr already; a log that cannot be written loses nothing else.
        let _ = std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes());
    }
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|v| v == "true" || v == "1")
}

fn effective_uid() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("Uid:"))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

fn tracefs_missing() -> Option<String> {
    let mark = Path::new("/sys/kernel/tracing/set_event");
    if !mark.exists() {
        let mounted = Command::new("mount")
            .args(["-t", "tracefs", "nodev", "/sys/kernel/tracing"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if let Err(e) = mounted {
            return Some(format!("tracefs at /sys/kernel/tracing (mount: {e})"));
        }
    }
    (!mark.exists()).then(|| "tracefs at /sys/kernel/tracing".into())
}

fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

fn program_missing(program: &str, package: &str) -> Option<String> {
    let ok = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    (!ok).then(|| format!("{program} (Debian: {package})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        assert_eq!(
            program_missing("no-such-program-here", "its-package"),
            Some("no-such-program-here (Debian: its-package)".into())
        );
        assert_eq!(program_missing("cargo", "cargo"), None);
    }

    #[test]
    fn what_is_downloaded_and_the_pmu_may_be_missing_in_ci() {
        assert!(!Need::NewestPeers.expected_in_ci());
        assert!(!Need::HardwareCounters.expected_in_ci());
        assert!(!Need::KernelDebug.expected_in_ci());
        for need in [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::Gcc] {
            assert!(need.expected_in_ci(), "{need:?}");
        }
    }
}
