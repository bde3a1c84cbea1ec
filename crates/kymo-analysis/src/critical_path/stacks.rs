//! Stacks of the events at which segments end: looked for when the path is known, so that only
//! those that are shown are unwound and named.

use std::ops::ControlFlow;

use kymo_events::{EventSource, ReadOptions, RecordedEvent, SourceError};
use kymo_model::Misc;
use kymo_symbols::DsoId;
use rustc_hash::FxHashMap;

use super::path::{PathKind, PathLine, PathSegment, PathTable, StackPlace};
use super::wake_source::WakeSource;
use super::work_items::WORK_EVENTS;
use crate::losses::select_events;
use crate::offcpu::{OFF_CPU_EVENTS, OffCpuCause, StackNode, StackRole, StackStore};
use crate::tasks::{SwitchOutState, WakeupContext};

/// Events whose stacks are looked for.
const MAX_PLACES: usize = 1 << 20;

/// Segments whose lines are looked for: the longest.
const MAX_LINES: usize = 64;
/// Frames of the program that are asked for a line.
const MAX_FRAMES: usize = 16;

/// Begins of the names of functions through which system calls come into the kernel.
const SYSCALL_ENTRIES: [&str; 3] = ["entry_SYSCALL", "entry_SYSENTER", "el0_svc"];

/// Source line of an address of a binary, of each recording.
type KnownLines = FxHashMap<(usize, DsoId, u64), Option<(String, u32)>>;

type FoundStacks = FxHashMap<StackPlace, Option<StackNode>>;

/// Gives segments their stacks, and blocked ones their causes.
pub(super) fn add_stacks(source: &EventSource, table: &mut PathTable) -> Result<(), SourceError> {
    let mut found = FoundStacks::default();
    let segments = || table.paths.iter().flat_map(|p| &p.segments);
    for place in segments().flat_map(|s| [s.place, s.wake_place]).flatten() {
        if found.len() < MAX_PLACES {
            found.insert(place, None);
        }
    }
    if found.is_empty() || source.is_piped() {
        return Ok(());
    }
    // Numbers of symbols are those of one reading.
    table.stacks = StackStore::default();
    let longest = table.worst(MAX_LINES).into_iter();
    let longest = longest.filter_map(|place| Some((table.segment(place)?.place?, None)));
    let mut lines: FxHashMap<StackPlace, Option<u32>> = longest.collect();
    let (mut texts, mut known) = (Vec::new(), KnownLines::default());
    read(source, &mut found, &mut table.stacks, &mut |place, event| {
        if let Some(slot) = lines.get_mut(&place)
            && let Some(line) = source_line(event, &mut known)
        {
            *slot = Some(texts.len() as u32);
            texts.push(line);
        }
    })?;
    table.lines = texts;
    table.stacked = (found.len() as u64, found.values().flatten().count() as u64);
    let stacks = &table.stacks;
    for segment in table.paths.iter_mut().flat_map(|p| &mut p.segments) {
        let stack = |place: Option<StackPlace>| found.get(&place?).copied().flatten();
        segment.stack = stack(segment.place);
        segment.line = segment.place.and_then(|place| lines.get(&place).copied().flatten());
        tell_cause(segment, stack(segment.wake_place), stacks);
    }
    Ok(())
}

