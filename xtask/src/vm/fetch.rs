//! Debian's cloud kernels, downloaded by apt and unpacked under `target/vm`. Needs
//! no root: nothing is installed. A directory is there only when it is whole.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::apt::Apt;

const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(3);

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// As `uname -r` says it.
    pub(crate) release: String,
    /// Directories of its unpacked packages, that of the image first. Newer releases have the image
    /// and the modules in packages of their own.
    directories: Vec<PathBuf>,
}

impl Kernel {
    pub(crate) fn image(&self) -> anyhow::Result<PathBuf> {
        let release = &self.release;
        let names =
            [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
        self.existing(&names).with_context(|| format!("the packages of {release} hold no kernel"))
    }

    /// Its directory of modules.
    pub(crate) fn modules(&self) -> anyhow::Result<PathBuf> {
        self.in_modules("kernel")
            .with_context(|| format!("the packages of {} hold no modules", self.release))
    }

    /// The list of modules that are built in.
    pub(crate) fn built_in(&self) -> Option<PathBuf> {
        self.in_modules("modules.builtin")
    }

    fn in_modules(&self, name: &str) -> Option<PathBuf> {
        let below = |top: &str| format!("{top}lib/modules/{}/{name}", self.release);
        self.existing(&[below(""), below("usr/")])
    }

    fn existing(&self, names: &[String]) -> Option<PathBuf> {
        let paths = self.directories.iter().flat_map(|d| names.iter().map(|name| d.join(name)));
        paths.into_iter().find(|path| path.exists())
    }

    /// Whether all of it is there.
    fn is_complete(&self) -> bool {
        self.directories.iter().all(|d| d.join("complete").exists())
    }

    /// From the names of the directories of its packages, that of the image first.
    fn of_names(names: &str) -> Option<Kernel> {
        let first = names.lines().next()?;
        let release = first.strip_prefix("linux-image-")?.split('_').next()?.to_owned();
        let directories = names.lines().map(|name| super::directory().join(name)).collect();
        Some(Kernel { release, directories })
    }
}

/// Package that can be fetched beyond the kernel itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// vmlinux and modules with DWARF: 283 MB to download.
    Debug,
    /// Headers for out-of-tree modules.
    Headers,
    /// The sources, as a tar archive.
    Source,
}

/// A package as apt knows it.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    bytes: u64,
    sha256: String,
}

/// The kernel in use: the one that is there, else the current one, fetched.
pub(crate) fn kernel(apt: &Apt) -> anyhow::Result<Kernel> {
    let names = std::fs::read_to_string(apt.mark()).unwrap_or_default();
    match Kernel::of_names(&names) {
        Some(kernel) if kernel.is_complete() => Ok(kernel),
        _ => fetch(apt, &[]),
    }
}

/// Fetches the current kernel, if it is not there, and what is asked for with it.
pub(crate) fn fetch(apt: &Apt, extras: &[Extra]) -> anyhow::Result<Kernel> {
    let image = current_name(apt)?;
    let mut names = String::new();
    for package in [vec![image.clone()], parts(apt, &image)?].concat() {
        let directory = ensure(apt, &package)?;
        names.push_str(&directory.file_name().unwrap_or_default().to_string_lossy());
        names.push('\n');
    }
    let kernel =
        Kernel::of_names(&names).with_context(|| format!("{image} is no kernel's name"))?;
    kernel.image()?;
    let mark = apt.mark();
    std::fs::write(&mark, &names).with_context(|| mark.display().to_string())?;
    println!("vm: Linux {} in {}", kernel.release, super::directory().display());
    for extra in extras {
        for name in packages_of(*extra, &kernel.release)? {
            println!("vm: {name} in {}", ensure(apt, &name)?.display());
        }
    }
    Ok(kernel)
}

