//! `cargo xtask peers`: the tools of Debian's testing release in `target/peers`, unpacked by
//! mmdebstrap. Nothing is installed on the machine but mmdebstrap itself. Tests compare with
//! them through `kymo_testkit::peer`, and with the installed tools where they are not there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;

/// The release that is testing while this project is written.
const SUITE: &str = "forky";
const PACKAGES: &str = "linux-perf,babeltrace2,bpftrace,lttng-tools,liblttng-ust-dev,trace-cmd,\
                        systemtap-sdt-dev";
/// Seconds after which a mirror that does not answer ends an attempt.
const LIMIT: &str = "400";

/// Directory of the tools, once they are complete.
fn directory() -> PathBuf {
    crate::target().join("peers")
}

/// Unpacks the tools if they are not there; `renew`: anew.
pub(crate) fn run(renew: bool) -> anyhow::Result<()> {
    let directory = directory();
    if directory.exists() && !renew {
        println!("peers: {} is there; --renew makes it anew", directory.display());
        return Ok(());
    }
    unpack(&directory, &["--variant=minbase"], PACKAGES, SUITE)?;
    println!("peers: {}", directory.display());
    Ok(())
}

/// Makes a directory with packages of a release, by options of mmdebstrap. It replaces the one
/// that is there when it is complete.
pub(crate) fn unpack(
    directory: &Path,
    options: &[&str],
    packages: &str,
    suite: &str,
) -> anyhow::Result<()> {
    if !cargo::has("mmdebstrap", &["--version"]) {
        bail!("no mmdebstrap here; as root: apt-get install mmdebstrap");
    }
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let unfinished = directory.with_file_name(format!("{name}-unfinished"));
    remove(&unfinished)?;
    println!("{name}: unpacking {packages} of Debian's {suite}");
    let mut unpack = Command::new("timeout");
    unpack.args(["--kill-after=10", LIMIT, "mmdebstrap", "--quiet"]).args(options);
    // Snapshots of the archive are older than what they state as their end.
    unpack.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    unpack.args(["--aptopt=Acquire::http::Timeout \"30\"", "--aptopt=Acquire::Retries \"1\""]);
    unpack.arg(format!("--include={packages}")).arg(suite).arg(&unfinished);
    if let Err(e) = cargo::run_command(unpack) {
        // What is left is of no use; the error above matters more.
        let _ = remove(&unfinished);
        return Err(e.context("the mirror or the right to unpack may be missing"));
    }
    remove(directory)?;
    std::fs::rename(&unfinished, directory).with_context(|| directory.display().to_string())
}

/// Fetches the tools for `cargo xtask test`, which continues without them.
pub(crate) fn fetch_for_tests() {
    if let Err(e) = run(false) {
        println!("peers: the newest peers are not there, tests with them are skipped: {e:#}");
    }
}

fn remove(directory: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| directory.display().to_string())
        }
        _ => Ok(()),
    }
}
