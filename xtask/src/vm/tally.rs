//! Results of the tests in a guest: their output, counted and shown.

use std::io::Write as _;

use anyhow::Context as _;
use kymo_guest::OutputStream;

use super::machine::Ended;
use crate::test::{Counts, parse_counts};

/// Result of a test program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfTarget {
    pub(super) counts: Counts,
    /// The failed tests. Without any a program with failures ended badly as a whole.
    pub(super) failed: Vec<String>,
}

impl OfTarget {
    /// Arguments for the second try of the program.
    pub(super) fn again(&self) -> Vec<String> {
        let exact = (!self.failed.is_empty()).then(|| "--exact".to_owned());
        self.failed.iter().cloned().chain(exact).collect()
    }

    /// Result combined with the second try of the failed tests.
    pub(super) fn with(self, second: &OfTarget) -> OfTarget {
        let kept = if self.failed.is_empty() {
            Counts::default()
        } else {
            Counts { failed: 0, ..self.counts }
        };
        OfTarget { counts: kept.plus(second.counts), failed: second.failed.clone() }
    }
}

/// Tests that passed only when tried again, each with its program: defects to be mended.
pub(super) fn flaky(target: &str, first: &OfTarget, second: &OfTarget) -> Vec<String> {
    let line = |test: &str| format!("{target} {test}");
    if first.failed.is_empty() {
        return (second.counts.failed == 0).then(|| line("as a whole")).into_iter().collect();
    }
    if second.counts.failed > 0 && second.failed.is_empty() {
        return Vec::new();
    }
    let mended = first.failed.iter().filter(|test| !second.failed.contains(test));
    mended.map(|test| line(test)).collect()
}

/// Destination of guests' output: the screen, or a buffer that is printed when the guest has ended.
pub(super) struct Log {
    kept: Option<Vec<u8>>,
}

impl Log {
    pub(super) fn new(is_live: bool) -> Log {
        Log { kept: (!is_live).then(Vec::new) }
    }

    pub(super) fn line(&mut self, line: &str) -> anyhow::Result<()> {
        self.bytes(format!("{line}\n").as_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).context("stdout")
    }

    /// Shows what was kept.
    pub(super) fn show(&mut self) -> anyhow::Result<()> {
        let kept = self.kept.as_mut().map(std::mem::take).unwrap_or_default();
        let mut out = std::io::stdout().lock();
        out.write_all(&kept).and_then(|()| out.flush()).context("stdout")
    }
}

/// Name and time limit of a test program.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetName<'a> {
    pub(super) name: &'a str,
    pub(super) limit_seconds: u32,
}

/// Shows the output of the tests and counts.
pub(super) struct Tally<'a> {
    targets: Vec<TargetName<'a>>,
    log: &'a mut Log,
    /// The target whose output is shown.
    shown: Option<usize>,
    line: Vec<u8>,
    /// Results of each target.
    found: Vec<OfTarget>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(targets: Vec<TargetName<'a>>, log: &'a mut Log) -> Self {
        let found = vec![OfTarget::default(); targets.len()];
        Tally { targets, log, shown: None, line: Vec::new(), found }
    }

    pub(super) fn hear(
        &mut self,
        place: usize,
        stream: OutputStream,
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        if self.shown != Some(place) {
            let name = self.targets.get(place).map_or("?", |t| t.name);
            self.log.line(&format!("\n--- {name} (in the guest)"))?;
            self.shown = Some(place);
        }
        self.log.bytes(bytes)?;
        if stream == OutputStream::Err {
            return Ok(());
        }
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if let Some(found) = self.found.get_mut(place) {
                take_line(found, &String::from_utf8_lossy(&line));
            }
        }
        Ok(())
    }

    /// A test program that ended badly without a failed test (a crash, a time limit)
    /// is itself a failed test.
    pub(super) fn results(mut self, ended: &[Ended]) -> anyhow::Result<Vec<OfTarget>> {
        for (place, (target, found)) in self.targets.iter().zip(&mut self.found).enumerate() {
            let end = ended.get(place).copied();
            if end == Some(Ended { status: 0, late: false }) || found.counts.failed > 0 {
                continue;
            }
            found.counts.failed += 1;
            found.failed.clear();
            let how = match end {
                Some(Ended { late: true, .. }) => {
                    format!("took longer than {} s", target.limit_seconds)
                }
                Some(Ended { status, .. }) => format!("ended with status {status}"),
                None => "never ended".to_owned(),
            };
            self.log.line(&format!("FAILED: {} {how}", target.name))?;
        }
        Ok(self.found)
    }
}

