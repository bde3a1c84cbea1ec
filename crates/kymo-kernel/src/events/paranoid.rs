//! `perf_event_paranoid`: what the kernel lets an unprivileged user measure.

use crate::system_root::system_path;

/// The setting and whether it binds this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paranoid {
    /// `/proc/sys/kernel/perf_event_paranoid`; `None` if perf events are not
    /// built into the kernel or /proc is not readable.
    pub level: Option<i32>,
    /// The process has CAP_PERFMON or CAP_SYS_ADMIN, so that the level does
    /// not bind it.
    pub privileged: bool,
}

impl Paranoid {
    /// Whether events must be limited to user mode
    /// ([`EventSpec::restrict_to_user`](super::EventSpec::restrict_to_user)).
    pub fn user_only(self) -> bool {
        !self.privileged && self.level.is_some_and(|l| l > 1)
    }
}

/// Reads the setting and this process's effective capabilities.
pub fn paranoid() -> Paranoid {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_PERFMON: u64 = 1 << 38;
    let level = std::fs::read_to_string(system_path("/proc/sys/kernel/perf_event_paranoid"))
        .ok()
        .and_then(|s| s.trim().parse().ok());
    let capabilities = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    let privileged = capabilities.unwrap_or(0) & (CAP_SYS_ADMIN | CAP_PERFMON) != 0;
    Paranoid { level, privileged }
}
