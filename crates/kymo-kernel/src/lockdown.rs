//! The kernel's lockdown: kernel_lockdown(7).

use crate::system_root::system_path;

const FILE: &str = "/sys/kernel/security/lockdown";

/// The mode that is on: `integrity`, or `confidentiality`, in which the kernel lets nobody look
/// into it and makes no files in tracefs. None, too, where securityfs is not mounted.
fn mode() -> Option<String> {
    let text = std::fs::read_to_string(system_path(FILE)).ok()?;
    let mode = text.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}

/// Whether the kernel lets nobody look into it.
pub(crate) fn is_confidential() -> bool {
    mode().as_deref() == Some("confidentiality")
}

/// What stands in the file.
pub(crate) fn stated() -> Option<String> {
    mode().map(|mode| format!("{FILE} = {mode}"))
}
