//! Tools to build for AArch64 and to boot a guest of it, from Debian's packages: a directory with a
//! compiler, its standard library and a linker, and one with programs for the guest, which are
//! unpacked and never started here.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};

use crate::{cargo, peers, setup};

pub(crate) const TRIPLE: &str = "aarch64-unknown-linux-gnu";
/// Release with a compiler that builds the workspace.
const COMPILER_SUITE: &str = "forky";
const COMPILER: &str = "rustc,cargo,libstd-rust-dev:arm64,gcc,libc6-dev,gcc-aarch64-linux-gnu,\
                        libc6-dev-arm64-cross";
/// Packages of programs that tests start in the guest.
const PROGRAMS: &str = "bash,coreutils,dash,findutils,grep,hostname,mawk,mount,perl-base,procps,\
                        sed,tar,util-linux,linux-perf,trace-cmd";
/// Names in the guest that packages make when they are installed, or that lie beside libraries.
pub(crate) const GUEST_LINKS: [(&str, &str); 2] = [
    ("/usr/bin/awk", "mawk"),
    ("/usr/lib/ld-linux-aarch64.so.1", "aarch64-linux-gnu/ld-linux-aarch64.so.1"),
];
/// Links at the top of the guest's file system.
pub(crate) const TOP_LINKS: [(&str, &str); 3] =
    [("/bin", "usr/bin"), ("/sbin", "usr/sbin"), ("/lib", "usr/lib")];
const LIBRARIES: &str = "/usr/lib/aarch64-linux-gnu";
const C_COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";

/// Mounts directories of this machine at their own paths in a directory that becomes the root,
/// and starts a command, which follows the word `then`. Both happen in a mount namespace of its own,
/// which ends with it.
const ENTER: &str = r#"
set -e
root=$1; directory=$2; shift 2
while [ "$1" != then ]; do
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
    shift
done
shift
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$directory" "$@"
"#;

/// `cargo ARGS…` that builds for AArch64, its artefacts in `target/arm64`. The compiler is fetched
/// if it is not there.
pub(crate) fn cargo(args: &[&str]) -> anyhow::Result<Command> {
    cargo::run(&["fetch", "--quiet", "--locked", "--target", TRIPLE])?;
    let home = cargo_home()?;
    let built = crate::target().join("arm64");
    std::fs::create_dir_all(&built).with_context(|| built.display().to_string())?;
    let mut command = enter(&[&home, &built])?;
    command
        .arg("cargo")
        .args(args)
        .args(["--offline", "--locked", "--target", TRIPLE])
        .env("CARGO_HOME", &home)
        .env("CARGO_TARGET_DIR", &built)
        // Programs travel into a guest that keeps its files in memory.
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_PROFILE_DEV_STRIP", "debuginfo")
        .env("CC_aarch64_unknown_linux_gnu", C_COMPILER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", C_COMPILER);
    Ok(command)
}

/// The corpus as the program of this architecture reads it: `cargo xtask test --arm64`.
pub(crate) fn corpus() -> anyhow::Result<()> {
    corpus_of(&cargo::build_by(cargo(&["build", "--package", "kymo", "--bin", "kymo"])?)?)
}

/// The corpus as a program of this architecture reads it, under qemu's emulation of a process.
pub(crate) fn corpus_of(program: &Path) -> anyhow::Result<()> {
    if !cargo::has(EMULATOR, &["--version"]) {
        bail!("no {EMULATOR}: apt-get install qemu-user");
    }
    let script = crate::target().join("arm64/kymo-emulated");
    let text = format!("#!/bin/sh\nexec {EMULATOR} '{}' \"$@\"\n", program.display());
    std::fs::write(&script, text).with_context(|| script.display().to_string())?;
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).context("the script")?;
    let mut tests = cargo::command(&["test", "--workspace", "--test", "corpus"]);
    tests.env("KYMO_CORPUS_PROGRAM", script);
    cargo::run_command(tests)
}

/// Builds the program that is handed out.
pub(crate) fn release() -> anyhow::Result<PathBuf> {
    cargo::build_by(cargo(&["build", "--release", "--package", "kymo", "--bin", "kymo"])?)
}

/// A program of binutils for files of this architecture, which sees those below `target/arm64`.
pub(crate) fn binutils(name: &str) -> anyhow::Result<Command> {
    let mut command = enter(&[&crate::target().join("arm64")])?;
    command.arg(format!("aarch64-linux-gnu-{name}"));
    Ok(command)
}

/// The C compiler for it.
pub(crate) fn c_compiler() -> anyhow::Result<Command> {
    let mut command = enter(&[])?;
    command.arg(C_COMPILER);
    Ok(command)
}

