//! `cargo xtask vm`: a guest with a kernel that can do what the host's cannot
//! (kprobes, function tracers, histograms, modules), under QEMU's software
//! emulation, up in a few seconds. Here are the words of the command line;
//! `fetch` gets the kernel, `initrd` packs the file system, `disk` what is too much for it, `machine` runs it,
//! `suite` runs the tests marked for the guest.

pub(crate) mod apt;
pub(crate) mod architecture;
mod cpio;
mod disk;
mod fetch;
mod initrd;
mod machine;
pub(crate) mod matrix;
mod modules;
mod run;
pub(crate) mod suite;
mod tally;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};

use apt::Apt;
use architecture::Architecture;

pub(crate) const USAGE: &str = "\
\x20 vm fetch [--debug] [--headers] [--source]
                      get the guest's kernel; with its DWARF, headers, sources
  vm run [OPTION…] [--] CMD…
                      boot the guest, run CMD in it, exit with its status
    --program NAME      take a program of the host along (CMD's is taken anyway)
    --module 'NAME [PARAMETERS]'   load a kernel module at the start
    --put HOST[:GUEST]  take a file along; its place is the same unless said
    --get GUEST[:HOST]  bring a file back, to this directory unless said
    --debug             a disk with the kernel's DWARF and some sources
    --dev               kymo's development build instead of the release build
    --append 'PARAMETERS'          more parameters for the kernel
    --memory MB, --limit SECONDS, --console (shows it)
    --kernel RELEASE    the kernel of another of Debian's releases (bullseye, trixie, forky)
    --arm64             an AArch64 guest, with programs built for it (as root)
  vm test [-v] [-p PACKAGE] [--release] [--kernel RELEASE] [--arm64] [FILTER…]
                      run the tests of crates/*/tests/guest_*.rs in the guest
  vm matrix [--dev] [--arm64] [RELEASE…]
                      what works on the kernels of Debian's releases, as a table
";

pub(crate) fn main(args: &[&str]) -> anyhow::Result<ExitCode> {
    match args {
        ["fetch", extras @ ..] => fetch_extras(extras).map(|()| ExitCode::SUCCESS),
        ["run", rest @ ..] => run::main(rest),
        ["test", rest @ ..] => suite::main(rest),
        ["matrix", rest @ ..] => matrix::main(rest),
        other => bail!("no such task: vm {}\n\n{USAGE}", other.join(" ")),
    }
}

fn fetch_extras(options: &[&str]) -> anyhow::Result<()> {
    let extra = |option: &&str| match *option {
        "--debug" => Ok(fetch::Extra::Debug),
        "--headers" => Ok(fetch::Extra::Headers),
        "--source" => Ok(fetch::Extra::Source),
        other => bail!("vm fetch has no option {other}"),
    };
    let extras = options.iter().map(extra).collect::<anyhow::Result<Vec<_>>>()?;
    fetch::fetch(&Apt::of_machine(), &extras).map(drop)
}

/// `target/vm`, wherever the target directory is.
fn directory() -> PathBuf {
    crate::target().join("vm")
}

/// Debian's kernel with debugging information, and some of its sources.
pub(crate) struct WithDebug {
    pub(crate) vmlinux: PathBuf,
    pub(crate) sources: PathBuf,
}

/// Fetches that kernel, if it is not there.
pub(crate) fn kernel_with_debug() -> anyhow::Result<WithDebug> {
    let kernel = fetch::kernel(&Apt::of_machine())?;
    let vmlinux = vmlinux()?;
    let archive = fetch::extra(&kernel, fetch::Extra::Source)?;
    let sources = directory().join(format!("sources-{}", kernel.release));
    if !sources.join("complete").exists() {
        disk::unpack(&archive, &sources)?;
        std::fs::write(sources.join("complete"), "").context("marking as complete")?;
    }
    Ok(WithDebug { vmlinux, sources })
}

/// Its image with debugging information alone.
pub(crate) fn vmlinux() -> anyhow::Result<PathBuf> {
    let kernel = fetch::kernel(&Apt::of_machine())?;
    let debug = fetch::extra(&kernel, fetch::Extra::Debug)?;
    Ok(debug.join(format!("usr/lib/debug/boot/vmlinux-{}", kernel.release)))
}

/// Fetches what tests of `kymo probe` compare on, and the sources, which have perf's own tests.
/// What keeps it away is said: the tests then skip themselves, and say so, too.
pub(crate) fn fetch_for_tests() {
    for extra in [fetch::Extra::Debug, fetch::Extra::Source] {
        let fetched =
            fetch::kernel(&Apt::of_machine()).and_then(|kernel| fetch::extra(&kernel, extra));
        if let Err(e) = fetched {
            println!("vm: {extra:?} of the kernel is not there, tests with it are skipped: {e:#}");
        }
    }
}

/// A directory of this run, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    /// Scratch directory of one guest; there may be others.
    fn new() -> anyhow::Result<Scratch> {
        static GUESTS: AtomicUsize = AtomicUsize::new(0);
        Scratch::named(&format!("run-{}", GUESTS.fetch_add(1, Ordering::Relaxed)))
    }

    fn named(what: &str) -> anyhow::Result<Scratch> {
        let path = directory().join(format!("{what}-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Scratch(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed with the target directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The guest's init, built.
fn init(architecture: Architecture) -> anyhow::Result<PathBuf> {
    architecture.build(&["build", "--package", "kymo-guest", "--bin", "kymo-guest"])
}
