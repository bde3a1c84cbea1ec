//! Warnings about a count: events that the machine does not have, that were on a counter only some
//! of the time, that miss the kernel's side, that are of the whole machine.

use kymo_kernel::events::CounterSource;
use kymo_kernel::perf_event::FOR_THE_KERNELS_SIDE;
use kymo_model::{CountRow, CountState, EventType, Note, NoteKind, sw};

use super::counters::{Counter, Counters};
use super::{CountOptions, CountTarget};

/// Notes on these rows.
pub(super) fn notes(options: &CountOptions, rows: &[CountRow], counters: &Counters) -> Vec<Note> {
    let mut notes = Vec::new();
    notes.extend(unsupported(options, counters));
    notes.extend(user_only(counters));
    notes.extend(never_ran(options, rows));
    notes.extend(rows.iter().filter_map(not_all_the_time));
    notes.extend(of_the_machine(options, counters));
    notes
}

fn unsupported(options: &CountOptions, counters: &Counters) -> Option<Note> {
    let names: Vec<&str> =
        counters.iter().filter(|c| !c.supported).map(|c| c.spec.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let all = counters.iter().count();
    let fact = format!("{} of {all} events: {}", names.len(), names.join(", "));
    let advice = Some("`kymo list` shows what this machine can count".into());
    // What the user did not name is not missing from the request.
    Some(if options.default_events {
        Note::choice(NoteKind::NotSupported, fact, advice)
    } else {
        Note::doubt(NoteKind::NotSupported, fact, advice)
    })
}

/// Notes events whose kernel side could not be had.
fn user_only(counters: &Counters) -> Option<Note> {
    let limited: Vec<Counter<'_>> =
        counters.iter().filter(|c| c.supported && c.user_only.is_some()).collect();
    let level = limited.first()?.user_only?;
    let mut fact = format!(
        "{} of {} events are counted in user space only: kernel.perf_event_paranoid is {level}",
        limited.len(),
        counters.iter().count()
    );
    // They happen in the kernel alone, so that the zero of :u says nothing.
    let always_zero = |c: &&Counter<'_>| {
        c.spec.attr.kind == EventType::SOFTWARE
            && [sw::CONTEXT_SWITCHES, sw::CPU_MIGRATIONS].contains(&c.spec.attr.config)
    };
    let zero: Vec<&str> =
        limited.iter().filter(always_zero).map(|c| c.spec.name.as_str()).collect();
    if !zero.is_empty() {
        fact.push_str(&format!(" ({} cannot be seen from there)", zero.join(", ")));
    }
    Some(Note::doubt(NoteKind::UserOnly, fact, Some(FOR_THE_KERNELS_SIDE.into())))
}

/// Events that one note names.
const NAMED: usize = 4;

/// Warns about events that were never counted; of a process that sleeps, these are all of them.
fn never_ran(options: &CountOptions, rows: &[CountRow]) -> Option<Note> {
    let is_empty = |row: &&CountRow| row.state == CountState::NotCounted;
    let names: Vec<&str> = rows.iter().filter(is_empty).map(|row| row.name.as_str()).collect();
    let fact = match names.as_slice() {
        _ if options.interval.is_some() => return None,
        [] => return None,
        [name] => format!("{name} never ran while it was counted"),
        names => {
            let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            let more = match names.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{} events never ran while they were counted: {shown}{more}", names.len())
        }
    };
    Some(Note::doubt(NoteKind::NotCounted, fact, None))
}

fn not_all_the_time(row: &CountRow) -> Option<Note> {
    let name = &row.name;
    match row.state {
        CountState::Counted if row.running < row.enabled => {
            let share = row.share();
            let fact = format!("{name} was counted {share:.2}% of the time and scaled up");
            let advice = Some("name fewer events".into());
            Some(Note::doubt(NoteKind::Multiplexed, fact, advice))
        }
        _ => None,
    }
}

/// Notes events that count for everybody although only some tasks were named.
fn of_the_machine(options: &CountOptions, counters: &Counters) -> Option<Note> {
    let of_all = |c: &Counter<'_>| matches!(c.spec.source, CounterSource::Vmstat(_));
    let names: Vec<&str> = counters.iter().filter(of_all).map(|c| c.spec.name.as_str()).collect();
    if names.is_empty() || options.target == CountTarget::Machine {
        return None;
    }
    let is = if names.len() == 1 { "is" } else { "are" };
    let fact = format!("{} {is} of the whole machine", names.join(", "));
    Some(Note::doubt(NoteKind::Scope, fact, None))
}