/// Packages that an image consists of where it has no files of its own.
fn parts(apt: &Apt, image: &str) -> anyhow::Result<Vec<String>> {
    let text = apt.cache(&["depends", image])?;
    let names = text.lines().filter_map(|l| l.trim().strip_prefix("Depends: "));
    let release = image.trim_start_matches("linux-image-");
    let is_part = |n: &&str| {
        ["linux-base-", "linux-binary-", "linux-modules-"]
            .iter()
            .any(|start| n.strip_prefix(start) == Some(release))
    };
    Ok(names.filter(is_part).map(str::to_owned).collect())
}

/// The directory of a package beside the kernel in use, fetched if it is not there. The
/// version must be the kernel's.
pub(crate) fn extra(kernel: &Kernel, extra: Extra) -> anyhow::Result<PathBuf> {
    let name = packages_of(extra, &kernel.release)?.into_iter().next().context("no package")?;
    let own = kernel
        .directories
        .first()
        .and_then(|d| d.file_name())
        .unwrap_or_default()
        .to_string_lossy();
    let version = own.split_once('_').map_or("", |(_, version)| version);
    let there = super::directory().join(format!("{name}_{version}"));
    if there.join("complete").exists() {
        return Ok(there);
    }
    // Debugging information is wanted of the kernel of this machine's release alone.
    let fetched = ensure(&Apt::of_machine(), &name)?;
    if fetched != there {
        bail!("{} is not of the kernel in use, {own}: cargo xtask vm fetch", fetched.display());
    }
    Ok(fetched)
}

fn packages_of(extra: Extra, release: &str) -> anyhow::Result<Vec<String>> {
    Ok(match extra {
        Extra::Debug => vec![format!("linux-image-{release}-dbg")],
        Extra::Headers => {
            let common = release.replace("-cloud-amd64", "-common");
            vec![format!("linux-headers-{release}"), format!("linux-headers-{common}")]
        }
        Extra::Source => {
            let mut parts = release.split('.');
            let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
                bail!("the release {release} has no major and minor number");
            };
            vec![format!("linux-source-{major}.{minor}")]
        }
    })
}

/// The package behind the one that always names the newest.
fn current_name(apt: &Apt) -> anyhow::Result<String> {
    // It depends on the package of the current kernel.
    let meta = format!("linux-image-cloud-{}", apt.architecture.debian());
    let ask = || -> Option<String> {
        let text = apt.cache(&["depends", &meta]).ok()?;
        let mut names = text.lines().filter_map(|l| l.trim().strip_prefix("Depends: "));
        names.find(|n| n.starts_with("linux-image-")).map(str::to_owned)
    };
    if let Some(name) = ask() {
        return Ok(name);
    }
    apt.update().with_context(|| format!("apt does not know {meta}"))?;
    ask().with_context(|| format!("apt does not know {meta}, also after `apt-get update`"))
}

/// The directory with the package's files, made if need be.
fn ensure(apt: &Apt, name: &str) -> anyhow::Result<PathBuf> {
    let mut last = None;
    for attempt in 1..=ATTEMPTS {
        match describe(apt, name).and_then(|package| ensure_version(apt, &package)) {
            Ok(directory) => return Ok(directory),
            Err(e) => {
                println!("vm: {name}, attempt {attempt} of {ATTEMPTS}: {e:#}");
                last = Some(e);
            }
        }
        if attempt < ATTEMPTS {
            std::thread::sleep(PAUSE);
            // A mirror drops old versions; a list that names one has to be renewed.
            if let Err(e) = apt.update() {
                println!("vm: {e:#}");
            }
        }
    }
    let last = last.unwrap_or_else(|| anyhow::anyhow!("no attempt was made"));
    Err(last.context(format!("cannot fetch the package {name}")))
}

