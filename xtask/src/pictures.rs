//! `cargo xtask pictures`: the two drawings of the README, as SVG for light and dark pages. The
//! chart of speed follows from BENCHMARKS.md (tidy checks that); the terminal session is recorded.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;

pub(crate) const CHART: &str = "docs/images/speed.svg";
const SESSION: &str = "docs/images/session.svg";

/// Start of a row in BENCHMARKS.md, and its label in the chart.
const ROWS: &[(&str, &str)] = &[
    ("`report` with inlined functions", "report, inlined functions (perf)"),
    ("`script` of a CTF trace of LTTng", "script of a CTF trace (babeltrace2)"),
    ("`probe -D 'vfs_read ", "probe -D on vmlinux (perf)"),
    ("`script`, 2", "script of a perf.data (perf)"),
    ("`script` of a trace.dat", "script of a trace.dat (trace-cmd)"),
    ("`report -g --children`", "report -g --children (perf)"),
    ("`stat true`", "stat true (perf)"),
    ("`sched latency`, 6", "sched latency (perf)"),
];

/// Commands of the recorded session.
const COMMANDS: &[&str] = &[
    "kymo profile -- du -s /usr/lib | head -17",
    "kymo why -- sh -c 'sleep 0.05; sync' | head -8",
    "kymo trace --calls openat,read -- cat /etc/hostname | tail -3",
];
/// Characters in a line of the session.
const COLUMNS: usize = 104;

/// The line, wrapped as `kymo profile` wraps its first sentence on a terminal, otherwise cut.
fn wrapped(line: &str) -> Vec<String> {
    const INDENT: &str = "            ";
    let end = line.char_indices().nth(COLUMNS).map(|(end, _)| end);
    let Some(end) = end else { return vec![line.to_owned()] };
    let start = line.get(..end).unwrap_or(line);
    match start.rfind(' ').filter(|_| line.starts_with("  In short")) {
        Some(at) => {
            vec![start[..at].to_owned(), format!("{INDENT}{}", line[at..].trim_start())]
        }
        None => vec![start.to_owned()],
    }
}

