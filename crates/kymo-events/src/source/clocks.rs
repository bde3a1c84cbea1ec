//! Whether recordings can be laid on one time, and what its clock is called.
//!
//! perf.data states the clock of its times only if one was asked for (`--clockid`); else it
//! is the kernel's own (`perf_clock`), which nothing else has. CLOCK_MONOTONIC is shared by
//! perf.data, ftrace's clock `mono`, LTTng and kymo's tracepoints.

use std::sync::{Mutex, PoisonError};

use kymo_files::Timeline;
use kymo_files::ctf::read::Times;
use kymo_files::perfdata::PerfData;
use kymo_model::AttrFlags;

use super::SourceError;

/// Clocks by their numbers in clock_gettime(2), as perf and ftrace call them.
const CLOCKS: [(i32, &str); 5] =
    [(0, "realtime"), (1, "monotonic"), (4, "monotonic_raw"), (7, "boottime"), (11, "tai")];
const MONOTONIC: i32 = 1;
/// Adjustments of the wall clock during one start of a machine are smaller.
const SAME_BOOT: u64 = 60_000_000_000;

/// The clock that was asked for; `None`: perf's own.
fn clockid(data: &PerfData) -> Option<i32> {
    let attr = &data.events().first()?.attr;
    attr.flags.contains(AttrFlags::USE_CLOCKID).then_some(attr.clockid)
}

/// Difference of the wall clock and the recording's, as HEADER_CLOCK_DATA states it.
pub(super) fn wall_offset(data: &PerfData) -> Option<u64> {
    let moment = data.features().clock_data(data.endian())?;
    Some(moment.time_of_day.wrapping_sub(moment.clock_time))
}

/// Name of a clock by its number in clock_gettime(2), as perf and ftrace call it.
pub fn clock_name(id: i32) -> String {
    match CLOCKS.iter().find(|(n, _)| *n == id) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("clock {id}"),
    }
}

fn name_of(id: Option<i32>) -> String {
    id.map_or_else(|| "perf's own".to_owned(), clock_name)
}

/// Checks that recordings have one clock, and are of one start of one machine as far as
/// they tell.
pub(super) fn check(perf: &[PerfData], timeline: Option<&Timeline>) -> Result<(), SourceError> {
    let Some(first) = perf.first() else { return Ok(()) };
    if perf.len() == 1 && timeline.is_none() {
        return Ok(());
    }
    for data in perf {
        let name = || data.name().to_owned();
        if data.is_pipe() {
            let why = "a recording of the pipe form does not state its clock before it is read";
            return Err(SourceError::Clock { name: name(), why: why.to_owned() });
        }
        let id = clockid(data);
        if timeline.is_some() && id != Some(MONOTONIC) {
            let why = format!(
                "its clock is {}, not CLOCK_MONOTONIC (record it with --clockid mono)",
                name_of(id)
            );
            return Err(SourceError::Clock { name: name(), why });
        }
        if id != clockid(first) {
            let (a, b) = (name_of(id), name_of(clockid(first)));
            let why = format!("its clock is {a}, that of {} is {b}", first.name());
            return Err(SourceError::Clock { name: name(), why });
        }
        let host = |d: &PerfData| (d.features().hostname.clone(), d.features().osrelease.clone());
        if let ((Some(a), Some(b)), (Some(c), Some(d))) = (host(first), host(data))
            && (a, b) != (c, d)
        {
            return Err(SourceError::OtherMachine { name: name(), first: first.name().to_owned() });
        }
        if let Some((a, b)) = wall_offset(first).zip(wall_offset(data))
            && (a.wrapping_sub(b) as i64).unsigned_abs() > SAME_BOOT
        {
            let why = format!("it is from another boot of the machine than {}", first.name());
            return Err(SourceError::Clock { name: name(), why });
        }
    }
    match timeline {
        Some(timeline) => Ok(timeline.check_monotonic()?),
        None => Ok(()),
    }
}

/// Name of the clock that times are of.
pub(super) fn name(perf: &[Mutex<PerfData>], timeline: Option<&Timeline>) -> String {
    if let Some(data) = perf.first() {
        let data = data.lock().unwrap_or_else(PoisonError::into_inner);
        return name_of(clockid(&data));
    }
    let Some(timeline) = timeline else { return "none".to_owned() };
    if let Some(kernel) = timeline.kernels().first().and_then(|k| k.buffers().first()) {
        return kernel.clock.clone();
    }
    let Some(programs) = timeline.programs() else { return "?".to_owned() };
    let first = programs.traces().first().and_then(|t| t.clock());
    match (programs.times(), first) {
        (Times::Real, _) => "real time".to_owned(),
        (Times::Clock, Some(clock)) => clock.name.clone(),
        (Times::Clock, None) => "none".to_owned(),
    }
}
