//! Opening the counters of one run, and reading them.
//!
//! Each event has one cell for each CPU or thread it is opened on. A cell keeps
//! what it read last, so that a reading gives what was added since.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::rc::Rc;

use anyhow::{Context as _, bail};
use kymo_kernel::events::{EventSpec, Source, explain_refusal};
use kymo_kernel::perf_event::{OpenFlags, PerfEvent};
use kymo_kernel::vmstat;
use kymo_model::{AttrFlags, NoteKind, ReadFormat, SampleType};
use kymo_view::Ledger;

const READ: ReadFormat = ReadFormat::TOTAL_TIME_ENABLED.union(ReadFormat::TOTAL_TIME_RUNNING);

/// A cgroup to count in.
#[derive(Debug)]
pub(super) struct Cgroup {
    /// As it was named.
    pub(super) name: String,
    /// Its directory, opened.
    pub(super) dir: File,
}

/// One event to count.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// What.
    pub(super) spec: EventSpec,
    /// In which cgroup.
    pub(super) cgroup: Option<Rc<Cgroup>>,
}

/// Where to count.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// These tasks, wherever they run.
    Tasks(Vec<u32>),
    /// These tasks, only on these CPUs.
    TasksOn(Vec<u32>, Vec<u32>),
    /// Whatever runs on these CPUs.
    Cpus(Vec<u32>),
}

impl Place {
    fn cells(&self, spec: &EventSpec) -> Vec<(Option<u32>, Option<u32>)> {
        let on = |cpu: &&u32| spec.cpus.as_ref().is_none_or(|mask| mask.contains(cpu));
        match self {
            Place::Tasks(tids) => tids.iter().map(|&tid| (None, Some(tid))).collect(),
            Place::TasksOn(tids, cpus) => tids
                .iter()
                .flat_map(|&tid| cpus.iter().filter(on).map(move |&cpu| (Some(cpu), Some(tid))))
                .collect(),
            Place::Cpus(cpus) => cpus.iter().filter(on).map(|&cpu| (Some(cpu), None)).collect(),
        }
    }
}

/// How to count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Children of the tasks count too.
    pub(super) inherit: bool,
    /// Begin when the command is executed.
    pub(super) on_exec: bool,
}

/// A count with the nanoseconds it was enabled and running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) value: u64,
    pub(super) enabled: u64,
    pub(super) running: u64,
}

impl Count {
    fn since(self, before: Count) -> Count {
        Count {
            value: self.value.wrapping_sub(before.value),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }
}

/// One event on one CPU or thread.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) cpu: Option<u32>,
    pub(super) tid: Option<u32>,
    /// What was counted since the reading before.
    pub(super) count: Count,
    event: Option<PerfEvent>,
    /// By which a group's reading names this one.
    id: Option<u64>,
    last: Count,
}

/// One event wherever it is open.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) wanted: Wanted,
    /// Whether the machine has it.
    pub(super) supported: bool,
    /// The kernel's side was left out for want of permission: `perf_event_paranoid`.
    pub(super) user_only: Option<i32>,
    pub(super) cells: Vec<Cell>,
    /// What the event said that does not come from the kernel's counters.
    pub(super) other: i64,
    other_sum: i64,
    format: ReadFormat,
    leads: bool,
}

/// All events of a run. Dropping it closes everything.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) list: Vec<Counter>,
    vmstat: Option<vmstat::Snapshot>,
}

