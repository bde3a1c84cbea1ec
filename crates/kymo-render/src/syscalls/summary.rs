//! `-s`: how often each call was made, how often it failed, and how long it took.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use kymo_analysis::syscalls::SyscallStats;
use kymo_model::format_width;
use rustc_hash::FxHashMap;

use super::errno::errno_name;
use super::numbers::{is_compat, is_x32};

/// Grouping of calls into tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SummaryGrouping {
    /// All in one table.
    #[default]
    Total,
    /// A table for each thread.
    Thread,
    /// A table for each cgroup.
    Cgroup,
}

/// Tasks of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SummaryGroup {
    All,
    Thread(i32),
    /// A thread that ended, whose number others may have since: its place among those, and its
    /// name.
    Ended(i32, u32, Vec<u8>),
    /// Tasks in a cgroup; `None`: it is not known which.
    Cgroup(Option<Arc<[u8]>>),
    /// Tasks beyond the table limit.
    Others,
}

/// Tables at most; what comes after is counted in one more.
const MAX_GROUPS: usize = 1 << 14;

/// Calls by number.
#[derive(Default)]
struct CallTable {
    calls: FxHashMap<i64, (String, SyscallStats)>,
    /// Nanoseconds on a CPU, of threads whose running is traced.
    runtime: Option<u64>,
}

/// Calls by whose they are.
pub(super) struct SyscallSummary {
    tables: BTreeMap<SummaryGroup, CallTable>,
    style: SummaryStyle,
    /// Threads that ended.
    ended: u32,
}

/// Layout of the tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct SummaryStyle {
    /// Grouping.
    pub mode: SummaryGrouping,
    /// With numbers by error.
    pub by_error: bool,
    /// Maximum number of rows per table.
    pub max_rows: Option<usize>,
}

impl SyscallSummary {
    pub(super) fn new(style: SummaryStyle) -> SyscallSummary {
        SyscallSummary { tables: BTreeMap::new(), style, ended: 0 }
    }

    /// Table that counts a call.
    pub(super) fn group(&self, tid: i32, cgroup: Option<&Arc<[u8]>>) -> SummaryGroup {
        let group = match self.style.mode {
            SummaryGrouping::Total => SummaryGroup::All,
            SummaryGrouping::Thread => SummaryGroup::Thread(tid),
            SummaryGrouping::Cgroup => SummaryGroup::Cgroup(cgroup.cloned()),
        };
        if self.tables.len() >= MAX_GROUPS && !self.tables.contains_key(&group) {
            SummaryGroup::Others
        } else {
            group
        }
    }

    /// Counts a call that returned.
    pub(super) fn count(
        &mut self,
        group: SummaryGroup,
        (number, name): (i64, &str),
        error: Option<i32>,
        nanos: u64,
    ) {
        let row = self.tables.entry(group).or_default().calls.entry(number);
        row.or_insert_with(|| (name.to_owned(), SyscallStats::default())).1.add(nanos, 0, error);
    }

    /// Whether there is a table of a thread.
    pub(super) fn has_thread(&self, tid: i32) -> bool {
        self.tables.contains_key(&SummaryGroup::Thread(tid))
    }

    /// Keeps the table of a thread that ends apart from that of the next one with its number.
    pub(super) fn end_thread(&mut self, tid: i32, name: Vec<u8>) {
        let Some(table) = self.tables.remove(&SummaryGroup::Thread(tid)) else { return };
        self.ended = self.ended.saturating_add(1);
        self.tables.insert(SummaryGroup::Ended(tid, self.ended, name), table);
    }

    /// Counts time that a task ran.
    pub(super) fn add_runtime(&mut self, group: SummaryGroup, nanos: u64) {
        let runtime = &mut self.tables.entry(group).or_default().runtime;
        *runtime = Some(runtime.unwrap_or(0).saturating_add(nanos));
    }

