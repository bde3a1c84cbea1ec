//! The table with its bars, and JSON lines.

use super::{Cost, Row};

/// Columns of the longest bar.
const BAR: f64 = 32.0;
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

pub(super) fn table(rows: &[Row], pairs: u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    anstream::println!(
        "One hit of a probe on Linux {}: median of {pairs} pairs, with the probe minus without\n",
        release.trim()
    );
    let width = rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
    let most = rows.iter().filter_map(median).fold(0.0, f64::max);
    anstream::println!("{:width$}  {:>10}  spread", "", "ns a hit");
    for row in rows {
        match &row.cost {
            Cost::Missing(why) => {
                anstream::println!("{:width$}  not available: {why}", row.name);
            }
            Cost::Measured { median, low, high } => {
                let spread = format!("{} … {}", number(*low), number(*high));
                anstream::println!(
                    "{:width$}  {:>10}  {spread:<19}  {}",
                    row.name,
                    number(*median),
                    bar(*median, most)
                );
            }
        }
    }
}

pub(super) fn json(rows: &[Row]) {
    for row in rows {
        let name = serde_json::Value::from(row.name.as_str());
        match &row.cost {
            Cost::Missing(why) => {
                let why = serde_json::Value::from(why.as_str());
                anstream::println!("{{\"probe\":{name},\"missing\":{why}}}");
            }
            Cost::Measured { median, low, high } => anstream::println!(
                "{{\"probe\":{name},\"ns\":{median:.2},\"low\":{low:.2},\"high\":{high:.2}}}"
            ),
        }
    }
}

fn median(row: &Row) -> Option<f64> {
    if let Cost::Measured { median, .. } = row.cost { Some(median) } else { None }
}

/// Tenths only where they mean something.
fn number(ns: f64) -> String {
    if ns.abs() < 10.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

fn bar(value: f64, most: f64) -> String {
    if value <= 0.0 || most <= 0.0 {
        return String::new();
    }
    let eighths = (value / most * BAR * 8.0).round().max(1.0) as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS.get(eighths % 8).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(100.0, 100.0), "█".repeat(32));
        assert_eq!(bar(50.0, 100.0), "█".repeat(16));
        assert_eq!(bar(0.1, 100.0), "▏");
        assert_eq!(bar(-3.0, 100.0), "");
        assert_eq!((number(1.26), number(1260.4)), ("1.3".to_owned(), "1260".to_owned()));
    }
}
