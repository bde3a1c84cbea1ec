//! Conditions that make a session take a snapshot: an event, or one that comes too long after
//! another. Parsing and matching, without I/O.
//!
//! ```text
//! block:block_rq_complete if error != 0
//! raw_syscalls:sys_enter if id == 1 -> raw_syscalls:sys_exit > 5ms by pid
//! sched:sched_waking -> sched:sched_switch > 10ms by pid=next_pid
//! ```

use rustc_hash::FxHashMap;

/// Starts without an end that are remembered.
const MAX_OPEN: usize = 1 << 16;

/// An event with a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct On {
    /// Its name as typed.
    pub event: String,
    /// The kernel's filter for it.
    pub filter: Option<String>,
}

/// `A -> B > TIME [by KEY]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnLatency {
    /// Event that starts the time.
    pub from: On,
    /// Event that ends the time.
    pub to: On,
    /// Longer than this is too long, in nanoseconds.
    pub limit: u64,
    /// The field that is equal in both, and its name in each; none: there is
    /// one of it at a time on the machine.
    pub key: Option<(String, String)>,
}

/// A condition is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} in the condition {text:?}; it reads {form}")]
pub struct ConditionError {
    text: String,
    what: String,
    form: &'static str,
}

const ON: &str = "EVENT or EVENT if FILTER";
const ON_LATENCY: &str = "A -> B > 5ms by pid (A and B may have `if FILTER`, \
                          `by` may name a field of each: by pid=next_pid)";

impl On {
    /// Reads `EVENT [if FILTER]`.
    pub fn parse(text: &str) -> Result<On, ConditionError> {
        let error = |what: &str| ConditionError { text: text.into(), what: what.into(), form: ON };
        let (event, filter) = match text.trim().split_once(" if ") {
            Some((event, filter)) => (event.trim(), Some(filter.trim().to_owned())),
            None => (text.trim(), None),
        };
        if event.is_empty() || event.contains(char::is_whitespace) {
            return Err(error("there is no single event"));
        }
        if filter.as_ref().is_some_and(String::is_empty) {
            return Err(error("there is no filter after `if`"));
        }
        Ok(On { event: event.to_owned(), filter })
    }
}

impl OnLatency {
    /// The task that took too long: the one that the key of a scheduler's event names, else the
    /// one whose event ended it.
    pub fn task(&self, met: &TooLong) -> Option<u32> {
        const TASKS: [&str; 3] = ["pid", "next_pid", "prev_pid"];
        let named = self.key.as_ref().is_some_and(|(_, field)| TASKS.contains(&field.as_str()));
        let tid = if named && self.to.event.starts_with("sched:") {
            u32::try_from(met.key).ok()?
        } else {
            met.tid
        };
        // The idle task waits for nothing.
        Some(tid).filter(|tid| *tid != 0)
    }

    /// Reads `A [if FILTER] -> B [if FILTER] > TIME [by KEY]`.
    pub fn parse(text: &str) -> Result<OnLatency, ConditionError> {
        let error = |what: String| ConditionError { text: text.into(), what, form: ON_LATENCY };
        let (from, rest) = text.split_once("->").ok_or_else(|| error("there is no `->`".into()))?;
        // The time comes after the last `>`: filters may hold others.
        let (to, rest) = rest.rsplit_once('>').ok_or_else(|| error("there is no `>`".into()))?;
        let (time, key) = match rest.trim().split_once(" by ") {
            Some((time, key)) => (time.trim(), Some(key.trim())),
            None => (rest.trim(), None),
        };
        let limit = nanoseconds(time)
            .ok_or_else(|| error(format!("{time:?} is not a time (5ms, 100us, 2s)")))?;
        let key = match key {
            None => None,
            Some(key) => {
                let (a, b) = key.split_once('=').unwrap_or((key, key));
                let (a, b) = (a.trim(), b.trim());
                let name = |s: &str| {
                    !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                };
                if !name(a) || !name(b) {
                    return Err(error(format!("{key:?} names no field")));
                }
                Some((a.to_owned(), b.to_owned()))
            }
        };
        let side = |text: &str| On::parse(text).map_err(|e| error(e.what));
        let (from, to) = (side(from)?, side(to)?);
        if from.event == to.event {
            return Err(error("the two events must differ".into()));
        }
        Ok(OnLatency { from, to, limit, key })
    }
}

/// `5ms`, `1.5s`, `100us`, `250ns`.
fn nanoseconds(text: &str) -> Option<u64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ')?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "s" => 1e9,
        "ms" => 1e6,
        "us" | "µs" => 1e3,
        "ns" => 1.0,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    let nanos = number * factor;
    (1.0..1e18).contains(&nanos).then_some(nanos as u64)
}

/// One of the two events of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionSide {
    /// It begins.
    From,
    /// It ends.
    To,
}

/// Something that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The key's value.
    pub key: i64,
    /// Start time, in nanoseconds of the session's clock.
    pub from: u64,
    /// End time.
    pub to: u64,
    /// The thread whose event ended it.
    pub tid: u32,
}

/// Matches ends to beginnings. Of several beginnings the last one counts, as
/// with the kernel's own histograms.
#[derive(Debug)]
pub struct LatencyMatcher {
    limit: u64,
    open: FxHashMap<i64, u64>,
    /// Beginnings that were forgotten because there were too many.
    forgotten: u64,
}

