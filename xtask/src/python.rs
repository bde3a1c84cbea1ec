//! `cargo xtask python`: the wheel of `python/`, into `target/wheels`, installed into a clean
//! virtual environment and tested there. Needs pip: what it cannot install is left out, and said.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;
use crate::vm::architecture::Architecture;
use crate::vm::suite;

const MATURIN: &str = "maturin==1.16.0";
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
    let clean = crate::target().join("python-clean");
    match std::fs::remove_dir_all(&clean) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| clean.display().to_string());
        }
        _ => {}
    }
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
    match std::fs::remove_dir_all(&wheels) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| wheels.display().to_string());
        }
        _ => {}
    }
    let mut maturin = Command::new(tools.join("bin/maturin"));
    maturin.args(["build", "--locked", "--out"]).arg(&wheels);
    maturin.args(["--target", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)]);
    maturin.args(["--profile", if profile == Profile::Release { "release" } else { "dev" }]);
    maturin.current_dir(crate::root().join("python"));
    // A module of Python is linked with the C library of its machine, as the project's programs
    // are not.
    maturin.env("RUSTFLAGS", "").env("CARGO_TARGET_DIR", crate::target().join("python"));
    cargo::run_command(maturin)?;
    let entries = std::fs::read_dir(&wheels).with_context(|| wheels.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.into_iter().next().context("maturin made no wheel")
}