impl Counters {
    /// Opens everything, disabled. An event that the machine does not have is
    /// kept as unsupported; any other refusal is an error.
    pub(super) fn open(
        wanted: &[Wanted],
        place: &Place,
        manner: Manner,
        ledger: &mut Ledger,
    ) -> anyhow::Result<Counters> {
        let mut counters = Counters::default();
        let mut leader: Option<(u32, usize)> = None;
        for (index, w) in wanted.iter().enumerate() {
            let leads = match (w.spec.group, leader) {
                (Some(g), Some((number, _))) if g == number && w.spec.group.is_some() => false,
                (Some(g), _) => {
                    leader = Some((g, index));
                    true
                }
                (None, _) => {
                    leader = None;
                    true
                }
            };
            let lead = if leads { None } else { leader.map(|(_, at)| at) };
            let leader = lead.and_then(|at| counters.list.get(at));
            let counter = open_one(w, wanted, place, manner, leader);
            let mut counter = counter.with_context(|| format!("cannot count {}", w.spec.name))?;
            counter.leads = leads;
            if let Some(at) = lead
                && counters.list.get(at).is_some_and(|c| !c.supported)
            {
                ledger.note(
                    NoteKind::Group,
                    format!("{} was not counted together with its group", w.spec.name),
                    Some("the group's first event is not supported here".into()),
                );
                counter.leads = true;
            }
            counters.list.push(counter);
        }
        Ok(counters)
    }

    /// Starts all that do not start with the command.
    pub(super) fn enable(&self) -> anyhow::Result<()> {
        self.leaders(PerfEvent::enable_group).context("cannot start the counters")
    }

    /// Stops all.
    pub(super) fn disable(&self) -> anyhow::Result<()> {
        self.leaders(PerfEvent::disable_group).context("cannot stop the counters")
    }

    /// Takes the state that the system-wide counters start from.
    pub(super) fn start_other(&mut self) -> anyhow::Result<()> {
        if self.list.iter().any(|c| matches!(c.wanted.spec.source, Source::Vmstat(_))) {
            self.vmstat = Some(vmstat::Snapshot::read().context("cannot read /proc/vmstat")?);
        }
        Ok(())
    }

    /// Reads all.
    pub(super) fn read(&mut self) -> anyhow::Result<()> {
        if let Some(before) = &self.vmstat {
            let now = vmstat::Snapshot::read().context("cannot read /proc/vmstat")?;
            for counter in &mut self.list {
                if let Source::Vmstat(name) = &counter.wanted.spec.source {
                    counter.other = now.delta(before, name).unwrap_or(0);
                    counter.other_sum += counter.other;
                }
            }
            self.vmstat = Some(now);
        }
        // A group is read at once, when its leader's turn comes: its counts are of one moment.
        let mut of_group: HashMap<u64, (u64, u64, u64)> = HashMap::new();
        for counter in &mut self.list {
            for cell in &mut counter.cells {
                let Some(event) = &cell.event else { continue };
                let known = cell.id.and_then(|id| of_group.remove(&id));
                let (value, enabled, running) = match known {
                    Some(known) => known,
                    None => {
                        let read = event
                            .read(counter.format)
                            .with_context(|| format!("cannot read {}", counter.wanted.spec.name))?;
                        let times = (read.time_enabled, read.time_running);
                        for (value, id, _) in read.values.iter().skip(1) {
                            of_group.extend(id.map(|id| (id, (*value, times.0, times.1))));
                        }
                        let own = read.values.first().map_or(cell.last.value, |v| v.0);
                        (own, times.0, times.1)
                    }
                };
                let now = Count {
                    value,
                    enabled: enabled.max(cell.last.enabled),
                    running: running.max(cell.last.running),
                };
                cell.count = now.since(cell.last);
                cell.last = now;
            }
        }
        Ok(())
    }

    /// Makes the counts those since the start, not since the last reading.
    pub(super) fn sum_up(&mut self) {
        for counter in &mut self.list {
            counter.other = counter.other_sum;
            counter.cells.iter_mut().for_each(|c| c.count = c.last);
        }
    }

    fn leaders(&self, f: impl Fn(&PerfEvent) -> std::io::Result<()>) -> std::io::Result<()> {
        self.list
            .iter()
            .filter(|c| c.leads)
            .flat_map(|c| &c.cells)
            .filter_map(|c| c.event.as_ref())
            .try_for_each(f)
    }
}

