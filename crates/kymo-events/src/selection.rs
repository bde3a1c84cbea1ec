//! Which events are wanted: by time, CPU, task, name and the values of their fields. The
//! same for recordings of all formats; what a format can pass over it passes over.

use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};
use kymo_files::perfdata::{EventDesc, PerfData};
use kymo_model::{EventType, Note, SampleType, sw};

use crate::cgroup_pattern::CgroupPattern;
use crate::event_switch::EventSwitch;
use crate::filter::FilterExpr;
use crate::schema::RecordedClass;
use crate::selection_census::{ListTally, RecordedExtent, SelectionCensus, SelectionValues};
use crate::task_tree::TaskTree;

/// Time, CPU and task of an event: the facts available for every event.
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

/// A selection that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectionError(pub String);

/// Conditions on events; those not given hold.
#[derive(Clone, Debug, Default)]
pub struct EventSelection {
    /// Spans of time, both ends included; all of it where there are none.
    pub times: Vec<(u64, u64)>,
    /// CPUs by number; all where it is empty.
    cpus: Vec<bool>,
    /// Names of tasks.
    pub comms: Vec<String>,
    /// Processes.
    pub pids: Vec<u32>,
    /// Threads.
    pub tids: Vec<u32>,
    /// The threads selected among those that a recording distinguishes, ascending; `None`: all. A
    /// thread must be among them and among `tids`.
    pub members: Option<Vec<u32>>,
    /// The tasks of one command; `None`: all.
    pub tree: Option<TaskTree>,
    /// Cgroups, by path or glob.
    cgroups: Vec<CgroupPattern>,
    /// Events, by name or glob.
    events: Option<(GlobSet, Vec<String>)>,
    /// Condition on the fields.
    pub filter: Option<FilterExpr>,
    /// Events that switch, of samples of a perf.data.
    pub switch: EventSwitch,
    /// Values that events had, shared with the clones of this selection.
    census: Arc<SelectionCensus>,
}

/// Most CPUs that a list may name.
const MOST_CPUS: usize = 1 << 16;
/// Most events that a message names.
const MOST_NAMED: usize = 16;

impl EventSelection {
    /// Everything of these tasks; of all where none is named.
    pub fn of_tasks(comms: Vec<String>, pids: Vec<u32>, tids: Vec<u32>) -> EventSelection {
        EventSelection { comms, pids, tids, ..EventSelection::default() }
    }

    /// Whether every event is wanted.
    pub fn is_everything(&self) -> bool {
        self.is_of_classes() && self.events.is_none()
    }

    /// Whether it is decided by the class of an event alone.
    pub(crate) fn is_of_classes(&self) -> bool {
        self.times.is_empty()
            && self.cpus.is_empty()
            && !self.has_task_conditions()
            && self.cgroups.is_empty()
            && self.filter.is_none()
            && !self.switch.is_given()
    }

    /// Whether there is any condition.
    #[inline]
    pub fn is_restricted(&self) -> bool {
        !self.is_everything()
    }

    /// Whether it matters which task an event is of.
    pub fn has_task_conditions(&self) -> bool {
        self.members.is_some()
            || self.tree.is_some()
            || !(self.comms.is_empty() && self.pids.is_empty() && self.tids.is_empty())
    }

    /// Reads `0,2-3`.
    ///
    /// # Errors
    /// If that is no list of CPUs.
    pub fn set_cpus(&mut self, list: &str) -> Result<(), SelectionError> {
        for part in list.split(',') {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            let parse = |s: &str| match s.trim().parse::<usize>() {
                Ok(n) if n < MOST_CPUS => Ok(n),
                Ok(n) => Err(SelectionError(format!("--cpu {list}: {n} is not a CPU"))),
                Err(_) => {
                    let why = format!("--cpu {list}: not a list of CPUs such as 0,2-3");
                    Err(SelectionError(why))
                }
            };
            let (a, b) = (parse(a)?, parse(b)?);
            self.cpus.resize(self.cpus.len().max(b + 1), false);
            self.cpus.iter_mut().take(b + 1).skip(a).for_each(|c| *c = true);
        }
        Ok(())
    }

    /// Takes paths or globs of cgroups, whose children count, too, as in `record -G`; none
    /// means all.
    ///
    /// # Errors
    /// If one is no glob.
    pub fn set_cgroups(&mut self, paths: &[String]) -> Result<(), SelectionError> {
        self.cgroups = CgroupPattern::parse(paths).map_err(SelectionError)?;
        Ok(())
    }

    /// Whether cgroups were named.
    #[inline]
    pub fn names_cgroups(&self) -> bool {
        !self.cgroups.is_empty()
    }

