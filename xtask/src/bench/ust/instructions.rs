//! Instructions of an event, as callgrind counts them: not disturbed by a busy machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use super::lttng::Lttng;

const ROWS: [(&str, &str); 4] = [
    ("instructions: disabled", "disabled"),
    ("instructions: two u64", "two"),
    ("instructions: u64 and a text of 16 bytes", "string"),
    ("instructions: rejected by a filter", "rejected"),
];

/// Numbers of events of the two runs, whose difference cancels out all but the events. A tenth more
/// warms up.
const EVENTS: [u64; 2] = [20_000, 220_000];

pub(super) fn rows(kymo: &Path, lttng: &Lttng) -> anyhow::Result<Vec<[String; 4]>> {
    let mut rows = Vec::new();
    for (what, kind) in ROWS {
        let ours = per_event(|events| {
            let mut command = Command::new(kymo);
            command.args([kind, "overwrite", &events.to_string(), "1"]);
            command.env("KYMO_PACE_COUNTED", "1");
            counted(command)
        })?;
        let theirs = per_event(|events| lttng.instructions(kind, events))?;
        println!("{what}: kymo {ours:.1}, LTTng {theirs:.1}");
        let ratio = format!("{:.1}× fewer", theirs / ours);
        rows.push([what.to_owned(), format!("{theirs:.0}"), format!("{ours:.0}"), ratio]);
    }
    Ok(rows)
}

fn per_event(count: impl Fn(u64) -> anyhow::Result<u64>) -> anyhow::Result<f64> {
    let [few, many] = EVENTS;
    let more = count(many)?.saturating_sub(count(few)?);
    Ok(more as f64 / (1.1 * (many - few) as f64))
}

/// The instructions of a command and its children.
pub(super) fn counted(command: Command) -> anyhow::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--trace-children=yes"]);
    valgrind.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            valgrind.env(name, value);
        }
    }
    let output = valgrind.output().context("cannot run valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind: {}: {}", output.status, text.trim());
    }
    let counts = text.lines().filter_map(|line| line.split_once("Collected : "));
    let counts: Result<Vec<u64>, _> = counts.map(|(_, count)| count.trim().parse()).collect();
    let counts = counts.context("valgrind's count")?;
    if counts.is_empty() {
        bail!("valgrind has counted nothing: {}", text.trim());
    }
    Ok(counts.iter().sum())
}
