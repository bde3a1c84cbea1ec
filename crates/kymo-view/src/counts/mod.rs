//! Counts as text, CSV or JSON, laid out as perf stat lays them out: `text.rs`, `csv.rs`
//! and `json.rs` each have the lines of rows, `metric_only.rs` those of `--metric-only`,
//! `metric.rs` words and widths of derived numbers, `summary.rs` what stands around the
//! lines of a result.

mod csv;
mod json;
mod metric;
mod metric_only;
mod summary;
mod text;

use std::time::Duration;

use kymo_model::{Aggregation, CountRow};

pub use summary::{CommandTimes, ResultSummary, RunTimes};

/// Readings after which the text of intervals repeats its header.
const HEADER_EVERY: u64 = 25;

/// Form of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountFormat {
    /// Columns for people.
    Text {
        /// Large numbers have separators of thousands.
        thousands: bool,
    },
    /// Fields with this separator.
    Csv(String),
    /// A JSON object on each line.
    Json,
}

/// Text next to a derived number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricWords {
    /// Its unit, as perf printed it before its metrics had names.
    Unit,
    /// Its unit and the name that `-M` takes, as perf 7 prints it: of these metrics, or of all.
    Name(Option<Vec<String>>),
}

/// Format of printed counts.
#[derive(Clone, Debug)]
pub struct CountStyle {
    /// Form of the output.
    pub format: CountFormat,
    /// Aggregation of the rows.
    pub by: Aggregation,
    /// Text next to derived numbers.
    pub metrics: MetricWords,
    /// Only what is derived is printed, not counts and rates.
    pub metric_only: bool,
    /// Readings are printed on the way.
    pub intervals: bool,
    /// Lines of a result behind intervals begin with `summary` in CSV.
    pub csv_summary: bool,
}

/// Prints the readings and results of one count.
#[derive(Clone, Debug)]
pub struct CountPrinter {
    style: CountStyle,
    /// Readings printed so far.
    readings: u64,
}

/// Properties that all lines of one reading share.
#[derive(Clone, Copy, Debug)]
struct Reading<'a> {
    style: &'a CountStyle,
    /// Seconds since the start, of a reading on the way.
    interval: Option<f64>,
}

impl Reading<'_> {
    /// Whether it is the result behind intervals, which CSV marks.
    fn is_marked_summary(&self) -> bool {
        self.style.intervals && self.interval.is_none() && self.style.csv_summary
    }

    fn lines(self, rows: &[CountRow]) -> String {
        if self.style.metric_only {
            return metric_only::lines(rows, self);
        }
        let unit_width = rows.iter().map(|r| r.unit.len()).max().unwrap_or(0).max(4);
        let mut out = String::new();
        for row in rows {
            match &self.style.format {
                CountFormat::Text { thousands } => {
                    text::row(
                        &mut out,
                        row,
                        self,
                        text::Widths { unit: unit_width, thousands: *thousands },
                    );
                }
                CountFormat::Csv(separator) => csv::row(&mut out, row, self, separator),
                CountFormat::Json => json::row(&mut out, row, self),
            }
            out.push('\n');
        }
        out
    }
}

impl CountPrinter {
    /// A printer that has printed nothing yet.
    pub fn new(style: CountStyle) -> CountPrinter {
        CountPrinter { style, readings: 0 }
    }

    /// Text of a reading on the way, so long after the start.
    pub fn interval(&mut self, rows: &[CountRow], elapsed: Duration) -> String {
        let reading = Reading { style: &self.style, interval: Some(elapsed.as_secs_f64()) };
        let is_text = matches!(self.style.format, CountFormat::Text { .. });
        let mut out = String::new();
        if is_text && self.readings.is_multiple_of(HEADER_EVERY) || self.readings == 0 {
            match (self.style.metric_only, is_text) {
                (true, _) => out.push_str(&metric_only::header(rows, reading)),
                (false, true) => out.push_str(text::interval_header(self.style.by)),
                (false, false) => {}
            }
        }
        out.push_str(&reading.lines(rows));
        self.readings += 1;
        out
    }

