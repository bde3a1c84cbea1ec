//! Losses file by file: the kernel counts them from the making of a ring on (`per_cpu/cpuN/stats`),
//! and each file is to state what was lost since the one before.

use std::collections::BTreeMap;

use kymo_kernel::ftrace::TraceDir;

/// The counters of losses, as the kernel names them.
const COUNTERS: [&str; 3] = ["overrun", "commit overrun", "dropped events"];

/// Losses that earlier files have reported, for each CPU in the order of [`COUNTERS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportedLosses(BTreeMap<u32, [u64; 3]>);

/// The `stats` of rings, for each CPU, as the kernel writes them.
pub(crate) type RingStats = Vec<(u32, String)>;

/// The figures of these CPUs' rings now; without those that cannot be read.
pub(crate) fn ring_stats(dir: &TraceDir, cpus: &[u32]) -> RingStats {
    let read = |cpu: &u32| Some((*cpu, dir.read(&format!("per_cpu/cpu{cpu}/stats")).ok()?));
    cpus.iter().filter_map(read).collect()
}

impl ReportedLosses {
    /// After a file that states all that these figures count.
    pub(crate) fn all_of(stats: &RingStats) -> ReportedLosses {
        let counters = |text: &String| {
            COUNTERS.map(|name| {
                let mut lines = text.lines().filter_map(counter);
                lines.find(|(n, _)| *n == name).map_or(0, |(_, count)| count)
            })
        };
        ReportedLosses(stats.iter().map(|(cpu, text)| (*cpu, counters(text))).collect())
    }

    /// These figures without the reported ones. A counter that is less than that begins anew: of a
    /// new ring.
    pub(crate) fn rest_of(&self, stats: RingStats) -> RingStats {
        let rest = |(cpu, text): (u32, String)| {
            let Some(reported) = self.0.get(&cpu) else { return (cpu, text) };
            let line = |line: &str| {
                let found = counter(line).and_then(|(name, count)| {
                    let reported = reported[COUNTERS.iter().position(|n| *n == name)?];
                    Some(format!("{name}: {}\n", count.checked_sub(reported)?))
                });
                found.unwrap_or_else(|| format!("{line}\n"))
            };
            (cpu, text.lines().map(line).collect())
        };
        stats.into_iter().map(rest).collect()
    }

    /// A line for each CPU, and what [`ReportedLosses::add_line`] reads.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(cpu, [a, b, c])| format!("{cpu} {a} {b} {c}"))
    }

    /// Takes up a line, if it is one.
    pub(crate) fn add_line(&mut self, line: &str) {
        let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        if let Some([cpu, reported @ ..]) = numbers.as_deref()
            && let (Ok(cpu), Ok(reported)) = (u32::try_from(*cpu), reported.try_into())
        {
            self.0.insert(cpu, reported);
        }
    }
}

fn counter(line: &str) -> Option<(&str, u64)> {
    let (name, count) = line.split_once(':')?;
    Some((name, count.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(overrun: u64, dropped: u64) -> RingStats {
        let text = format!(
            "entries: 3\noverrun: {overrun}\ncommit overrun: 1\nbytes: 60\n\
             oldest event ts: 12.000345\nnow ts: 13.000000\ndropped events: {dropped}\nread events: 9\n"
        );
        vec![(2, text)]
    }

    #[test]
    fn each_file_states_what_is_new() {
        let reported = ReportedLosses::all_of(&stats(5, 100));
        let rest = reported.rest_of(stats(7, 130));
        let expected = stats(2, 30)[0].1.replace("commit overrun: 1", "commit overrun: 0");
        assert_eq!(rest, [(2, expected)]);
        // Another CPU's are all new, and so is what a new ring counts.
        let other = vec![(0, stats(7, 130)[0].1.clone())];
        assert_eq!(reported.rest_of(other.clone()), other);
        let again = stats(1, 2)[0].1.replace("commit overrun: 1", "commit overrun: 0");
        assert_eq!(reported.rest_of(vec![(2, again.clone())]), [(2, again)]);
    }

    #[test]
    fn lines_are_read_back() {
        let reported = ReportedLosses::all_of(&stats(5, 100));
        let mut read = ReportedLosses::default();
        reported.lines().for_each(|line| read.add_line(&line));
        assert_eq!(read, reported);
        for bad in ["", "1", "1 2 3", "1 2 3 4 5", "a 2 3 4", "99999999999 1 1 1", "1 -2 3 4"] {
            read.add_line(bad);
        }
        assert_eq!(read, reported);
    }
}
