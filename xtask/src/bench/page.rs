//! The table, and BENCHMARKS.md around it.

use std::process::Command;

use super::inputs::Inputs;
use super::measure::output;
use super::rows::Row;

/// The rows as a Markdown table whose columns also line up in a terminal.
pub(crate) fn table(rows: &[Row]) -> String {
    let head = ["what", "perf", "kymo", "verdict"].map(str::to_owned);
    let mut cells = vec![head];
    cells.extend(
        rows.iter().map(|r| [r.what.clone(), r.perf.clone(), r.kymo.clone(), r.verdict.clone()]),
    );
    aligned(&cells)
}

/// Cells, the first row of which is the head, as such a table.
pub(crate) fn aligned(cells: &[[String; 4]]) -> String {
    let widths: Vec<usize> =
        (0..4).map(|i| cells.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for (n, row) in cells.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let pad = " ".repeat(width - cell.chars().count());
            out += &format!("| {cell}{pad} ");
        }
        out += "|\n";
        if n == 0 {
            widths.iter().for_each(|width| out += &format!("|{}", "-".repeat(width + 2)));
            out += "|\n";
        }
    }
    out
}

/// The whole of BENCHMARKS.md.
pub(crate) fn page(table: &str, inputs: &Inputs, probes: &str) -> String {
    let recording = |what: &str, r: &super::inputs::Recording| {
        format!("- {what}: {} samples, {:.0} MB\n", r.samples, r.bytes as f64 / 1e6)
    };
    format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench`; not edited by hand. Both tools read the same files \
         in one run, taking turns; times are medians of wall clock, output goes to \
         `/dev/null`, memory is the largest resident set. The ratios matter, not the \
         figures: machines differ.\n\n{table}\
         ## The recordings\n\nMade by perf under `target/bench`:\n\n{}{}{}\n\
         {probes}\n## The machine\n\n{}",
        recording("`raw_syscalls:*` of `perf bench sched pipe`", &inputs.syscalls),
        recording("half of that", &inputs.syscalls_half),
        recording("`cpu-clock -g` of a build of this project", &inputs.stacks),
        machine(),
    )
}

pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("unknown", |(_, v)| v.trim()).to_owned()
    };
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args);
        output(command).map_or("unknown".into(), |text| text.trim().to_owned())
    };
    format!(
        "- processor: {}, {cpus} CPUs\n- memory: {}\n- kernel: {}\n- peer: {}\n- compiler: {}\n",
        field(&read("/proc/cpuinfo"), "model name"),
        field(&read("/proc/meminfo"), "MemTotal"),
        read("/proc/sys/kernel/osrelease").trim(),
        run("perf", &["--version"]),
        run("rustc", &["--version"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |what: &str, verdict: &str| Row {
            what: what.into(),
            perf: "1 s".into(),
            kymo: "2 µs".into(),
            verdict: verdict.into(),
        };
        assert_eq!(
            table(&[row("a", "x"), row("longer", "")]),
            "| what   | perf | kymo | verdict |\n\
             |--------|------|------|---------|\n\
             | a      | 1 s  | 2 µs | x       |\n\
             | longer | 1 s  | 2 µs |         |\n"
        );
    }
}