    /// The tables, those with the most calls first; `name` writes the name of a thread.
    pub(super) fn write(&self, out: &mut Vec<u8>, name: &mut dyn FnMut(i32, &mut Vec<u8>)) {
        if self.tables.is_empty() && self.style.mode == SummaryGrouping::Total {
            return CallTable::default().write(self.style, out);
        }
        let mut tables: Vec<_> = self.tables.iter().collect();
        tables.sort_by_key(|(group, table)| (Reverse(table.count()), *group));
        for (n, (group, table)) in tables.into_iter().enumerate() {
            if *group != SummaryGroup::All {
                out.extend_from_slice(if n > 0 { b"\n" } else { b"" });
                match group {
                    SummaryGroup::Thread(tid) => {
                        name(*tid, out);
                        let _ = write!(out, " ({tid})");
                    }
                    SummaryGroup::Ended(tid, _, name) => {
                        out.extend_from_slice(name);
                        let _ = write!(out, " ({tid})");
                    }
                    SummaryGroup::Cgroup(Some(path)) => out.extend_from_slice(path),
                    SummaryGroup::Cgroup(None) => out.extend_from_slice(b"unknown cgroup"),
                    SummaryGroup::All | SummaryGroup::Others => out.extend_from_slice(b"others"),
                }
                let calls = table.count();
                let _ = writeln!(out, ", {calls} {}\n", if calls == 1 { "call" } else { "calls" });
            }
            table.write(self.style, out);
        }
    }
}

impl CallTable {
    fn count(&self) -> u64 {
        self.calls.values().fold(0, |sum, (_, s)| sum + s.durations.count)
    }

    /// Rows with the names of their calls, and the ABI of those that two have under one name.
    fn named(&self) -> Vec<(String, &SyscallStats)> {
        let mut times: FxHashMap<&str, u32> = FxHashMap::default();
        self.calls.values().for_each(|(name, _)| *times.entry(name).or_default() += 1);
        let calls = self.calls.iter().map(|(number, (name, stats))| {
            let is_shared = times.get(&**name).is_some_and(|times| *times > 1);
            let abi = if is_shared { format!(" ({})", abi_name(*number)) } else { String::new() };
            (format!("{name}{abi}"), stats)
        });
        calls.collect()
    }

    /// The table, the longest total first, and the sum of all.
    fn write(&self, style: SummaryStyle, out: &mut Vec<u8>) {
        let mut rows: Vec<(String, &SyscallStats)> = self.named();
        rows.sort_by_key(|(name, s)| (Reverse(s.durations.total), name.clone()));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(12);
        let width = format_width(width);
        let _ = writeln!(
            out,
            "{:<width$} {:>9} {:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
            "syscall",
            "calls",
            "errors",
            "total (ms)",
            "min (ms)",
            "avg (ms)",
            "p50 (ms)",
            "p99 (ms)",
            "max (ms)",
            "stddev"
        );
        let rule = |n: usize| "-".repeat(n);
        let (a, b, c, d) = (rule(width), rule(9), rule(8), rule(12));
        let _ = writeln!(out, "{a} {b} {c} {d} {0} {0} {0} {0} {0} {c}", rule(10));
        let ms = |nanos: Option<u64>| format!("{:.3}", nanos.unwrap_or(0) as f64 / 1e6);
        let shown = style.max_rows.unwrap_or(usize::MAX);
        for (name, s) in rows.iter().take(shown) {
            let _ = writeln!(
                out,
                "{name:<width$} {:>9} {:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7.2}%",
                s.durations.count,
                s.failed(),
                ms(Some(s.durations.total)),
                ms(s.min),
                ms(s.durations.average()),
                ms(s.durations.quantile(0.5)),
                ms(s.durations.quantile(0.99)),
                ms(s.durations.max.map(|m| m.0)),
                s.relative_error(),
            );
            for (error, count) in s.errors.iter().filter(|_| style.by_error) {
                let name = errno_name(*error).map_or_else(|| error.to_string(), str::to_owned);
                let _ = writeln!(out, "{:>1$}: {count}", name, format_width(width + 19));
            }
        }
        if let Some(more) = rows.len().checked_sub(shown).filter(|more| *more > 0) {
            let _ = writeln!(out, "… {more} more");
        }
        let calls = self.count();
        let errors: u64 = rows.iter().map(|(_, s)| s.failed()).sum();
        let total = rows.iter().fold(0u64, |sum, (_, s)| sum.saturating_add(s.durations.total));
        let _ = writeln!(out, "{:<width$} {calls:>9} {errors:>8} {:>12}", "total", ms(Some(total)));
        if let Some(runtime) = self.runtime {
            let _ = writeln!(out, "on a CPU for {} ms", ms(Some(runtime)));
        }
    }
}

