//! Ledger notes of symbols: files that could not be used, and what debuginfod
//! servers sent.

use kymo_model::{NoteKind, counted};
use kymo_symbols::{Problem, Resolver};

use crate::Ledger;

/// Notes what was wrong with files of symbols, and what came over the network.
pub fn note_symbols(symbols: &Resolver, ledger: &mut Ledger) {
    for problem in symbols.problems() {
        note_problem(&problem, ledger);
    }
    let Some(report) = symbols.files().fetched() else { return };
    if report.files > 0 {
        let files = counted(report.files, "file", "files");
        let fact = format!("{files} fetched, {}", byte_size(report.bytes));
        ledger.tell(NoteKind::Debuginfod, fact, None);
    }
    for (server, what) in report.failures {
        let advice = "without its files some names may be missing; --no-debuginfod asks no server";
        ledger.note(NoteKind::Debuginfod, format!("{server}: {what}"), Some(advice.into()));
    }
}

/// A number of bytes in a unit that a person would use.
pub fn byte_size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Notes why symbols of a binary cannot be had.
fn note_problem(problem: &Problem, ledger: &mut Ledger) {
    match problem {
        Problem::Changed { path, found, recorded } => {
            let found = found.map_or("none".into(), |id| id.to_string());
            ledger.note(
                NoteKind::Changed,
                format!(
                    "{path} is not the file that was recorded: its build-id is {found}, recorded was {recorded}"
                ),
                Some("its symbols were not used; put the old file under a directory and name it with --symfs".into()),
            );
        }
        Problem::Refused { path, of, why } => {
            ledger.note(NoteKind::Refused, format!("{path} for {of}: {why}"), None);
        }
        Problem::Unusable { path, why } => ledger.note(NoteKind::Unusable, format!("{path}: {why}"), None),
        Problem::KernelHidden { kptr_restrict, paranoid } => {
            let show = |v: &Option<String>| v.clone().unwrap_or_else(|| "unknown".into());
            let fact = format!(
                "kernel symbols are hidden: kernel.kptr_restrict = {}, kernel.perf_event_paranoid = {}",
                show(kptr_restrict),
                show(paranoid)
            );
            let advice =
                "run as root or: sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1";
            ledger.note(NoteKind::Hidden, fact, Some(advice.into()));
        }
        Problem::OtherKernel { recorded, running } => {
            let which = match (recorded, running) {
                (Some(r), Some(here)) if r == here => format!("another build of {r}"),
                (Some(r), Some(here)) => format!("{r}, and not on {here}, which runs here"),
                (Some(r), None) => r.clone(),
                _ => "another kernel than the running one".into(),
            };
            ledger.note(
                NoteKind::Kernel,
                format!("recorded on {which}: kernel addresses have no names"),
                Some("give that kernel's symbols with --kallsyms or --vmlinux".into()),
            );
        }
        Problem::UnknownKernel => {
            let fact = "the recorded kernel is unknown: kernel addresses have no names";
            let advice = "give that kernel's symbols with --kallsyms or --vmlinux".to_owned();
            ledger.note(NoteKind::Kernel, fact, Some(advice));
        }
        Problem::DebugInfo { path, why } => {
            ledger.note(NoteKind::DebugInfo, format!("{path}: {why}"), None);
        }
        // Costs time and no truth.
        Problem::Cache { why } => ledger.tell(NoteKind::Cache, why.clone(), None),
        Problem::OtherMachine { recorded, here } => ledger.note(
            NoteKind::Machine,
            format!("recorded on {recorded}, and this is {here}: binaries without a recorded build-id were taken by their paths"),
            Some("make a bundle where it was recorded (kymo bundle), or name its files with --symfs".into()),
        ),
        Problem::Bundle(e) => {
            ledger.note(NoteKind::Bundle, format!("{e}; it is not used"), None);
        }
        Problem::NoKernelSymbols => {
            ledger.note(NoteKind::Kernel, "/proc/kallsyms cannot be read or is empty", None);
        }
    }
}