fn open_one(
    wanted: &Wanted,
    all: &[Wanted],
    place: &Place,
    manner: Manner,
    leader: Option<&Counter>,
) -> anyhow::Result<Counter> {
    let mut counter = Counter {
        wanted: wanted.clone(),
        supported: true,
        user_only: None,
        cells: Vec::new(),
        other: 0,
        other_sum: 0,
        format: match wanted.spec.group {
            Some(_) => READ | ReadFormat::GROUP | ReadFormat::ID,
            None => READ,
        },
        leads: leader.is_none(),
    };
    if wanted.spec.source != Source::Perf {
        return Ok(counter);
    }
    let leader = leader.filter(|l| l.supported);
    let mut attr = wanted.spec.attr.clone();
    attr.sample_period = 0;
    attr.sample_type = SampleType::empty();
    attr.read_format = counter.format;
    attr.flags.remove(AttrFlags::FREQ);
    attr.flags.set(
        AttrFlags::INHERIT,
        wanted.spec.terms.inherit.unwrap_or(manner.inherit) && !matches!(place, Place::Cpus(_)),
    );
    // Members of a group follow their leader.
    attr.flags.set(AttrFlags::DISABLED, leader.is_none());
    attr.flags.set(AttrFlags::ENABLE_ON_EXEC, leader.is_none() && manner.on_exec);
    let mut gone = 0;
    for (cpu, tid) in place.cells(&wanted.spec) {
        let (pid, flags) = match &wanted.cgroup {
            Some(cgroup) => (cgroup.dir.as_raw_fd(), OpenFlags::PID_CGROUP),
            None => (tid.map_or(-1, |t| t as i32), OpenFlags::NONE),
        };
        let at = cpu.map_or(-1, |c| c as i32);
        let group = leader
            .and_then(|l| l.cells.iter().find(|c| (c.cpu, c.tid) == (cpu, tid)))
            .and_then(|c| c.event.as_ref());
        let event = loop {
            let spec = &mut counter.wanted.spec;
            match PerfEvent::open(&attr, pid, at, group.map(|e| e.as_fd()), flags) {
                Ok(event) => break Some(event),
                Err(e)
                    if e.is_denied()
                        && tid.is_some()
                        && !spec.is_tracepoint()
                        && spec.may_be_user_only() =>
                {
                    // What an unprivileged user may still see, said in the name as perf does.
                    counter.user_only = e.paranoid;
                    spec.restrict_to_user();
                    attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
                }
                Err(e) if e.errno == libc::EINVAL && spec.may_count_guests() => {
                    let guests = AttrFlags::EXCLUDE_GUEST | AttrFlags::EXCLUDE_HOST;
                    spec.attr.flags -= guests;
                    attr.flags -= guests;
                }
                Err(e) if e.is_unsupported() => {
                    counter.supported = false;
                    break None;
                }
                // One of several threads ended in the meantime.
                Err(e) if e.is_gone() => {
                    gone += 1;
                    break None;
                }
                Err(e) => return Err(e.into()),
            }
        };
        if let (Some(event), Some(filter)) = (&event, &wanted.spec.filter) {
            event.set_filter(filter).with_context(|| {
                let why = explain_refusal(&wanted.spec, filter, all.iter().map(|w| &w.spec));
                format!("the kernel refuses the filter {filter:?}: {why}")
            })?;
        }
        let id = event.as_ref().filter(|_| wanted.spec.group.is_some()).map(PerfEvent::id);
        counter.cells.push(Cell {
            cpu,
            tid,
            count: Count::default(),
            id: id.transpose().context("cannot get an event's id")?,
            event,
            last: Count::default(),
        });
    }
    if gone > 0 && gone == counter.cells.len() {
        bail!("every task to count is gone");
    }
    if !counter.supported {
        counter.cells.iter_mut().for_each(|c| c.event = None);
    }
    Ok(counter)
}
