//! The kernel's lockdown: kernel_lockdown(7).

use crate::system_root::system_path;

const FILE: &str = "/sys/kernel/security/lockdown";

/// Current mode: `integrity`, or `confidentiality`, in which the kernel cannot be inspected and has
/// no files in tracefs. None, too, where securityfs is not mounted.
fn mode() -> Option<String> {
    let text = std::fs::read_to_string(system_path(FILE)).ok()?;
    let mode = text.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}

/// Whether the kernel cannot be inspected.
pub(crate) fn is_confidential() -> bool {
    mode().as_deref() == Some("confidentiality")
}

/// Current mode, as text with the file's name.
pub(crate) fn stated() -> Option<String> {
    mode().map(|mode| format!("{FILE} = {mode}"))
}
