//! Waits for a condition in an instance of its own, which holds nothing but the
//! condition's events: the session that is to be snapshotted stays untouched.

use std::io;
use std::time::Duration;

use kymo_format::EventFormat;
use kymo_format::ring::PageLayout;
use kymo_kernel::clock;
use kymo_kernel::descriptors;
use kymo_kernel::ftrace::{EventName, Instance, RawPipe, Selection};
use kymo_kernel::process::Signals;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::Endian;

use super::condition::{ConditionSide, LatencyMatcher, On, OnLatency, TooLong};
use super::error::TraceError;

/// Room for each CPU: a condition's events are looked at as they come.
const BUFFER_KB: u64 = 2048;
/// Looks at the rings at least this often.
const EVERY: Duration = Duration::from_millis(100);
/// Lets some events gather, so that a frequent event does not wake us each time.
const GATHER: Duration = Duration::from_millis(2);
/// Pages of one CPU taken in one round.
const PAGES: usize = 1024;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// An event happened.
    On(On),
    /// It took too long from one to the other.
    OnLatency(OnLatency),
}

/// Match of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// The event, at this time of CLOCK_MONOTONIC in nanoseconds.
    Event(u64),
    /// The two events.
    TooLong(TooLong),
}

impl Met {
    /// Time of the match.
    pub fn time(&self) -> u64 {
        match self {
            Met::Event(time) => *time,
            Met::TooLong(l) => l.to,
        }
    }
}

/// An event of the condition: its time, which of the two it is, its key, its thread.
type Seen = (u64, ConditionSide, i64, u32);

/// An event that is watched for.
struct Watched {
    id: u16,
    side: ConditionSide,
    key: Key,
    format: EventFormat,
}

/// Source of the key of an event.
enum Key {
    None,
    Cpu,
    Field(String),
}

/// Waits for one condition.
pub struct ConditionWatch {
    pipes: Vec<RawPipe>,
    watched: Vec<Watched>,
    matcher: Option<LatencyMatcher>,
    layout: PageLayout,
    /// Events that are newer than the last look: others may still come before.
    early: Vec<Seen>,
    /// Events up to this time are already reported.
    told_until: u64,
    /// Times when events of the condition were lost.
    pub lost: u64,
    // Last, so that the pipes are closed before it is removed.
    instance: Instance,
}

impl ConditionWatch {
    /// Begins to watch.
    pub fn start(tracefs: &Tracefs, condition: &Condition) -> Result<ConditionWatch, TraceError> {
        let instance = Instance::create(tracefs, "watch")?;
        instance.set_clock("mono")?;
        instance.set_buffer_size_kb(BUFFER_KB)?;
        instance.set_wake_percent(0)?;
        let (sides, limit) = match condition {
            Condition::On(on) => (vec![(on, ConditionSide::To, None)], None),
            Condition::OnLatency(l) => {
                let (a, b) = l.key.clone().map_or((None, None), |(a, b)| (Some(a), Some(b)));
                (
                    vec![(&l.from, ConditionSide::From, a), (&l.to, ConditionSide::To, b)],
                    Some(l.limit),
                )
            }
        };
        let mut watched = Vec::new();
        for (on, side, key) in sides {
            let event = single(&instance, &on.event)?;
            if let Some(filter) = &on.filter {
                instance.set_filter(&event, filter)?;
            }
            let text = tracefs.event_format(&event.system, &event.name)?;
            let format = EventFormat::parse(&text)
                .map_err(|e| TraceError::Condition(format!("the format of {event}: {e}")))?;
            let key = key_of(&format, &event, key)?;
            let id = format.id as u16;
            watched.push(Watched { id, side, key, format });
            instance.enable(&Selection::Event(event))?;
        }
        let layout = PageLayout::parse(&tracefs.header_page()?, Endian::NATIVE)
            .and_then(|l| l.with_page_size(instance.page_size() as u32))
            .map_err(|e| TraceError::Condition(format!("the ring's pages: {e}")))?;
        let pipes = instance.cpus()?.into_iter().map(|cpu| instance.raw_pipe(cpu));
        let pipes = pipes.collect::<Result<_, _>>()?;
        instance.set_tracing(true)?;
        let matcher = limit.map(LatencyMatcher::new);
        Ok(ConditionWatch {
            pipes,
            watched,
            matcher,
            layout,
            early: Vec::new(),
            told_until: 0,
            lost: 0,
            instance,
        })
    }

    /// The name of the instance.
    pub fn instance(&self) -> &str {
        self.instance.name().unwrap_or_default()
    }

