//! The peers to compare with: those of Debian's testing release, which `cargo xtask peers`
//! unpacks, where they are there, else the installed ones.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A tool to compare with.
#[derive(Clone, Debug)]
pub struct Peer {
    name: String,
    /// The directory that `cargo xtask peers` made, if the tool is in it.
    root: Option<PathBuf>,
}

/// A tool by the name of its program: the newest one where it is there, else the installed one.
#[must_use]
pub fn peer(name: &str) -> Peer {
    let root = newest_peers().filter(|root| program(root, name).is_file());
    Peer { name: name.to_owned(), root }
}

/// The directory with the newest peers, if `cargo xtask peers` made it.
#[must_use]
pub fn newest_peers() -> Option<PathBuf> {
    crate::in_target("peers").filter(|root| !crate::guest() && root.join("usr/bin").is_dir())
}

fn program(root: &Path, name: &str) -> PathBuf {
    root.join("usr/bin").join(name)
}

impl Peer {
    /// The installed tool, also where there is a newer one.
    #[must_use]
    pub fn installed(name: &str) -> Peer {
        Peer { name: name.to_owned(), root: None }
    }

    /// Whether it is of the newest peers.
    pub fn is_newest(&self) -> bool {
        self.root.is_some()
    }

    /// A command that runs it.
    pub fn command(&self) -> Command {
        let Some(root) = &self.root else { return Command::new(&self.name) };
        let mut command = loader(root);
        let libraries = libraries(root);
        let plugins = libraries.join("babeltrace2");
        command.env("BABELTRACE_PLUGIN_PATH", plugins.join("plugins"));
        command.env("LIBBABELTRACE2_PLUGIN_PROVIDER_DIR", plugins.join("plugin-providers"));
        command.arg(program(root, &self.name));
        command
    }

    /// Runs it to its end; see [`run_command`](crate::run_command).
    ///
    /// # Panics
    /// If it cannot be started or does not end.
    #[track_caller]
    pub fn run<I, S>(&self, args: I) -> crate::Outcome
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = self.command();
        command.args(args).env("LC_ALL", "C");
        crate::run_command(command)
    }

    /// Version line, for the messages of tests.
    pub fn version(&self) -> String {
        let out = self.run(["--version"]);
        let line = out.stdout.lines().next().unwrap_or_default();
        let whence = if self.is_newest() { "newest" } else { "installed" };
        format!("{} ({whence}): {line}", self.name)
    }
}

/// The libraries of a Debian root.
fn libraries(root: &Path) -> PathBuf {
    root.join("usr/lib/x86_64-linux-gnu")
}

/// The root's own dynamic loader with its libraries: it runs programs that need a newer C
/// library than the machine has.
fn loader(root: &Path) -> Command {
    let libraries = libraries(root);
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    let path = format!("{0}:{0}/systemd", libraries.display());
    command.arg("--library-path").arg(path);
    command
}

/// Libraries and loader for compiling and running programs of a peers' root.
pub(crate) mod programs {
    use super::{Command, Path, libraries, loader};

    /// Flags that find the root's headers and libraries.
    pub(crate) fn flags(root: &Path) -> Vec<String> {
        let include = root.join("usr/include").display().to_string();
        vec![
            format!("-I{include}"),
            format!("-I{include}/x86_64-linux-gnu"),
            format!("-L{}", libraries(root).display()),
            // The libraries need a newer C library than the one that is linked.
            "-Wl,--allow-shlib-undefined".to_owned(),
        ]
    }

    /// A command that runs a program with the root's libraries.
    pub(crate) fn command(root: &Path, program: &Path) -> Command {
        let mut command = loader(root);
        command.arg(program);
        command
    }

    /// A script that runs LTTng's consumer daemon, for the session daemon to start.
    pub(crate) fn consumer(root: &Path) -> String {
        let command = loader(root);
        let mut words: Vec<String> = vec![command.get_program().to_string_lossy().into()];
        words.extend(command.get_args().map(|a| a.to_string_lossy().into()));
        let consumer = libraries(root).join("lttng/libexec/lttng-consumerd");
        words.push(consumer.to_string_lossy().into());
        let quoted: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
        format!("#!/bin/sh\nexec {} \"$@\"\n", quoted.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Need, require};

    #[test]
    fn the_newest_peers_run_on_this_machine() {
        if !require(&[Need::NewestPeers]) {
            return;
        }
        for (name, words) in [("perf", "perf version "), ("babeltrace2", "Babeltrace 2.")] {
            let peer = peer(name);
            let version = peer.version();
            assert!(version.starts_with(&format!("{name} (newest): {words}")), "{version}");
        }
        assert!(peer("lttng").run(["--version"]).success().stdout.contains("LTTng Trace Control"));
    }

    #[test]
    fn what_is_not_among_them_is_the_installed_one() {
        let peer = peer("true");
        let installed = newest_peers().is_none();
        assert_eq!(peer.is_newest(), !installed);
        assert_eq!(
            super::peer("no-such-program-here").command().get_program(),
            "no-such-program-here"
        );
    }
}