impl LatencyMatcher {
    /// Longer than `limit` nanoseconds is too long.
    pub fn new(limit: u64) -> LatencyMatcher {
        LatencyMatcher { limit, open: FxHashMap::default(), forgotten: 0 }
    }

    /// Takes the next event, by time.
    pub fn event(
        &mut self,
        side: ConditionSide,
        (key, tid): (i64, u32),
        time: u64,
    ) -> Option<TooLong> {
        match side {
            ConditionSide::From => {
                if self.open.len() >= MAX_OPEN && !self.open.contains_key(&key) {
                    self.forget();
                }
                self.open.insert(key, time);
                None
            }
            ConditionSide::To => {
                let from = self.open.remove(&key)?;
                let long = time.saturating_sub(from) > self.limit;
                long.then_some(TooLong { key, from, to: time, tid })
            }
        }
    }

    /// Events were lost: an end may belong to a beginning that was not seen.
    pub fn lost(&mut self) {
        self.open.clear();
    }

    /// Makes room: the older half goes.
    fn forget(&mut self) {
        let mut times: Vec<u64> = self.open.values().copied().collect();
        let middle = times.len() / 2;
        let (_, &mut middle, _) = times.select_nth_unstable(middle);
        let before = self.open.len();
        self.open.retain(|_, time| *time > middle);
        self.forgotten += (before - self.open.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(event: &str, filter: Option<&str>) -> On {
        On { event: event.into(), filter: filter.map(str::to_owned) }
    }

    #[test]
    fn conditions_that_can_be_read() {
        assert_eq!(On::parse("a:b"), Ok(on("a:b", None)));
        assert_eq!(
            On::parse(" a:b  if x > 1 && y == \"if \""),
            Ok(on("a:b", Some("x > 1 && y == \"if \"")))
        );
        assert_eq!(
            OnLatency::parse("a:b if id == 1 -> a:c if ret >= 0 > 5ms by pid"),
            Ok(OnLatency {
                from: on("a:b", Some("id == 1")),
                to: on("a:c", Some("ret >= 0")),
                limit: 5_000_000,
                key: Some(("pid".into(), "pid".into())),
            })
        );
        let l = OnLatency::parse("a:b->a:c>1.5s by pid=next_pid").unwrap();
        assert_eq!((l.limit, l.key), (1_500_000_000, Some(("pid".into(), "next_pid".into()))));
        assert_eq!(OnLatency::parse("a:b -> a:c > 20us").unwrap().key, None);
    }

    #[test]
    fn conditions_that_cannot() {
        for (text, what) in [
            ("a:b > 5ms", "there is no `->`"),
            ("a:b -> a:c", "there is no `>`"),
            ("a:b -> a:c > 5", "\"5\" is not a time"),
            ("a:b -> a:c > -5ms", "\"-5ms\" is not a time"),
            ("a:b -> a:c > 5ms by", "\"5ms by\" is not a time"),
            ("a:b -> a:c > 5ms by x y", "\"x y\" names no field"),
            ("a:b -> a:c > 5ms by =x", "names no field"),
            (" -> a:c > 5ms", "there is no single event"),
            ("a:b -> a:b > 5ms", "must differ"),
            ("a b -> c:d > 5ms", "there is no single event"),
        ] {
            let error = OnLatency::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
        assert!(
            On::parse("").is_err() && On::parse("a:b if ").is_ok_and(|o| o.filter.is_none())
                || On::parse("a:b if ").is_err()
        );
    }

    #[test]
    fn what_is_too_long_is_found_and_nothing_else() {
        use ConditionSide::{From, To};
        #[track_caller]
        fn check(events: &[(ConditionSide, i64, u64)], expected: &[(i64, u64, u64)]) {
            let mut m = LatencyMatcher::new(100);
            let found: Vec<_> = events
                .iter()
                .filter_map(|&(side, key, time)| m.event(side, (key, 7), time))
                .map(|l| (l.key, l.from, l.to))
                .collect();
            assert_eq!(found, expected);
        }
        check(&[(From, 1, 0), (To, 1, 100)], &[]);
        check(&[(From, 1, 0), (To, 1, 101)], &[(1, 0, 101)]);
        // Keys are apart; an end alone is nothing; an end is used once.
        check(&[(From, 1, 0), (To, 2, 500), (To, 1, 500), (To, 1, 900)], &[(1, 0, 500)]);
        // The last beginning counts.
        check(&[(From, 1, 0), (From, 1, 450), (To, 1, 500)], &[]);
        // Times that run backwards (another CPU's clock) are no latency.
        check(&[(From, 1, 500), (To, 1, 400)], &[]);
    }

    #[test]
    fn losses_and_crowds_make_no_false_alarm_and_no_memory() {
        let mut m = LatencyMatcher::new(100);
        m.event(ConditionSide::From, (1, 7), 0);
        m.lost();
        assert_eq!(m.event(ConditionSide::To, (1, 7), 1000), None);
        for key in 0..200_000 {
            m.event(ConditionSide::From, (key, 7), key as u64);
        }
        assert!(m.open.len() <= MAX_OPEN && m.forgotten > 0);
        // The young ones are still known.
        assert!(m.event(ConditionSide::To, (199_999, 7), 1_000_000).is_some());
    }
}