/// Looks at a line of a test program: before its counts it names what failed, twice; the
/// second list has names alone.
fn take_line(found: &mut OfTarget, line: &str) {
    if line == "failures:" {
        found.failed.clear();
    } else if let Some(counts) = parse_counts(line) {
        found.counts = found.counts.plus(counts);
        // Also of a program that is not as it should be no test is passed over.
        if found.failed.len() as u64 != found.counts.failed {
            found.failed.clear();
        }
    } else if let Some(name) = line.strip_prefix("    ") {
        found.failed.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_and_a_time_limit_count_as_failures() {
        let target = |name| TargetName { name, limit_seconds: 1 };
        let targets = ["guest_a", "guest_b", "guest_c", "guest_d"].map(target);
        let counts = |passed, failed| Counts { passed, failed, skipped: 0 };
        let end = |status, late| Ended { status, late };
        let ended = [end(0, false), end(101, false), end(139, false), end(137, true)];
        for reported in [4, 2] {
            let mut log = Log::new(false);
            let mut tally = Tally::new(targets.to_vec(), &mut log);
            let text = b"test result: ok. 2 passed; 0 failed; 0 ignored\n";
            // Output arrives in any pieces.
            for byte in text {
                tally.hear(0, OutputStream::Out, &[*byte]).unwrap();
            }
            let failed = b"failures:\n    of its output\n\nfailures:\n    one\n    two\n\n\
                           test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
            tally.hear(1, OutputStream::Out, failed).unwrap();
            let results = tally.results(&ended[..reported]).unwrap();
            let all: Vec<Counts> = results.iter().map(|r| r.counts).collect();
            assert_eq!(all, [counts(2, 0), counts(1, 2), counts(0, 1), counts(0, 1)]);
            assert_eq!(results[1].again(), ["one", "two", "--exact"]);
            assert_eq!(results[2].again(), [""; 0]);
        }
    }

    #[test]
    fn what_passes_at_the_second_try_is_passed_and_named() {
        let of = |passed, failed: &[&str], bad: u64| OfTarget {
            counts: Counts { passed, failed: failed.len() as u64 + bad, skipped: 0 },
            failed: failed.iter().map(|f| (*f).to_owned()).collect(),
        };
        let check = |first: OfTarget, second: OfTarget, lines: usize, sum: (u64, u64)| {
            let reported = flaky("guest_a", &first, &second);
            assert_eq!(reported.len(), lines, "{reported:?}");
            let counts = first.with(&second).counts;
            assert_eq!((counts.passed, counts.failed), sum);
        };
        check(of(5, &["one", "two"], 0), of(2, &[], 0), 2, (7, 0));
        check(of(5, &["one", "two"], 0), of(1, &["two"], 0), 1, (6, 1));
        check(of(5, &["one", "two"], 0), of(0, &["one", "two"], 0), 0, (5, 2));
        // It crashed: all of it is run again.
        check(of(0, &[], 1), of(7, &[], 0), 1, (7, 0));
        check(of(0, &[], 1), of(6, &["one"], 0), 0, (6, 1));
        check(of(5, &["one"], 0), of(0, &[], 1), 0, (5, 1));
    }
}
