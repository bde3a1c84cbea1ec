//! LTTng's tracer for programs, as the peer.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::sustained::{Load, Sustained, cpu_of_consumer};
use super::{EVENTS, output};

/// A session daemon of our own, ended at the end.
pub(super) struct Lttng {
    daemon: Child,
    directory: PathBuf,
}

impl Lttng {
    pub(super) fn start() -> anyhow::Result<Self> {
        let directory = crate::target().join("bench/ust");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(directory.join("home"))?;
        let sources = crate::root().join("xtask/src/bench/ust");
        let mut compile = Command::new("gcc");
        compile.args(["-O2", "-o"]).arg(directory.join("pace")).arg("-I").arg(&sources);
        compile.arg(sources.join("pace.c")).args(["-llttng-ust", "-lpthread", "-ldl"]);
        output(compile)?;
        let mut command = Command::new("lttng-sessiond");
        command.arg("--no-kernel").env("LTTNG_HOME", directory.join("home"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = command.spawn().context("cannot run lttng-sessiond")?;
        let lttng = Self { daemon, directory };
        let end = Instant::now() + Duration::from_secs(10);
        while lttng.lttng(&["list"]).is_err() {
            if Instant::now() > end {
                bail!("lttng-sessiond does not answer");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(lttng)
    }

    fn lttng(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("lttng");
        command.args(args).env("LTTNG_HOME", self.directory.join("home"));
        output(command)
    }

    /// Runs the peer in a session of its own.
    pub(super) fn pace(&self, kind: &str, mode: &str, threads: u32) -> anyhow::Result<f64> {
        self.create(kind, mode)?;
        let result = output(self.program(kind, EVENTS, threads))?.trim().parse();
        self.lttng(&["stop"])?;
        self.lttng(&["destroy", "pace"])?;
        Ok(result?)
    }

    /// The instructions of a number of events and of those to warm up, and all others that do not
    /// depend on how many there are.
    pub(super) fn instructions(&self, kind: &str, events: u64) -> anyhow::Result<u64> {
        self.create(kind, "overwrite")?;
        let counted = super::instructions::counted(self.program(kind, events, 1));
        self.lttng(&["stop"])?;
        self.lttng(&["destroy", "pace"])?;
        counted
    }

    /// Result of a number of events per second, or of the program's maximum, and their cost for the
    /// process that writes them to disk.
    pub(super) fn sustained(&self, load: Load) -> anyhow::Result<Sustained> {
        self.create("paced", "sustained")?;
        let consumer = || cpu_of_consumer(self.daemon.id());
        let before = consumer()?;
        let paced = output(self.program(load.kind, load.per_second, load.threads))?;
        self.lttng(&["stop"])?;
        let listed = self.lttng(&["list", "pace"])?;
        let lost = listed.lines().find_map(|l| l.trim().strip_prefix("Discarded events:"));
        let lost = lost.context("no word of discarded events")?.trim().parse()?;
        let reader = consumer()?.saturating_sub(before);
        self.lttng(&["destroy", "pace"])?;
        Sustained::of(&paced, lost, reader)
    }

    fn program(&self, kind: &str, events: u64, threads: u32) -> Command {
        let mut command = Command::new(self.directory.join("pace"));
        command.args([kind, &events.to_string(), &threads.to_string()]);
        command.env("LTTNG_HOME", self.directory.join("home"));
        command.env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
        command
    }

    fn create(&self, kind: &str, mode: &str) -> anyhow::Result<()> {
        let trace = self.directory.join("trace");
        let _ = std::fs::remove_dir_all(&trace);
        let to = format!("--output={}", trace.display());
        self.lttng(&["create", "pace", &to])?;
        let (size, count, how) = match mode {
            "overwrite" => ("256k", "4", "--overwrite"),
            "sustained" => ("1M", "8", "--discard"),
            _ => ("16M", "8", "--discard"),
        };
        let (size, count) = (format!("--subbuf-size={size}"), format!("--num-subbuf={count}"));
        self.lttng(&["enable-channel", "-u", "c", how, &size, &count])?;
        let enable = ["enable-event", "-u", "pace:*", "-c", "c"];
        match kind {
            "disabled" => {}
            "rejected" => {
                self.lttng(&[&enable[..], &["--filter", "b == 0"]].concat())?;
            }
            _ => {
                self.lttng(&enable)?;
            }
        }
        self.lttng(&["start"])?;
        Ok(())
    }

    /// From the trace that the discarding row leaves.
    pub(super) fn bytes_per_event(&self) -> anyhow::Result<f64> {
        self.pace("two", "discard", 1)?;
        let mut bytes = 0;
        let mut directories = vec![self.directory.join("trace")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    directories.push(entry.path());
                } else if entry.file_name().to_string_lossy().starts_with("c_") {
                    bytes += entry.metadata()?.len();
                }
            }
        }
        // One tenth more to warm up.
        Ok(bytes as f64 / (1.1 * EVENTS as f64))
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        // SIGTERM, so that it removes its sockets.
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
    }
}
