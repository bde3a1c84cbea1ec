//! Tests in the guest of `cargo xtask vm`: the integration tests in files
//! `tests/guest_*.rs`. The guest has what the host's kernel lacks (kprobes, function
//! tracers, histograms, modules), the peers, the usual programs, and no compiler.

/// Prefix of the line for a test that runs in the guest only.
pub const LEFT_FOR_THE_GUEST: &str = "LEFT FOR THE GUEST";

/// Whether this is the guest.
pub fn guest() -> bool {
    std::env::var_os("KYMO_GUEST").is_some()
}

/// Loads a module of the guest's kernel, after those that it needs. Which ones lie
/// ready is said in `xtask/src/vm/suite.rs`.
///
/// # Panics
/// With the kernel's reason if that fails, and outside the guest.
#[track_caller]
pub fn load_module(name: &str, parameters: &str) {
    assert!(guest(), "modules are loaded in the guest only");
    let _ = crate::run("/init", ["load", name, parameters]).success();
}

/// Unloads a module of the guest's kernel, which others may still use for a moment.
///
/// # Panics
/// With the kernel's reason if that fails for twenty seconds, and outside the guest.
#[track_caller]
pub fn unload_module(name: &str) {
    assert!(guest(), "modules are unloaded in the guest only");
    for _ in 0..200 {
        if crate::run("/init", ["unload", name]).status == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let _ = crate::run("/init", ["unload", name]).success();
}

/// The name of this test program, if it is for the guest and this is not the guest.
pub(crate) fn left_for_it() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let name = program.file_name()?.to_str()?;
    // cargo adds a dash and a number.
    let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
    (name.starts_with("guest_") && !guest()).then(|| name.to_owned())
}
