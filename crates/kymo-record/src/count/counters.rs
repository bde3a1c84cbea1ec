//! Counters of one run: opened once, read any number of times. Each keeps what it read
//! last, so that a reading gives what was added since.

use std::collections::HashMap;

use kymo_kernel::events::{CounterSource, EventSpec};
use kymo_kernel::vmstat;
use kymo_model::{Attr, AttrFlags, Note, NoteKind, ReadFormat, SampleType};

use super::error::system;
use super::{CountError, CountedEvent};
use crate::open::{
    CounterPlace, CounterScope, EventInstance, EventSet, OpenPolicy, PlannedEvent, UserOnly,
};

const TIMES: ReadFormat = ReadFormat::TOTAL_TIME_ENABLED.union(ReadFormat::TOTAL_TIME_RUNNING);

/// Options of opening counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterOptions {
    /// Children of the tasks count too.
    pub(super) inherit: bool,
    /// Begin when the command is executed.
    pub(super) on_exec: bool,
}

/// A count with the nanoseconds it was enabled and running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of events.
    pub value: u64,
    /// Nanoseconds the event was enabled.
    pub enabled: u64,
    /// Nanoseconds the event was on a counter.
    pub running: u64,
}

impl Count {
    pub(super) fn since(self, before: Count) -> Count {
        Count {
            value: self.value.wrapping_sub(before.value),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }
}

/// Readings of one event at one place.
#[derive(Clone, Copy, Debug, Default)]
struct CounterCell {
    /// Counted since the reading before.
    count: Count,
    last: Count,
}

/// Readings of one event.
#[derive(Debug, Default)]
struct CounterReadings {
    /// One for each instance of the event.
    cells: Vec<CounterCell>,
    /// Value that does not come from the kernel's counters, since the reading before.
    other: i64,
    other_sum: i64,
}

/// All counters of a run. Dropping them closes the events.
#[derive(Debug, Default)]
pub(super) struct Counters {
    set: EventSet,
    readings: Vec<CounterReadings>,
    vmstat: Option<vmstat::Snapshot>,
}

/// One event with what was read last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter<'a> {
    pub(super) spec: &'a EventSpec,
    /// As it was opened.
    pub(super) attr: &'a Attr,
    pub(super) cgroup: Option<&'a str>,
    /// Whether the machine has it.
    pub(super) supported: bool,
    /// The kernel's side was left out for want of permission: `perf_event_paranoid`.
    pub(super) user_only: Option<i32>,
    /// Value that does not come from the kernel's counters.
    pub(super) other: i64,
    instances: &'a [EventInstance],
    cells: &'a [CounterCell],
}

impl<'a> Counter<'a> {
    /// Counts since the reading before, by place.
    pub(super) fn counts(&self) -> impl Iterator<Item = (CounterPlace, Count)> + use<'a> {
        self.instances.iter().zip(self.cells).map(|(i, cell)| (i.place, cell.count))
    }

    /// Counts since the start, by place, with the ids of what is open there.
    pub(super) fn totals(&self) -> impl Iterator<Item = (CounterPlace, u64, Count)> + use<'a> {
        let cells = self.instances.iter().zip(self.cells);
        cells.filter_map(|(i, cell)| Some((i.place, i.open.as_ref()?.1, cell.last)))
    }
}