    /// The condition on the cgroup.
    pub fn wants_cgroup(&self, path: Option<&[u8]>) -> bool {
        let wanted = |path: &[u8]| self.cgroups.iter().any(|p| p.is_match(path));
        self.cgroups.is_empty() || path.is_some_and(wanted)
    }

    /// Checks that the samples of a recording have cgroups, if some were named. A pipe defines its
    /// events while it is read.
    ///
    /// # Errors
    /// If an event was recorded without.
    pub fn check_cgroups(&self, data: &PerfData) -> Result<(), SelectionError> {
        let has_cgroups =
            |e: &EventDesc| e.attr.sample_type.contains(SampleType::CGROUP) || is_dummy(e);
        match data.events().iter().find(|e| !has_cgroups(e)) {
            Some(event) if self.names_cgroups() => Err(SelectionError(format!(
                "--cgroup: samples of {} in {} have no cgroup: `perf record --all-cgroups` records \
                 it",
                event.name,
                data.name()
            ))),
            _ => Ok(()),
        }
    }

    /// The selection without its condition on events.
    #[must_use]
    pub fn without_events(&self) -> EventSelection {
        EventSelection { events: None, ..self.clone() }
    }

    /// Selects events by their names, in which nothing is a pattern: names out of a recording, or
    /// known ones. None means all.
    pub fn set_event_names(&mut self, names: Vec<String>) {
        if !names.is_empty() {
            self.events = Some((GlobSet::empty(), names));
        }
    }

    /// Selects events by names or globs that a user gives; none means all.
    ///
    /// # Errors
    /// If the globs are too many.
    pub fn set_events(&mut self, names: &[String]) -> Result<(), SelectionError> {
        if names.is_empty() {
            return Ok(());
        }
        let mut set = GlobSetBuilder::new();
        for name in names {
            // What is not a glob can still be a name: `x[y`.
            if let Ok(glob) = Glob::new(name) {
                set.add(glob);
            }
        }
        let set = set.build().map_err(|e| SelectionError(format!("events: {e}")))?;
        self.events = Some((set, names.to_vec()));
        Ok(())
    }

    /// Whether events were named.
    pub fn names_events(&self) -> bool {
        self.events.is_some()
    }

    /// Checks that each name of an event is that of a class: otherwise it is a slip of the
    /// fingers.
    ///
    /// # Errors
    /// Names the event, and those there are if they are few.
    pub fn check_events(&self, classes: &[RecordedClass]) -> Result<(), SelectionError> {
        let Some((_, names)) = &self.events else { return Ok(()) };
        for name in names {
            let glob = Glob::new(name).map(|g| g.compile_matcher()).ok();
            let is = |n: &str| n == name || glob.as_ref().is_some_and(|g| g.is_match(n));
            if classes.iter().any(|c| c.names().into_iter().any(is)) {
                continue;
            }
            let mut there: Vec<&str> = classes.iter().map(|c| c.full_name.as_str()).collect();
            there.dedup();
            let there = match there.len() {
                1..=MOST_NAMED => format!("; there are {}", there.join(", ")),
                _ => String::new(),
            };
            let why = format!("-e {name}: the recording has no such event{there}");
            return Err(SelectionError(why));
        }
        Ok(())
    }

    /// Whether an event meets all conditions but that on its fields.
    pub fn wants(&self, head: &EventHead<'_>, event: &str) -> bool {
        self.wants_head(head) && self.wants_event(&[event])
    }

    /// Whether an event meets the conditions on time, CPU and task.
    pub fn wants_head(&self, of: &EventHead<'_>) -> bool {
        self.wants_time(of.time)
            && self.wants_cpu(of.cpu)
            && self.wants_task(Some(of.pid), Some(of.tid), of.comm)
    }

    /// Whether an event with these names is wanted.
    pub fn wants_event(&self, names: &[&str]) -> bool {
        match &self.events {
            None => true,
            Some((set, given)) => {
                let is_wanted =
                    names.iter().any(|n| set.is_match(n) || given.iter().any(|g| g == n));
                let named = || names.first().map(|name| (*name).to_owned());
                self.census.events.note(is_wanted.then_some(0), named);
                is_wanted
            }
        }
    }

    /// The conditions on the time.
    #[inline]
    pub fn wants_time(&self, time: Option<u64>) -> bool {
        if self.times.is_empty() {
            return true;
        }
        let within = |t: u64| self.times.iter().any(|(from, to)| (*from..=*to).contains(&t));
        let is_wanted = time.is_none_or(within);
        self.census.times.note(is_wanted.then_some(0), || None);
        is_wanted
    }

    /// The condition on the CPU.
    #[inline]
    pub fn wants_cpu(&self, cpu: Option<u32>) -> bool {
        if self.cpus.is_empty() {
            return true;
        }
        let is_wanted = cpu.is_some_and(|c| self.cpus.get(c as usize) == Some(&true));
        let other = || cpu.map(|cpu| format!("CPU {cpu}"));
        self.census.cpus.note(is_wanted.then_some(0), other);
        is_wanted
    }

