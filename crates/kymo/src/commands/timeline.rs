//! What `script`, `report` and `list` of a trace.dat, of CTF traces and of both together
//! have in common: the ledger of what was read, how well the times agree, and the end.

use std::process::ExitCode;

use kymo_files::{Stats, Timeline};
use kymo_model::{Note, NoteKind};
use kymo_view::Ledger;

use super::{ctf, tracedat};
use crate::exit;

/// What could make a result of the recordings less than the truth.
pub(crate) fn ledger(timeline: &Timeline, stats: &Stats) -> Ledger {
    let mut all = Ledger::default();
    let several = timeline.kernels().len() + usize::from(timeline.programs().is_some()) > 1;
    let mut add = |name: &str, notes: Ledger| {
        for note in notes.notes() {
            let fact = match several {
                true => format!("{name}: {}", note.fact),
                false => note.fact.clone(),
            };
            all.push(Note { fact, ..note.clone() });
        }
    };
    for (data, stats) in timeline.kernels().iter().zip(&stats.kernels) {
        add(data.name(), tracedat::ledger(data, stats));
    }
    if let (Some(programs), Some(stats)) = (timeline.programs(), &stats.programs) {
        add(programs.name(), ctf::ledger(programs, stats));
    }
    agreement(timeline, &mut all);
    if timeline.undoes_corrections() {
        let fact = "times of a trace.dat that asks for corrections are shown without them";
        all.tell(NoteKind::Clock, fact, None);
    }
    if timeline.kernels().len() > 1 {
        let fact = "several recordings of the kernel are taken to be of one start of the machine: \
                    a trace.dat does not say";
        all.tell(NoteKind::Clock, fact, None);
    }
    if stats.apart {
        let fact = "the kernel's events and those of programs do not overlap in time: are they of \
                    one run and one start of the machine?";
        all.note(NoteKind::Clock, fact, None);
    }
    all
}

/// How far the order of events of the kernel and of programs can be trusted.
fn agreement(timeline: &Timeline, ledger: &mut Ledger) {
    let Some(a) = timeline.agreement() else { return };
    if a.readings == 0 {
        let fact = "times of programs are those of CLOCK_MONOTONIC, as their traces call it; the \
                    kernel's are, too";
        return ledger.tell(NoteKind::Clock, fact, None);
    }
    // Both clocks count whole nanoseconds.
    let error = a.error.saturating_add(1);
    let checked = match a.checked {
        0 => "by more if the kernel corrected its clock meanwhile".to_owned(),
        n => format!("{n} of them foretold from the others"),
    };
    let s = if a.readings == 1 { "" } else { "s" };
    let n = a.readings;
    let fact = format!(
        "times of programs and of the kernel agree within {error} ns ({n} reading{s} of both \
         clocks, {checked})"
    );
    ledger.tell(NoteKind::Clock, fact, None);
    if a.ignored > 0 {
        let fact = format!("{} readings of the clocks were of others, and left out", a.ignored);
        ledger.tell(NoteKind::Clock, fact, None);
    }
}

/// Whether anything could not be read.
pub(crate) fn damaged(timeline: &Timeline, stats: &Stats) -> bool {
    let mut kernels = timeline.kernels().iter().zip(&stats.kernels);
    let mut programs = timeline.programs().into_iter().zip(&stats.programs);
    kernels.any(|(data, s)| tracedat::damaged(data, s))
        || programs.any(|(traces, s)| ctf::damaged(traces, s))
}

/// The exit status, after saying so if anything could not be read. `done`: what was made
/// of the rest.
pub(crate) fn end(
    timeline: &Timeline,
    stats: &Stats,
    (ledger, strict): (&Ledger, bool),
    done: &str,
) -> ExitCode {
    let damage = damaged(timeline, stats).then(|| format!("damaged; what can be read {done}"));
    exit::status(timeline.name(), damage.as_deref(), ledger, strict)
}
