//! The guest's file system, as an archive on the host: the init, kymo, programs of
//! the host with the libraries they need, modules, the job. Programs lie where they
//! lie on the host, so that paths compiled into a test hold.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use kymo_guest::{GuestModule, Job};

use super::apt::Apt;
use super::architecture::Architecture;
use super::cpio::Archive;
use super::modules::{self, Modules};
use crate::arm64::{self, GuestPrograms};

/// Programs that every guest has, if the host does.
const USUAL: &[&str] = &[
    "sh",
    "bash",
    "awk",
    "basename",
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "dd",
    "df",
    "dirname",
    "echo",
    "env",
    "false",
    "find",
    "grep",
    "head",
    "hostname",
    "id",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mount",
    "mv",
    "nproc",
    "od",
    "printf",
    "ps",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "setsid",
    "sleep",
    "sort",
    "stat",
    "sync",
    "tail",
    "tar",
    "taskset",
    "tee",
    "timeout",
    "touch",
    "tr",
    "true",
    "umount",
    "uname",
    "uniq",
    "wc",
    "xargs",
    "perf",
    "perl",
    "trace-cmd",
];

/// Enough for programs that ask who they are.
const PASSWD: &[u8] = b"root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/false\n";
const GROUP: &[u8] = b"root:x:0:\nnogroup:x:65534:\n";

/// The driver of the port.
const PORT_DRIVERS: [&str; 2] = ["virtio_pci", "virtio_console"];

/// Additional contents.
pub(crate) struct Contents {
    /// Source of programs.
    pub(crate) guest: GuestRoot,
    /// The guest's first process.
    pub(crate) init: PathBuf,
    /// Files of the host, each with its path in the guest.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// Links, path and target.
    pub(crate) links: Vec<(String, String)>,
    /// Programs by name or path, found as the host finds them.
    pub(crate) programs: Vec<String>,
    /// Modules to load at the start, each with parameters behind a blank.
    pub(crate) load: Vec<String>,
    /// Modules that only lie ready.
    pub(crate) ready: Vec<String>,
}

/// Source of the guest's programs.
pub(crate) enum GuestRoot {
    /// The host's own file system.
    Host,
    /// Debian's packages for AArch64.
    Arm64(GuestPrograms),
}

impl GuestRoot {
    /// For a guest with the kernel of this release and architecture.
    pub(crate) fn of(apt: &Apt) -> anyhow::Result<GuestRoot> {
        Ok(match (apt.architecture, apt.suite()) {
            (Architecture::Arm64, Some(suite)) => GuestRoot::Arm64(GuestPrograms::of(suite)?),
            _ => GuestRoot::Host,
        })
    }

    /// Path of a program in the guest.
    pub(crate) fn which(&self, name: &str) -> Option<PathBuf> {
        match self {
            GuestRoot::Host => which(name),
            GuestRoot::Arm64(programs) => programs.which(name),
        }
    }

    /// Links at the top of the file system, as `/lib` → `usr/lib`.
    fn top_links(&self) -> Vec<(String, String)> {
        let own = |(name, target): (&str, &str)| (name.to_owned(), target.to_owned());
        match self {
            GuestRoot::Host => ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"]
                .into_iter()
                .filter_map(|name| {
                    let target = std::fs::read_link(name).ok()?;
                    Some(own((name, target.to_string_lossy().trim_start_matches('/'))))
                })
                .collect(),
            GuestRoot::Arm64(_) => arm64::TOP_LINKS.into_iter().map(own).collect(),
        }
    }

    /// A path with the link at its top resolved: an archive cannot write through links.
    fn in_guest(&self, path: &str) -> String {
        for (name, target) in self.top_links() {
            if let Some(rest) = path.strip_prefix(&name)
                && rest.starts_with('/')
            {
                return format!("/{target}{rest}");
            }
        }
        path.to_owned()
    }

    /// The usual programs and those asked for with all that they need, each with its path in the
    /// guest.
    fn programs(&self, asked: &[String]) -> anyhow::Result<Vec<(PathBuf, String)>> {
        match self {
            GuestRoot::Host => {
                let paths = programs(asked)?.into_iter();
                Ok(paths.map(|p| (p.clone(), p.to_string_lossy().into_owned())).collect())
            }
            GuestRoot::Arm64(root) => {
                let usual = USUAL.iter().filter_map(|name| root.which(name));
                let asked = asked.iter().filter_map(|name| root.which(name));
                root.with_libraries(&usual.chain(asked).collect::<Vec<_>>())
            }
        }
    }
}

