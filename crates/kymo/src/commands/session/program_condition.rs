//! Conditions on events of programs: they come out of rings that the programs make for this
//! command, as live events do; the session's own rings stay untouched.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::bail;
use kymo_kernel::clock;
use kymo_live::{LiveEvent, LiveNote, Subscription};
use kymo_record::ftrace::{Condition, ConditionSide, LatencyMatcher, Met, On};

/// Begins the names of programs' events: others are the kernel's.
const PREFIX: &str = "ust:";

/// A condition whose events are all of programs.
pub(super) struct ProgramCondition {
    subscription: Subscription,
    /// Each event, and what its key is called there.
    sides: Vec<(String, ConditionSide, Option<String>)>,
    /// None: that the event happens is the condition.
    matcher: Option<LatencyMatcher>,
    /// Events up to this time are already reported.
    told_until: u64,
}

impl ProgramCondition {
    /// None: the events are the kernel's.
    pub(super) fn of(condition: &Condition) -> anyhow::Result<Option<ProgramCondition>> {
        let (sides, matcher) = match condition {
            Condition::On(on) => (vec![(on, ConditionSide::To, None)], None),
            Condition::OnLatency(l) => {
                let (a, b) = l.key.clone().unzip();
                let sides = vec![(&l.from, ConditionSide::From, a), (&l.to, ConditionSide::To, b)];
                (sides, Some(LatencyMatcher::new(l.limit)))
            }
        };
        let bare: Vec<Option<&str>> =
            sides.iter().map(|(on, ..)| on.event.strip_prefix(PREFIX)).collect();
        if bare.iter().all(Option::is_none) {
            return Ok(None);
        }
        let (mut subscription, mut known) = (Subscription::new().system_wide(), Vec::new());
        for ((On { event, filter }, side, key), bare) in sides.into_iter().zip(bare) {
            let Some(name) = bare else {
                bail!(
                    "{event} is the kernel's: both events of a condition are, or both are of programs"
                );
            };
            subscription = match filter {
                Some(filter) => subscription.program_event_if(name, filter),
                None => subscription.program_event(name),
            };
            known.push((name.to_owned(), side, key));
        }
        Ok(Some(ProgramCondition { subscription, sides: known, matcher, told_until: 0 }))
    }

    /// Calls `met` each time the condition is, until it breaks off, a signal comes or the time is
    /// over. Gives what has to be known of the events.
    pub(super) fn watch(
        mut self,
        timeout: Option<Duration>,
        mut met: impl FnMut(Met) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<Vec<LiveNote>> {
        let mut failed = None;
        let subscription = std::mem::take(&mut self.subscription);
        let subscription = match timeout {
            Some(time) => subscription.timeout(time),
            None => subscription,
        };
        let summary = subscription.run(|event| {
            let told = self.event(event).and_then(|found| match found {
                Some(found) => {
                    let flow = met(found);
                    self.told_until = clock::monotonic_ns();
                    flow
                }
                None => Ok(ControlFlow::Continue(())),
            });
            told.unwrap_or_else(|e| {
                failed = Some(e);
                ControlFlow::Break(())
            })
        })?;
        match failed {
            Some(error) => Err(error),
            None => Ok(summary.notes),
        }
    }

    /// Matches an event against the condition.
    fn event(&mut self, event: &LiveEvent<'_, '_>) -> anyhow::Result<Option<Met>> {
        let Some(time) = event.time() else { return Ok(None) };
        let side = self.sides.iter().find(|(name, ..)| name == event.name());
        let Some((_, side, key)) = side else { return Ok(None) };
        let found = match &mut self.matcher {
            None => Some(Met::Event(time)),
            Some(matcher) => {
                if event.lost_before().is_some() {
                    matcher.lost();
                }
                let of = (key_of(event, key.as_deref())?, event.tid().unwrap_or(0));
                matcher.event(*side, of, time).map(Met::TooLong)
            }
        };
        Ok(found.filter(|met| met.time() > self.told_until))
    }
}

/// `pid` and `tid` are the thread, and `cpu` its CPU, where the event has no field of that name.
fn key_of(event: &LiveEvent<'_, '_>, key: Option<&str>) -> anyhow::Result<i64> {
    let Some(key) = key else { return Ok(0) };
    let own = || match key {
        "pid" | "tid" => event.tid().map(i64::from),
        "cpu" => event.cpu().map(i64::from),
        _ => None,
    };
    match event.integer(key).or_else(own) {
        Some(value) => Ok(value),
        None => {
            let fields: Vec<&str> = event.fields().map(|(name, _)| name).collect();
            bail!("{} has no number {key:?}; it has {}", event.name(), fields.join(", "))
        }
    }
}
