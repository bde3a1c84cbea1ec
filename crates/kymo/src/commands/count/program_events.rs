//! `kymo count -e PROVIDER:NAME`: events of programs that have tracepoints of their own, counted
//! and measured here, as they come out of the rings that the programs share. No root, no BPF.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use kymo_bpf::{CountMeasure, CountRequest, histogram_bucket_range, histogram_buckets};
use kymo_kernel::terminal_output;
use kymo_kernel::tracefs::Tracefs;
use kymo_live::{LiveEvent, LiveNote, LiveValue, Subscription};
use kymo_model::glob::is_glob;
use kymo_model::{Note, NoteKind};
use kymo_programs::{HistogramBucket, ProgramValue};
use kymo_view::Ledger;
use kymo_view::event_counts::CountedMap;

use super::{Args, CountScreen};

/// Names events of programs whatever systems the kernel has.
const PREFIX: &str = "ust:";
/// The most keys that are distinguished.
const MOST_KEYS: usize = 1 << 20;
/// Slowest latencies that are kept.
const WORST: usize = 5;

/// The names, without prefix, if all of them are of events of programs: the kernel has no such
/// system. Events of both are refused.
pub(super) fn names(
    events: &[String],
    measure: &CountMeasure,
) -> anyhow::Result<Option<Vec<String>>> {
    let parts;
    let events: Vec<&str> = match measure {
        CountMeasure::Latency(text) => {
            parts = latency_parts(text);
            let Some((first, second, ..)) = &parts else { return Ok(None) };
            vec![first, second]
        }
        _ => events.iter().map(|name| name.trim()).collect(),
    };
    let systems = Tracefs::open().ok().and_then(|tracefs| tracefs.systems().ok());
    let is_of_program = |name: &str| match name.split(':').collect::<Vec<_>>().as_slice() {
        ["ust", _, _] => true,
        [provider, _] if !is_glob(provider) && !super::is_probe_type(provider) => {
            systems.as_ref().is_some_and(|all| all.iter().all(|system| system != provider))
        }
        _ => false,
    };
    let count = events.iter().filter(|name| is_of_program(name)).count();
    if count == 0 {
        return Ok(None);
    }
    if count < events.len() {
        bail!("events of programs and of the kernel are counted apart: {}", events.join(", "));
    }
    let bare = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    Ok(Some(events.into_iter().map(bare).collect()))
}

/// Both events and both keys of `A -> B by KEY` or `A -> B by KEY = KEY`.
fn latency_parts(text: &str) -> Option<(String, String, String, String)> {
    let (events, keys) = text.split_once(" by ")?;
    let (first, second) = events.split_once("->")?;
    let (begin, end) = keys.split_once('=').unwrap_or((keys, keys));
    let [first, second, begin, end] = [first, second, begin, end].map(|t| t.trim().to_owned());
    Some((first, second, begin, end))
}

