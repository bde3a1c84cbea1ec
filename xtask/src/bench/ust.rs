//! `cargo xtask bench ust`: what an event of a program costs, beside LTTng-UST with the same
//! event and rings of the same size, in one run. Times are those of the thread's own CPU
//! clock, so that a busy machine disturbs them less; both sides take turns. Keeps its table
//! in docs/bench-ust.md.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::measure::{median, output};
use super::page;

/// What is measured: words, KIND, MODE, threads, LTTng's KIND if it has that.
const ROWS: &[(&str, &str, &str, u32, Option<&str>)] = &[
    ("empty loop", "empty", "overwrite", 1, None),
    ("disabled (with an SDT semaphore)", "disabled", "overwrite", 1, Some("disabled")),
    ("floor: `rdtsc` and 24 bytes stored", "floor", "overwrite", 1, None),
    ("two u64, overwriting", "two", "overwrite", 1, Some("two")),
    ("two u64, discarding, a ring with room for all", "two", "discard", 1, Some("two")),
    ("two u64, two threads at once", "two", "overwrite", 2, Some("two")),
    ("two u64, in a signal handler", "handler", "overwrite", 1, Some("handler")),
    ("u64 and a text of 16 bytes", "string", "overwrite", 1, Some("string")),
    ("two u64, rejected by a filter", "rejected", "overwrite", 1, Some("rejected")),
];

const ROUNDS: usize = 7;

/// Measures and writes the table.
pub(crate) fn run() -> anyhow::Result<()> {
    crate::setup::run(crate::setup::Mode::Install)?;
    let kymo =
        crate::cargo::build(&["build", "--release", "-p", "kymo-tracepoint", "--example", "pace"])?;
    let lttng = Lttng::start()?;
    let mut rows = Vec::new();
    for row in ROWS {
        rows.push(measure(&kymo, &lttng, row)?);
        let (what, kymo, lttng) = rows.last().context("just pushed")?;
        println!("{what}: kymo {kymo:.2} ns, LTTng {}", lttng.map_or("-".into(), ns));
    }
    let bytes = lttng.bytes_per_event()?;
    drop(lttng);
    let table = table(&rows, bytes);
    println!("\n{table}");
    let path = crate::root().join("docs/bench-ust.md");
    let text = format!(
        "# What an event of a program costs\n\nWritten by `cargo xtask bench ust`; not edited by \
         hand. The same events in kymo's tracepoints and in LTTng-UST's, rings of the same size, \
         taking turns; medians of {ROUNDS} rounds of the thread's own CPU time per event. kymo's \
         events carry the number of the thread (4 bytes), LTTng's do not.\n\n{table}\n{}",
        page::machine()
    );
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

type Row = (String, f64, Option<f64>);

fn ns(value: f64) -> String {
    format!("{value:.2} ns")
}

fn measure(
    kymo: &Path,
    lttng: &Lttng,
    (what, kind, mode, threads, peer): &(&str, &str, &str, u32, Option<&str>),
) -> anyhow::Result<Row> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut command = Command::new(kymo);
        command.args([kind, mode, "2000000", &threads.to_string()]);
        ours.push(output(command)?.trim().parse::<f64>()?);
        if let Some(kind) = peer {
            theirs.push(lttng.pace(kind, mode, *threads)?);
        }
    }
    Ok(((*what).to_owned(), median(&ours).context("no rounds")?, median(&theirs)))
}

fn table(rows: &[Row], lttng_bytes: f64) -> String {
    let of = |what: &str| rows.iter().find(|r| r.0.starts_with(what)).map_or(0.0, |r| r.1);
    let (empty, floor) = (of("empty"), of("floor"));
    let mut cells = vec![["what", "LTTng-UST", "kymo", "verdict"].map(str::to_owned)];
    for (what, kymo, lttng) in rows {
        let verdict = if what.starts_with("disabled") {
            format!("{:+.2} ns to the empty loop (goal: 0.3)", kymo - empty)
        } else if let Some(lttng) = lttng {
            let ratio = format!("{:.1}× as fast (goal: 5×)", lttng / kymo);
            format!("{ratio}; {:.2} × the floor (goal: 2)", kymo / floor)
        } else {
            String::new()
        };
        cells.push([what.clone(), lttng.map_or(String::new(), ns), ns(*kymo), verdict]);
    }
    cells.push([
        "bytes per event, two u64".into(),
        format!("{lttng_bytes:.1}"),
        "24.0 (20 without the thread)".into(),
        String::new(),
    ]);
    page::aligned(&cells)
}

/// A session daemon of our own, ended at the end.
struct Lttng {
    daemon: Child,
    folder: PathBuf,
}

impl Lttng {
    fn start() -> anyhow::Result<Self> {
        let folder = crate::target().join("bench/ust");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("home"))?;
        let sources = crate::root().join("xtask/src/bench/ust");
        let mut compile = Command::new("gcc");
        compile.args(["-O2", "-o"]).arg(folder.join("pace")).arg("-I").arg(&sources);
        compile.arg(sources.join("pace.c")).args(["-llttng-ust", "-lpthread", "-ldl"]);
        output(compile)?;
        let mut command = Command::new("lttng-sessiond");
        command.arg("--no-kernel").env("LTTNG_HOME", folder.join("home"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = command.spawn().context("cannot run lttng-sessiond")?;
        let lttng = Self { daemon, folder };
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
        command.args(args).env("LTTNG_HOME", self.folder.join("home"));
        output(command)
    }

    /// Runs the peer in a session of its own.
    fn pace(&self, kind: &str, mode: &str, threads: u32) -> anyhow::Result<f64> {
        let trace = self.folder.join("trace");
        let _ = std::fs::remove_dir_all(&trace);
        let to = format!("--output={}", trace.display());
        self.lttng(&["create", "pace", &to])?;
        let size = if mode == "overwrite" { "256k" } else { "16M" };
        let count = if mode == "overwrite" { "4" } else { "8" };
        let how = if mode == "overwrite" { "--overwrite" } else { "--discard" };
        let (size, count) = (format!("--subbuf-size={size}"), format!("--num-subbuf={count}"));
        self.lttng(&["enable-channel", "-u", "c", how, &size, &count])?;
        match kind {
            "disabled" => {}
            "rejected" => {
                let filter = ["--filter", "b == 0"];
                let args = ["enable-event", "-u", "pace:*", "-c", "c"];
                self.lttng(&[&args[..], &filter].concat())?;
            }
            _ => {
                self.lttng(&["enable-event", "-u", "pace:*", "-c", "c"])?;
            }
        }
        self.lttng(&["start"])?;
        let mut command = Command::new(self.folder.join("pace"));
        command.args([kind, "2000000", &threads.to_string()]);
        command.env("LTTNG_HOME", self.folder.join("home"));
        command.env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
        let result = output(command)?.trim().parse();
        self.lttng(&["stop"])?;
        self.lttng(&["destroy", "pace"])?;
        Ok(result?)
    }

    /// From the trace that the discarding row leaves.
    fn bytes_per_event(&self) -> anyhow::Result<f64> {
        self.pace("two", "discard", 1)?;
        let mut bytes = 0;
        let mut folders = vec![self.folder.join("trace")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else if entry.file_name().to_string_lossy().starts_with("c_") {
                    bytes += entry.metadata()?.len();
                }
            }
        }
        // One tenth more to warm up.
        Ok(bytes as f64 / 2_200_000.0)
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        // SIGTERM, so that it removes its sockets.
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
    }
}