    /// Text of a result.
    pub fn result(&self, rows: &[CountRow], summary: &ResultSummary<'_>) -> String {
        let reading = Reading { style: &self.style, interval: None };
        let mut body = reading.lines(rows);
        if self.style.metric_only && !self.style.intervals {
            body.insert_str(0, &metric_only::header(rows, reading));
        }
        match self.style.format {
            CountFormat::Text { .. } => summary.around(&body, rows.is_empty()),
            CountFormat::Csv(_) | CountFormat::Json => body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_model::{CountKey, CountState, EventType, Metric, MetricKind};

    /// A row with a metric of its own.
    pub(super) fn row(name: &str, value: f64, kind: MetricKind, metric: f64) -> CountRow {
        CountRow {
            key: CountKey::All,
            name: name.into(),
            cgroup: None,
            event: Some((EventType::HARDWARE, 0)),
            state: CountState::Counted,
            value,
            enabled: 1.0,
            running: 1.0,
            summed: 1,
            unit: String::new(),
            scale: 1.0,
            noise: None,
            metric: Some(Metric { kind, value: metric, more: None }),
            metric_kind: Some(kind),
        }
    }

    pub(super) fn style(format: CountFormat, metric_only: bool) -> CountStyle {
        let by = Aggregation::Global;
        let metrics = MetricWords::Unit;
        CountStyle { format, by, metrics, metric_only, intervals: false, csv_summary: true }
    }

    #[test]
    fn a_row_has_perfs_columns() {
        let check = |format: CountFormat, expected: &str| {
            let style = style(format, false);
            let rows = [row("branches", 1234567.0, MetricKind::Rate, 2.5e6)];
            assert_eq!(Reading { style: &style, interval: None }.lines(&rows), expected);
        };
        check(
            CountFormat::Text { thousands: true },
            "         1,234,567      branches                         #    2.500 M/sec                  \n",
        );
        check(CountFormat::Csv(";".into()), "1234567;;branches;1;100.00;2.500;M/sec\n");
        check(
            CountFormat::Json,
            "{\"counter-value\" : \"1234567.000000\", \"unit\" : \"\", \"event\" : \"branches\", \
             \"event-runtime\" : 1, \"pcnt-running\" : 100.00, \"metric-value\" : 2.500000, \
             \"metric-unit\" : \"M/sec\"}\n",
        );
    }

    #[test]
    fn named_metrics_have_the_columns_of_perf_7() {
        let mut faults = row("page-faults", 50.0, MetricKind::Rate, 80714.34);
        faults.event = Some((EventType::SOFTWARE, kymo_model::sw::PAGE_FAULTS));
        // Rates that have no name are not shown.
        let cycles = row("faults-of-another-kind", 5.0, MetricKind::Rate, 2.0);
        let rows = [faults, cycles];
        let check = |format: CountFormat, names: Option<&[&str]>, expected: &str| {
            let names = names.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
            let style = CountStyle { metrics: MetricWords::Name(names), ..style(format, false) };
            let lines = Reading { style: &style, interval: None }.lines(&rows);
            assert_eq!(lines.lines().next().unwrap(), expected);
        };
        let title = "faults/sec  page_faults_per_second";
        check(
            CountFormat::Text { thousands: false },
            None,
            &format!("                50      page-faults                      #  80714.3 {title}"),
        );
        check(
            CountFormat::Csv(",".into()),
            Some(&["PAGE_FAULTS_per_second"]),
            &format!("50,,page-faults,1,100.00,80714.3,{title}"),
        );
        let begin = "{\"counter-value\" : \"50.000000\", \"unit\" : \"\", \"event\" : \
                     \"page-faults\", \"event-runtime\" : 1, \"pcnt-running\" : 100.00";
        let metric =
            format!(", \"metric-value\" : \"80714.340000\", \"metric-unit\" : \"{title}\"}}");
        check(CountFormat::Json, None, &format!("{begin}{metric}"));
        check(CountFormat::Json, Some(&[]), &format!("{begin}}}"));
    }
}
