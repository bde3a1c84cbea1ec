//! Calling cargo from a task, in the workspace's directory.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

const MESSAGES: &str = "--message-format=json-render-diagnostics";

/// `cargo ARGS…`, not yet started.
pub(crate) fn command(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(crate::root());
    // What cargo sets for this program is an input of build scripts of others, which would run
    // again, and what depends on them be built again.
    for (name, _) in std::env::vars_os() {
        let is_own =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_own) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs cargo with its output on ours.
pub(crate) fn run(args: &[&str]) -> anyhow::Result<()> {
    run_command(command(args))
}

/// Runs a command with its output on ours; a status other than 0 is an error.
pub(crate) fn run_command(mut command: Command) -> anyhow::Result<()> {
    let text = format!("{command:?}").replace('"', "");
    let status = command.status().with_context(|| format!("cannot run `{text}`"))?;
    if !status.success() {
        bail!("`{text}` failed: {status}");
    }
    Ok(())
}

/// Whether a program runs when asked for its version.
pub(crate) fn has(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// A tool that cargo installs: the one on the search path, or the one in `target/tools`, which is
/// installed if it is missing.
pub(crate) fn tool(name: &str, version: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
    if has(name, &["--version"]) {
        return Ok(name.into());
    }
    let tools = crate::target().join("tools");
    let program = tools.join("bin").join(name);
    if !program.exists() {
        let mut install = command(&["install", "--locked", "--version", version]);
        install.args(options).arg("--root").arg(&tools).arg(name);
        // They run for seconds and would be compiled for up to an hour.
        let quick = [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "64"), ("DEBUG", "0")];
        for (setting, value) in quick {
            install.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
        }
        run_command(install)?;
    }
    Ok(program)
}

/// Builds the release program and says where it is. Where the toolchain has LLVM's linker, which
/// it then links with, functions of the same code lie in the program once: half a megabyte less.
pub(crate) fn build_release() -> anyhow::Result<PathBuf> {
    let mut command = command(&["rustc", "--release", "--package", "kymo", "--bin", "kymo"]);
    if cfg!(target_arch = "x86_64") && has_llvm_linker()? {
        command.args(["--", "-C", "link-arg=-Wl,--icf=all"]);
    }
    program_in(&messages_of(command)?, |_| true)
}

/// Whether the toolchain comes with LLVM's linker, as those of the Rust project do.
fn has_llvm_linker() -> anyhow::Result<bool> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--print", "target-libdir"]).current_dir(crate::root());
    let output = command.output().context("cannot run rustc")?;
    let libraries = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(libraries.with_file_name("bin").join("rust-lld").exists())
}

/// Runs a build of one program and says where it is.
pub(crate) fn build(args: &[&str]) -> anyhow::Result<PathBuf> {
    build_by(command(args))
}

/// [`build`] with a command of cargo's.
pub(crate) fn build_by(command: Command) -> anyhow::Result<PathBuf> {
    program_in(&messages_of(command)?, |_| true)
}

/// The program among what was built whose target is chosen.
pub(crate) fn program_in(
    messages: &[serde_json::Value],
    is_chosen: impl Fn(&serde_json::Value) -> bool,
) -> anyhow::Result<PathBuf> {
    let chosen = messages.iter().filter(|message| is_chosen(&message["target"]));
    let mut programs = chosen.filter_map(|message| message["executable"].as_str());
    programs.next_back().map(PathBuf::from).context("cargo named no program")
}

/// Messages of a build about each of its artifacts, in cargo's own JSON.
pub(crate) fn messages_of(command: Command) -> anyhow::Result<Vec<serde_json::Value>> {
    let mut command = with_messages(&command);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`{}` failed: {}", format!("{command:?}").replace('"', ""), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// The command with the option that asks for messages. It stands before `--`: what follows that
/// is the compiler's.
fn with_messages(command: &Command) -> Command {
    let mut changed = Command::new(command.get_program());
    let args: Vec<_> = command.get_args().collect();
    let end = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
    changed.args(&args[..end]).arg(MESSAGES).args(&args[end..]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => changed.env(name, value),
            None => changed.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        changed.current_dir(directory);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_for_messages_stands_before_arguments_of_the_compiler() {
        let mut command = Command::new("cargo");
        command.args(["rustc", "--lib", "--", "-C", "a=--"]).env("A", "b").env_remove("C");
        let changed = with_messages(command.current_dir("/"));
        let args: Vec<_> = changed.get_args().collect();
        assert_eq!(args, ["rustc", "--lib", MESSAGES, "--", "-C", "a=--"]);
        assert!(changed.get_envs().eq(command.get_envs()));
        assert_eq!(changed.get_current_dir(), command.get_current_dir());
        let mut command = Command::new("cargo");
        let args: Vec<_> =
            with_messages(command.arg("build")).get_args().map(std::ffi::OsStr::to_owned).collect();
        assert_eq!(args, ["build", MESSAGES]);
    }
}