/// Draws both; the session with this program, or with one that is built.
pub(crate) fn run(program: Option<&str>) -> anyhow::Result<()> {
    let benchmarks = std::fs::read_to_string(crate::root().join("BENCHMARKS.md"))?;
    let chart = speed_chart(&benchmarks).context("BENCHMARKS.md: a row of the chart is missing")?;
    write(CHART, &chart)?;
    let program = match program {
        Some(program) => PathBuf::from(program),
        None => cargo::build(&["build", "--package", "kymo", "--bin", "kymo"])?,
    };
    let mut lines = Vec::new();
    for command in COMMANDS {
        let script = format!("kymo() {{ '{}' \"$@\" 2>&1; }}; {command}", program.display());
        let output = Command::new("bash").args(["-c", &script]).output().context(*command)?;
        if !output.status.success() {
            bail!("{command}: {}", String::from_utf8_lossy(&output.stdout).trim());
        }
        lines.push(format!("$ {command}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.extend(text.lines().flat_map(|line| wrapped(&line.replace('\t', "  "))));
        lines.push(String::new());
    }
    lines.pop();
    write(SESSION, &session(&lines))
}

fn write(name: &str, text: &str) -> anyhow::Result<()> {
    println!("pictures: {name}");
    std::fs::write(crate::root().join(name), text).with_context(|| name.to_owned())
}

/// Bars: the time of kymo beside that of the newest peer on the same file, which is the full width.
pub(crate) fn speed_chart(benchmarks: &str) -> Option<String> {
    let bars: Option<Vec<_>> = ROWS.iter().map(|row| bar(benchmarks, row.0, row.1)).collect();
    let bars = bars?;
    let height = 62 + 34 * bars.len();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 {height}\" width=\"800\" \
         height=\"{height}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"14\">\n\
         <title>Time of kymo beside that of its newest peer</title>\n\
         <style>\n\
         text {{ fill: #1f2328 }} .quiet {{ fill: #59636e }}\n\
         .peer {{ fill: #d1d9e0 }} .kymo {{ fill: #0969da }}\n\
         @media (prefers-color-scheme: dark) {{\n\
         text {{ fill: #f0f6fc }} .quiet {{ fill: #9198a1 }}\n\
         .peer {{ fill: #3d444d }} .kymo {{ fill: #4493f8 }}\n\
         }}\n</style>\n\
         <text x=\"10\" y=\"24\" font-weight=\"600\">Time on the same input, \
         shorter is faster</text>\n\
         <rect class=\"kymo\" x=\"410\" y=\"13\" width=\"12\" height=\"12\"/>\
         <text x=\"428\" y=\"24\">kymo</text>\n\
         <rect class=\"peer\" x=\"490\" y=\"13\" width=\"12\" height=\"12\"/>\
         <text x=\"508\" y=\"24\">newest peer (perf 7.2 and others)</text>\n"
    );
    for (index, bar) in bars.iter().enumerate() {
        let y = 48 + 34 * index;
        let (label_y, width) = (y + 16, (320.0 * bar.own_ns / bar.peer_ns).max(1.0));
        let _ = writeln!(
            out,
            "<text x=\"10\" y=\"{label_y}\">{}</text>\n\
             <rect class=\"peer\" x=\"270\" y=\"{y}\" width=\"320\" height=\"22\"/>\n\
             <rect class=\"kymo\" x=\"270\" y=\"{y}\" width=\"{width:.1}\" height=\"22\"/>\n\
             <text x=\"600\" y=\"{label_y}\" font-weight=\"600\">{}</text>\n\
             <text class=\"quiet\" x=\"660\" y=\"{label_y}\">{} / {}</text>",
            bar.label, bar.ratio, bar.own, bar.peer,
        );
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// One comparison of the chart.
struct Bar<'t> {
    label: &'static str,
    peer: &'t str,
    own: &'t str,
    /// The verdict's, of times that are not rounded.
    ratio: &'t str,
    peer_ns: f64,
    own_ns: f64,
}

fn bar<'t>(benchmarks: &'t str, start: &str, label: &'static str) -> Option<Bar<'t>> {
    let is_row = |line: &&str| {
        line.strip_prefix('|').is_some_and(|cells| cells.trim_start().starts_with(start))
    };
    let row = benchmarks.lines().find(is_row)?;
    let mut cells = row.split('|').skip(2).map(str::trim);
    let first = |cell: &'t str| cell.split(';').next().unwrap_or(cell).trim();
    let (peer, own) = (first(cells.next()?), first(cells.nth(1)?));
    let ratio = cells.next()?.split([';', ' ', ',']).next()?;
    Some(Bar { label, peer, own, ratio, peer_ns: nanoseconds(peer)?, own_ns: nanoseconds(own)? })
}

/// `36.1 ms` as a number.
fn nanoseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let scale = match unit {
        "s" => 1e9,
        "ms" => 1e6,
        "µs" => 1e3,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

/// A terminal with these lines.
fn session(lines: &[String]) -> String {
    let height = 28 + 18 * lines.len();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 {height}\" width=\"880\" \
         height=\"{height}\" role=\"img\" font-family=\"ui-monospace, 'DejaVu Sans Mono', \
         monospace\" font-size=\"14\">\n\
         <title>Recorded terminal session: profile, why, trace</title>\n\
         <style>\n\
         text {{ fill: #d1d7e0; white-space: pre }} .command {{ fill: #7ee787 }}\n\
         </style>\n\
         <rect width=\"880\" height=\"{height}\" rx=\"8\" fill=\"#151b23\" stroke=\"#3d444d\"/>\n"
    );
    for (index, line) in lines.iter().enumerate() {
        let is_command = line.starts_with("$ ");
        let class = if is_command { " class=\"command\"" } else { "" };
        let text = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            out,
            "<text{class} x=\"16\" y=\"{}\" xml:space=\"preserve\">{text}</text>",
            26 + 18 * index
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::{bar, nanoseconds, session};

    #[test]
    fn bars_are_rows_of_the_table() {
        let table =
            "| what | newest | old | kymo | |\n| `stat true` | 16 ms; 2 | 9 ms | 4 ms | 4.1×; |\n";
        let bar = bar(table, "`stat true`", "stat").unwrap();
        assert_eq!((bar.peer_ns, bar.own_ns, bar.ratio), (16e6, 4e6, "4.1×"));
        assert!(super::bar(table, "`record`", "record").is_none());
        assert_eq!(nanoseconds("3 s"), Some(3e9));
        assert_eq!(nanoseconds("3 MB"), None);
    }

    #[test]
    fn output_is_text_not_markup() {
        let svg = session(&["$ kymo a".to_owned(), "b < c & d".to_owned()]);
        assert!(svg.contains("b &lt; c &amp; d"), "{svg}");
    }
}
