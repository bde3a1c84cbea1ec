//! `cargo xtask c-library`: what programs in C need for tracepoints of their own, as a directory to
//! be installed or used in its place: the header, the library static and shared, and files for
//! pkg-config that find the rest by where they lie.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;

const LIBRARY: &str = "libkymo_tracepoint";
/// The version of the ABI, which the names of functions have, too.
const ABI: &str = "1";
/// Libraries that the static library needs from the C library.
const PRIVATE: &str = "-lpthread -ldl -lm";

pub(crate) fn run(to: Option<&str>) -> anyhow::Result<()> {
    let to = to.map_or_else(|| crate::target().join("c"), PathBuf::from);
    let (include, lib) = (to.join("include"), to.join("lib"));
    for directory in [&include, &lib.join("pkgconfig")] {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    for header in ["kymo_tracepoint.h", "kymo_counter.h"] {
        let from = crate::root().join("crates/kymo-tracepoint/include").join(header);
        copy(&from, &include.join(header))?;
    }
    copy(&build("staticlib", "a")?, &lib.join(format!("{LIBRARY}.a")))?;
    let shared = format!("{LIBRARY}.so.{ABI}");
    copy(&build("cdylib", "so")?, &lib.join(&shared))?;
    let link = lib.join(format!("{LIBRARY}.so"));
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link).with_context(|| link.display().to_string())?;
    }
    symlink(&shared, &link).with_context(|| link.display().to_string())?;
    let dynamic = format!("Libs: -L${{libdir}} -lkymo_tracepoint\nLibs.private: {PRIVATE}\n");
    let whole = format!("Libs: ${{libdir}}/{LIBRARY}.a {PRIVATE}\n");
    for (name, libs) in [("kymo-tracepoint", dynamic), ("kymo-tracepoint-static", whole)] {
        let path = lib.join("pkgconfig").join(format!("{name}.pc"));
        fs::write(&path, package(name, &libs)).with_context(|| path.display().to_string())?;
    }
    println!("{}: include, lib, lib/pkgconfig", to.display());
    Ok(())
}

/// Does what docs/c.md has its readers do: makes the directory, builds the example with each of
/// the two packages, and runs it.
pub(crate) fn try_as_documented() -> anyhow::Result<()> {
    run(None)?;
    let lib = crate::target().join("c/lib");
    for package in ["kymo-tracepoint-static", "kymo-tracepoint"] {
        let mut flags = Command::new("pkg-config");
        flags.args(["--cflags", "--libs", package]).env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
        let flags = output(flags)?;
        let program = crate::target().join("c").join(format!("shop-{package}"));
        let mut compiler = Command::new("cc");
        compiler.args(["-rdynamic", "shop.c"]).args(flags.split_whitespace());
        compiler.arg("-o").arg(&program);
        compiler.current_dir(crate::root().join("crates/kymo-tracepoint/examples"));
        cargo::run_command(compiler)?;
        let mut shop = Command::new(&program);
        let said = output({
            shop.arg("2").env("LD_LIBRARY_PATH", &lib);
            shop
        })?;
        if !said.starts_with("1001 cents") {
            bail!("{}: {said:?} in place of \"1001 cents\"", program.display());
        }
    }
    Ok(())
}

/// Output of a command, if it succeeds.
fn output(mut command: Command) -> anyhow::Result<String> {
    let text = format!("{command:?}").replace('"', "");
    let output = command.output().with_context(|| format!("cannot run `{text}`"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{text}` failed: {}: {errors}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn package(name: &str, libs: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\n\
         Name: {name}\nDescription: Static tracepoints for programs in C and C++\n\
         Version: {}\nCflags: -I${{includedir}}\n{libs}",
        env!("CARGO_PKG_VERSION")
    )
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    // Another file in its place: programs may have the old one mapped.
    let new = to.with_extension("new");
    fs::copy(from, &new).with_context(|| from.display().to_string())?;
    fs::rename(&new, to).with_context(|| to.display().to_string())
}

/// Builds one kind of library and says where it is.
fn build(kind: &str, extension: &str) -> anyhow::Result<PathBuf> {
    let directory = crate::target().join("c-build");
    let soname = format!("link-arg=-Wl,-soname,{LIBRARY}.so.{ABI}");
    let mut command = cargo::command(&["rustc", "--release", "-p", "kymo-tracepoint", "--lib"]);
    command.args(["--crate-type", kind]);
    command.arg("--target-dir").arg(directory);
    // In place of the workspace's flags: programs in C have a C library of their own.
    command.env("RUSTFLAGS", "-C target-feature=-crt-static");
    if kind == "cdylib" {
        // It is never unloaded: it is asked at the process's end, and when it forks.
        command.args(["--", "-C", &soname, "-C", "link-arg=-Wl,-z,nodelete"]);
    }
    let messages = cargo::messages_of(command)?;
    let files = messages.iter().filter_map(|m| m["filenames"].as_array()).flatten();
    let mut files = files.filter_map(|f| f.as_str()).map(PathBuf::from);
    let name = format!("{LIBRARY}.{extension}");
    let of_kind = |f: &PathBuf| f.file_name().is_some_and(|n| *n == *name);
    files.find(of_kind).with_context(|| format!("cargo named no {name}"))
}
