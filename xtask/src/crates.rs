//! `cargo xtask crates`: the packages as crates.io would receive them. All are packed, unpacked
//! into a workspace of their own, and checked there; what programs link is checked with the oldest
//! compiler that it supports, too; the documentation builds without a warning.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cargo;

/// The oldest compiler for what programs link, and the Debian release that has it.
const OLDEST: (&str, &str) = ("1.85", "trixie");
/// The package that brings everything of these with it.
const LINKED: &str = "kymo-tracepoint";

pub(crate) fn run() -> anyhow::Result<()> {
    documentation()?;
    let packages = published()?;
    note_missing_address(&packages)?;
    let names = checked(&packages)?;
    let packages = pack(&names)?;
    check_packed(&packages)?;
    with_oldest_compiler()?;
    println!("crates: {} packages below {}", names.len(), packages.display());
    Ok(())
}

/// The documentation of all packages, as docs.rs builds it.
fn documentation() -> anyhow::Result<()> {
    let mut doc = cargo::command(&["doc", "--workspace", "--no-deps", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    cargo::run_command(doc)
}

/// Metadata of the packages that may be published.
pub(crate) fn published() -> anyhow::Result<Vec<Value>> {
    let mut metadata = cargo::command(&["metadata", "--no-deps", "--format-version=1"]);
    let output = metadata.output().context("cannot run cargo metadata")?;
    let all: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = all["packages"].as_array().context("cargo metadata names no packages")?;
    // Null: to every registry; an empty list: to none.
    Ok(packages.iter().filter(|package| package["publish"].is_null()).cloned().collect())
}

/// Prints a note while no package names a repository, as the project has no public address yet. As
/// soon as one does, all must.
pub(crate) fn note_missing_address(packages: &[Value]) -> anyhow::Result<()> {
    let is_without = |package: &&Value| package["repository"].is_null();
    let without: Vec<&Value> = packages.iter().filter(is_without).collect();
    if without.len() == packages.len() {
        println!(
            "note: no `repository` in Cargo.toml: crates.io will show no link, and `cargo binstall \
             kymo` will find no packages; see the release checklist in CONTRIBUTING.md"
        );
    } else if let Some(package) = without.first() {
        bail!("crates/{}/Cargo.toml: no repository", name_of(package)?);
    }
    Ok(())
}

pub(crate) fn name_of(package: &Value) -> anyhow::Result<&str> {
    package["name"].as_str().context("a package without a name")
}

/// Names of the packages, whose manifests have what crates.io shows.
fn checked(packages: &[Value]) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for package in packages {
        let name = name_of(package)?;
        for (key, missing) in [
            ("description", package["description"].is_null()),
            ("readme", package["readme"].is_null()),
            ("keywords", package["keywords"] == serde_json::json!([])),
        ] {
            if missing {
                bail!("crates/{name}/Cargo.toml: no {key}");
            }
        }
        if name == LINKED && package["rust_version"] != OLDEST.0 {
            bail!("crates/{name}/Cargo.toml: rust-version is not {}", OLDEST.0);
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Packs them, and unpacks what was packed.
fn pack(names: &[String]) -> anyhow::Result<PathBuf> {
    let target = crate::target().join("crates");
    let mut package =
        cargo::command(&["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"]);
    package.arg(&target);
    names.iter().for_each(|name| {
        package.args(["-p", name]);
    });
    cargo::run_command(package)?;
    let unpacked = target.join("unpacked");
    match std::fs::remove_dir_all(&unpacked) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => std::fs::create_dir_all(&unpacked)?,
    }
    for name in names {
        let version = env!("CARGO_PKG_VERSION");
        let mut tar = Command::new("tar");
        let packed = target.join("package").join(format!("{name}-{version}.crate"));
        // What was packed is newer than what was built of the packages before.
        tar.arg("-xzmf").arg(packed).arg("-C").arg(&unpacked);
        cargo::run_command(tar)?;
        std::fs::rename(unpacked.join(format!("{name}-{version}")), unpacked.join(name))?;
    }
    Ok(unpacked)
}

/// Checks the program from the packed sources alone: a file that is missing from a package, or a
/// dependency from its manifest, is an error here. `kymo` needs all the others but [`LINKED`].
fn check_packed(packages: &Path) -> anyhow::Result<()> {
    let mut names = std::fs::read_dir(packages)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<anyhow::Result<Vec<String>>>()?;
    names.sort();
    let patches: String =
        names.iter().map(|name| format!("{name} = {{ path = \"{name}\" }}\n")).collect();
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"kymo\", \"{LINKED}\", \"kymo-live\"]\n\n\
         [patch.crates-io]\n{patches}"
    );
    std::fs::write(packages.join("Cargo.toml"), manifest)?;
    // The same versions of everything else as here.
    std::fs::copy(crate::root().join("Cargo.lock"), packages.join("Cargo.lock"))?;
    // With the flags and the directory of other builds, what is not of the project is checked.
    let mut check = cargo::command(&["check", "--quiet", "--workspace", "--target-dir"]);
    check.arg(crate::target()).current_dir(packages);
    cargo::run_command(check)
}

/// Checks what programs link with the oldest compiler. Where that cannot be unpacked, it says so.
fn with_oldest_compiler() -> anyhow::Result<()> {
    let (version, suite) = OLDEST;
    let directory = crate::target().join("oldest-compiler");
    if !directory.exists() {
        let unpacked = crate::peers::unpack(&directory, &["--variant=extract"], "rustc", suite);
        if let Err(e) = unpacked {
            println!("crates: not checked with Rust {version}, which cannot be unpacked: {e:#}");
            return Ok(());
        }
    }
    let usr = directory.join("usr");
    let compiler = directory.join("rustc");
    let script = format!(
        "#!/bin/sh\nexec {usr}/lib64/ld-linux-x86-64.so.2 --library-path \
         {usr}/lib/x86_64-linux-gnu {usr}/bin/rustc --sysroot {usr} \"$@\"\n",
        usr = usr.display()
    );
    std::fs::write(&compiler, script).context("the oldest compiler")?;
    std::fs::set_permissions(&compiler, PermissionsExt::from_mode(0o755))?;
    let mut version_of = Command::new(&compiler);
    let output = version_of.arg("--version").output().context("the oldest compiler")?;
    let found = String::from_utf8_lossy(&output.stdout);
    if !found.starts_with(&format!("rustc {version}.")) {
        bail!("Debian's {suite} has {}, not Rust {version}", found.trim());
    }
    let mut check = cargo::command(&["check", "--quiet", "--all-features", "-p", LINKED]);
    check.arg("--target-dir").arg(crate::target().join("crates/oldest"));
    check.env("RUSTC", &compiler);
    cargo::run_command(check)
}