/// Writes the archive to `path`. The job's modules are filled in here.
pub(crate) fn write(
    path: &Path,
    contents: &Contents,
    modules: &Modules,
    mut job: Job,
) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, file))?;
    let guest = &contents.guest;
    for (name, target) in guest.top_links() {
        archive.link(&name, &target)?;
    }
    archive.file("/init", 0o755, &read(&contents.init)?)?;
    archive.file("/etc/passwd", 0o644, PASSWD)?;
    archive.file("/etc/group", 0o644, GROUP)?;
    match guest {
        GuestRoot::Host => {
            if let Ok(cache) = std::fs::read("/etc/ld.so.cache") {
                archive.file("/etc/ld.so.cache", 0o644, &cache)?;
            }
        }
        GuestRoot::Arm64(_) => {
            for (name, target) in arm64::GUEST_LINKS {
                archive.link(name, target)?;
            }
        }
    }
    for (from, to) in &contents.files {
        add(&mut archive, from, &guest.in_guest(to))?;
    }
    for (name, target) in &contents.links {
        archive.link(name, target)?;
    }
    for (from, to) in guest.programs(&contents.programs)? {
        add(&mut archive, &from, &guest.in_guest(&to))?;
    }
    let wanted = PORT_DRIVERS.iter().map(|n| (*n).to_owned()).chain(contents.load.iter().cloned());
    for wanted in wanted {
        let (name, parameters) = wanted.split_once(' ').unwrap_or((&wanted, ""));
        let order = modules.in_order(name)?;
        let last = order.len().saturating_sub(1);
        for (i, path) in order.iter().enumerate() {
            let place = guest.in_guest(&module_place(path));
            archive.file(&place, 0o644, &modules::read(path)?)?;
            let parameters = if i == last { parameters } else { "" }.to_owned();
            if !job.modules.iter().any(|m| m.path == place) {
                job.modules.push(GuestModule { path: place, parameters });
            }
        }
    }
    let mut list = String::new();
    for name in &contents.ready {
        list.push_str(name);
        for path in modules.in_order(name)? {
            let place = guest.in_guest(&module_place(&path));
            archive.file(&place, 0o644, &modules::read(&path)?)?;
            list.push(' ');
            list.push_str(&place);
        }
        list.push('\n');
    }
    archive.file(kymo_guest::MODULES, 0o644, list.as_bytes())?;
    archive.file(kymo_guest::JOB, 0o644, &job.to_bytes())?;
    archive.finish().with_context(|| path.display().to_string())?;
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn add<W: std::io::Write>(archive: &mut Archive<W>, from: &Path, to: &str) -> anyhow::Result<()> {
    let mode = std::fs::metadata(from).with_context(|| from.display().to_string())?;
    archive.file(to, mode.permissions().mode(), &read(from)?)?;
    Ok(())
}

/// `…/lib/modules/RELEASE/kernel/…` → `/lib/modules/RELEASE/kernel/…`, not compressed.
fn module_place(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path.strip_suffix(modules::COMPRESSED).unwrap_or(&path);
    let at = path.rfind("/lib/modules/").unwrap_or(0);
    path.get(at..).unwrap_or_default().to_owned()
}

/// The files of the usual programs and of those asked for, with their interpreters
/// and libraries.
fn programs(asked: &[String]) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found: Vec<PathBuf> = USUAL.iter().filter_map(|name| which(name)).collect();
    for name in asked {
        found.push(which(name).with_context(|| format!("the host has no program {name}"))?);
    }
    let mut scripts = found.clone();
    while let Some(path) = scripts.pop() {
        for interpreter in interpreters(&path) {
            if !found.contains(&interpreter) {
                found.push(interpreter.clone());
                scripts.push(interpreter);
            }
        }
    }
    let mut all: BTreeSet<PathBuf> = found.iter().cloned().collect();
    all.extend(libraries(&found)?);
    Ok(all)
}

/// A program's path without links in its directory; the name stays, as programs may
/// look at it.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = if name.contains('/') {
        PathBuf::from(name)
    } else {
        let directories = std::env::var("PATH").unwrap_or_default();
        let more = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        directories
            .split(':')
            .chain(more)
            .map(|directory| Path::new(directory).join(name))
            .find(|p| is_executable(p))?
    };
    if !is_executable(&path) {
        return None;
    }
    let directory = std::fs::canonicalize(path.parent()?).ok()?;
    Some(directory.join(path.file_name()?))
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Interpreters in a script's first line, including the program after `env`.
fn interpreters(path: &Path) -> Vec<PathBuf> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let Some(line) = bytes.strip_prefix(b"#!") else { return Vec::new() };
    let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).into_owned();
    line.split_whitespace().take(2).filter_map(which).collect()
}

/// Every library that the dynamic loader of the host would load for them, and the
/// loader.
fn libraries(programs: &[PathBuf]) -> anyhow::Result<BTreeSet<PathBuf>> {
    // For a static program or a script ldd says so and fails; that is no error.
    let output = Command::new("ldd").args(programs).env("LC_ALL", "C").output();
    let output = output.context("cannot run ldd")?;
    let mut found = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((name, _)) = line.split_once(" => not found") {
            bail!("a program needs the library {}, which ldd does not find", name.trim());
        }
        let Some(path) = library(line) else { continue };
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let directory =
            std::fs::canonicalize(directory).with_context(|| path.display().to_string())?;
        found.insert(directory.join(name));
    }
    Ok(found)
}

/// The path in a line of ldd: `libc.so.6 => /lib/libc.so.6 (0x…)` or
/// `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn library(line: &str) -> Option<&Path> {
    let line = line.trim();
    let path = line.split_once("=> ").map_or(line, |(_, path)| path);
    let path = path.split(" (0x").next()?;
    (line.contains(" (0x") && path.starts_with('/')).then(|| Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ldd_are_read() {
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(library(line), expected.map(Path::new), "{line}");
        };
        check("\tlinux-vdso.so.1 (0x00007fcc25e63000)", None);
        check("\tlibc.so.6 => /lib/x/libc.so.6 (0x00007fcc25af0000)", Some("/lib/x/libc.so.6"));
        check("\t/lib64/ld-linux-x86-64.so.2 (0x00007fcc)", Some("/lib64/ld-linux-x86-64.so.2"));
        check("\tnot a dynamic executable", None);
        check("/usr/bin/perf:", None);
    }

    #[test]
    fn a_program_comes_with_its_libraries_and_a_script_with_its_interpreter() {
        let all = programs(&["ldd".into()]).unwrap();
        let has = |name: &str| all.iter().any(|p| p.ends_with(name));
        assert!(has("ldd") && has("bash") && has("libc.so.6"), "{all:?}");
        assert!(programs(&["no-such-program".into()]).is_err());
    }
}
