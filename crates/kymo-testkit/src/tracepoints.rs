//! Libraries for C programs with tracepoints of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The static library of the crate `kymo-tracepoint`, built on its own in a directory below `tmp`:
/// the crate's other users have no need of it. The test's `CARGO_TARGET_TMPDIR` is meant.
///
/// # Panics
/// If cargo does not build it.
#[must_use]
pub fn tracepoint_library(tmp: &Path) -> PathBuf {
    let target = tmp.join("c");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--quiet", "-p", "kymo-tracepoint", "--lib", "--crate-type=staticlib"]);
    cargo.arg("--target-dir").arg(&target).current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().is_ok_and(|status| status.success()), "cargo builds the library");
    let mut directories = vec![target];
    while let Some(directory) = directories.pop() {
        let library = directory.join("debug/libkymo_tracepoint.a");
        if library.exists() {
            return library;
        }
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        directories.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    panic!("cargo has built no static library");
}