    /// Waits until the condition is met, a signal arrives (`None`), or time is up.
    pub fn wait(
        &mut self,
        signals: &Signals,
        until: Option<std::time::Instant>,
    ) -> Result<Option<Met>, TraceError> {
        loop {
            if until.is_some_and(|u| std::time::Instant::now() >= u) {
                return Ok(None);
            }
            let (asked, ready) = self.poll(signals).map_err(TraceError::Ring)?;
            // Taken here: one that is left would end the program once no handler is left.
            while let Some(signal) = signals.next().map_err(TraceError::Ring)?.filter(|_| asked) {
                if signal.is_end() {
                    return Ok(None);
                }
            }
            if let Some(met) = self.look()? {
                return Ok(Some(met));
            }
            if ready {
                std::thread::sleep(GATHER);
            }
        }
    }

    /// Marks all events up to now as reported.
    pub fn told(&mut self) {
        self.told_until = now();
    }

    fn poll(&self, signals: &Signals) -> io::Result<(bool, bool)> {
        let mut fds = vec![descriptors::readable(signals)];
        fds.extend(self.pipes.iter().map(|p| descriptors::readable(p)));
        descriptors::wait(&mut fds, EVERY)?;
        let mut ready = fds.iter().map(|f| !f.revents().is_empty());
        Ok((ready.next().unwrap_or(false), ready.any(|r| r)))
    }

    /// Takes in what is there. Events of all CPUs are matched by time: those up
    /// to the moment before the look are complete.
    fn look(&mut self) -> Result<Option<Met>, TraceError> {
        let horizon = now();
        let (mut events, lost) = self.read()?;
        if lost {
            self.lost += 1;
            self.early.clear();
            if let Some(m) = &mut self.matcher {
                m.lost();
            }
        }
        events.append(&mut self.early);
        events.sort_unstable();
        let later = events.partition_point(|(time, ..)| *time <= horizon);
        self.early = events.split_off(later);
        let mut met = None;
        for (time, side, key, tid) in events {
            let found = match &mut self.matcher {
                None => Some(Met::Event(time)),
                Some(m) => m.event(side, (key, tid), time).map(Met::TooLong),
            };
            met = met.or(found.filter(|m| m.time() > self.told_until));
        }
        Ok(met)
    }

    fn read(&mut self) -> Result<(Vec<Seen>, bool), TraceError> {
        let (mut events, mut lost) = (Vec::new(), false);
        let mut bytes = vec![0; self.instance.page_size()];
        for pipe in &mut self.pipes {
            for _ in 0..PAGES {
                let Some(n) = pipe.read(&mut bytes)? else { break };
                let Ok(page) = self.layout.page(bytes.get(..n).unwrap_or_default()) else {
                    continue;
                };
                lost |= page.missed.is_some();
                for event in page.events().map_while(Result::ok) {
                    let known = classify(&self.watched, event.payload, pipe.cpu());
                    events.extend(known.map(|(side, key, tid)| (event.time, side, key, tid)));
                }
            }
        }
        Ok((events, lost))
    }
}

fn classify(watched: &[Watched], payload: &[u8], cpu: u32) -> Option<(ConditionSide, i64, u32)> {
    let id = EventFormat::payload_id(payload, Endian::NATIVE)?;
    let w = watched.iter().find(|w| w.id == id)?;
    let key = match &w.key {
        Key::None => 0,
        Key::Cpu => i64::from(cpu),
        Key::Field(name) => w.format.field(name)?.int(payload, Endian::NATIVE)?,
    };
    let tid = w.format.field("common_pid").and_then(|f| f.int(payload, Endian::NATIVE));
    Some((w.side, key, tid.and_then(|tid| u32::try_from(tid).ok()).unwrap_or(0)))
}

/// The one event that a name stands for.
pub(crate) fn single(dir: &Instance, name: &str) -> Result<EventName, TraceError> {
    let found = dir.select(&Selection::parse(name)?)?;
    match <[EventName; 1]>::try_from(found) {
        Ok([event]) => Ok(event),
        Err(found) => Err(TraceError::Condition(format!(
            "{name:?} matches {} events, a condition needs one",
            found.len()
        ))),
    }
}

/// `pid` is the event's own field of that name or, failing that, the task that
/// hit it, which `tid` means, too; `cpu` likewise.
fn key_of(format: &EventFormat, event: &EventName, key: Option<String>) -> Result<Key, TraceError> {
    let Some(name) = key else { return Ok(Key::None) };
    if format.field(&name).is_some() {
        return Ok(Key::Field(name));
    }
    match name.as_str() {
        "pid" | "tid" => Ok(Key::Field("common_pid".into())),
        "cpu" => Ok(Key::Cpu),
        _ => {
            let fields: Vec<&str> = format.own_fields().map(|f| f.name.as_str()).collect();
            Err(TraceError::Condition(format!(
                "{event} has no field {name:?}; it has {}",
                fields.join(", ")
            )))
        }
    }
}

/// Current time of the ring's clock.
fn now() -> u64 {
    clock::monotonic_ns()
}