    /// The conditions on the task.
    pub fn wants_task(&self, pid: Option<u32>, tid: Option<u32>, comm: &[u8]) -> bool {
        // Where a recording has one number of a task only, it stands for both.
        let is_member =
            |members: &Vec<u32>| tid.is_some_and(|tid| members.binary_search(&tid).is_ok());
        let is_of = |tree: &TaskTree| tid.or(pid).is_some_and(|n| tree.has(n));
        self.members.as_ref().is_none_or(is_member)
            && self.tree.as_ref().is_none_or(is_of)
            && self.names_task(pid, tid, comm)
    }

    /// The condition on the name of a task.
    pub fn wants_comm(&self, tid: u32, comm: &[u8]) -> bool {
        self.names_comm(tid == 0, comm)
    }

    fn names_comm(&self, is_idle: bool, comm: &[u8]) -> bool {
        if self.comms.is_empty() {
            return true;
        }
        let place = self.comms.iter().position(|c| c.as_bytes() == comm);
        let named = || (!is_idle).then(|| String::from_utf8_lossy(comm).into_owned());
        self.census.comms.note(place, named);
        place.is_some()
    }

    /// The conditions on a task but that on its name.
    pub fn wants_numbers(&self, pid: Option<u32>, tid: u32) -> bool {
        let nameless = EventSelection { comms: Vec::new(), ..self.clone() };
        nameless.wants_task(pid, Some(tid), b"")
    }

    /// The conditions on numbers and name of the task, each noted by itself.
    fn names_task(&self, pid: Option<u32>, tid: Option<u32>, comm: &[u8]) -> bool {
        let is_idle = tid.or(pid) == Some(0);
        let is_among = |list: &[u32], n: Option<u32>, tally: &ListTally| {
            if list.is_empty() {
                return true;
            }
            let place = n.and_then(|n| list.iter().position(|known| *known == n));
            let named = || n.map(|n| format!("{n} ({})", String::from_utf8_lossy(comm)));
            tally.note(place, || named().filter(|_| !is_idle));
            place.is_some()
        };
        let is_pid = is_among(&self.pids, pid.or(tid), &self.census.pids);
        let is_tid = is_among(&self.tids, tid.or(pid), &self.census.tids);
        self.names_comm(is_idle, comm) && is_pid && is_tid
    }

    /// Notes whether the condition on the fields holds for an event.
    #[inline]
    pub(crate) fn note_filter(&self, holds: bool) -> bool {
        self.census.filter.note(holds.then_some(0), || None);
        holds
    }

    /// Notes on values of the selection that no event had, after events were read: why a result is
    /// empty. `extent` is asked for only where times or CPUs are chosen.
    pub fn unmet_notes(&self, extent: impl FnOnce() -> RecordedExtent) -> Vec<Note> {
        if !self.is_restricted() {
            return Vec::new();
        }
        let needs_extent = !self.times.is_empty() || !self.cpus.is_empty();
        let extent = if needs_extent { extent() } else { RecordedExtent::default() };
        let values = SelectionValues {
            times: &self.times,
            cpus: self.cpus().unwrap_or_default(),
            pids: &self.pids,
            tids: &self.tids,
            comms: &self.comms,
            events: self.events.as_ref().map_or(&[], |(_, names)| names),
        };
        self.census.notes(&values, extent)
    }

    /// Notes on conditions that no event of a perf.data met.
    pub fn unmet_notes_in(&self, data: &mut PerfData) -> Vec<Note> {
        self.unmet_notes(|| RecordedExtent {
            span: data.sample_span().ok().flatten(),
            cpus: data.features().nrcpus.map(|cpus| cpus.0 as usize),
        })
    }

    /// The CPUs that are wanted, if not all.
    pub fn cpus(&self) -> Option<Vec<u32>> {
        let wanted = |(i, yes): (usize, &bool)| yes.then_some(i as u32);
        (!self.cpus.is_empty()).then(|| self.cpus.iter().enumerate().filter_map(wanted).collect())
    }

    /// The time after which nothing is wanted.
    pub fn until(&self) -> u64 {
        self.times.iter().map(|t| t.1).max().unwrap_or(u64::MAX)
    }

    /// The time before which nothing is wanted.
    pub fn from(&self) -> u64 {
        self.times.iter().map(|t| t.0).min().unwrap_or(0)
    }
}

/// The event of perf's that makes no samples.
fn is_dummy(event: &EventDesc) -> bool {
    event.attr.kind == EventType::SOFTWARE && event.attr.config == sw::DUMMY
}