impl Counters {
    /// Opens everything, disabled. Events that the machine does not have are kept as
    /// unsupported.
    pub(super) fn open(
        events: &[CountedEvent],
        scope: &CounterScope,
        options: CounterOptions,
        notes: &mut Vec<Note>,
    ) -> Result<Counters, CountError> {
        let start = if options.on_exec {
            AttrFlags::DISABLED | AttrFlags::ENABLE_ON_EXEC
        } else {
            AttrFlags::DISABLED
        };
        let policy = OpenPolicy { start, user_only: UserOnly::EachEvent, keep_unsupported: true };
        let inherit = options.inherit && scope.is_of_tasks();
        let set = EventSet::open(plan(events, inherit, scope, start), scope, policy, notes)?;
        for event in &set.events {
            let leader = event.planned.leader.and_then(|l| set.events.get(l));
            if event.planned.spec.source == CounterSource::Perf
                && leader.is_some_and(|l| !l.supported)
            {
                notes.push(Note::doubt(
                    NoteKind::Group,
                    format!("{} was not counted together with its group", event.planned.spec.name),
                    Some("the group's first event is not supported here".into()),
                ));
            }
        }
        let readings = set
            .events
            .iter()
            .map(|e| CounterReadings {
                cells: vec![CounterCell::default(); e.instances.len()],
                ..CounterReadings::default()
            })
            .collect();
        Ok(Counters { set, readings, vmstat: None })
    }

    /// All events, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Counter<'_>> {
        self.set.events.iter().zip(&self.readings).map(|(event, readings)| Counter {
            spec: &event.planned.spec,
            attr: &event.planned.attr,
            cgroup: event.planned.cgroup.as_ref().map(|c| c.name.as_str()),
            supported: event.supported,
            user_only: event.user_only,
            other: readings.other,
            instances: &event.instances,
            cells: &readings.cells,
        })
    }

    /// Starts all that do not start with the command.
    pub(super) fn enable(&self) -> Result<(), CountError> {
        self.set.switch(true, |_| true).map_err(system("cannot start the counters"))
    }

    /// Stops all.
    pub(super) fn disable(&self) -> Result<(), CountError> {
        self.set.switch(false, |_| true).map_err(system("cannot stop the counters"))
    }

    /// Takes the state that the system-wide counters start from.
    pub(super) fn start_vmstat(&mut self) -> Result<(), CountError> {
        if self.iter().any(|c| matches!(c.spec.source, CounterSource::Vmstat(_))) {
            self.vmstat = Some(read_vmstat()?);
        }
        Ok(())
    }

    /// Reads all.
    pub(super) fn read(&mut self) -> Result<(), CountError> {
        self.read_vmstat()?;
        // A group is read in one call, when its leader's turn comes: its counts are of one moment.
        let mut of_group: HashMap<u64, Count> = HashMap::new();
        for (event, readings) in self.set.events.iter().zip(&mut self.readings) {
            let format = event.planned.attr.read_format;
            for (instance, cell) in event.instances.iter().zip(&mut readings.cells) {
                let Some((open, id)) = &instance.open else { continue };
                let now = match of_group.remove(id) {
                    Some(count) => count,
                    None => {
                        let read = open.read(format).map_err(|source| CountError::Read {
                            event: event.planned.spec.name.clone(),
                            source,
                        })?;
                        let (enabled, running) = (read.time_enabled, read.time_running);
                        for (value, id, _) in read.values.iter().skip(1) {
                            let count = Count { value: *value, enabled, running };
                            of_group.extend(id.map(|id| (id, count)));
                        }
                        let value = read.values.first().map_or(cell.last.value, |v| v.0);
                        Count { value, enabled, running }
                    }
                };
                cell.advance(now);
            }
        }
        Ok(())
    }

    fn read_vmstat(&mut self) -> Result<(), CountError> {
        let Some(before) = &self.vmstat else { return Ok(()) };
        let now = read_vmstat()?;
        for (event, readings) in self.set.events.iter().zip(&mut self.readings) {
            if let CounterSource::Vmstat(name) = &event.planned.spec.source {
                readings.other = now.delta(before, name).unwrap_or(0);
                readings.other_sum = readings.other_sum.saturating_add(readings.other);
            }
        }
        self.vmstat = Some(now);
        Ok(())
    }

    /// Makes the counts those since the start, not since the last reading.
    pub(super) fn sum_up(&mut self) {
        for readings in &mut self.readings {
            readings.other = readings.other_sum;
            readings.cells.iter_mut().for_each(|c| c.count = c.last);
        }
    }
}

