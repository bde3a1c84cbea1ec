//! The table, and BENCHMARKS.md around it.

use std::process::Command;

use super::inputs::Inputs;
use super::measure::output;
use super::rows::Row;

/// The rows as a Markdown table whose columns also line up in a terminal.
pub(crate) fn table(rows: &[Row]) -> String {
    let head = ["what", "newest peer", "installed peer", "kymo", "verdict"].map(str::to_owned);
    let mut cells = vec![head];
    cells.extend(
        rows.iter()
            .map(|r| [&r.what, &r.newest, &r.installed, &r.kymo, &r.verdict].map(String::clone)),
    );
    aligned(&cells)
}

/// Cells, the first row of which is the head, as such a table.
pub(crate) fn aligned<const N: usize>(cells: &[[String; N]]) -> String {
    let widths: Vec<usize> =
        (0..N).map(|i| cells.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
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

/// The page with these rows in place of those that measure the same, new ones last.
pub(crate) fn renewed(page: &str, rows: &[Row]) -> Option<String> {
    let is_row = |line: &&str| line.starts_with("| ");
    let start = page.lines().position(|line| is_row(&line))?;
    let lines: Vec<&str> = page.lines().collect();
    let len = lines[start..].iter().take_while(|line| line.starts_with('|')).count();
    let (old, behind) = lines[start..].split_at(len);
    let cells = |line: &str| -> Option<Row> {
        let mut cells = line.trim_matches('|').split(" | ").map(|c| c.trim().to_owned());
        let row = Row {
            what: cells.next()?,
            newest: cells.next()?,
            installed: cells.next()?,
            kymo: cells.next()?,
            verdict: cells.next()?,
        };
        cells.next().is_none().then_some(row)
    };
    let all = old.iter().skip(2).map(|line| cells(line)).collect::<Option<Vec<Row>>>()?;
    let mut groups = grouped(&all);
    for (head, new) in grouped(rows) {
        let Some((_, old)) = groups.iter_mut().find(|(known, _)| *known == head) else {
            groups.push((head, new));
            continue;
        };
        for row in new {
            match old.iter_mut().find(|r| measured(&r.what) == measured(&row.what)) {
                Some(place) => *place = row,
                None => old.push(row),
            }
        }
    }
    let all: Vec<Row> = groups.into_iter().flat_map(|(_, rows)| rows).collect();
    Some(format!("{}\n{}{}\n", lines[..start].join("\n"), table(&all), behind.join("\n")))
}

/// Name of a measurement without digits: numbers of samples differ from recording to recording.
fn measured(what: &str) -> String {
    what.replace(|c: char| c.is_ascii_digit(), "")
}

/// Rows about "the same" belong to the row before them.
fn grouped(rows: &[Row]) -> Vec<(String, Vec<Row>)> {
    let mut groups: Vec<(String, Vec<Row>)> = Vec::new();
    for row in rows {
        match groups.last_mut().filter(|_| row.what.starts_with("the same")) {
            Some((_, group)) => group.push(row.clone()),
            None => groups.push((measured(&row.what), vec![row.clone()])),
        }
    }
    groups
}

/// The whole of BENCHMARKS.md.
pub(crate) fn page(table: &str, inputs: &Inputs, probes: &str) -> String {
    let recording = |what: &str, r: &super::inputs::Recording| {
        format!("- {what}: {} samples, {:.0} MB\n", r.samples, r.bytes as f64 / 1e6)
    };
    format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench`; not edited by hand. All tools read the same files \
         in one run, taking turns (`--only PART` renews the rows of one part); times are medians of wall clock, output goes to \
         `/dev/null`, memory is the largest resident set. The newest peers are those of Debian's testing \
         release (`cargo xtask peers`), their versions are at the end; of two figures in a verdict the first \
         is against the newest one. The ratios matter, not the figures: machines differ.\n\n{table}\
         ## The recordings\n\nMade by perf under `target/bench`:\n\n{}{}{}\n\
         {probes}\n## The machine\n\n{}",
        recording("`raw_syscalls:*` of `perf bench sched pipe`", &inputs.syscalls),
        recording("half of that", &inputs.syscalls_half),
        recording("`cpu-clock -g` of a build of a part of this project", &inputs.stacks),
        machine(),
    )
}

/// A page with a section put in place of the one that begins with `head`, or before the
/// machine's.
pub(crate) fn with_section(page: &str, head: &str, section: &str) -> String {
    let (before, rest) = match page.split_once(head) {
        Some((before, old)) => (before, old.find("\n## ").map_or("", |at| &old[at + 1..])),
        None => {
            let at = page.find("## The machine\n").unwrap_or(page.len());
            page.split_at(at)
        }
    };
    let gap = if rest.is_empty() { "" } else { "\n" };
    format!("{before}{section}{gap}{rest}")
}

/// The section of a page that begins with `head`, if there is one.
pub(crate) fn section<'p>(page: &'p str, head: &str) -> Option<&'p str> {
    let rest = &page[page.find(head)?..];
    let end = rest[head.len()..].find("\n## ").map_or(rest.len(), |at| head.len() + at + 1);
    Some(rest[..end].trim_end())
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
    let peers = ["perf", "trace-cmd", "babeltrace2", "bpftrace"].map(|name| {
        let newest = kymo_testkit::peer(name);
        let of = |mut command: Command| {
            command.arg(if name == "trace-cmd" { "-h" } else { "--version" });
            let said = command.output().map(|out| [out.stdout, out.stderr].concat());
            let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
            let word = said.split_whitespace().find(|w| {
                let w = w.trim_start_matches(['v', '(']);
                w.starts_with(|c: char| c.is_ascii_digit()) && w.contains('.')
            });
            let version = |w: &str| w.trim_matches(['v', '(', ')', ',']).to_owned();
            word.map_or_else(|| "unknown".to_owned(), version)
        };
        let installed = of(Command::new(name));
        if newest.is_newest() {
            format!("{name} {}; {installed}", of(newest.command()))
        } else {
            format!("{name} {installed}")
        }
    });
    format!(
        "- processor: {}, {cpus} CPUs\n- memory: {}\n- kernel: {}\n- peers, newest and installed: {}\n- compiler: {}\n",
        field(&read("/proc/cpuinfo"), "model name"),
        field(&read("/proc/meminfo"), "MemTotal"),
        read("/proc/sys/kernel/osrelease").trim(),
        peers.join(", "),
        run("rustc", &["--version"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, kymo: &str) -> Row {
        Row {
            what: what.into(),
            newest: "1 s".into(),
            installed: "2 s".into(),
            kymo: kymo.into(),
            verdict: String::new(),
        }
    }

    fn page(rows: &[Row]) -> String {
        format!("# Benchmarks\n\n{}\n## The machine\n", table(rows))
    }

    #[test]
    fn rows_are_renewed_in_their_places() {
        let old = page(&[row("a", "2 s"), row("b (c | d)", "3 s")]);
        assert_eq!(renewed(&old, &[]), None, "a cell with a bar is not understood");
        let old = page(&[row("a", "2 s"), row("b", "3 s")]);
        let new = page(&[row("a", "1 s"), row("b", "3 s"), row("c", "4 s")]);
        assert_eq!(renewed(&old, &[row("a", "1 s"), row("c", "4 s")]), Some(new));
        assert_eq!(renewed("no table", &[]), None);
    }

    #[test]
    fn rows_about_the_same_stay_with_theirs() {
        let memory = |kymo| row("the same, peak memory", kymo);
        let old = [row("a, 17 samples", "2 s"), memory("3 MB"), row("b", "4 s"), memory("5 MB")];
        let [a, _, b, _] = old.clone();
        let cold = row("the same, cold", "9 s");
        assert_eq!(
            renewed(&page(&old), &[row("a, 18 samples", "1 s"), cold.clone()]),
            Some(page(&[row("a, 18 samples", "1 s"), memory("3 MB"), cold, b, memory("5 MB")]))
        );
        let new = [row("b", "4 s"), memory("6 MB")];
        let [b, more] = new.clone();
        assert_eq!(renewed(&page(&old), &new), Some(page(&[a, memory("3 MB"), b, more])));
    }

    #[test]
    fn a_section_takes_the_place_of_the_old_one() {
        const HEAD: &str = "## What\n";
        let section = format!("{HEAD}\nnew\n");
        let page = "# B\n\n## The machine\n\n- x\n";
        let once = with_section(page, HEAD, &section);
        assert_eq!(once, format!("# B\n\n{section}\n## The machine\n\n- x\n"));
        assert_eq!(with_section(&once, HEAD, &section), once);
        assert_eq!(with_section("# B\n\n", HEAD, &section), format!("# B\n\n{section}"));
        assert_eq!(super::section(&once, HEAD), Some(section.trim_end()));
        assert_eq!(super::section(page, HEAD), None);
    }

    #[test]
    fn columns_line_up() {
        let row = |what: &str, verdict: &str| Row {
            what: what.into(),
            newest: "1 s".into(),
            installed: "10 s".into(),
            kymo: "2 µs".into(),
            verdict: verdict.into(),
        };
        assert_eq!(
            table(&[row("a", "x"), row("longer", "")]),
            "| what   | newest peer | installed peer | kymo | verdict |\n\
             |--------|-------------|----------------|------|---------|\n\
             | a      | 1 s         | 10 s           | 2 µs | x       |\n\
             | longer | 1 s         | 10 s           | 2 µs |         |\n"
        );
    }
}
