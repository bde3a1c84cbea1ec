//! A second disk of the guest, read-only: the `vmlinux` of its kernel, debug files of
//! modules and some sources, which are too much for a file system in memory. They
//! come from Debian's packages, are kept under `target/vm` and never committed.
//! The guest mounts it where Debian's debug package would be installed, so that
//! every tool finds it by itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::fetch::{self, Extra, Kernel};
use crate::cargo;

/// Mount point in the guest.
pub(crate) const PLACE: &str = "/usr/lib/debug";

/// The driver.
pub(crate) const DRIVER: &str = "virtio_blk";

/// Modules whose debug files are on it.
const MODULES: [&str; 1] = ["scsi_debug"];

/// Sources on it, below the directory of sources. A change of this list makes a new disk.
const SOURCES: [&str; 6] = [
    SCRIPT,
    "fs/read_write.c",
    "fs/open.c",
    "kernel/sched/core.c",
    "drivers/scsi/scsi_debug.c",
    "include/linux/fs.h",
];

/// The script of the kernel's documentation that counts events of the page allocator.
const SCRIPT: &str = "Documentation/trace/postprocess/trace-pagealloc-postprocess.pl";

/// Directory of the modules that the script loads.
const PERL: &str = "perl";

/// The file system's size; `vmlinux` takes 590 MB of it.
const SIZE: &str = "800M";

/// The disk's image, made if need be.
pub(crate) fn image(kernel: &Kernel) -> anyhow::Result<PathBuf> {
    let name = format!("debug-{}-{:08x}.ext4", kernel.release, fingerprint());
    let image = super::directory().join(name);
    if image.exists() {
        return Ok(image);
    }
    let debug = fetch::extra(kernel, Extra::Debug)?;
    let source = fetch::extra(kernel, Extra::Source)?;
    let stage = super::directory().join(format!("stage-{}", std::process::id()));
    let fresh = stage.with_extension("ext4");
    let made = fill(&stage, kernel, &debug, &source).and_then(|()| make(&stage, &fresh));
    // What stays is removed with the target directory.
    let _ = std::fs::remove_dir_all(&stage);
    made?;
    std::fs::rename(&fresh, &image).with_context(|| image.display().to_string())?;
    println!("vm: {}", image.display());
    Ok(image)
}

/// FNV-1a over what is on the disk.
fn fingerprint() -> u32 {
    let words = MODULES.iter().chain(&SOURCES).flat_map(|w| w.bytes().chain([0]));
    words.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Lays out the disk's files.
fn fill(stage: &Path, kernel: &Kernel, debug: &Path, source: &Path) -> anyhow::Result<()> {
    let Kernel { release, .. } = kernel;
    let debug = debug.join("usr/lib/debug");
    let vmlinux = format!("boot/vmlinux-{release}");
    link(&debug.join(&vmlinux), &stage.join(&vmlinux))?;
    let modules = super::modules::Modules::below(&debug.join("lib/modules").join(release))?;
    for name in MODULES {
        let path = modules.file(name)?;
        let below = path.strip_prefix(&debug).with_context(|| path.display().to_string())?;
        link(path, &stage.join(below))?;
    }
    let directory = stage.join("src");
    unpack(source, &directory)?;
    copy_perl_modules(&stage.join(PERL))?;
    // The directory that Debian's builds name in their debugging information, from the
    // directory of the sources.
    let (_, flavour) = release.rsplit_once("-cloud-").context("not a cloud kernel")?;
    let build = directory.join("debian/build");
    std::fs::create_dir_all(&build).with_context(|| build.display().to_string())?;
    let link = build.join(format!("build_{flavour}_none_cloud-{flavour}"));
    std::os::unix::fs::symlink("../..", &link).with_context(|| link.display().to_string())
}

/// The sources that tests and benches look into, in a directory that is made.
pub(super) fn unpack(source: &Path, directory: &Path) -> anyhow::Result<()> {
    let archive = std::fs::read_dir(source.join("usr/src"))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(".tar.xz"))
        .context("the package of the sources holds no archive")?;
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let mut tar = Command::new("tar");
    tar.args(["--strip-components=1", "--wildcards", "-xJf"]).arg(&archive);
    tar.arg("-C").arg(directory).args(SOURCES.map(|file| format!("*/{file}")));
    cargo::run_command(tar)
}

/// Copies the modules of the host's perl that the script loads, if there is a perl.
fn copy_perl_modules(to: &Path) -> anyhow::Result<()> {
    let code = "use strict; use Getopt::Long; print map { \"$_\\t$INC{$_}\\n\" } keys %INC";
    let Ok(loaded) = fetch::output("perl", &["-e", code]) else { return Ok(()) };
    for (name, path) in loaded.lines().filter_map(|line| line.split_once('\t')) {
        let copy = to.join(name);
        let directory = copy.parent().unwrap_or(to);
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        std::fs::copy(path, &copy).with_context(|| path.to_owned())?;
    }
    Ok(())
}

/// A second name for a file, in a directory that is made.
fn link(from: &Path, to: &Path) -> anyhow::Result<()> {
    let directory = to.parent().unwrap_or(to);
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    std::fs::hard_link(from, to).with_context(|| format!("{} as {}", from.display(), to.display()))
}

/// Debian has the program outside of a user's path.
fn make(stage: &Path, image: &Path) -> anyhow::Result<()> {
    let Some(program) = super::initrd::which("mkfs.ext4") else {
        bail!("no mkfs.ext4 here (Debian: e2fsprogs)");
    };
    let mut mkfs = Command::new(program);
    mkfs.args(["-qq", "-F", "-m", "0", "-O", "^has_journal", "-E", "root_owner=0:0", "-d"]);
    mkfs.arg(stage).arg(image).arg(SIZE);
    cargo::run_command(mkfs)
}
