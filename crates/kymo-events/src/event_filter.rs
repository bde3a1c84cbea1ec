//! Conditions on events that commands take: times, CPUs, tasks, names of events.

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Time, CPU and task of an event: what is known of every event at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventHead<'a> {
    /// Name of the task.
    pub comm: &'a [u8],
    /// Process; `u32::MAX` is the kernel's -1.
    pub pid: u32,
    /// Thread; `u32::MAX` is the kernel's -1.
    pub tid: u32,
    /// CPU, where it is known.
    pub cpu: Option<u32>,
    /// Time in nanoseconds, where it is known.
    pub time: Option<u64>,
}

/// Conditions as they are typed; those that are empty hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventConditions<'a> {
    /// Spans of time, as [`parse_times`] takes them.
    pub time: Option<&'a str>,
    /// CPUs, such as `0,2-3`.
    pub cpu: Option<&'a str>,
    /// Names of tasks.
    pub comms: &'a [String],
    /// Processes.
    pub pids: &'a [u32],
    /// Threads.
    pub tids: &'a [u32],
    /// Names or globs of events.
    pub events: &'a [String],
}

/// Why conditions could not be read, with the flag that states them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EventFilterError(String);

/// Conditions on an event; those not given hold.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    any: bool,
    /// From and to, both included.
    times: Vec<(u64, u64)>,
    cpus: Vec<bool>,
    comms: Vec<Vec<u8>>,
    pids: Vec<u32>,
    tids: Vec<u32>,
    events: Option<GlobSet>,
}

impl EventFilter {
    /// Reads conditions. `span` is when the first and the last event happened, where that is
    /// known.
    pub fn parse(
        conditions: &EventConditions<'_>,
        span: Option<(u64, u64)>,
    ) -> Result<EventFilter, EventFilterError> {
        let mut f = EventFilter::default();
        if let Some(text) = conditions.time {
            f.times = parse_times(text, span)?;
        }
        if let Some(list) = conditions.cpu {
            f.cpus = parse_cpus(list)?;
        }
        if !conditions.events.is_empty() {
            let mut set = GlobSetBuilder::new();
            let wrong = |e: &str, error| EventFilterError(format!("--event {e}: {error}"));
            for e in conditions.events {
                set.add(Glob::new(e).map_err(|error| wrong(e, error))?);
            }
            f.events = Some(set.build().map_err(|error| EventFilterError(error.to_string()))?);
        }
        f.comms = conditions.comms.iter().map(|c| c.as_bytes().to_vec()).collect();
        f.pids = conditions.pids.to_vec();
        f.tids = conditions.tids.to_vec();
        f.any = conditions.time.is_some()
            || conditions.cpu.is_some()
            || f.events.is_some()
            || !(f.comms.is_empty() && f.pids.is_empty() && f.tids.is_empty());
        Ok(f)
    }

    /// Whether there is any condition.
    #[inline]
    pub fn has_conditions(&self) -> bool {
        self.any
    }

    /// Whether an event meets all conditions.
    pub fn wants(&self, head: &EventHead<'_>, event: &str) -> bool {
        self.wants_head(head) && self.wants_event(&[event])
    }

    /// Whether an event of this name, which may have several forms, is wanted.
    pub fn wants_event(&self, names: &[&str]) -> bool {
        self.events.as_ref().is_none_or(|set| names.iter().any(|n| set.is_match(n)))
    }

    /// Whether an event meets the conditions on all but its name.
    pub fn wants_head(&self, of: &EventHead<'_>) -> bool {
        let among = |list: &[u32], n: u32| list.is_empty() || list.contains(&n);
        of.time.is_none_or(|t| self.wants_time(t))
            && (self.cpus.is_empty()
                || of.cpu.is_some_and(|c| self.cpus.get(c as usize) == Some(&true)))
            && among(&self.pids, of.pid)
            && among(&self.tids, of.tid)
            && (self.comms.is_empty() || self.comms.iter().any(|want| want == of.comm))
    }

    /// Whether an event at this time is wanted.
    pub fn wants_time(&self, time: u64) -> bool {
        let within = |(from, to): &(u64, u64)| (*from..=*to).contains(&time);
        self.times.is_empty() || self.times.iter().any(within)
    }

    /// CPUs that are wanted, if not all.
    pub fn cpus(&self) -> Option<Vec<u32>> {
        let wanted = |(i, yes): (usize, &bool)| yes.then_some(i as u32);
        (!self.cpus.is_empty()).then(|| self.cpus.iter().enumerate().filter_map(wanted).collect())
    }

    /// Last time that is wanted.
    pub fn last_time(&self) -> u64 {
        self.times.iter().map(|t| t.1).max().unwrap_or(u64::MAX)
    }

    /// First time that is wanted.
    pub fn first_time(&self) -> u64 {
        self.times.iter().map(|t| t.0).min().unwrap_or(0)
    }
}