impl CounterCell {
    fn advance(&mut self, now: Count) {
        // Times of an event never go back, even if a member of a group reads smaller ones.
        let now = Count {
            enabled: now.enabled.max(self.last.enabled),
            running: now.running.max(self.last.running),
            ..now
        };
        self.count = now.since(self.last);
        self.last = now;
    }
}

fn read_vmstat() -> Result<vmstat::Snapshot, CountError> {
    vmstat::Snapshot::read().map_err(system("cannot read /proc/vmstat"))
}

/// Plans counters of these events: no samples, groups read in one call.
fn plan(
    events: &[CountedEvent],
    inherit: bool,
    scope: &CounterScope,
    start: AttrFlags,
) -> Vec<PlannedEvent> {
    let mut plan: Vec<PlannedEvent> = Vec::new();
    for event in events {
        let spec = &event.spec;
        let leader = leader_of(&plan, spec);
        let mut attr = spec.attr.clone();
        attr.sample_period = 0;
        attr.sample_type = SampleType::empty();
        attr.read_format = match spec.group {
            Some(_) => TIMES | ReadFormat::GROUP | ReadFormat::ID,
            None => TIMES,
        };
        attr.flags.remove(AttrFlags::FREQ | start);
        let inherit = spec.terms.inherit.unwrap_or(inherit) && scope.is_of_tasks();
        attr.flags.set(AttrFlags::INHERIT, inherit);
        if leader.is_none() {
            attr.flags |= start;
        }
        plan.push(PlannedEvent {
            spec: spec.clone(),
            attr,
            leader,
            sideband_only: false,
            cgroup: event.cgroup.clone(),
        });
    }
    plan
}

/// Leader of the event that comes next in the plan: the first of its group. Neighbors
/// with one number are a group; values of the tool itself lead none.
fn leader_of(plan: &[PlannedEvent], spec: &EventSpec) -> Option<usize> {
    spec.group?;
    let members = plan.iter().rev().take_while(|p| p.spec.group == spec.group).count();
    let mut group = plan.iter().enumerate().skip(plan.len() - members);
    group.find(|(_, p)| p.spec.source == CounterSource::Perf).map(|(n, _)| n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_kernel::events::Tool;
    use kymo_model::EventType;

    #[test]
    fn a_group_is_led_by_its_first_perf_event() {
        let perf = |group| {
            let attr = Attr { kind: EventType::SOFTWARE, ..Attr::default() };
            let mut spec = EventSpec::new("x", attr);
            spec.group = group;
            spec
        };
        let mut tool = perf(Some(0));
        tool.source = CounterSource::Tool(Tool::DurationTime);
        let specs = [tool, perf(Some(0)), perf(Some(0)), perf(None), perf(Some(1)), perf(Some(1))];
        let events = specs.map(CountedEvent::from);
        let scope = CounterScope::Tasks(vec![1]);
        let plan = plan(&events, true, &scope, AttrFlags::DISABLED);
        let leaders: Vec<Option<usize>> = plan.iter().map(|p| p.leader).collect();
        assert_eq!(leaders, [None, None, Some(1), None, None, Some(4)]);
        let waits = |p: &PlannedEvent| p.attr.flags.contains(AttrFlags::DISABLED);
        assert_eq!(
            plan.iter().map(waits).collect::<Vec<_>>()[1..],
            [true, false, true, true, false]
        );
    }

    #[test]
    fn a_reading_gives_what_was_added() {
        let mut cell = CounterCell::default();
        cell.advance(Count { value: 10, enabled: 100, running: 50 });
        cell.advance(Count { value: 25, enabled: 90, running: 80 });
        assert_eq!(cell.count, Count { value: 15, enabled: 0, running: 30 });
        assert_eq!(cell.last, Count { value: 25, enabled: 100, running: 80 });
    }
}
