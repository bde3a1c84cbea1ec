//! Debian's package tools, asked about this machine's release or about another one, whose lists
//! lie under `target/vm` then. Nothing is installed and the machine's own lists stay as they are.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::architecture::Architecture;
use super::fetch::output;

/// Releases whose cloud kernels the guest can boot, oldest first. The one in the middle is that
/// of the machine's own lists where it is the machine's release.
pub(crate) const SUITES: [&str; 4] = ["bullseye", "bookworm", "trixie", "forky"];

/// The release that packages are asked of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Apt {
    /// A release other than the machine's, or packages of another architecture.
    suite: Option<&'static str>,
    pub(super) architecture: Architecture,
}

impl Apt {
    /// Packages of this architecture, of the same release.
    pub(crate) fn for_architecture(self, architecture: Architecture) -> anyhow::Result<Apt> {
        let own = codename()?;
        let own = SUITES.into_iter().find(|s| *s == own);
        let suite = match architecture {
            Architecture::Amd64 => self.suite,
            Architecture::Arm64 => Some(self.suite.or(own).context("no kernel of this release")?),
        };
        Ok(Apt { suite, architecture })
    }

    /// The release, if it has lists of its own.
    pub(super) fn suite(&self) -> Option<&'static str> {
        self.suite
    }

    /// The machine's own lists.
    pub(crate) fn of_machine() -> Apt {
        Apt::default()
    }

    /// A release by its name, which the machine's own may be.
    pub(crate) fn of_suite(name: &str) -> anyhow::Result<Apt> {
        let suite = SUITES.into_iter().find(|s| *s == name);
        let suite = suite.with_context(|| format!("no kernel of {name}: {}", SUITES.join(", ")))?;
        let own = codename()?;
        Ok(Apt { suite: (own != suite).then_some(suite), ..Apt::default() })
    }

    /// Name of the file that names the kernel in use.
    pub(super) fn mark(&self) -> PathBuf {
        let name = self.suite.map_or_else(|| "current".to_owned(), |s| self.named("current", s));
        super::directory().join(name)
    }

    /// Output of `apt-cache`.
    pub(super) fn cache(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let options = self.options();
        let arguments: Vec<&str> =
            options.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        output("apt-cache", &arguments)
    }

    /// `apt-get` with what makes it look at this release.
    pub(super) fn get(&self) -> Command {
        let mut apt = Command::new("apt-get");
        apt.arg("-q").args(self.options());
        apt
    }

    /// Options that give another release lists of its own.
    fn options(&self) -> Vec<String> {
        let Some(suite) = self.suite else { return Vec::new() };
        let directory = self.directory(suite);
        let option = |text: String| ["-o".to_owned(), text];
        let architecture = self.architecture.debian();
        [
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures={architecture}"),
            format!("Dir::Etc::sourcelist={}", directory.join("sources.list").display()),
            "Dir::Etc::sourceparts=-".into(),
            format!("Dir::State::lists={}", directory.join("lists").display()),
            // Caches of the machine's lists are not to be replaced.
            "Dir::Cache::pkgcache=".into(),
            "Dir::Cache::srcpkgcache=".into(),
            "Acquire::Languages=none".into(),
            // Releases that are no longer kept state an end that is over.
            "Acquire::Check-Valid-Until=false".into(),
            "APT::Sandbox::User=".into(),
        ]
        .into_iter()
        .flat_map(option)
        .collect()
    }

    fn directory(&self, suite: &str) -> PathBuf {
        super::directory().join(self.named("apt", suite))
    }

    /// `WHAT-SUITE`, with the architecture if it is not the machine's.
    fn named(&self, what: &str, suite: &str) -> String {
        match self.architecture {
            Architecture::Amd64 => format!("{what}-{suite}"),
            Architecture::Arm64 => format!("{what}-{suite}-arm64"),
        }
    }

    /// Fetches the release's lists.
    pub(super) fn update(&self) -> anyhow::Result<()> {
        match self.suite {
            Some(suite) => {
                let directory = self.directory(suite);
                let list = directory.join("sources.list");
                std::fs::create_dir_all(directory.join("lists/partial"))
                    .and_then(|()| {
                        std::fs::write(&list, format!("deb {} {suite} main\n", mirror()?))
                    })
                    .with_context(|| list.display().to_string())?;
            }
            None if !crate::setup::is_root() => {
                bail!("apt's lists may be missing or old; run as root: apt-get update");
            }
            None => {}
        }
        let mut apt = self.get();
        apt.arg("update").stdout(Stdio::null());
        crate::cargo::run_command(apt)
    }
}

/// The codename of the machine's release.
fn codename() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let name = text.lines().find_map(|l| l.strip_prefix("VERSION_CODENAME="));
    Ok(name.unwrap_or_default().trim_matches('"').to_owned())
}

/// Mirror of the machine's own release.
fn mirror() -> std::io::Result<String> {
    let format = ["indextargets", "--format", "$(REPO_URI)"];
    let kind = ["Created-By: Packages", "Origin: Debian", "Label: Debian"];
    let targets = output("apt-get", &[format.as_slice(), &kind].concat());
    let targets = targets.map_err(|e| std::io::Error::other(format!("{e:#}")))?;
    let first = targets.lines().next().map(str::to_owned);
    first.ok_or_else(|| std::io::Error::other("apt has no source of Debian's packages"))
}
