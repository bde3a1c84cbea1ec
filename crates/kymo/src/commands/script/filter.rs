//! Which events are printed.

use anyhow::{Context as _, bail};
use globset::{Glob, GlobSet, GlobSetBuilder};

use super::Args;
use super::line::Head;

/// Conditions on an event; those not given hold.
#[derive(Clone, Default)]
pub(super) struct Filter {
    pub(super) any: bool,
    from: u64,
    to: u64,
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
    pub(super) fn new(args: &Args) -> anyhow::Result<Filter> {
        let mut f = Filter { to: u64::MAX, ..Filter::default() };
        if let Some(range) = &args.time {
            let (from, to) = range.split_once(',').unwrap_or((range, ""));
            f.from = if from.is_empty() { 0 } else { seconds(from)? };
            f.to = if to.is_empty() { u64::MAX } else { seconds(to)? };
            if f.from > f.to {
                bail!("--time {range}: the start is later than the end");
            }
        }
        if let Some(list) = &args.cpu {
            for part in list.split(',') {
                let (a, b) = part.split_once('-').unwrap_or((part, part));
                let parse = |s: &str| {
                    let n: usize = s.trim().parse().with_context(|| format!("--cpu {list}"))?;
                    if n > 65535 { bail!("--cpu {list}: {n} is no CPU") } else { Ok(n) }
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
        let of = &facts.head;
        let among = |list: &[u32], n: u32| list.is_empty() || list.contains(&n);
        of.time.is_none_or(|t| t >= self.from && t <= self.to)
            && (self.cpus.is_empty()
                || of.cpu.is_some_and(|c| self.cpus.get(c as usize) == Some(&true)))
            && among(&self.pids, of.pid)
            && among(&self.tids, of.tid)
            && (self.comms.is_empty() || self.comms.iter().any(|want| want == of.comm))
            && self.events.as_ref().is_none_or(|set| set.is_match(facts.event))
    }
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
    fn seconds_keep_their_nanoseconds() {
        assert_eq!(seconds("6880.661636").unwrap(), 6_880_661_636_000);
        assert_eq!(seconds("1.000000001").unwrap(), 1_000_000_001);
        assert!(seconds("1e3").is_err() && seconds("").is_err() && seconds("-1").is_err());
    }
}