/// A command, to be completed with a program and its arguments, with the workspace and these
/// directories where they are outside, too.
fn enter(directories: &[&Path]) -> anyhow::Result<Command> {
    if !setup::is_root() {
        bail!("building for AArch64 changes the root directory, which root alone may");
    }
    let root = unpacked("cross", &["--architectures=amd64,arm64"], COMPILER, COMPILER_SUITE)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", ENTER, "enter"]).arg(root).arg(crate::root());
    command.args(["/proc", "/dev"]).arg(crate::root()).args(directories).arg("then");
    // Nothing of the toolchain that runs this is the other's.
    command.env_clear().envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")]);
    Ok(command)
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("no home directory")
}

/// A directory below `target` with packages of a release, unpacked if it is not there.
fn unpacked(name: &str, options: &[&str], packages: &str, suite: &str) -> anyhow::Result<PathBuf> {
    let directory = crate::target().join(name);
    if !directory.exists() {
        peers::unpack(&directory, options, packages, suite)?;
    }
    Ok(directory)
}

/// Programs of Debian's for the guest.
pub(crate) struct GuestPrograms {
    root: PathBuf,
}

impl GuestPrograms {
    /// Programs of a release, unpacked if they are not there.
    pub(crate) fn of(suite: &str) -> anyhow::Result<GuestPrograms> {
        let options = ["--variant=extract", "--architectures=arm64"];
        let root = unpacked(&format!("arm64-{suite}"), &options, PROGRAMS, suite)?;
        Ok(GuestPrograms { root })
    }

    /// Path of a program in the guest, whose programs are all below `/usr`.
    pub(crate) fn which(&self, name: &str) -> Option<PathBuf> {
        let places = ["/usr/bin", "/usr/sbin"].map(|directory| Path::new(directory).join(name));
        places.into_iter().find(|path| self.unpacked(path).is_some())
    }

    /// Files of these programs and of the libraries that they name, here and in the guest.
    pub(crate) fn with_libraries(
        &self,
        programs: &[PathBuf],
    ) -> anyhow::Result<Vec<(PathBuf, String)>> {
        let mut found = BTreeMap::new();
        let mut open: Vec<PathBuf> = programs.to_vec();
        while let Some(path) = open.pop() {
            if found.contains_key(&path) {
                continue;
            }
            let here = self.unpacked(&path);
            let here = here.with_context(|| format!("no {} in the packages", path.display()))?;
            let bytes = std::fs::read(&here).with_context(|| here.display().to_string())?;
            let libraries = needed(&bytes).unwrap_or_default();
            open.extend(libraries.iter().map(|name| Path::new(LIBRARIES).join(name)));
            found.insert(path, here);
        }
        let pair = |(path, here): (PathBuf, PathBuf)| (here, path.to_string_lossy().into_owned());
        Ok(found.into_iter().map(pair).collect())
    }

    /// Path here of a file of the guest: packages may have it below `/usr` or not.
    fn unpacked(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix("/usr").ok()?;
        let places = [self.root.join("usr").join(below), self.root.join(below)];
        places.into_iter().find(|place| place.exists())
    }
}

/// Names of the libraries that an ELF file needs, and of its loader; none of a file that is no
/// ELF file.
fn needed(bytes: &[u8]) -> Option<Vec<String>> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let mut names = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for segment in segments {
        if let Ok(Some(loader)) = segment.interpreter(endian, bytes) {
            let loader = text(loader);
            names.extend(loader.rsplit('/').next().map(str::to_owned));
        }
        let Ok(Some(dynamic)) = segment.dynamic(endian, bytes) else { continue };
        let strings = dynamic.iter().find(|d| d.tag(endian) == elf::DT_STRTAB)?;
        let strings = strings.d_val(endian);
        for entry in dynamic.iter().filter(|d| d.tag(endian) == elf::DT_NEEDED) {
            let at = strings.checked_add(entry.d_val(endian))?;
            let name = tail(segments, endian, bytes, at)?;
            names.push(text(name.split(|b| *b == 0).next()?));
        }
    }
    Some(names)
}

/// Bytes of the loaded segment from an address on.
fn tail<'a>(
    segments: &[elf::ProgramHeader64<Endianness>],
    endian: Endianness,
    bytes: &'a [u8],
    address: u64,
) -> Option<&'a [u8]> {
    let segment = segments.iter().find(|s| {
        let begin = s.p_vaddr(endian);
        s.p_type(endian) == elf::PT_LOAD && address >= begin && address - begin < s.p_filesz(endian)
    })?;
    segment.data(endian, bytes).ok()?.get((address - segment.p_vaddr(endian)) as usize..)
}
