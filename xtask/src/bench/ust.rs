//! `cargo xtask bench ust`: what an event of a program costs, beside LTTng-UST with the same
//! event and rings of the same size, in one run. Times are those of the thread's own CPU
//! clock, so that a busy machine disturbs them less; both sides take turns. Keeps its table
//! in docs/bench-ust.md.

mod instructions;
mod lttng;
mod sustained;

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use lttng::Lttng;

use super::measure::{median, output};
use super::page;

/// Measurements: words, KIND, MODE, threads, LTTng's KIND if it has that.
const ROWS: &[(&str, &str, &str, u32, Option<&str>)] = &[
    ("empty loop", "empty", "overwrite", 1, None),
    ("disabled (with an SDT semaphore)", "disabled", "overwrite", 1, Some("disabled")),
    ("floor: `rdtsc` and 24 bytes stored", "floor", "overwrite", 1, None),
    ("two u64, overwriting", "two", "overwrite", 1, Some("two")),
    ("two u64, discarding, a ring with room for all", "two", "discard", 1, Some("two")),
    ("two u64, two threads in parallel", "two", "overwrite", 2, Some("two")),
    ("two u64, in a signal handler", "handler", "overwrite", 1, Some("handler")),
    ("u64 and a text of 16 bytes", "string", "overwrite", 1, Some("string")),
    ("two u64, rejected by a filter", "rejected", "overwrite", 1, Some("rejected")),
    ("counter", "counter", "discard", 1, None),
    ("counter, two threads in parallel", "counter", "discard", 2, None),
    ("atomic addition, two threads in parallel", "atomic", "discard", 2, None),
    ("counter by a number", "counter-number", "discard", 1, None),
    ("counter by a text", "counter-text", "discard", 1, None),
    ("histogram", "histogram", "discard", 1, None),
    ("histogram by a text", "histogram-text", "discard", 1, None),
];

const ROUNDS: usize = 7;
/// Events of a round.
const EVENTS: u64 = 2_000_000;

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
    let mut more = vec![bytes_row(lttng.bytes_per_event()?)];
    more.extend(instructions::rows(&kymo, &lttng)?);
    more.extend(sustained::rows(&kymo, &lttng)?);
    drop(lttng);
    let table = table(&rows, more);
    println!("\n{table}");
    let path = crate::root().join("docs/bench-ust.md");
    let text = format!(
        "# What an event of a program costs\n\nWritten by `cargo xtask bench ust`; not edited by \
         hand. The same events in kymo's tracepoints and in LTTng-UST's, rings of the same size, \
         taking turns; medians of {ROUNDS} rounds of the thread's own CPU time per event. kymo's \
         events carry the number of the thread (4 bytes), LTTng's do not. Instructions are callgrind's, \
         in the program, of one event and the loop around it; where valgrind knows no restartable \
         sequences the program pretends to have them. Events to disk: `kymo trace -u -o` and \
         lttng-consumerd, both with rings of eight sub-buffers of 1 MiB for each CPU; a thread hits the \
         tracepoint in bursts of a millisecond's for four seconds. The highest rate counts at which \
         two of three runs discard nothing. Threads that do nothing else hit it as fast as they \
         can: what reached the disk, of what they hit. Counters and histograms \
         count always; keys are four that take turns.\n\n{table}\n{}",
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
        command.args([*kind, *mode, &EVENTS.to_string(), &threads.to_string()]);
        ours.push(output(command)?.trim().parse::<f64>()?);
        if let Some(kind) = peer {
            theirs.push(lttng.pace(kind, mode, *threads)?);
        }
    }
    Ok(((*what).to_owned(), median(&ours).context("no rounds")?, median(&theirs)))
}

fn table(rows: &[Row], more: Vec<[String; 4]>) -> String {
    let of = |what: &str| rows.iter().find(|r| r.0.starts_with(what)).map_or(0.0, |r| r.1);
    let (empty, floor) = (of("empty"), of("floor"));
    let mut cells = vec![["what", "LTTng-UST", "kymo", "verdict"].map(str::to_owned)];
    for (what, kymo, lttng) in rows {
        let verdict = if what.starts_with("disabled") {
            format!("{:+.2} ns to the empty loop (goal: 0.3)", kymo - empty)
        } else if let Some(lttng) = lttng {
            let ratio = format!("{:.1}× as fast (goal: 5×)", lttng / kymo);
            format!("{ratio}; {:.2} × the floor (goal: 2)", kymo / floor)
        } else if what.starts_with("counter") {
            "goal: 5 ns".to_owned()
        } else {
            String::new()
        };
        cells.push([what.clone(), lttng.map_or(String::new(), ns), ns(*kymo), verdict]);
    }
    cells.extend(more);
    page::aligned(&cells)
}

fn bytes_row(lttng: f64) -> [String; 4] {
    let kymo = "24.0 (20 without the thread)".to_owned();
    ["bytes per event, two u64".into(), format!("{lttng:.1}"), kymo, String::new()]
}
