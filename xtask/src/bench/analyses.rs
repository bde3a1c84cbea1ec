//! Answers from recordings: who waits for a CPU or a lock, who takes memory, what interrupts
//! cost; beside perf, on recordings that perf made.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::Effort;
use super::inputs::statistics;
use super::measure::{installed, on_one_cpu, output};
use super::rows::{Bench, Row, joined, peak_row, time_row};

/// An answer, and the recording that it is taken from.
struct Analysis {
    /// Arguments of `perf` for recording, `FILE` for the recording, and the load.
    record: &'static str,
    load: fn(&Bench<'_>) -> Vec<String>,
    perf: &'static str,
    kymo: &'static str,
}

/// Words of a load that makes about a tenth of the events when it is tried only.
fn load(bench: &Bench<'_>, words: &str, count: u64) -> Vec<String> {
    let count = if bench.effort() == Effort::Full { count } else { count / 10 };
    words.split(' ').map(|w| w.replace("COUNT", &count.to_string())).collect()
}

const ANALYSES: [Analysis; 4] = [
    Analysis {
        record: "sched record -o FILE",
        load: |bench| load(bench, "perf bench sched pipe -l COUNT", 1_000_000),
        perf: "sched latency -i FILE",
        kymo: "sched latency -i FILE",
    },
    Analysis {
        record: "lock record -o FILE",
        load: |bench| load(bench, "perf bench sched messaging -g 20 -l COUNT", 5_000),
        perf: "lock contention -i FILE",
        kymo: "lock contention -i FILE",
    },
    Analysis {
        record: "kmem --slab record -o FILE",
        load: |bench| load(bench, "perf bench sched messaging -g 20 -l COUNT", 2_000),
        perf: "kmem --slab --caller -i FILE stat",
        kymo: "kmem stat --slab --caller -i FILE",
    },
    Analysis {
        record: "kwork -k irq,softirq,workqueue record -o FILE",
        // Each block is a request, an interrupt and a softirq.
        load: |bench| {
            load(bench, "dd if=syscalls.data of=/dev/null iflag=direct bs=4k count=COUNT", 50_000)
        },
        perf: "kwork -k irq,softirq,workqueue report -i FILE",
        kymo: "kwork report -k irq,softirq,workqueue -i FILE",
    },
];

impl Bench<'_> {
    /// Each answer once beside perf's; the recordings are of the machine and are removed.
    pub(crate) fn analyses(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for analysis in &ANALYSES {
            let path = self.dir().join("analysis.data");
            let measured = self.analysis(analysis, &path);
            let removed = std::fs::remove_file(&path).with_context(|| path.display().to_string());
            rows.extend(measured?);
            removed?;
        }
        rows.extend(self.sched_recording()?);
        rows.push(self.live_delays()?);
        Ok(rows)
    }

