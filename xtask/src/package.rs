//! What is handed out: the program with its manual pages and completions, as a tar and as a Debian
//! package. Both hold the same files, which the program itself writes.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Where a shell looks for completions that packages bring.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/kymo"),
    ("zsh", "usr/share/zsh/vendor-completions/_kymo"),
    ("fish", "usr/share/fish/vendor_completions.d/kymo.fish"),
];
const DOCUMENTS: [&str; 5] =
    ["README.md", "CHANGELOG.md", "BENCHMARKS.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Makes both of a program, in a directory; `root` is that of the sources. Their paths.
pub(crate) fn make(program: &Path, root: &Path, to: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let version = env!("CARGO_PKG_VERSION");
    let (architecture, debian) = architecture(program)?;
    let name = format!("kymo-{version}-{architecture}-linux");
    let tree = to.join(&name);
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fill(program, root, &tree).with_context(|| tree.display().to_string())?;
    let tar = to.join(format!("{name}.tar.gz"));
    // The same files give the same bytes.
    let owner = ["--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--mtime=@0"];
    let mut packed = Command::new("tar");
    packed.args(owner).arg("-C").arg(to).arg("-czf").arg(&tar).arg(&name);
    run(packed)?;
    let control = tree.join("DEBIAN");
    fs::create_dir(&control)?;
    fs::write(
        control.join("control"),
        format!(
            "Package: kymo\nVersion: {version}\nArchitecture: {debian}\nSection: utils\n\
             Priority: optional\nMaintainer: kymo's authors <kymo@localhost>\n\
             Description: traces, profiles and counts events of Linux and of programs\n \
             One static program for what perf, trace-cmd, LTTng and bpftrace do.\n"
        ),
    )?;
    let package = to.join(format!("kymo_{version}_{debian}.deb"));
    let mut built = Command::new("dpkg-deb");
    built.args(["--root-owner-group", "--build"]).arg(&tree).arg(&package);
    run(built)?;
    fs::remove_dir_all(&tree)?;
    Ok([tar, package])
}

fn fill(program: &Path, root: &Path, tree: &Path) -> anyhow::Result<()> {
    let (bin, man) = (tree.join("usr/bin"), tree.join("usr/share/man/man1"));
    let documents = tree.join("usr/share/doc/kymo");
    for directory in [&bin, &man, &documents] {
        fs::create_dir_all(directory)?;
    }
    let copy = bin.join("kymo");
    fs::copy(program, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    let mut pages = Command::new(program);
    pages.args(["manual", "--dir"]).arg(&man);
    run(pages)?;
    let mut compressed = Command::new("gzip");
    for page in fs::read_dir(&man)? {
        compressed.arg(page?.path());
    }
    compressed.arg("-9n");
    run(compressed)?;
    for (shell, path) in COMPLETIONS {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().context("no directory")?)?;
        let printed = Command::new(program).args(["manual", "--completions", shell]).output()?;
        if !printed.status.success() {
            bail!("{}: no completions for {shell}", program.display());
        }
        fs::write(&path, printed.stdout)?;
    }
    for document in DOCUMENTS {
        fs::copy(root.join(document), documents.join(document)).context(document)?;
    }
    let mut copyright = fs::File::create(documents.join("copyright"))?;
    writeln!(copyright, "Licence: MIT OR Apache-2.0; the texts are beside this file.")?;
    Ok(())
}

/// The processor that a program is for, in its own words and in Debian's.
fn architecture(program: &Path) -> anyhow::Result<(&'static str, &'static str)> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    // Numbers of `e_machine`.
    match bytes.get(18..20) {
        Some([62, 0]) => Ok(("x86_64", "amd64")),
        Some([183, 0]) => Ok(("aarch64", "arm64")),
        Some([243, 0]) => Ok(("riscv64", "riscv64")),
        _ => bail!("{}: no program of a known processor", program.display()),
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
