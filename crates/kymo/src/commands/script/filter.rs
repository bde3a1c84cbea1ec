//! Which events are printed.

use anyhow::{Context as _, bail};
use globset::{Glob, GlobSet, GlobSetBuilder};

use super::Args;
use super::line::Head;

/// Conditions on an event; those not given hold.
#[derive(Clone, Default)]
pub(super) struct Filter {
    pub(super) any: bool,
    /// From and to, both included.
    times: Vec<(u64, u64)>,
    cpus: Vec<bool>,
    comms: Vec<Vec<u8>>,
    pids: Vec<u32>,
    tids: Vec<u32>,
    events: Option<GlobSet>,
}

/// What the conditions look at.
pub(super) struct Facts<'a> {
    pub(super) head: Head<'a>,
    pub(super) event: &'a str,
}

impl Filter {
    /// `span` is when the first and the last sample were taken, where that is known.
    pub(super) fn new(args: &Args, span: Option<(u64, u64)>) -> anyhow::Result<Filter> {
        let mut f = Filter::default();
        if let Some(text) = &args.time {
            f.times = times(text, span)?;
        }
        if let Some(list) = &args.cpu {
            for part in list.split(',') {
                let (a, b) = part.split_once('-').unwrap_or((part, part));
                let parse = |s: &str| match s.trim().parse::<usize>() {
                    Ok(n) if n <= 65535 => Ok(n),
                    Ok(n) => bail!("--cpu {list}: {n} is no CPU"),
                    Err(_) => bail!("--cpu {list}: not a list of CPUs such as 0,2-3"),
                };
                let (a, b) = (parse(a)?, parse(b)?);
                f.cpus.resize(f.cpus.len().max(b + 1), false);
                f.cpus.iter_mut().take(b + 1).skip(a).for_each(|c| *c = true);
            }
        }
        if !args.events.is_empty() {
            let mut set = GlobSetBuilder::new();
            for e in &args.events {
                set.add(Glob::new(e).with_context(|| format!("--event {e}"))?);
            }
            f.events = Some(set.build()?);
        }
        f.comms = args.comm.iter().map(|c| c.as_bytes().to_vec()).collect();
        f.pids.clone_from(&args.pid);
        f.tids.clone_from(&args.tid);
        f.any = args.time.is_some()
            || args.cpu.is_some()
            || f.events.is_some()
            || !(f.comms.is_empty() && f.pids.is_empty() && f.tids.is_empty());
        Ok(f)
    }

    pub(super) fn wants(&self, facts: &Facts<'_>) -> bool {
        self.wants_head(&facts.head) && self.wants_event(&[facts.event])
    }

    /// The conditions on an event's name, which may have several forms.
    pub(super) fn wants_event(&self, names: &[&str]) -> bool {
        self.events.as_ref().is_none_or(|set| names.iter().any(|n| set.is_match(n)))
    }

    /// All other conditions.
    pub(super) fn wants_head(&self, of: &Head<'_>) -> bool {
        let among = |list: &[u32], n: u32| list.is_empty() || list.contains(&n);
        of.time.is_none_or(|t| self.wants_time(t))
            && (self.cpus.is_empty()
                || of.cpu.is_some_and(|c| self.cpus.get(c as usize) == Some(&true)))
            && among(&self.pids, of.pid)
            && among(&self.tids, of.tid)
            && (self.comms.is_empty() || self.comms.iter().any(|want| want == of.comm))
    }

    /// The conditions on the time.
    pub(super) fn wants_time(&self, time: u64) -> bool {
        let within = |(from, to): &(u64, u64)| (*from..=*to).contains(&time);
        self.times.is_empty() || self.times.iter().any(within)
    }

    /// The CPUs that are wanted, if not all.
    pub(super) fn cpus(&self) -> Option<Vec<u32>> {
        let wanted = |(i, yes): (usize, &bool)| yes.then_some(i as u32);
        (!self.cpus.is_empty()).then(|| self.cpus.iter().enumerate().filter_map(wanted).collect())
    }

    /// Nothing later is wanted.
    pub(super) fn until(&self) -> u64 {
        self.times.iter().map(|t| t.1).max().unwrap_or(u64::MAX)
    }

    /// Nothing earlier is wanted.
    pub(super) fn from(&self) -> u64 {
        self.times.iter().map(|t| t.0).min().unwrap_or(0)
    }
}

/// `START,STOP START,STOP…`, or shares of the whole: `10%/2`, `0%-10%,30%-40%`.
pub(crate) fn times(text: &str, span: Option<(u64, u64)>) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut times = Vec::new();
    if text.contains('%') {
        let Some((first, last)) = span else {
            bail!(
                "--time {text}: the recording does not say when it begins and ends, \
                 so that shares of it are not known; name times in seconds"
            );
        };
        for part in text.split([',', ' ']).filter(|p| !p.is_empty()) {
            let (from, to) = share(part).with_context(|| {
                format!("--time {text}: {part} is no share such as 10%, 10%/2 or 0%-10%")
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
            let from = if from.is_empty() { 0 } else { seconds(from)? };
            let to = if to.is_empty() { u64::MAX } else { seconds(to)? };
            if from > to {
                bail!("--time {part}: the start is later than the end");
            }
            times.push((from, to));
        }
    }
    if times.is_empty() {
        bail!("--time: no time is given");
    }
    Ok(times)
}

/// `A%`, the N-th of such shares (`A%/N`), or `A%-B%`, as parts of one.
fn share(part: &str) -> Option<(f64, f64)> {
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
fn seconds(text: &str) -> anyhow::Result<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 || text.is_empty() {
        bail!("--time {text}: not a time in seconds, such as 12.5");
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse()? };
    let nanos: u64 = format!("{part:0<9}").parse()?;
    whole
        .checked_mul(1_000_000_000)
        .and_then(|n| n.checked_add(nanos))
        .with_context(|| format!("--time {text}: too far away"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_first_and_last_sample() {
        let of = |text: &str| times(text, Some((1000, 2000))).unwrap();
        assert_eq!(of("10%/2"), [(1100, 1200)]);
        assert_eq!(of("0%-10%,30%-40%"), [(1000, 1099), (1300, 1400)]);
        assert_eq!(of("25%"), [(1000, 1250)]);
        assert_eq!(of("1,2 3,4"), [(1_000_000_000, 2_000_000_000), (3_000_000_000, 4_000_000_000)]);
        for bad in ["10%/0", "110%", "20%-10%", "x%", "10%/11", "60%/3", ""] {
            assert!(times(bad, Some((1000, 2000))).is_err(), "{bad}");
        }
        assert!(times("10%", None).is_err());
    }

    #[test]
    fn seconds_keep_their_nanoseconds() {
        assert_eq!(seconds("6880.661636").unwrap(), 6_880_661_636_000);
        assert_eq!(seconds("1.000000001").unwrap(), 1_000_000_001);
        assert!(seconds("1e3").is_err() && seconds("").is_err() && seconds("-1").is_err());
    }
}
