//! Packages of the program: a tar, a Debian package, an RPM, an OCI image, a bill of materials and
//! checksums. All but the image hold the same files, which the program itself writes. The same
//! program gives the same bytes each time.

mod oci;
mod sbom;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Directories of completions in packages, by shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/kymo"),
    ("zsh", "usr/share/zsh/vendor-completions/_kymo"),
    ("fish", "usr/share/fish/vendor_completions.d/kymo.fish"),
];
/// Directory of systemd's units.
const UNITS: &str = "usr/lib/systemd/system";
const SUMMARY: &str = "Count, profile and trace events of Linux and of programs";
const DESCRIPTION: &str =
    "One static program for the tasks of perf, trace-cmd, LTTng and bpftrace.";
const DOCUMENTS: [&str; 5] =
    ["README.md", "CHANGELOG.md", "BENCHMARKS.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Seconds since 1970 that all files in packages carry; rpmbuild takes 0 for no time.
const TIMESTAMP: &str = "1";

/// Makes all packages of a program in the directory `to` and returns their paths; `root` is the
/// workspace.
pub(crate) fn make(program: &Path, root: &Path, to: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let version = env!("CARGO_PKG_VERSION");
    let architecture = Architecture::of(program)?;
    let name = format!("kymo-{version}-{}-linux", architecture.machine);
    let tree = to.join(&name);
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fill(program, root, &tree).with_context(|| tree.display().to_string())?;
    let tar_path = to.join(format!("{name}.tar.gz"));
    let mut packed = tar();
    packed.arg("-C").arg(to).arg("-czf").arg(&tar_path).arg(&name);
    run(packed)?;
    let mut made = vec![tar_path];
    // Debian's own files go into the tree, so the RPM comes first.
    made.extend(rpm(&tree, &architecture, to)?);
    made.extend(deb(&tree, &architecture, to)?);
    fs::remove_dir_all(&tree)?;
    let image = to.join(format!("{name}.oci.tar"));
    oci::write(program, architecture.oci, version, &image)?;
    made.push(image);
    let bill = to.join(format!("{name}.cdx.json"));
    fs::write(&bill, sbom::cyclonedx(root, architecture.machine)?)
        .with_context(|| bill.display().to_string())?;
    made.push(bill);
    made.push(checksums(to)?);
    Ok(made)
}

/// A command that starts a program, under qemu's emulation of a process if it is for another
/// processor.
pub(crate) fn start(program: &Path) -> anyhow::Result<Command> {
    let machine = Architecture::of(program)?.machine;
    if machine == std::env::consts::ARCH {
        return Ok(Command::new(program));
    }
    let emulator = format!("qemu-{machine}");
    if !is_installed(&emulator) {
        bail!("no {emulator}: apt-get install qemu-user");
    }
    let mut command = Command::new(emulator);
    command.arg(program);
    Ok(command)
}

/// `tar` with owners, order and times that do not depend on where and when it runs.
fn tar() -> Command {
    let mut command = Command::new("tar");
    command.args(["--owner=0", "--group=0", "--numeric-owner", "--sort=name"]);
    command.arg(format!("--mtime=@{TIMESTAMP}"));
    command.env("GZIP", "-n");
    command
}

fn is_installed(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Whether a program that makes a kind of package is installed; reports it if not.
fn has_maker(program: &str, kind: &str) -> bool {
    let has = is_installed(program);
    if !has {
        eprintln!("release: no {kind}: {program} is not installed");
    }
    has
}

/// A Debian package of the tree, where `dpkg-deb` is installed.
fn deb(tree: &Path, architecture: &Architecture, to: &Path) -> anyhow::Result<Option<PathBuf>> {
    if !has_maker("dpkg-deb", "Debian package") {
        return Ok(None);
    }
    let version = env!("CARGO_PKG_VERSION");
    let control = tree.join("DEBIAN");
    let size = size_of_tree(tree)?.div_ceil(1024);
    fs::create_dir(&control)?;
    fs::write(
        control.join("control"),
        format!(
            "Package: kymo\nVersion: {version}\nArchitecture: {}\nSection: utils\n\
             Priority: optional\nInstalled-Size: {size}\nMaintainer: kymo's authors <kymo@localhost>\n\
             Description: {SUMMARY}\n {DESCRIPTION}\n",
            architecture.debian
        ),
    )?;
    let package = to.join(format!("kymo_{version}_{}.deb", architecture.debian));
    let mut built = Command::new("dpkg-deb");
    built.env("SOURCE_DATE_EPOCH", TIMESTAMP);
    built.args(["--root-owner-group", "--build"]).arg(tree).arg(&package);
    run(built)?;
    Ok(Some(package))
}

/// Bytes of the files below a directory.
fn size_of_tree(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() { size_of_tree(&entry.path())? } else { meta.len() };
    }
    Ok(bytes)
}

/// An RPM of the same files, where `rpmbuild` is installed.
fn rpm(tree: &Path, architecture: &Architecture, to: &Path) -> anyhow::Result<Option<PathBuf>> {
    if !has_maker("rpmbuild", "RPM") {
        return Ok(None);
    }
    let version = env!("CARGO_PKG_VERSION");
    let (machine, work) = (architecture.machine, to.join("rpm"));
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    let spec = work.join("kymo.spec");
    // The program is static and packed: nothing is stripped, searched or compressed again.
    fs::write(
        &spec,
        format!(
            "%global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\n\
             %global _build_id_links none\n\
             Name: kymo\nVersion: {version}\nRelease: 1\nSummary: {SUMMARY}\n\
             License: MIT OR Apache-2.0\nAutoReqProv: no\n\
             %description\n{DESCRIPTION}\n\
             %install\ncp -a {}/. %{{buildroot}}/\n\
             %files\n%defattr(-,root,root)\n/usr/bin/kymo\n/usr/share/man/man1/*\n\
             /usr/share/man/man7/*\n/{UNITS}/*\n/usr/share/doc/kymo\n{}",
            tree.canonicalize()?.display(),
            COMPLETIONS.map(|(_, path)| format!("/{path}\n")).concat()
        ),
    )?;
    let mut built = Command::new("rpmbuild");
    built.env("SOURCE_DATE_EPOCH", TIMESTAMP).arg("-bb").args(["--target", machine]);
    for (name, value) in [
        ("_topdir", work.canonicalize()?.display().to_string()),
        ("_buildhost", "localhost".to_owned()),
        ("_binary_payload", "w6.gzdio".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
    ] {
        built.arg("--define").arg(format!("{name} {value}"));
    }
    built.arg(&spec);
    run(built)?;
    let file = format!("kymo-{version}-1.{machine}.rpm");
    let package = to.join(&file);
    fs::rename(work.join("RPMS").join(machine).join(&file), &package).context(file)?;
    fs::remove_dir_all(&work)?;
    Ok(Some(package))
}

/// `SHA256SUMS` of the packages of this version in the directory, for whichever processor they are,
/// as `sha256sum --check` reads it.
fn checksums(to: &Path) -> anyhow::Result<PathBuf> {
    let own = ["kymo-", "kymo_"].map(|start| format!("{start}{}", env!("CARGO_PKG_VERSION")));
    let mut sums = Vec::new();
    for entry in fs::read_dir(to)? {
        let (path, name) = entry.map(|e| (e.path(), e.file_name()))?;
        let name = name.to_string_lossy();
        if path.is_file() && own.iter().any(|start| name.starts_with(start)) {
            sums.push((name.clone().into_owned(), oci::sha256(&path)?));
        }
    }
    sums.sort();
    let path = to.join("SHA256SUMS");
    let text: String = sums.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn fill(program: &Path, root: &Path, tree: &Path) -> anyhow::Result<()> {
    let (bin, man) = (tree.join("usr/bin"), tree.join("usr/share/man"));
    let (documents, units) = (tree.join("usr/share/doc/kymo"), tree.join(UNITS));
    for directory in [&bin, &man, &documents, &units] {
        fs::create_dir_all(directory)?;
    }
    let copy = bin.join("kymo");
    fs::copy(program, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    let mut pages = start(program)?;
    pages.args(["manual", "--dir"]).arg(&man);
    run(pages)?;
    let mut compressed = Command::new("gzip");
    for section in ["man1", "man7"] {
        for page in fs::read_dir(man.join(section))? {
            compressed.arg(page?.path());
        }
    }
    compressed.arg("-9n");
    run(compressed)?;
    for (shell, path) in COMPLETIONS {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().context("no directory")?)?;
        let printed = start(program)?.args(["manual", "--completions", shell]).output()?;
        if !printed.status.success() {
            bail!("{}: no completions for {shell}", program.display());
        }
        fs::write(&path, printed.stdout)?;
    }
    for document in DOCUMENTS {
        fs::copy(root.join(document), documents.join(document)).context(document)?;
    }
    for (unit, text) in [
        ("kymo-listen.service", include_str!("units/kymo-listen.service")),
        ("kymo-session@.service", include_str!("units/kymo-session@.service")),
    ] {
        fs::write(units.join(unit), text).context(unit)?;
    }
    let mut copyright = fs::File::create(documents.join("copyright"))?;
    writeln!(copyright, "License: MIT OR Apache-2.0; the texts are beside this file.")?;
    Ok(())
}

/// Processor that a program is built for, by the name of each kind of package.
struct Architecture {
    machine: &'static str,
    debian: &'static str,
    oci: &'static str,
}

impl Architecture {
    fn of(program: &Path) -> anyhow::Result<Architecture> {
        let bytes = fs::read(program).with_context(|| program.display().to_string())?;
        // Numbers of `e_machine`.
        let (machine, debian, oci) = match bytes.get(18..20) {
            Some([62, 0]) => ("x86_64", "amd64", "amd64"),
            Some([183, 0]) => ("aarch64", "arm64", "arm64"),
            Some([243, 0]) => ("riscv64", "riscv64", "riscv64"),
            _ => bail!("{}: not a program of a supported processor", program.display()),
        };
        Ok(Architecture { machine, debian, oci })
    }
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| name.clone())?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