pub(super) fn run(
    args: &Args,
    mut request: CountRequest,
    names: &[String],
) -> anyhow::Result<ExitCode> {
    let is_timed = args.interval.is_some() || args.timeout.is_some();
    if args.show_program || is_timed || args.preflight || args.budget.is_some() {
        bail!(
            "{}: no such event of the kernel (kymo list); events of programs are counted without \
             --show-program, -i, --timeout, --preflight and --budget",
            names.join(", ")
        );
    }
    let is_latency = matches!(request.measure, CountMeasure::Latency(_));
    if is_latency && !request.events.is_empty() {
        bail!("--latency already sets the events: remove -e");
    }
    if is_latency && request.filter.is_some() {
        bail!("--latency of events of programs takes no --filter");
    }
    let several = names.len() > 1 || names.iter().any(|name| is_glob(name));
    if !is_latency && request.by.is_empty() && several {
        request.by.push("event".into());
    }
    let mut subscription = Subscription::new();
    for name in names {
        subscription = subscription.program_event(name);
    }
    if let Some(filter) = &request.filter {
        subscription = subscription.filter(filter);
    }
    if let Some(pid) = args.pid {
        subscription = subscription.processes([pid]);
    }
    if !args.command.is_empty() {
        subscription = subscription.command(args.command.iter().cloned());
    }
    if args.all {
        subscription = subscription.system_wide();
    }
    let mut tally = EventTally::new(&request, names)?;
    let begin = Instant::now();
    let mut is_empty = true;
    let summary = subscription
        .run(|event| {
            is_empty = false;
            tally.event(event);
            ControlFlow::Continue(())
        })
        .with_context(|| names.join(","))?;
    let end = Cell::new(Some(Instant::now()));
    let mut ledger = Ledger::from_notes(summary.notes.iter().map(ledger_note));
    tally.note(&mut ledger);
    if is_empty {
        // A mistyped name of the kernel's looks the same.
        let fact =
            format!("no event of {} came; it is taken for one of programs", names.join(", "));
        let advice = "`kymo list ust` shows events of programs that run, `kymo list` the kernel's";
        ledger.note(NoteKind::Empty, fact, Some(advice.to_owned()));
    }
    let keys = request.by.clone();
    let screen = CountScreen {
        end: &end,
        request: &request,
        keys: &keys,
        is_json: args.json,
        columns: terminal_output::output_columns(),
        begin,
        maps: tally.into_maps(),
        earlier: CountedMap::default(),
        shortest: None,
    };
    screen.finish(&ledger)?;
    Ok(crate::exit::of_command(summary.exit_status, &ledger, args.strict))
}

fn ledger_note(note: &LiveNote) -> Note {
    let kind = NoteKind::ALL.iter().find(|kind| kind.code() == note.code);
    let kind = kind.copied().unwrap_or(NoteKind::Program);
    if note.is_doubt {
        Note::doubt(kind, note.fact.clone(), note.advice.clone())
    } else {
        Note::choice(kind, note.fact.clone(), note.advice.clone())
    }
}

/// Values counted under one key.
#[derive(Default)]
struct Measured {
    keys: Vec<ProgramValue>,
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
    buckets: Vec<u64>,
}

/// A latency that was begun, and the slowest.
struct LatencyTally {
    names: (String, String),
    fields: (String, String),
    begun: HashMap<String, u64>,
    again: u64,
    alone: u64,
    worst: Vec<(u64, u64, Vec<ProgramValue>)>,
}

/// Counts and measures events.
struct EventTally<'r> {
    request: &'r CountRequest,
    by: Vec<String>,
    entries: HashMap<String, Measured>,
    latency: Option<LatencyTally>,
    /// Events without a field that is asked for.
    without_field: u64,
    /// Events under keys that had no room.
    without_room: u64,
}

