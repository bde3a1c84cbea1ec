//! `kymo probe` beside `perf probe` on Debian's kernel with debugging information and on
//! a large Rust program: without an index and with one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Effort;
use super::measure::{cost, interleaved};
use super::rows::{Bench, Each, Row, megabytes, seconds};
use crate::vm;

/// Queries on the kernel.
const KERNEL: &[&[&str]] = &[
    &["-D", "vfs_read file file->f_mode"],
    &["-V", "vfs_read"],
    &["-L", "vfs_read"],
    &["-D", "__schedule;cpu=*"],
    &["-F", "vfs_*"],
    &["--max-probes", "1000", "-D", "vfs_*"],
    &["-D", "fs/read_write.c:468"],
];

/// Queries on the Rust program: functions that perf can name, too; on globs it gives up.
const RUST: &[&[&str]] = &[&["-D", "take_words"], &["-V", "take_words"]];

/// With `--funcs`, which has an optional value, perf wants it in one word.
const FUNCS: &str = "-F";

impl Bench<'_> {
    /// Offline questions.
    pub(crate) fn probe(&self) -> anyhow::Result<Vec<Row>> {
        let kernel = vm::kernel_with_debug()?;
        let vmlinux = kernel.vmlinux.to_str().context("a path that is no text")?;
        let sources = kernel.sources.to_str().context("a path that is no text")?;
        let mut rows = Vec::new();
        for words in KERNEL {
            rows.extend(self.asked(&["-k", vmlinux, "-s", sources], words, "Debian's vmlinux")?);
        }
        if self.effort() == Effort::Full {
            let program = self.rust_program()?;
            let program = program.to_str().context("a path that is no text")?;
            for words in RUST {
                rows.extend(self.asked(&["-x", program], words, "kymo itself, debug = 2")?);
            }
        }
        Ok(rows)
    }

    fn asked(&self, target: &[&str], words: &[&str], of: &str) -> anyhow::Result<[Row; 2]> {
        let directory = self.dir().join("probe-cache");
        let kymo = |cache: &Path| {
            let mut command = self.kymo_with(&["probe", "-q"]);
            command.args(target).args(words).env("KYMO_CACHE", cache);
            command
        };
        let asking = |mut command: Command| {
            command.args(["probe", "-q"]).args(target).current_dir(self.dir());
            match words {
                [flag, filter] if *flag == FUNCS => command.arg(format!("--funcs={filter}")),
                words => command.args(words),
            };
            command
        };
        let peer = kymo_testkit::peer("perf");
        let newest = || asking(peer.command());
        let newest: &dyn Fn() -> Command = &newest;
        // The second run makes the index.
        for _ in 0..2 {
            cost(kymo(&directory))?;
        }
        let cold = self.costs(
            5,
            peer.is_newest().then_some(newest),
            &|| asking(Command::new("perf")),
            &|| kymo(Path::new("off")),
        )?;
        let again = || kymo(&directory);
        let cached = interleaved(self.rounds(5), &[&again])?;
        let cached = cached.first().context("no round")?;
        let [times, peaks] = [cold.map(|c| c.time.as_secs_f64()), cold.map(|c| c.peak as f64)];
        let with_index = Each { kymo: cached.time.as_secs_f64(), ..times };
        let peaks_with_index = Each { kymo: cached.peak as f64, ..peaks };
        let mut rows = [
            times.row(
                format!("`probe {}`, {of}", quoted(words)),
                |t| seconds(*t),
                format!(
                    "{}, with the index {} as fast (goal: 5×; 20×)",
                    times.times(),
                    with_index.times()
                ),
            ),
            peaks.row(
                "the same, peak memory".into(),
                |p| megabytes(*p as u64),
                format!("{}, with the index {}", peaks.shares(), peaks_with_index.shares()),
            ),
        ];
        rows[0].kymo += &format!("; with the index {}", seconds(with_index.kymo));
        rows[1].kymo += &format!("; {}", megabytes(cached.peak));
        Ok(rows)
    }

    /// This project's program with all debugging information; kept for the next time.
    fn rust_program(&self) -> anyhow::Result<PathBuf> {
        let target = self.dir().join("rust-target");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build
            .args(["build", "--quiet", "--package", "kymo", "--bin", "kymo"])
            .current_dir(crate::root())
            .env("CARGO_TARGET_DIR", &target)
            .env("CARGO_PROFILE_DEV_DEBUG", "2");
        cost(build)?;
        let found = std::fs::read_dir(&target)?
            .flatten()
            .map(|entry| entry.path().join("debug/kymo"))
            .chain([target.join("debug/kymo")])
            .find(|path| path.is_file());
        found.context("cargo built no program")
    }
}

fn quoted(words: &[&str]) -> String {
    let quote = |word: &&str| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c));
        if plain { (*word).to_owned() } else { format!("'{word}'") }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}