/// ABI of a call's number.
pub(super) fn abi_name(number: i64) -> &'static str {
    match number {
        _ if is_compat(number) => "32-bit",
        _ if is_x32(number) => "x32",
        _ => "64-bit",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_summed() {
        let style = SummaryStyle { by_error: true, ..SummaryStyle::default() };
        let mut s = SyscallSummary::new(style);
        s.count(s.group(7, None), (0, "read"), None, 10_000);
        s.count(s.group(8, None), (0, "read"), Some(4), 30_000);
        s.count(s.group(8, None), (1, "write"), None, 2_000_000);
        let mut out = Vec::new();
        s.write(&mut out, &mut |_, _| {});
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        let times = ["2.000", "2.000", "2.000", "2.000", "2.000", "2.000"];
        assert_eq!(rows[2], [&["write", "1", "0"][..], &times, &["0.00%"]].concat());
        let times = ["0.040", "0.010", "0.020", "0.010", "0.030", "0.030", "50.00%"];
        assert_eq!(rows[3], [&["read", "2", "1"][..], &times].concat());
        assert_eq!(rows[4], ["EINTR:", "1"]);
        assert_eq!(rows[5], ["total", "3", "1", "2.040"]);
    }

    #[test]
    fn calls_of_two_abis_are_named_apart() {
        let mut s = SyscallSummary::new(SummaryStyle::default());
        let compat = super::super::numbers::COMPAT_CALLS;
        let calls = [(39, "getpid"), (compat + 20, "getpid"), (compat + 5, "open"), (0, "read")];
        for (number, name) in calls {
            s.count(s.group(7, None), (number, name), None, 1_000_000);
        }
        let mut out = Vec::new();
        s.write(&mut out, &mut |_, _| {});
        let text = String::from_utf8(out).unwrap();
        let names: Vec<&str> = text.lines().filter_map(|l| l.split("  ").next()).collect();
        let expected = ["getpid (32-bit)", "getpid (64-bit)", "open", "read"];
        assert_eq!(names[2..6], expected, "{text}");
    }

    #[test]
    fn a_reused_tid_is_a_new_thread() {
        let style = SummaryStyle { mode: SummaryGrouping::Thread, ..SummaryStyle::default() };
        let mut s = SyscallSummary::new(style);
        s.count(s.group(7, None), (0, "read"), None, 9_000);
        s.count(s.group(7, None), (0, "read"), None, 9_000);
        assert!(s.has_thread(7) && !s.has_thread(8));
        s.end_thread(7, b"firstlife".to_vec());
        s.count(s.group(7, None), (1, "write"), None, 9_000);
        let mut out = Vec::new();
        s.write(&mut out, &mut |_, out| out.extend_from_slice(b"secondlife"));
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("firstlife (7), 2 calls\n"), "{text}");
        assert!(text.contains("\nsecondlife (7), 1 call\n"), "{text}");
    }

    #[test]
    fn each_thread_has_its_table_of_as_many_rows_as_wanted() {
        let style =
            SummaryStyle { mode: SummaryGrouping::Thread, by_error: false, max_rows: Some(1) };
        let mut s = SyscallSummary::new(style);
        for (tid, number, call, nanos) in
            [(7, 0, "read", 9_000), (8, 0, "read", 10_000), (8, 1, "write", 2_000_000)]
        {
            s.count(s.group(tid, None), (number, call), None, nanos);
        }
        let mut out = Vec::new();
        s.write(&mut out, &mut |tid, out| out.extend_from_slice(format!("t{tid}").as_bytes()));
        let text = String::from_utf8(out).unwrap();
        let firsts: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().next()).collect();
        let rule = "-".repeat(12);
        let of_8 = ["t8", "syscall", &rule, "write", "…", "total"];
        let of_7 = ["t7", "syscall", &rule, "read", "total"];
        assert_eq!(firsts, [&of_8[..], &of_7[..]].concat());
        assert!(text.starts_with("t8 (8), 2 calls\n\n"), "{text}");
        assert!(text.contains("\nt7 (7), 1 call\n\n") && text.contains("… 1 more\n"), "{text}");
    }
}
