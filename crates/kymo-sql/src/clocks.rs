//! Equal moments in several clocks that recordings state: CLOCK_DATA of a perf.data, the option
//! DATE of a trace.dat, offsets of clocks in CTF metadata.

use kymo_events::{EventSource, clock_name};
use kymo_files::ctf::ClockOrigin;
use kymo_files::ctf::read::Times;

use crate::build::{Put, TableBuilder};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// A moment: its time in the recording, and names of clocks with its times in them.
#[derive(Clone, Debug, PartialEq)]
struct Moment {
    ts: i64,
    values: [(String, i64); 2],
}

/// Perfetto's name of a clock, and its number.
fn perfetto_clock(name: &str) -> (Option<u32>, String) {
    let known = match name {
        "realtime" => (1, "REALTIME"),
        "mono" | "monotonic" => (3, "MONOTONIC"),
        "mono_raw" | "monotonic_raw" => (5, "MONOTONIC_RAW"),
        "boot" | "boottime" => (6, "BOOTTIME"),
        "x86-tsc" => (9, "TSC"),
        "perf" => (10, "PERF"),
        other => return (None, other.to_uppercase()),
    };
    (Some(known.0), known.1.to_owned())
}

fn moments(source: &EventSource) -> Vec<Moment> {
    let mut all: Vec<Moment> = Vec::new();
    let mut add = |moment: Moment| {
        if !all.contains(&moment) {
            all.push(moment);
        }
    };
    let real = |nanos: i64| ("realtime".to_owned(), nanos);
    for number in 0..source.perf_count() {
        let Some(data) = source.perf(number) else { continue };
        if let Some(stated) = data.features().clock_data(data.endian()) {
            let time = stated.clock_time.cast_signed();
            let clock = clock_name(stated.clock_id.cast_signed());
            add(Moment {
                ts: time,
                values: [(clock, time), real(stated.time_of_day.cast_signed())],
            });
        }
    }
    let Some(timeline) = source.timeline() else { return all };
    for kernel in timeline.kernels() {
        let options = kernel.options();
        let date = options.date_ns();
        if date == 0 {
            continue;
        }
        let clock = kernel.buffers().first().map(|buffer| buffer.clock.as_str());
        let Some(clock) = clock.filter(|clock| !clock.is_empty()) else { continue };
        // The zero of the ring's clock; times of the file are moved by both options.
        let moved = date.wrapping_add(options.offset_ns());
        let ts = if timeline.undoes_corrections() { 0 } else { moved };
        add(Moment { ts, values: [(clock.to_owned(), 0), real(date)] });
    }
    for trace in timeline.programs().into_iter().flat_map(|programs| programs.traces()) {
        let Some(clock) = trace.clock() else { continue };
        // Ticks of other lengths may lie on the time of the trace along a curve.
        let is_stated = clock.offset_s != 0 || clock.offset != 0;
        if !is_stated || clock.freq != SECOND || clock.origin != ClockOrigin::UnixEpoch {
            continue;
        }
        let offset = clock.offset_s.saturating_mul(SECOND as i64).saturating_add(clock.offset);
        let is_real = timeline.programs().is_some_and(|programs| programs.times() == Times::Real);
        let ts = if is_real { offset } else { 0 };
        add(Moment { ts, values: [(clock.name.clone(), 0), real(offset)] });
    }
    all
}

/// Fills the table of moments.
pub(crate) fn fill<'s>(sources: impl Iterator<Item = &'s EventSource>, table: &mut TableBuilder) {
    let mut snapshot = 0;
    for (machine, source) in (0u32..).zip(sources) {
        for Moment { ts, values } in moments(source) {
            for (clock, value) in values {
                let (id, name) = perfetto_clock(&clock);
                table.row([
                    Put::Integer(ts),
                    id.into(),
                    Put::Text(&name),
                    Put::Integer(value),
                    Put::Small(snapshot),
                    Put::Small(machine),
                ]);
            }
            snapshot += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_have_perfettos_names_and_numbers() {
        // By protos/perfetto/common/builtin_clock.proto.
        assert_eq!(perfetto_clock("mono"), (Some(3), "MONOTONIC".to_owned()));
        assert_eq!(perfetto_clock(&clock_name(7)), (Some(6), "BOOTTIME".to_owned()));
        assert_eq!(perfetto_clock(&clock_name(11)), (None, "TAI".to_owned()));
        assert_eq!(perfetto_clock("local"), (None, "LOCAL".to_owned()));
    }
}
