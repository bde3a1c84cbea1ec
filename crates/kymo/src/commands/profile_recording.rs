//! Recording options of `kymo profile`, shared with `kymo diff --run`: stacks as the program needs
//! them, and the events of waits.

use std::ffi::OsString;
use std::path::PathBuf;

use kymo_analysis::offcpu::FUTEX_CALL;
use kymo_kernel::events::{Catalog, EventSpec, paranoid};
use kymo_model::{Note, NoteKind};
use kymo_record::{CallGraph, RecordError, RecordOptions, RecordSummary, Target, record};

use super::frame_pointers::without_frame_pointers;

/// Samples a second.
pub(super) const FREQUENCY: u64 = 4000;
/// Sampling frequency in Hz where stacks are copied without a request.
const COPY_FREQUENCY: u64 = 1000;
/// Bytes of a copy.
const COPY_BYTES: u32 = 8192;

/// Events that tell what a command waits for, and who wakes it.
pub(super) const WAIT_EVENTS: [&str; 3] = ["sched:sched_switch", WAKE_UP, "sched:sched_wakeup_new"];
const WAKE_UP: &str = "sched:sched_waking";

/// Format and frequency of stack samples.
pub(super) struct StackChoice {
    pub(super) mode: CallGraph,
    pub(super) freq: u64,
    /// Reason, if it was not requested.
    pub(super) note: Option<Note>,
}

impl StackChoice {
    /// The mode and rate that are wanted, or those that the program needs.
    pub(super) fn of(
        (mode, freq): (Option<CallGraph>, Option<u64>),
        target: &Target,
        command: &[OsString],
    ) -> StackChoice {
        let without: Option<PathBuf> =
            if mode.is_none() { without_frame_pointers(target, command) } else { None };
        let Some(program) = without else {
            let mode = mode.unwrap_or(CallGraph::FramePointers);
            return StackChoice { mode, freq: freq.unwrap_or(FREQUENCY), note: None };
        };
        let freq = freq.unwrap_or(COPY_FREQUENCY);
        let fact = format!(
            "{} keeps no frame pointers: stacks are copied (--call-graph dwarf), {freq} times a \
             second",
            program.display()
        );
        let advice = "--call-graph fp is cheaper, and loses callers";
        let note = Note::choice(NoteKind::Stacks, fact, Some(advice.to_owned()));
        StackChoice { mode: CallGraph::Dwarf(COPY_BYTES), freq, note: Some(note) }
    }
}

/// Records; a process may have more threads than files may be open: then without the calls for
/// futexes, which only name these.
pub(super) fn record_within_limits(
    options: &mut RecordOptions,
) -> Result<(RecordSummary, Option<Note>), RecordError> {
    const TOO_MANY_FILES: i32 = 24;
    let is_futex = |event: &EventSpec| event.name == FUTEX_CALL;
    match record(options) {
        Err(RecordError::Open { source, .. })
            if source.errno == TOO_MANY_FILES && options.more_events.iter().any(is_futex) =>
        {
            options.more_events.retain(|event| !is_futex(event));
            let fact = "futexes have no names: each event takes a file for each thread and CPU, \
                        and fewer may be open";
            let note = Note::choice(
                NoteKind::Events,
                fact,
                Some("raise the limit of open files (ulimit -Hn)".to_owned()),
            );
            Ok((record(options)?, Some(note)))
        }
        summary => Ok((summary?, None)),
    }
}

/// Events of waits, if this user may record them.
///
/// With `keeps_switches`, the recording shows on which CPU each task runs when read by other
/// commands: switches to its tasks are recorded, which are events of the tasks before them.
pub(super) fn wait_events(target: &Target, keeps_switches: bool) -> Vec<EventSpec> {
    let rights = paranoid();
    if !rights.privileged && rights.level.is_none_or(|level| level > -1) {
        return Vec::new();
    }
    let catalog = Catalog::open();
    let mut events: Vec<EventSpec> =
        WAIT_EVENTS.iter().flat_map(|name| catalog.parse(name).unwrap_or_default()).collect();
    for event in &mut events {
        event.terms.period = Some(1);
    }
    if events.len() < WAIT_EVENTS.len() {
        return Vec::new();
    }
    // A waker of the command may be of another process: of all wake-ups of the machine those of the
    // command are kept, without copies of the wakers' stacks.
    if *target != Target::System {
        let is_foreign = |name: &str| name == WAKE_UP || keeps_switches && name == WAIT_EVENTS[0];
        let mut others: Vec<EventSpec> =
            events.iter().filter(|e| is_foreign(&e.name)).cloned().collect();
        for event in &mut others {
            event.terms.system_wide = true;
            event.terms.call_graph = Some("fp".to_owned());
        }
        events.extend(others);
    }
    // Which futex it is that a thread waits for; kernels without events of system calls do not
    // tell.
    for mut futex in catalog.parse(FUTEX_CALL).unwrap_or_default() {
        futex.terms.period = Some(1);
        events.push(futex);
    }
    events
}
