//! Events that a perf.data lost, stated alike by every command; and what helps: larger rings. No part of a perf.data says how large they were but the recorded
//! command line, if they were stated there.

use kymo_files::perfdata::PerfDataReadStats;
use kymo_model::{Note, NoteKind, counted};

/// The note on what was lost, if anything was.
pub fn note(stats: &PerfDataReadStats, command_line: &[String]) -> Option<Note> {
    note_with(stats, || advice(command_line, (stats.samples, stats.lost_events())))
}

/// The note on losses of rings that are read while they are written.
pub fn note_live(stats: &PerfDataReadStats) -> Option<Note> {
    note_with(stats, || "give a larger -m".to_owned())
}

fn note_with(stats: &PerfDataReadStats, advice: impl FnOnce() -> String) -> Option<Note> {
    let lost = stats.lost_events();
    if lost == 0 {
        return None;
    }
    let mut fact = format!("{} lost", counted(lost, "event", "events"));
    if stats.lost_chunks > 0 {
        fact.push_str(&format!(" in {}", counted(stats.lost_chunks, "place", "places")));
    }
    if stats.lost_in_hardware > 0 {
        fact.push_str(&format!(", {} of them in hardware", stats.lost_in_hardware));
    }
    fact.push_str(&format!(", {} kept", counted(stats.samples, "sample", "samples")));
    Some(Note::doubt(NoteKind::Lost, fact, Some(advice())))
}

/// Advice for a recording whose rings were full: rings that would have held what was lost beside
/// what was not, as the recorder advises.
fn advice(command_line: &[String], (kept, lost): (u64, u64)) -> String {
    let times = kept.saturating_add(lost).div_ceil(kept.max(1)).max(2);
    match ring(command_line).and_then(|size| larger(size, times)) {
        Some(size) => format!("record with larger rings: -m {size}"),
        None => "record with a larger -m".into(),
    }
}

/// Largest ring that is recommended, in bytes.
const MAX_RING: u64 = 1 << 30;

/// Short options of `perf record` and `kymo record` that take a value, in the same word
/// or in the next; others may be behind each other in a word.
const WITH_VALUE: &str = "eFcoptuCGDkmr";
/// Those that may have one in the same word only.
const WITH_VALUE_INSIDE: &str = "zIjSW";

/// The stated size of the rings. `None` too where it is ambiguous whether a word is an option or
/// the recorded command's.
fn ring(command_line: &[String]) -> Option<&str> {
    let mut found = None;
    let mut words = command_line.iter().map(String::as_str).skip_while(|w| *w != "record").skip(1);
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            match long.split_once('=') {
                // The recorded command begins.
                None if long.is_empty() => return found,
                Some(("mmap-pages", size)) => found = Some(size),
                None if long == "mmap-pages" => found = Some(words.next()?),
                Some(_) => {}
                // Whether it takes the next word is known by who knows all options.
                None => match words.clone().next() {
                    Some(next) if next.starts_with('-') => {}
                    _ => return found.filter(|_| !words.any(is_like_ours)),
                },
            }
            continue;
        }
        let Some(letters) = word.strip_prefix('-') else { return found };
        let inside = |c: char| WITH_VALUE.contains(c) || WITH_VALUE_INSIDE.contains(c);
        let Some(at) = letters.find(inside) else { continue };
        let (option, value) = letters.split_at(at).1.split_at(1);
        if WITH_VALUE_INSIDE.contains(option) {
            continue;
        }
        let value = if value.is_empty() { words.next()? } else { value };
        if option == "m" {
            found = Some(value);
        }
    }
    found
}

fn is_like_ours(word: &str) -> bool {
    word.starts_with("-m") || word.starts_with("--mmap-pages")
}

/// A multiple of a size, worded alike: pages, or bytes with a suffix; perf's may have a second
/// size behind a comma.
fn larger(size: &str, times: u64) -> Option<String> {
    let size = size.split(',').next()?;
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = size.strip_prefix(digits)?;
    if !matches!(suffix, "" | "B" | "K" | "M" | "G" | "b" | "k" | "m" | "g") {
        return None;
    }
    let number: u64 = digits.parse().ok().filter(|n| *n > 0)?;
    // Rings are powers of two, rounded up.
    let number = number.checked_next_power_of_two()?.checked_mul(times)?;
    let number = number.checked_next_power_of_two()?;
    let most = match suffix {
        "G" | "g" => MAX_RING >> 30,
        "M" | "m" => MAX_RING >> 20,
        "K" | "k" => MAX_RING >> 10,
        "" => MAX_RING >> 12,
        _ => MAX_RING,
    };
    Some(format!("{}{suffix}", number.min(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_a_multiple_of_what_was_used() {
        let check = |line: &str, expected: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let wanted = match expected {
                "" => "record with a larger -m".to_owned(),
                size => format!("record with larger rings: -m {size}"),
            };
            assert_eq!(advice(&words, (1000, 10)), wanted, "{line}");
        };
        check("perf record -m 64 -e cycles ls", "128");
        check("/usr/bin/perf record -q -e raw_syscalls:* -m1 -o x -- ls -m 5", "2");
        check("kymo record -agm 3 -- x", "8");
        check("kymo record --mmap-pages=1M x", "2M");
        check("kymo record --mmap-pages 512K x", "1024K");
        check("perf record -m 128,32 x", "256");
        check("perf record -z5 -m 16 x", "32");
        check("perf record -g -F 99 ls -m 5", "");
        check("perf record -- ls -m 5", "");
        // The value of an option that may have one.
        check("perf record --call-graph dwarf -m 4 ls", "");
        check("perf record --no-buildid -m 4 ls", "8");
        check("perf record -m 8 --call-graph dwarf ls", "16");
        check("perf record -m 8 --call-graph dwarf -m 16 ls", "");
        check("perf record -m x ls", "");
        check("perf record -m", "");
        check("perf record", "");
        // As the recorder says it of the same recording.
        let words = ["kymo", "record", "-m", "4K", "x"].map(str::to_owned);
        assert_eq!(advice(&words, (1000, 2500)), "record with larger rings: -m 16K");
        assert_eq!(advice(&words, (0, 9)), "record with larger rings: -m 64K");
        assert_eq!(advice(&words, (1, 1 << 40)), "record with larger rings: -m 1048576K");
    }
}