    /// CPU use of `sched latency --live` itself while two tasks wake each other.
    fn live_delays(&self) -> anyhow::Result<Row> {
        let timeout = if self.effort() == Effort::Full { "10000" } else { "1000" };
        // timeout(1) ends both of its processes.
        let limit = if self.effort() == Effort::Full { "12" } else { "2" };
        let mut load = Command::new("timeout")
            .args(["-s", "KILL", limit, "perf", "bench", "sched", "pipe", "-l", "1000000000"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .context("cannot run perf bench")?;
        let text = output(self.kymo_with(&["sched", "latency", "--live", "--timeout", timeout]));
        load.wait().context("cannot wait for perf bench")?;
        let text = text?;
        let said = text.lines().find(|line| line.contains("kymo itself used"));
        Ok(Row {
            what: format!("`sched latency --live` beside `perf bench sched pipe`, {timeout} ms"),
            kymo: said.context("it does not say what it took")?.trim().replace("overhead: ", ""),
            ..Row::default()
        })
    }

    /// Overhead of scheduler recordings on the recorded program, in both formats.
    fn sched_recording(&self) -> anyhow::Result<Vec<Row>> {
        let loops = if self.effort() == Effort::Full { 100_000 } else { 10_000 };
        // On one CPU: else the scheduler's choice of two changes the figure twofold.
        let load = format!(
            "{}{} bench -f simple sched pipe -l {loops}",
            on_one_cpu()?,
            installed("perf")?
        );
        let load: Vec<&str> = load.split(' ').collect();
        let bare = || {
            let mut c = Command::new(load[0]);
            c.args(&load[1..]);
            c
        };
        let with = |mut c: Command| {
            c.arg("--").args(&load);
            c
        };
        let record = ["sched", "record", "-o", "sched-perf.data"];
        let peer = kymo_testkit::peer("perf");
        let newest = || with(self.placed(peer.command(), &record));
        let perf = || with(self.perf_with(&record));
        let data = || with(self.kymo_with(&["sched", "record", "-q", "-o", "sched.data"]));
        let dat = || with(self.kymo_with(&["sched", "record", "-q", "-o", "sched.dat"]));
        let mut commands: Vec<&dyn Fn() -> Command> = vec![&bare, &perf, &data, &dat];
        if peer.is_newest() {
            commands.push(&newest);
        }
        let mut best = vec![f64::INFINITY; commands.len()];
        for _ in 0..self.rounds(5) {
            for (command, best) in commands.iter().zip(&mut best) {
                let text = output(command())?;
                let seconds = text.lines().find_map(|l| l.trim().parse::<f64>().ok());
                *best = best.min(seconds.context("no seconds in the output")? * 1e6 / loops as f64);
            }
        }
        let mut megabytes = Vec::new();
        for name in ["sched-perf.data", "sched.data", "sched.dat"] {
            let path = self.dir().join(name);
            let length = std::fs::metadata(&path).with_context(|| path.display().to_string())?;
            megabytes.push(length.len() as f64 / 1e6);
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
        let [bare, perf, data, dat, newest @ ..] = best.as_slice() else {
            anyhow::bail!("a command has no time")
        };
        let added = |kymo: &f64| {
            let peers = newest.iter().chain([perf]);
            joined(peers.map(|peer| format!("{:.2}", (kymo - bare) / (peer - bare))))
        };
        let time = |t: &f64| format!("{t:.1} µs/op");
        Ok(vec![
            Row {
                what: format!(
                    "`sched record` of `perf bench sched pipe`, best of the rounds (bare: {bare:.1} \
                     µs/op)"
                ),
                newest: newest.first().map_or_else(String::new, time),
                installed: time(perf),
                kymo: format!("perf.data {data:.1}, `-o x.dat` {dat:.1} µs/op"),
                verdict: format!("added cost {} of perf's, `-o x.dat` {}", added(data), added(dat)),
            },
            Row {
                what: "the same, size of the recording".into(),
                installed: format!("{:.1} MB", megabytes[0]),
                kymo: format!("perf.data {:.1}, trace.dat {:.1} MB", megabytes[1], megabytes[2]),
                ..Row::default()
            },
        ])
    }

    fn analysis(&self, analysis: &Analysis, path: &Path) -> anyhow::Result<Vec<Row>> {
        let file = path.display().to_string();
        let words = |text: &str| -> Vec<String> {
            text.split(' ').map(|w| w.replace("FILE", &file)).collect()
        };
        let command = |text: &str, of: &dyn Fn(&Self, &[&str]) -> Command| {
            let words = words(text);
            of(self, &words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let mut record = command(analysis.record, &Self::perf_with);
        record.arg("--").args((analysis.load)(self));
        output(record)?;
        let events = statistics(path)?.samples;
        let peer = kymo_testkit::peer("perf");
        let newest = || command(analysis.perf, &|bench, args| bench.placed(peer.command(), args));
        let newest: &dyn Fn() -> Command = &newest;
        let costs = self.costs(
            5,
            peer.is_newest().then_some(newest),
            &|| command(analysis.perf, &Self::perf_with),
            &|| command(analysis.kymo, &Self::kymo_with),
        )?;
        let name: Vec<&str> = analysis.kymo.split(' ').take(2).collect();
        let name = name.join(" ");
        Ok(vec![
            time_row(format!("`{name}`, {events} events"), &costs, "10×, least 4×"),
            peak_row(&format!("`{name}`, peak memory"), &costs),
        ])
    }
}