fn read(
    source: &EventSource,
    found: &mut FoundStacks,
    stacks: &mut StackStore,
    see: &mut dyn FnMut(StackPlace, &RecordedEvent<'_>),
) -> Result<(), SourceError> {
    let mut names = OFF_CPU_EVENTS.to_vec();
    names.extend(["ftrace:kernel_stack", WORK_EVENTS[0]]);
    let mut select = select_events(&names);
    let times = || found.keys().map(|p| p.time);
    let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(u64::MAX));
    // Stacks that are events of their own come a little later.
    select.times = vec![(first, last.saturating_add(1_000_000))];
    let mut owners: FxHashMap<u32, StackPlace> = FxHashMap::default();
    source.for_each(&select, ReadOptions::default(), &mut |event| {
        let Some(cpu) = event.cpu() else { return ControlFlow::Continue(()) };
        let place = if event.class.is_stack {
            owners.remove(&cpu)
        } else {
            owners.remove(&cpu);
            place_of(event, cpu)
        };
        let Some((place, slot)) = place.and_then(|p| Some((p, found.get_mut(&p)?))) else {
            return ControlFlow::Continue(());
        };
        if slot.is_none() {
            let role = if place.is_switch { StackRole::Sleeper } else { StackRole::Waker };
            *slot = stacks.add(event, role);
            see(place, event);
            if slot.is_none() && !event.class.is_stack {
                owners.insert(cpu, place);
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Line of the innermost function of the program that has one.
fn source_line(event: &RecordedEvent<'_>, known: &mut KnownLines) -> Option<PathLine> {
    let chain = event.call_chain();
    let of_kernel = chain.iter().rfind(|f| f.address.mode == Misc::KERNEL);
    let is_call = of_kernel.and_then(|f| f.shown.symbol).is_some_and(|symbol| {
        let mut is_call = false;
        event.with_symbols(&mut |symbols| {
            is_call = SYSCALL_ENTRIES.iter().any(|entry| symbols.name(symbol).starts_with(entry));
        });
        is_call
    });
    let of_program = chain.iter().filter(|f| f.address.mode == Misc::USER).take(MAX_FRAMES);
    of_program.enumerate().find_map(|(frame, at)| {
        let dso = at.shown.dso?;
        // A system call returns behind its instruction.
        let code = if is_call && frame == 0 { at.code.saturating_sub(1) } else { at.code };
        let line = known.entry((event.class.recording, dso, code)).or_insert_with(|| {
            let mut line = None;
            event.with_symbols(&mut |symbols| {
                let sources = symbols.sources_of(&[(dso, vec![code])]);
                let first = sources.frames(0, 0).first().filter(|f| f.line > 0);
                line = first.map(|f| (sources.file(f.file).to_owned(), f.line));
            });
            line
        });
        line.clone().map(|(file, line)| PathLine { frame, file, line })
    })
}

fn place_of(event: &RecordedEvent<'_>, cpu: u32) -> Option<StackPlace> {
    let is_switch = event.class.is_named(OFF_CPU_EVENTS[0]);
    Some(StackPlace { time: event.time?, cpu, is_switch })
}

/// Finds the cause of a blocked segment.
fn tell_cause(segment: &mut PathSegment, wake: Option<StackNode>, stacks: &StackStore) {
    let (cause, source) = match segment.kind {
        PathKind::Blocked(cause, source) if cause != OffCpuCause::Preempted => (cause, source),
        // Blocked: the CPU was idle, and the switch to that was not recorded.
        PathKind::Waiting(OffCpuCause::Preempted)
        | PathKind::Blocked(OffCpuCause::Preempted, _) => {
            let cause = stacks.cause(segment.stack, SwitchOutState::Runnable);
            let cause = stacks.cause_at_end(cause, segment.stack, segment.nanos());
            if cause == OffCpuCause::Throttled {
                // It would not have run either if no other task had.
                segment.kind = PathKind::Waiting(OffCpuCause::Throttled);
                (segment.instead, segment.is_unsplit) = (None, false);
            }
            return;
        }
        _ => return,
    };
    let cause = match (cause, segment.stack) {
        // The state alone says more.
        (OffCpuCause::Blocked, Some(stack)) => {
            stacks.cause(Some(stack), SwitchOutState::Blocked(b'S'))
        }
        (cause, _) => cause,
    };
    let context = match source {
        WakeSource::SoftIrq => Some(WakeupContext::SoftIrq),
        WakeSource::HardIrq => Some(WakeupContext::HardIrq),
        _ => None,
    };
    let source = match (context, wake) {
        (Some(context), Some(wake)) => WakeSource::of(context, &stacks.names(wake), true),
        _ => source,
    };
    segment.kind = PathKind::Blocked(cause, source);
}