/// A list of CPUs as flags, by number.
fn parse_cpus(list: &str) -> Result<Vec<bool>, EventFilterError> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        let parse = |s: &str| match s.trim().parse::<usize>() {
            Ok(n) if n <= 65535 => Ok(n),
            Ok(n) => Err(EventFilterError(format!("--cpu {list}: {n} is no CPU"))),
            Err(_) => {
                Err(EventFilterError(format!("--cpu {list}: not a list of CPUs such as 0,2-3")))
            }
        };
        let (a, b) = (parse(a)?, parse(b)?);
        cpus.resize(cpus.len().max(b + 1), false);
        cpus.iter_mut().take(b + 1).skip(a).for_each(|c| *c = true);
    }
    Ok(cpus)
}

/// `START,STOP START,STOP…`, or shares of the whole: `10%/2`, `0%-10%,30%-40%`.
pub fn parse_times(
    text: &str,
    span: Option<(u64, u64)>,
) -> Result<Vec<(u64, u64)>, EventFilterError> {
    let mut times = Vec::new();
    if text.contains('%') {
        let Some((first, last)) = span else {
            return Err(EventFilterError(format!(
                "--time {text}: the recording does not say when it begins and ends, \
                 so that shares of it are not known; name times in seconds"
            )));
        };
        for part in text.split([',', ' ']).filter(|p| !p.is_empty()) {
            let (from, to) = parse_share(part).ok_or_else(|| {
                let fact = format!("{part} is no share such as 10%, 10%/2 or 0%-10%");
                EventFilterError(format!("--time {text}: {fact}"))
            })?;
            let length = last.saturating_sub(first) as f64;
            let at = |share: f64| first.saturating_add((share * length).round() as u64);
            times.push((at(from), at(to).min(last)));
        }
        // Where one share ends another may begin: a sample belongs to the later.
        let shares = times.len();
        for (_, to) in times.iter_mut().take(shares.saturating_sub(1)) {
            *to = to.saturating_sub(1);
        }
    } else {
        for part in text.split_whitespace() {
            let (from, to) = part.split_once(',').unwrap_or((part, ""));
            let from = if from.is_empty() { 0 } else { parse_seconds(from)? };
            let to = if to.is_empty() { u64::MAX } else { parse_seconds(to)? };
            if from > to {
                return Err(EventFilterError(format!(
                    "--time {part}: the start is later than the end"
                )));
            }
            times.push((from, to));
        }
    }
    if times.is_empty() {
        return Err(EventFilterError("--time: no time is given".to_owned()));
    }
    Ok(times)
}

/// `A%`, the N-th of such shares (`A%/N`), or `A%-B%`, as parts of one.
fn parse_share(part: &str) -> Option<(f64, f64)> {
    let percent = |t: &str| {
        let n: f64 = t.strip_suffix('%')?.parse().ok()?;
        (0.0..=100.0).contains(&n).then_some(n / 100.0)
    };
    let (from, to) = if let Some((size, n)) = part.split_once('/') {
        let (size, n) = (percent(size)?, n.parse::<u32>().ok().filter(|n| *n > 0)?);
        (size * f64::from(n - 1), size * f64::from(n))
    } else if let Some((from, to)) = part.split_once('-') {
        (percent(from)?, percent(to)?)
    } else {
        (0.0, percent(part)?)
    };
    (from <= to && from < 1.0).then_some((from, to.min(1.0)))
}

/// Decimal seconds to nanoseconds, exactly.
fn parse_seconds(text: &str) -> Result<u64, EventFilterError> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 || text.is_empty() {
        let fact = "not a time in seconds, such as 12.5";
        return Err(EventFilterError(format!("--time {text}: {fact}")));
    }
    let too_far = || EventFilterError(format!("--time {text}: too far away"));
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_far())? };
    let nanos: u64 = format!("{part:0<9}").parse().map_err(|_| too_far())?;
    whole.checked_mul(1_000_000_000).and_then(|n| n.checked_add(nanos)).ok_or_else(too_far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_first_and_last_sample() {
        let of = |text: &str| parse_times(text, Some((1000, 2000))).unwrap();
        assert_eq!(of("10%/2"), [(1100, 1200)]);
        assert_eq!(of("0%-10%,30%-40%"), [(1000, 1099), (1300, 1400)]);
        assert_eq!(of("25%"), [(1000, 1250)]);
        assert_eq!(of("1,2 3,4"), [(1_000_000_000, 2_000_000_000), (3_000_000_000, 4_000_000_000)]);
        for bad in ["10%/0", "110%", "20%-10%", "x%", "10%/11", "60%/3", ""] {
            assert!(parse_times(bad, Some((1000, 2000))).is_err(), "{bad}");
        }
        assert!(parse_times("10%", None).is_err());
    }

    #[test]
    fn seconds_keep_their_nanoseconds() {
        assert_eq!(parse_seconds("6880.661636").unwrap(), 6_880_661_636_000);
        assert_eq!(parse_seconds("1.000000001").unwrap(), 1_000_000_001);
        assert!(parse_seconds("1e3").is_err() && parse_seconds("").is_err());
        assert!(parse_seconds("-1").is_err());
    }
}
