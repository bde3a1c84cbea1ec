//! Counts out of a perf.data (`stat report`): the rows that a count would have shown.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use kymo_files::perfdata::read::{CpuPlace, FeatureSection, NumaNodeMemory};
use kymo_files::perfdata::stat::{StatConfig, StatRecord, StatRound, StatValue, read_stats};
use kymo_files::perfdata::{
    Entry, EventDesc, Feature, Features, PerfData, PerfDataReadError, PerfDataReadStats,
};
use kymo_kernel::cpus;
use kymo_model::{Aggregation, CountKey, CountRow, EventType, sw};

use super::counters::Count;
use super::metrics::derive;
use super::rows::{EventCounts, RowOptions, event_rows};
use super::session::{CountReading, CountResult};
use crate::open::CounterPlace;

/// Header of a recording of counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountFileFacts {
    /// Aggregation of the counts.
    pub by: Aggregation,
    /// There are readings on the way.
    pub intervals: bool,
    /// The command that recorded them; none in a pipe.
    pub command_line: Option<Vec<String>>,
}

/// Reading of such a recording, in file order.
#[derive(Clone, Debug)]
pub enum CountFileReading {
    /// A reading on the way.
    Interval(CountReading),
    /// The result.
    Result(CountResult),
}

/// The recording cannot be reported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CountFileError {
    #[error(transparent)]
    Read(#[from] PerfDataReadError),
    #[error("{0} holds no counts: `kymo stat record` makes recordings of counts")]
    NoCounts(String),
    #[error("tasks were counted, not CPUs: counts by CPU are not recorded")]
    NoCpus,
    #[error("cannot write the result")]
    Write(#[source] std::io::Error),
}

/// Hands over all readings of a recording of counts, summed by `by`, or as it says.
pub fn read_counts(
    data: &mut PerfData,
    by: Option<Aggregation>,
    sink: &mut dyn FnMut(&CountFileFacts, CountFileReading) -> io::Result<()>,
) -> Result<PerfDataReadStats, CountFileError> {
    let (is_pipe, name) = (data.has_pipe_form(), data.name().to_owned());
    let (mut config, mut threads) = (None, Vec::new());
    let mut counts: Option<RecordedCounts> = None;
    let mut failed = None;
    let read = read_stats(data, &mut |entry, record| {
        let done = match record {
            StatRecord::Config(read) => {
                config = Some(read);
                Ok(())
            }
            StatRecord::Threads(read) => {
                threads = read;
                Ok(())
            }
            StatRecord::Value(value) => match (&mut counts, config) {
                (Some(counts), _) => {
                    counts.events.take(value, &counts.places);
                    Ok(())
                }
                (None, Some(config)) => RecordedCounts::new(entry, config, &threads, by, is_pipe)
                    .map(|mut new| {
                        new.events.take(value, &new.places);
                        counts = Some(new);
                    }),
                // The meaning of the counts was not recorded.
                (None, None) => Err(CountFileError::NoCounts(name.clone())),
            },
            StatRecord::Round(round) => match &mut counts {
                Some(counts) => match counts.reading(round) {
                    Some(reading) => sink(&counts.facts, reading).map_err(CountFileError::Write),
                    None => Ok(()),
                },
                None => Ok(()),
            },
        };
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    match (failed, counts) {
        (Some(error), _) => Err(error),
        (None, None) => Err(CountFileError::NoCounts(name)),
        (None, Some(_)) => Ok(read),
    }
}

/// The counts of a recording while they are read.
struct RecordedCounts {
    facts: CountFileFacts,
    options: RowOptions,
    events: RecordedEvents,
    places: Places,
    /// Time of the reading before.
    before: u64,
}

impl RecordedCounts {
    fn new(
        entry: &Entry<'_>,
        config: StatConfig,
        threads: &[(i64, String)],
        by: Option<Aggregation>,
        is_pipe: bool,
    ) -> Result<RecordedCounts, CountFileError> {
        let of_tasks = threads.iter().any(|(tid, _)| *tid >= 0);
        if of_tasks && by.is_some_and(|by| by.is_topology() || by == Aggregation::Cpu) {
            return Err(CountFileError::NoCpus);
        }
        let version = entry.features.version.as_deref().unwrap_or_default();
        let by = by.unwrap_or_else(|| aggregation(config.aggregation, version));
        Ok(RecordedCounts {
            facts: CountFileFacts {
                by,
                intervals: config.interval > 0,
                command_line: (!is_pipe).then(|| entry.features.cmdline.clone()),
            },
            options: RowOptions { by, scale: config.scale },
            events: RecordedEvents::new(entry.events),
            places: Places {
                machine: Machine::new(entry.features, entry.raw.endian),
                threads: threads.to_vec(),
            },
            before: 0,
        })
    }

    /// Returns the reading that a round ends, if any.
    fn reading(&mut self, round: StatRound) -> Option<CountFileReading> {
        let intervals = self.facts.intervals;
        if intervals && round.is_final {
            return None;
        }
        let mut rows = self.events.rows(self.options, &self.places);
        derive(&mut rows, round.time.saturating_sub(self.before) as f64);
        let elapsed = Duration::from_nanos(round.time);
        if intervals {
            self.before = round.time;
            return Some(CountFileReading::Interval(CountReading { rows, elapsed }));
        }
        let result = CountResult { rows, elapsed, usage: None, repeated: None };
        Some(CountFileReading::Result(result))
    }
}

/// Decodes perf's number of an aggregation by the version that wrote it: 6.5 inserted caches and
/// 6.9 clusters between dies and cores.
fn aggregation(number: u64, version: &str) -> Aggregation {
    let mut parts = version.split(['.', '-', '~']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let added = if version >= (6, 9) { 2 } else { u64::from(version >= (6, 5)) };
    match number {
        0 => Aggregation::Cpu,
        2 => Aggregation::Socket,
        3 => Aggregation::Die,
        n if n == 4 + added => Aggregation::Core,
        n if n == 5 + added => Aggregation::Thread,
        n if n == 7 + added => Aggregation::Node,
        _ => Aggregation::Global,
    }
}

/// Events of a file with what was counted of them.
struct RecordedEvents {
    events: Vec<RecordedEvent>,
    by_id: HashMap<u64, usize>,
}

struct RecordedEvent {
    desc: EventDesc,
    /// By CPU and thread, what was counted since the reading before, and ever.
    cells: Vec<((i32, u32), Count, Count)>,
    places: HashMap<(i32, u32), usize>,
}

impl RecordedEvents {
    fn new(events: &[EventDesc]) -> RecordedEvents {
        let ids = events.iter().enumerate();
        let by_id = ids.flat_map(|(at, event)| event.ids.iter().map(move |id| (*id, at))).collect();
        let event = |desc: &EventDesc| RecordedEvent {
            desc: desc.clone(),
            cells: Vec::new(),
            places: HashMap::new(),
        };
        RecordedEvents { events: events.iter().map(event).collect(), by_id }
    }

    fn take(&mut self, value: StatValue, places: &Places) {
        let event = self.by_id.get(&value.id).and_then(|at| self.events.get_mut(*at));
        // Threads that the file does not name cannot be of it.
        let known = (value.thread as usize) < places.threads.len().max(1);
        let Some(event) = event.filter(|_| known) else { return };
        let key = (value.cpu, value.thread);
        let at = *event.places.entry(key).or_insert_with(|| {
            event.cells.push((key, Count::default(), Count::default()));
            event.cells.len() - 1
        });
        let now = Count { value: value.value, enabled: value.enabled, running: value.running };
        if let Some((_, added, ever)) = event.cells.get_mut(at) {
            *added = now.since(*ever);
            *ever = now;
        }
    }

    fn rows(&self, options: RowOptions, places: &Places) -> Vec<CountRow> {
        let counts: Vec<EventCounts> = self.events.iter().map(|e| e.counts(places)).collect();
        event_rows(&counts, options, &|place, by| places.key(place, by))
    }
}

impl RecordedEvent {
    fn counts(&self, places: &Places) -> EventCounts {
        let (kind, config) = (self.desc.attr.kind, self.desc.attr.config);
        let clock = kind == EventType::SOFTWARE && matches!(config, sw::CPU_CLOCK | sw::TASK_CLOCK);
        let (unit, scale) = if clock && self.desc.unit.is_empty() {
            ("msec".into(), 1e-6)
        } else {
            (self.desc.unit.clone(), self.desc.scale.unwrap_or(1.0))
        };
        EventCounts {
            name: self.desc.name.clone(),
            cgroup: None,
            event: Some((kind, config)),
            tool: None,
            supported: !self.desc.ids.is_empty(),
            unit,
            scale,
            counts: self.cells.iter().map(|(key, added, _)| (places.place(*key), *added)).collect(),
        }
    }
}

/// CPUs and threads by their numbers in the file.
struct Places {
    machine: Machine,
    threads: Vec<(i64, String)>,
}

impl Places {
    fn place(&self, (cpu, thread): (i32, u32)) -> CounterPlace {
        let tid = self.threads.get(thread as usize).and_then(|(tid, _)| u32::try_from(*tid).ok());
        CounterPlace { cpu: u32::try_from(cpu).ok(), tid }
    }

    fn key(&self, place: CounterPlace, by: Aggregation) -> CountKey {
        if let (Aggregation::Thread, Some(tid)) = (by, place.tid) {
            let name = self.threads.iter().find(|(known, _)| *known == i64::from(tid));
            let comm = name.map_or_else(String::new, |(_, name)| name.clone());
            return CountKey::Thread { comm, tid };
        }
        let Some(cpu) = place.cpu else { return CountKey::All };
        self.machine.key(cpu, by)
    }
}

/// The recorded machine's processors.
#[derive(Default)]
struct Machine {
    cpus: Vec<CpuPlace>,
    nodes: Vec<NumaNodeMemory>,
}

impl Machine {
    fn new(features: &Features, endian: kymo_model::Endian) -> Machine {
        let section = |feature| features.section(feature, endian).map(|(section, _)| section);
        let mut machine = Machine::default();
        if let Some(FeatureSection::CpuTopology(topology)) = section(Feature::CPU_TOPOLOGY) {
            machine.cpus = topology.cpus;
        }
        if let Some(FeatureSection::NumaTopology(nodes)) = section(Feature::NUMA_TOPOLOGY) {
            machine.nodes = nodes;
        }
        machine
    }

    fn key(&self, cpu: u32, by: Aggregation) -> CountKey {
        let place = self.cpus.get(cpu as usize).copied();
        let (socket, core) = place.map_or((0, cpu), |p| (p.socket, p.core));
        let die = place.and_then(|p| p.die).unwrap_or(0);
        match by {
            // The file does not tell of clusters.
            Aggregation::Cluster | Aggregation::Cache(_) => CountKey::All,
            Aggregation::Global | Aggregation::Thread => CountKey::All,
            Aggregation::Cpu => CountKey::Cpu(cpu),
            Aggregation::Core => CountKey::Core { socket, die, core },
            Aggregation::Die => CountKey::Die { socket, die },
            Aggregation::Socket => CountKey::Socket(socket),
            Aggregation::Node => {
                let has = |node: &&NumaNodeMemory| {
                    cpus::parse_list(&node.cpus).is_ok_and(|cpus| cpus.contains(&cpu))
                };
                CountKey::Node(self.nodes.iter().find(has).map_or(0, |node| node.node))
            }
        }
    }
}
