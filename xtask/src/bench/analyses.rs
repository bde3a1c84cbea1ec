//! Answers from recordings: who waits for a CPU or a lock, who takes memory, what interrupts
//! cost; beside perf, on recordings that perf made.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::Effort;
use super::inputs::statistics;
use super::measure::{interleaved, output};
use super::rows::{Bench, Row, peak_row, time_row};

/// An answer, and the recording that it is taken from.
struct Analysis {
    /// What `perf` records with, `FILE` for the recording, and the load.
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
        Ok(rows)
    }

    fn analysis(&self, analysis: &Analysis, path: &Path) -> anyhow::Result<Vec<Row>> {
        let file = path.display().to_string();
        let words = |text: &str| -> Vec<String> {
            text.split(' ').map(|w| w.replace("FILE", &file)).collect()
        };
        let command = |text: &str, of: fn(&Self, &[&str]) -> Command| {
            let words = words(text);
            of(self, &words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let mut record = command(analysis.record, Self::perf_with);
        record.arg("--").args((analysis.load)(self));
        output(record)?;
        let events = statistics(path)?.samples;
        let perf = || command(analysis.perf, Self::perf_with);
        let kymo = || command(analysis.kymo, Self::kymo_with);
        let costs = interleaved(self.rounds(5), &[&perf, &kymo])?;
        let [perf, kymo] = costs.as_slice() else { anyhow::bail!("two commands give two costs") };
        let name: Vec<&str> = analysis.kymo.split(' ').take(2).collect();
        let name = name.join(" ");
        Ok(vec![
            time_row(format!("`{name}`, {events} events"), perf, kymo, "10×, least 4×"),
            peak_row(&format!("`{name}`, peak memory"), perf, kymo),
        ])
    }
}