fn ensure_version(apt: &Apt, package: &Package) -> anyhow::Result<PathBuf> {
    let Package { name, version, .. } = package;
    let directory = super::directory().join(format!("{name}_{}", version.replace(':', "%3a")));
    let mark = directory.join("complete");
    if std::fs::read_to_string(&mark).is_ok_and(|sum| sum == package.sha256) {
        return Ok(directory);
    }
    let archive = download(apt, package)?;
    let fresh = directory.with_extension(format!("new-{}", std::process::id()));
    remove(&fresh)?;
    std::fs::create_dir_all(&fresh).with_context(|| fresh.display().to_string())?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(&archive).arg(&fresh);
    crate::cargo::run_command(unpack)?;
    std::fs::write(fresh.join("complete"), &package.sha256).context("marking as complete")?;
    // Another process may have been faster; its result is as good.
    if std::fs::read_to_string(&mark).is_ok_and(|sum| sum == package.sha256) {
        remove(&fresh)?;
    } else {
        remove(&directory)?;
        std::fs::rename(&fresh, &directory).with_context(|| directory.display().to_string())?;
    }
    remove(archive.parent().unwrap_or(&archive))?;
    Ok(directory)
}

/// The archive in a directory of its own, with the sum that apt's signed list states.
fn download(apt: &Apt, package: &Package) -> anyhow::Result<PathBuf> {
    let Package { name, version, bytes, sha256 } = package;
    let directory = super::directory().join(format!("download-{}", std::process::id()));
    remove(&directory)?;
    std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    println!("vm: downloading {name} {version}, {:.1} MB", *bytes as f64 / 1e6);
    let mut apt = apt.get();
    apt.args(["-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=", "download"]);
    apt.arg(format!("{name}={version}")).current_dir(&directory);
    crate::cargo::run_command(apt)?;
    let archive = std::fs::read_dir(&directory)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "deb"))
        .context("apt-get download left no .deb")?;
    let sum = output("sha256sum", &[&archive.to_string_lossy()])?;
    let sum = sum.trim_start_matches('\\').split(' ').next().unwrap_or_default();
    if sum != sha256 {
        bail!("{} has the SHA-256 {sum}, apt states {sha256}", archive.display());
    }
    Ok(archive)
}

fn describe(apt: &Apt, name: &str) -> anyhow::Result<Package> {
    let text = apt.cache(&["show", "--no-all-versions", name])?;
    parse_description(&text).with_context(|| format!("apt-cache show {name}: facts are missing"))
}

fn parse_description(text: &str) -> Option<Package> {
    let first = text.split("\n\n").next()?;
    let field = |key: &str| {
        first.lines().find_map(|l| Some(l.strip_prefix(key)?.strip_prefix(": ")?.trim().to_owned()))
    };
    Some(Package {
        name: field("Package")?,
        version: field("Version")?,
        bytes: field("Size")?.parse().ok()?,
        sha256: field("SHA256")?,
    })
}

fn remove(directory: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| directory.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Output of a command.
pub(super) fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).env("LC_ALL", "C").output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("`{program} {}`: {}: {said}", arguments.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apts_description_is_read() {
        let text = "Package: linux-image-x\nVersion: 6.1.1-1\nDepends: kmod\nSize: 267\n\
                    SHA256: abc\n\nPackage: linux-image-x\nVersion: 6.1.0-9\n";
        let expected = Package {
            name: "linux-image-x".into(),
            version: "6.1.1-1".into(),
            bytes: 267,
            sha256: "abc".into(),
        };
        assert_eq!(parse_description(text), Some(expected));
        assert_eq!(parse_description("N: Unable to locate package x"), None);
    }

    #[test]
    fn packages_beside_the_kernel_are_named_after_it() {
        let check = |extra, expected: &[&str]| {
            assert_eq!(packages_of(extra, "6.1.0-56-cloud-amd64").unwrap(), expected);
        };
        check(Extra::Debug, &["linux-image-6.1.0-56-cloud-amd64-dbg"]);
        check(
            Extra::Headers,
            &["linux-headers-6.1.0-56-cloud-amd64", "linux-headers-6.1.0-56-common"],
        );
        check(Extra::Source, &["linux-source-6.1"]);
    }
}
