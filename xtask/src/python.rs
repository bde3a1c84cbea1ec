//! `cargo xtask python`: the wheel of `python/`, into `target/wheels`, installed into a clean
//! virtual environment and tested there. Needs pip: what it cannot install is left out, and said.
//! `--portable` makes those for other machines, with zig as the linker: for old C libraries, for
//! musl, and for AArch64.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;
use crate::vm::architecture::Architecture;
use crate::vm::suite;

const MATURIN: &str = "maturin==1.16.0";
/// Linker with the C libraries of other systems.
const ZIG: &str = "ziglang==0.15.*";
/// Targets of the wheels for other machines, with the oldest systems that they run on.
const PORTABLE: [(&str, &str); 4] = [
    ("x86_64-unknown-linux-gnu", "manylinux2014"),
    ("x86_64-unknown-linux-musl", "musllinux_1_2"),
    ("aarch64-unknown-linux-gnu", "manylinux2014"),
    ("aarch64-unknown-linux-musl", "musllinux_1_2"),
];
/// The test runner, and libraries that read tables.
const LIBRARIES: [&str; 5] = ["pytest", "pyarrow", "polars", "pandas", "duckdb"];
/// Engines that read exported files beside DuckDB; each may be missing.
const ENGINES: [&str; 3] = ["datafusion==55.*", "chdb==4.*", "pyspark==4.3.*"];

/// Profile of the build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As it is handed out.
    Release,
    /// Soon.
    Dev,
}

/// Makes and tests the wheel; returns what was left out, and why.
pub(crate) fn run(profile: Profile) -> anyhow::Result<Vec<String>> {
    if !cargo::has("python3", &["-c", "import venv, ensurepip"]) {
        return Ok(vec!["python3 with venv and pip is not there".into()]);
    }
    let tools = environment("python-tools")?;
    if !install(&tools, &[MATURIN]) {
        return Ok(vec![format!("pip cannot install {MATURIN}")]);
    }
    let wheel = build(&tools, profile)?;
    println!("wheel: {}", wheel.display());
    test(&wheel)
}

/// Makes the wheels for other machines and tests the one for this machine.
pub(crate) fn portable() -> anyhow::Result<Vec<String>> {
    let tools = environment("python-tools")?;
    if !install(&tools, &[MATURIN, ZIG]) {
        return Ok(vec![format!("pip cannot install {MATURIN} and {ZIG}")]);
    }
    let wheels = crate::target().join("wheels");
    clear(&wheels)?;
    let path = std::env::var("PATH").unwrap_or_default();
    for (target, system) in PORTABLE {
        let mut add = Command::new("rustup");
        add.args(["target", "add", target]).current_dir(crate::root());
        cargo::run_command(add)?;
        let mut maturin = maturin(&tools, target, Profile::Release);
        maturin.args(["--zig", "--compatibility", system]);
        // It runs `python -m ziglang`.
        maturin.env("PATH", format!("{}:{path}", tools.join("bin").display()));
        cargo::run_command(maturin)?;
    }
    let made = made(&wheels)?;
    for wheel in &made {
        println!("wheel: {}", wheel.display());
    }
    let here = format!("manylinux2014_{}", std::env::consts::ARCH);
    let name = |wheel: &Path| wheel.display().to_string();
    match made.iter().find(|wheel| name(wheel).contains(&here)) {
        Some(wheel) if made.len() == PORTABLE.len() => test(wheel),
        _ => bail!("maturin made {} wheels of {}", made.len(), PORTABLE.len()),
    }
}

/// Installs a wheel into a clean environment and tests it there.
fn test(wheel: &Path) -> anyhow::Result<Vec<String>> {
    clear(&crate::target().join("python-clean"))?;
    let clean = environment("python-clean")?;
    let path = wheel.display().to_string();
    if !install(&clean, &[&path]) {
        bail!("pip cannot install {path}");
    }
    // Without any other package it can be imported.
    let mut alone = Command::new(clean.join("bin/python"));
    alone.args(["-c", "import kymotrace; print('kymotrace', kymotrace.__version__)"]);
    cargo::run_command(alone)?;
    if !install(&clean, &LIBRARIES) {
        return Ok(vec![format!("pip cannot install {}", LIBRARIES.join(", "))]);
    }
    for engine in ENGINES {
        // Its tests say that it is missing.
        let _ = install(&clean, &[engine]);
    }
    let mut tests = Command::new(clean.join("bin/python"));
    tests.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]);
    tests.arg("-c").arg(crate::root().join("python/pyproject.toml"));
    tests.arg(crate::root().join("python/tests")).env("PYTHONDONTWRITEBYTECODE", "1");
    tests.env("KYMO", suite::dev_program(Architecture::Amd64)?);
    let output = tests.output().context("pytest")?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("pytest failed: {}", output.status);
    }
    let skipped = text.lines().filter_map(|line| line.strip_prefix("SKIPPED "));
    Ok(skipped.map(str::to_owned).collect())
}

/// Fails where anything was left out.
pub(crate) fn report(result: anyhow::Result<Vec<String>>) -> anyhow::Result<()> {
    let left_out = result?;
    if !left_out.is_empty() {
        bail!("not made or tested: {}", left_out.join("; "));
    }
    Ok(())
}

/// A virtual environment below `target`, made if it is missing.
fn environment(name: &str) -> anyhow::Result<PathBuf> {
    let path = crate::target().join(name);
    if !path.join("bin/python").exists() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&path);
        cargo::run_command(make)?;
    }
    Ok(path)
}

/// Whether pip installs these packages into an environment.
fn install(environment: &Path, packages: &[&str]) -> bool {
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    cargo::run_command(pip).is_ok()
}

fn build(tools: &Path, profile: Profile) -> anyhow::Result<PathBuf> {
    let wheels = crate::target().join("wheels");
    clear(&wheels)?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo::run_command(maturin(tools, &target, profile))?;
    made(&wheels)?.into_iter().next().context("maturin made no wheel")
}

/// The command that makes a wheel for a target.
fn maturin(tools: &Path, target: &str, profile: Profile) -> Command {
    let mut maturin = Command::new(tools.join("bin/maturin"));
    maturin.args(["build", "--locked", "--out"]).arg(crate::target().join("wheels"));
    maturin.args(["--target", target]);
    maturin.args(["--profile", if profile == Profile::Release { "release" } else { "dev" }]);
    maturin.current_dir(crate::root().join("python"));
    // A module of Python is linked with the C library of its machine, as the project's programs
    // are not.
    maturin.env("RUSTFLAGS", "").env("CARGO_TARGET_DIR", crate::target().join("python"));
    maturin
}

/// Removes a directory, if it is there.
fn clear(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// The wheels in a directory.
fn made(wheels: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(wheels).with_context(|| wheels.display().to_string())?;
    Ok(entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?)
}