impl<'r> EventTally<'r> {
    fn new(request: &'r CountRequest, names: &[String]) -> anyhow::Result<EventTally<'r>> {
        let mut by = Vec::new();
        for name in &request.by {
            let name = name.trim();
            if ["uid", "gid", "cgroup", "stack", "ustack", "kstack"].contains(&name) {
                bail!(
                    "events of programs do not have {name}: --by takes their fields, pid, tid, cpu, comm, event"
                );
            }
            by.push(name.strip_prefix("args.").unwrap_or(name).to_owned());
        }
        let latency = match (&request.measure, names) {
            (CountMeasure::Latency(text), [first, second]) => {
                let parts = latency_parts(text);
                let (.., begin, end) = parts.context("write 'A -> B by KEY'")?;
                if is_glob(first) || is_glob(second) {
                    bail!("--latency is between two events, not patterns: {text}");
                }
                let bare = |key: &str| key.strip_prefix("args.").unwrap_or(key).to_owned();
                Some(LatencyTally {
                    names: (first.clone(), second.clone()),
                    fields: (bare(&begin), bare(&end)),
                    begun: HashMap::new(),
                    again: 0,
                    alone: 0,
                    worst: Vec::new(),
                })
            }
            _ => None,
        };
        let (entries, without_field, without_room) = (HashMap::new(), 0, 0);
        Ok(EventTally { request, by, entries, latency, without_field, without_room })
    }

    fn event(&mut self, event: &LiveEvent<'_, '_>) {
        use CountMeasure as M;
        if let Some(latency) = self.latency.take() {
            self.latency = Some(self.latency_event(latency, event));
            return;
        }
        let value = match &self.request.measure {
            M::Events | M::Latency(_) => Some(1),
            M::Histogram(field)
            | M::LinearHistogram(field, ..)
            | M::Sum(field)
            | M::Average(field)
            | M::Minimum(field)
            | M::Maximum(field)
            | M::Statistics(field) => event.integer(field.strip_prefix("args.").unwrap_or(field)),
        };
        match (value, self.keys_of(event)) {
            (Some(value), Some(keys)) => self.measure(keys, value),
            _ => self.without_field += 1,
        }
    }

    fn latency_event(
        &mut self,
        mut latency: LatencyTally,
        event: &LiveEvent<'_, '_>,
    ) -> LatencyTally {
        let Some(time) = event.time() else { return latency };
        // An event that is both ends what it began before.
        if event.name() == latency.names.1 {
            let key = key_value(event, &latency.fields.1);
            match (key, self.keys_of(event)) {
                (Some(key), Some(keys)) => match latency.begun.remove(&key.to_text()) {
                    Some(begin) => {
                        let nanos = time.saturating_sub(begin);
                        let shown = std::iter::once(key).chain(keys.iter().cloned()).collect();
                        latency.worst.push((nanos, time, shown));
                        latency.worst.sort_by_key(|slow| std::cmp::Reverse(slow.0));
                        latency.worst.truncate(WORST);
                        self.measure(keys, i64::try_from(nanos).unwrap_or(i64::MAX));
                    }
                    None => latency.alone += 1,
                },
                _ => self.without_field += 1,
            }
        }
        if event.name() == latency.names.0 {
            match key_value(event, &latency.fields.0) {
                Some(_) if latency.begun.len() >= MOST_KEYS => self.without_room += 1,
                Some(key) => {
                    let before = latency.begun.insert(key.to_text(), time);
                    latency.again += u64::from(before.is_some());
                }
                None => self.without_field += 1,
            }
        }
        latency
    }

    fn keys_of(&self, event: &LiveEvent<'_, '_>) -> Option<Vec<ProgramValue>> {
        self.by.iter().map(|name| key_value(event, name)).collect()
    }

    /// The doublings of a latency are parted as finely as in the kernel.
    fn bits(&self) -> u8 {
        match (&self.latency, self.by.is_empty()) {
            (None, _) if !matches!(self.request.measure, CountMeasure::Latency(_)) => 0,
            (_, true) => 5,
            (_, false) => 3,
        }
    }

    fn measure(&mut self, keys: Vec<ProgramValue>, value: i64) {
        let name: Vec<String> = keys.iter().map(ProgramValue::to_text).collect();
        let name = name.join("\0");
        if self.entries.len() >= MOST_KEYS && !self.entries.contains_key(&name) {
            self.without_room += 1;
            return;
        }
        let bits = self.bits();
        let new = Measured { keys, min: value, max: value, ..Measured::default() };
        let measured = self.entries.entry(name).or_insert(new);
        measured.count += 1;
        measured.sum += i128::from(value);
        measured.min = measured.min.min(value);
        measured.max = measured.max.max(value);
        let (bucket, buckets) = match &self.request.measure {
            CountMeasure::Histogram(_) | CountMeasure::Latency(_) => {
                (power_bucket(value, bits), histogram_buckets(bits) as usize)
            }
            CountMeasure::LinearHistogram(_, from, to, step) => {
                let places = linear_places(*from, *to, *step);
                (linear_bucket(value, *from, *to, *step), places + 2)
            }
            _ => return,
        };
        measured.buckets.resize(buckets, 0);
        if let Some(count) = measured.buckets.get_mut(bucket) {
            *count += 1;
        }
    }

    fn note(&self, ledger: &mut Ledger) {
        if self.without_field > 0 {
            let fact = format!(
                "{} events lack a field that is asked for, or it is no integer",
                self.without_field
            );
            ledger.note(NoteKind::Missing, fact, None);
        }
        if self.without_room > 0 {
            let fact = format!("{} events came under keys beyond {MOST_KEYS}", self.without_room);
            ledger.note(NoteKind::Keys, fact, None);
        }
    }

    fn into_maps(self) -> Vec<CountedMap> {
        use CountMeasure as M;
        let bits = self.bits();
        let measure = &self.request.measure;
        let mut entries: Vec<Measured> = self.entries.into_values().collect();
        // By the names of keys first, so that equal values come in an order of their own.
        entries
            .sort_by_cached_key(|m| m.keys.iter().map(ProgramValue::to_text).collect::<Vec<_>>());
        let shown = |m: &Measured| match measure {
            M::Events => ProgramValue::Unsigned(m.count),
            M::Sum(_) => number(m.sum),
            M::Average(_) => number(m.sum / i128::from(m.count.max(1))),
            M::Minimum(_) => ProgramValue::Signed(m.min),
            M::Maximum(_) => ProgramValue::Signed(m.max),
            M::Statistics(_) => statistics(m),
            M::Histogram(_) | M::Latency(_) => {
                ProgramValue::Histogram(power_buckets(&m.buckets, bits))
            }
            M::LinearHistogram(_, from, to, step) => {
                ProgramValue::Histogram(linear_buckets(&m.buckets, (*from, *to, *step)))
            }
        };
        let rank = |m: &Measured| match measure {
            M::Events | M::Histogram(_) | M::LinearHistogram(..) | M::Latency(_) => m.count.into(),
            M::Sum(_) => m.sum,
            M::Average(_) | M::Statistics(_) => m.sum / i128::from(m.count.max(1)),
            M::Minimum(_) => m.min.into(),
            M::Maximum(_) => m.max.into(),
        };
        entries.sort_by_key(|m| std::cmp::Reverse(rank(m)));
        let map = |name: &str, entries: Vec<(Vec<ProgramValue>, ProgramValue)>| CountedMap {
            name: name.into(),
            entries,
            left_out: Vec::new(),
        };
        let of_all = |value: &dyn Fn(&Measured) -> ProgramValue| {
            entries.iter().map(|m| (m.keys.clone(), value(m))).collect::<Vec<_>>()
        };
        let mut result = map("@", of_all(&shown));
        let Some(latency) = self.latency else {
            if self.request.top > 0 && result.entries.len() > self.request.top as usize {
                let left = result.entries.split_off(self.request.top as usize);
                result.left_out = left.into_iter().map(|(_, value)| value).collect();
            }
            return vec![result];
        };
        let one = |name: &str, n: u64| map(name, vec![(Vec::new(), ProgramValue::Unsigned(n))]);
        let begun = latency
            .begun
            .into_keys()
            .map(|key| (vec![ProgramValue::Text(key.into_bytes())], ProgramValue::Empty));
        let worst = latency.worst.into_iter().enumerate().map(|(n, (nanos, time, keys))| {
            let times = [nanos, time].map(ProgramValue::Unsigned);
            let parts = times.into_iter().chain(keys).collect();
            (vec![ProgramValue::Unsigned(n as u64)], ProgramValue::Tuple(parts))
        });
        vec![
            map("@begin", begun.collect()),
            one("@again", latency.again),
            one("@alone", latency.alone),
            map("@worst", worst.collect()),
            map("@stats", of_all(&statistics)),
            map("@max", of_all(&|m| ProgramValue::Signed(m.max))),
            result,
        ]
    }
}

fn statistics(m: &Measured) -> ProgramValue {
    let average = number(m.sum / i128::from(m.count.max(1)));
    ProgramValue::Statistics(m.count, Box::new(average), Box::new(number(m.sum)))
}

fn number(n: i128) -> ProgramValue {
    match (i64::try_from(n), u64::try_from(n)) {
        (Ok(n), _) => ProgramValue::Signed(n),
        (_, Ok(n)) => ProgramValue::Unsigned(n),
        _ => ProgramValue::Empty,
    }
}

/// Value of a key: a field, or what is known of each event.
fn key_value(event: &LiveEvent<'_, '_>, name: &str) -> Option<ProgramValue> {
    let id = |n: Option<u32>| n.map(|n| ProgramValue::Unsigned(n.into()));
    let text = |text: &str| ProgramValue::Text(text.as_bytes().to_vec());
    match name {
        "pid" => return id(event.pid()),
        "tid" => return id(event.tid()),
        "cpu" => return id(event.cpu()),
        "comm" => return Some(text(&event.comm())),
        "event" => return Some(text(event.name())),
        _ => {}
    }
    Some(match event.value(name)? {
        LiveValue::Signed(n) => ProgramValue::Signed(n),
        LiveValue::Unsigned(n) => ProgramValue::Unsigned(n),
        LiveValue::Address(n) => ProgramValue::Pointer(n),
        LiveValue::Bool(b) => ProgramValue::Boolean(b),
        LiveValue::Text(t) => text(&t),
        LiveValue::Float(f) => text(&format!("{f:?}")),
        LiveValue::Enumeration(_, shown) => text(&shown),
        LiveValue::Compound(shown) => text(&shown),
        _ => return None,
    })
}

/// Bucket of [`histogram_bucket_range`].
fn power_bucket(value: i64, bits: u8) -> usize {
    let Ok(value) = u64::try_from(value) else { return 0 };
    let width = 1u64 << bits;
    if value < width {
        return 1 + value as usize;
    }
    let doubling = 63 - value.leading_zeros() - u32::from(bits);
    (1 + width + u64::from(doubling) * width + (value >> doubling) - width) as usize
}

fn power_buckets(counts: &[u64], bits: u8) -> Vec<HistogramBucket> {
    let bucket = |(n, count): (usize, &u64)| {
        let (from, to) = histogram_bucket_range(bits, n as u32);
        HistogramBucket {
            from: from.map(|v| i64::try_from(v).unwrap_or(i64::MAX)),
            to: to.and_then(|v| i64::try_from(v).ok()),
            is_single: from.is_some() && to == from.and_then(|v| v.checked_add(1)),
            count: *count,
        }
    };
    counts.iter().enumerate().map(bucket).collect()
}

/// Buckets between both ends, of which the language allows a thousand.
fn linear_places(from: i64, to: i64, step: i64) -> usize {
    let places = to.checked_sub(from).and_then(|span| span.checked_div(step)).unwrap_or(0);
    places.clamp(0, 1000) as usize
}

fn linear_bucket(value: i64, from: i64, to: i64, step: i64) -> usize {
    match value {
        value if value < from => 0,
        value if value >= to => linear_places(from, to, step) + 1,
        value => 1 + usize::try_from((value - from) / step.max(1)).unwrap_or(0),
    }
}

fn linear_buckets(counts: &[u64], (from, to, step): (i64, i64, i64)) -> Vec<HistogramBucket> {
    let at = |n: usize| from.saturating_add((n as i64).saturating_mul(step));
    let last = counts.len().saturating_sub(1);
    let bucket = |(n, count): (usize, &u64)| {
        let (begin, end) = match n {
            0 => (None, Some(from)),
            n if n == last => (Some(to), None),
            n => (Some(at(n - 1)), Some(at(n).min(to))),
        };
        let is_single = step == 1 && begin.is_some() && end.is_some();
        HistogramBucket { from: begin, to: end, is_single, count: *count }
    };
    counts.iter().enumerate().map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_buckets_of_their_range() {
        for bits in [0, 3, 5] {
            for value in [0, 1, 2, 7, 8, 31, 32, 33, 1000, 65_535, 65_536, i64::MAX - 1] {
                let bucket = power_bucket(value, bits);
                let (from, to) = histogram_bucket_range(bits, bucket as u32);
                let value = value as u64;
                assert!(from.unwrap() <= value && to.is_none_or(|to| value < to), "{value} {bits}");
            }
            assert_eq!(power_bucket(-4, bits), 0);
        }
        let places: Vec<usize> =
            [-1, 0, 9, 10, 99, 100].map(|v| linear_bucket(v, 0, 100, 10)).to_vec();
        assert_eq!(places, [0, 1, 1, 2, 10, 11]);
        assert_eq!(linear_places(0, 100, 10) + 2, 12);
    }

    #[test]
    fn latencies_have_two_events_and_two_keys() {
        let parts = latency_parts("a:b -> a:c by id = other");
        assert_eq!(parts, Some(("a:b".into(), "a:c".into(), "id".into(), "other".into())));
        assert_eq!(latency_parts("a:b by id"), None);
    }
}
