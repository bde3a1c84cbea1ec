//! Values of flags that several commands have: sizes, rates, times, modes.

use std::time::Duration;

use kymo_files::ctf::types::CtfVersion;
use kymo_record::{CallGraph, ControlSource, SwitchOn, Synthesis};

/// A sampling frequency; `u64::MAX` for the most that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) u64);

/// Data pages of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring(pub(crate) usize);

pub(crate) fn sample_rate(text: &str) -> Result<Rate, String> {
    match text {
        "max" => Ok(Rate(u64::MAX)),
        _ => match text.parse() {
            Ok(n) if n > 0 => Ok(Rate(n)),
            _ => Err("a frequency is a number above 0, or max".into()),
        },
    }
}

/// A number of bytes with an optional suffix B, K, M or G.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.to_ascii_uppercase().chars().last() {
        Some('B') => (&text[..text.len() - 1], 0),
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let n: Option<u64> = digits.parse().ok();
    n.and_then(|n| n.checked_mul(1 << shift))
        .filter(|n| *n > 0)
        .ok_or_else(|| "a size is a number above 0 with a suffix B, K, M or G".into())
}

/// Pages, or bytes with a suffix; rounded up to a power of two.
pub(crate) fn ring(text: &str) -> Result<Ring, String> {
    let pages = match text.parse::<u64>() {
        Ok(pages) => pages,
        // The command crate asks the system for nothing: 4096 is the smallest page there is.
        Err(_) => bytes(text)?.div_ceil(4096),
    };
    match usize::try_from(pages).ok().and_then(usize::checked_next_power_of_two) {
        Some(p) if pages > 0 && p <= 1 << 24 => Ok(Ring(p)),
        _ => Err("a ring has between 1 page and 64 GiB".into()),
    }
}

/// Nanoseconds of a time in ns, us, ms or s; a number alone is of nanoseconds.
pub(crate) fn span_of_time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000), ("", 1)];
    let number = |(unit, scale): &(&str, u64)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*scale)
    };
    units
        .iter()
        .find_map(number)
        .filter(|n| *n > 0)
        .ok_or_else(|| "a time is a number above 0 with a unit ns, us, ms or s".into())
}

pub(crate) fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| "not a number of milliseconds".into())
}

/// A version of CTF.
pub(crate) fn ctf_version(text: &str) -> Result<CtfVersion, String> {
    match text {
        "1.8" | "1" => Ok(CtfVersion::V1_8),
        "2" | "2.0" => Ok(CtfVersion::V2),
        _ => Err("there are 1.8 and 2".into()),
    }
}

/// Milliseconds, or `-1` forever.
pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    if text == "-1" { Ok(Duration::MAX) } else { millis(text) }
}

/// Parses the source of control commands during a recording.
pub(crate) fn control(text: &str) -> Result<ControlSource, String> {
    ControlSource::parse(text).ok_or_else(|| "it is fd:CTL[,ACK] or fifo:CTL[,ACK]".into())
}

/// Kinds of records that are made of what exists, by the names of perf-record(1).
pub(crate) fn synthesis(text: &str) -> Result<Synthesis, String> {
    match text {
        "all" | "mmap" => Ok(Synthesis::All),
        "task" | "cgroup" => Ok(Synthesis::Tasks),
        "no" => Ok(Synthesis::None),
        _ => Err("there are all, task, mmap, cgroup and no".into()),
    }
}

/// `fp`, `dwarf` or `dwarf,BYTES`.
pub(crate) fn call_graph(text: &str) -> Result<CallGraph, String> {
    let (mode, size) = match text.split_once(',') {
        Some((mode, size)) => (mode, Some(size)),
        None => (text, None),
    };
    match (mode, size) {
        ("fp", None) => Ok(CallGraph::FramePointers),
        ("dwarf", None) => Ok(CallGraph::Dwarf(8192)),
        ("dwarf", Some(size)) => match size.parse::<u32>() {
            Ok(n) if (8..=65528).contains(&n) => Ok(CallGraph::Dwarf(n.next_multiple_of(8))),
            _ => Err("a stack dump has between 8 and 65528 bytes".into()),
        },
        ("lbr", _) => {
            Err("lbr needs branch records, which are not recorded; use fp or dwarf".into())
        }
        _ => Err("call graphs are fp or dwarf[,BYTES]".into()),
    }
}

/// Requested mode of call chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainMode {
    /// The format that the program needs.
    Auto,
    /// As named.
    Fixed(CallGraph),
}

/// `auto`, or as [`call_graph`].
pub(crate) fn chain_mode(text: &str) -> Result<ChainMode, String> {
    if text == "auto" {
        return Ok(ChainMode::Auto);
    }
    let other = |_| "call graphs are fp, dwarf[,BYTES] or auto".to_owned();
    match call_graph(text) {
        Err(e) if e.starts_with("call graphs are") => Err(other(e)),
        mode => mode.map(ChainMode::Fixed),
    }
}

/// `signal`, a size with suffix, or a time in s, m, h, d.
pub(crate) fn switch_on(text: &str) -> Result<SwitchOn, String> {
    if text == "signal" {
        return Ok(SwitchOn::Signal);
    }
    let scale = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return bytes(text).map(SwitchOn::Size),
    };
    match text[..text.len() - 1].parse::<u64>().ok().and_then(|n| n.checked_mul(scale)) {
        Some(n) if n > 0 => Ok(SwitchOn::Time(Duration::from_secs(n))),
        _ => Err("switch on `signal`, at a size (10M) or after a time (30s)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!((bytes("3K"), bytes("7")), (Ok(3072), Ok(7)));
        assert!(bytes("").is_err() && bytes("x").is_err() && bytes("99999999999G").is_err());
        assert_eq!((ring("3"), ring("1M")), (Ok(Ring(4)), Ok(Ring(256))));
        assert!(ring("0").is_err());
        assert_eq!((span_of_time("10ms"), span_of_time("7")), (Ok(10_000_000), Ok(7)));
        assert!(span_of_time("0s").is_err() && span_of_time("s").is_err());
        assert_eq!(switch_on("2m"), Ok(SwitchOn::Time(Duration::from_secs(120))));
        assert_eq!(switch_on("2M"), Ok(SwitchOn::Size(2 << 20)));
        assert_eq!(call_graph("dwarf,1001"), Ok(CallGraph::Dwarf(1008)));
        assert!(call_graph("dwarf,70000").is_err());
        assert_eq!((sample_rate("max"), sample_rate("0").is_err()), (Ok(Rate(u64::MAX)), true));
    }
}