/// Reads `START,STOP START,STOP…` in seconds, or shares of the whole: `10%/2`,
/// `0%-10%,30%-40%`. `span`: when the recording begins and ends.
///
/// # Errors
/// If that is no span of time, or shares are asked for and the whole is not known.
pub fn parse_times(
    text: &str,
    span: Option<(u64, u64)>,
) -> Result<Vec<(u64, u64)>, SelectionError> {
    let fail = |why: String| SelectionError(why);
    let mut times = Vec::new();
    if text.contains('%') {
        let Some((first, last)) = span else {
            return Err(fail(format!(
                "--time {text}: the recording does not state its start and end, so shares of it are not known; give times in seconds"
            )));
        };
        for part in text.split([',', ' ']).filter(|p| !p.is_empty()) {
            let (from, to) = parse_share(part).ok_or_else(|| {
                fail(format!("--time {text}: {part} is not a share such as 10%, 10%/2 or 0%-10%"))
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
                return Err(fail(format!("--time {part}: the start is later than the end")));
            }
            times.push((from, to));
        }
    }
    if times.is_empty() {
        return Err(fail("--time: no time is given".into()));
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

/// Decimal seconds as nanoseconds, exactly.
fn parse_seconds(text: &str) -> Result<u64, SelectionError> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let not_a_time =
        || SelectionError(format!("--time {text}: not a time in seconds, such as 12.5"));
    if !digits(whole) || !digits(part) || part.len() > 9 || text.is_empty() {
        return Err(not_a_time());
    }
    let number = |s: &str| s.parse::<u64>().map_err(|_| not_a_time());
    let whole = if whole.is_empty() { 0 } else { number(whole)? };
    let nanos = number(&format!("{part:0<9}"))?;
    whole
        .checked_mul(1_000_000_000)
        .and_then(|n| n.checked_add(nanos))
        .ok_or_else(|| SelectionError(format!("--time {text}: too far away")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_first_and_last_event() {
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
        assert_eq!(parse_seconds("6880.661636"), Ok(6_880_661_636_000));
        assert_eq!(parse_seconds("1.000000001"), Ok(1_000_000_001));
        for bad in ["1e3", "", "-1", "99999999999999999999"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cgroups_count_with_those_below_them() {
        let wants = |paths: &[&str], path: &str| {
            let mut s = EventSelection::default();
            let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
            s.set_cgroups(&paths).unwrap();
            s.wants_cgroup(Some(path.as_bytes()))
        };
        assert!(wants(&["user.slice"], "/user.slice") && wants(&["/a/b/"], "/a/b/c"));
        assert!(!wants(&["user"], "/user.slice") && !wants(&["a/b"], "/a"));
        assert!(wants(&["/"], "/a") && wants(&["/"], "/") && wants(&[], "/"));
        assert!(
            wants(&["a/*.service"], "/a/x.service/y") && !wants(&["a/*.service"], "/a/x.slice")
        );
        assert!(wants(&["x", "b*"], "/bee") && !wants(&["*/b"], "/a/c/b"));
        let mut s = EventSelection::default();
        assert!(s.set_cgroups(&["a[".to_owned()]).is_err());
        s.set_cgroups(&["a".to_owned()]).unwrap();
        assert!(!s.wants_cgroup(None) && s.is_restricted());
    }

    #[test]
    fn what_is_not_given_holds() {
        let mut s = EventSelection::default();
        assert!(s.is_everything() && s.wants_cpu(None) && s.wants_task(None, None, b"x"));
        s.set_cpus("0,2-3").unwrap();
        assert_eq!(s.cpus(), Some(vec![0, 2, 3]));
        assert!(s.wants_cpu(Some(2)) && !s.wants_cpu(Some(1)) && !s.wants_cpu(None));
        assert!(s.set_cpus("x").is_err() && s.set_cpus("70000").is_err());
        s.set_event_names(vec!["x[y".into(), "a*".into()]);
        assert!(s.wants_event(&["x[y"]) && s.wants_event(&["a*"]));
        assert!(!s.wants_event(&["xy"]) && !s.wants_event(&["ab"]));
        s.set_events(&["x[y".into()]).unwrap();
        assert!(s.wants_event(&["x[y"]) && !s.wants_event(&["xy"]));
        s.set_events(&["sched:*".into(), "shop:sale".into()]).unwrap();
        assert!(s.wants_event(&["sched:sched_switch", "sched_switch"]));
        assert!(!s.wants_event(&["irq:irq_handler_entry", "irq_handler_entry"]));
        s.pids = vec![7];
        assert!(s.wants_task(Some(7), Some(8), b"x") && !s.wants_task(Some(8), Some(7), b"x"));
        // trace.dat states the thread alone.
        assert!(s.wants_task(None, Some(7), b"x"));
    }
}
