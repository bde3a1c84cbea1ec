//! What could make a report wrong, for the ledger.

use std::collections::BTreeMap;

use kymo_analysis::profile::{FrameId, Profile};
use kymo_files::perfdata::PerfData;
use kymo_model::NoteKind;
use kymo_symbols::Problem;
use kymo_view::{Ledger, percent};

use crate::commands::{finding, losses, stacks};

/// Below this share of what has no symbol nothing is said.
pub(crate) const HARMLESS_PERCENT: f64 = 1.0;

pub(crate) fn ledger(profile: &Profile, file: &PerfData) -> Ledger {
    let mut ledger = Ledger::default();
    reading(profile, file, &mut ledger);
    stacks::note(&profile.unwinding, &profile.machine.symbols, &mut ledger);
    for event in &profile.events {
        stacks::note_frame_pointers(profile, event, &mut ledger);
    }
    unresolved(profile, &mut ledger);
    lines(profile, &mut ledger);
    finding::note(&profile.machine.symbols, &mut ledger);
    ledger
}

fn reading(profile: &Profile, file: &PerfData, ledger: &mut Ledger) {
    let s = &profile.stats;
    losses::note(s, &file.features().cmdline, ledger);
    if s.throttled > 0 {
        let advice = Some("record at a lower frequency (-F)".to_string());
        ledger.note(
            NoteKind::Throttled,
            format!("the kernel paused sampling {} times", s.throttled),
            advice,
        );
    }
    if let Some(d) = &s.damaged {
        let fact = format!("{d}; what came before is shown");
        ledger.note(NoteKind::Damaged, fact, None);
    }
    if s.unfinished {
        ledger.note(NoteKind::Unfinished, "the recorder did not finish the file", None);
    }
    for note in file.notes() {
        ledger.note(NoteKind::Damaged, note.clone(), None);
    }
    for (kind, count) in &s.unknown_kinds {
        ledger.note(
            NoteKind::Unknown,
            format!("{count} records of unknown kind {kind} skipped"),
            None,
        );
    }
    if s.cut_compressed > 0 {
        let n = s.cut_compressed;
        let fact = format!("the compressed data ends {n} bytes into a record: one is missing");
        ledger.note(NoteKind::Cut, fact, None);
    }
    if s.malformed + s.unknown_ids > 0 {
        let fact = format!(
            "{} records too short for their event, {} of unknown events",
            s.malformed, s.unknown_ids
        );
        ledger.note(NoteKind::Malformed, fact, None);
    }
    if s.out_of_order > 0 {
        ledger.note(NoteKind::Order, format!("{} records out of time order", s.out_of_order), None);
    }
    for e in &profile.events {
        let name = &e.desc.name;
        if e.empty_chains > 0 {
            let fact =
                format!("{name}: {} of {} samples have no call chain", e.empty_chains, e.samples);
            ledger.note(NoteKind::Chains, fact, None);
        }
        if e.bad_chains > 0 {
            let (bad, all) = (e.bad_chains, e.samples);
            let fact = format!("{name}: {bad} of {all} call chains make no sense and are left out");
            let advice = "build with -fno-omit-frame-pointer or -C force-frame-pointers=yes";
            ledger.note(NoteKind::Chains, fact, Some(advice.into()));
        }
        if e.cut_chains > 0 {
            let fact = format!("{name}: {} of {} call chains cut short", e.cut_chains, e.samples);
            let advice = Some("raise kernel.perf_event_max_stack before recording".to_string());
            ledger.note(NoteKind::Chains, fact, advice);
        }
    }
}

/// How many places have a line, and which binaries lack them.
fn lines(profile: &Profile, ledger: &mut Ledger) {
    let found = &profile.found;
    let without: u64 = found.lacking.lines.iter().map(|l| l.1).sum();
    let all = found.lacking.addresses;
    if without == 0 || percent(without, all) < HARMLESS_PERCENT {
        return;
    }
    let symbols = &profile.machine.symbols;
    let name = |(dso, n): &(_, u64)| format!("{} ({n})", symbols.dso_name(Some(*dso)));
    let worst: Vec<String> = found.lacking.lines.iter().take(3).map(name).collect();
    let fact = format!(
        "{} of {all} distinct addresses of code have a source line ({:.1}%), as have {:.1}% of all \
         samples; it is missing in {}",
        all - without,
        percent(all - without, all),
        percent(found.lined, found.samples),
        worst.join(", ")
    );
    let first = found.lacking.lines.first().map_or("", |l| symbols.dso_name(Some(l.0)));
    let advice = match first.starts_with('[') {
        true => "install the kernel's debug package, or name its vmlinux with -k".to_string(),
        false => format!("install the debug package of {first}, or build it with -g"),
    };
    ledger.tell(NoteKind::Lines, fact, Some(advice));
}

fn unresolved(profile: &Profile, ledger: &mut Ledger) {
    for e in &profile.events {
        // Samples of tracepoints without an address have nothing to resolve.
        let nameless = Nameless::of(profile, e.stacks().map(|(s, _)| (s.leaf, s.samples)));
        let share = percent(nameless.sum, e.samples);
        if share < HARMLESS_PERCENT {
            continue;
        }
        let worst = nameless.worst.iter().take(3).map(|(name, n)| format!("{name} ({n})"));
        let fact = format!(
            "{}: {share:.1}% of {} samples have no symbol, in {}",
            e.desc.name,
            e.samples,
            worst.collect::<Vec<_>>().join(", ")
        );
        ledger.note(NoteKind::Unresolved, fact, nameless.advice());
    }
}

/// What was spent in code without symbols.
pub(crate) struct Nameless<'a> {
    pub(crate) sum: u64,
    /// By binary, most first.
    pub(crate) worst: Vec<(&'a str, u64)>,
}

impl<'a> Nameless<'a> {
    /// Sums weights of places.
    pub(crate) fn of(
        profile: &'a Profile,
        spent: impl Iterator<Item = (FrameId, u64)>,
    ) -> Nameless<'a> {
        let mut by_dso: BTreeMap<&str, u64> = BTreeMap::new();
        for (leaf, weight) in spent {
            let frame = profile.frame(leaf);
            if frame.symbol.is_none() && frame.ip != 0 {
                *by_dso.entry(profile.machine.symbols.dso_name(frame.dso)).or_default() += weight;
            }
        }
        let mut worst: Vec<(&str, u64)> = by_dso.into_iter().collect();
        worst.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        Nameless { sum: worst.iter().map(|(_, n)| n).sum(), worst }
    }

    /// What would give the worst of them its names.
    pub(crate) fn advice(&self) -> Option<String> {
        let (worst, _) = self.worst.first()?;
        if worst.starts_with("perf-") && worst.ends_with(".map") {
            return Some(
                "this code was made at run time: have its maker write the map, as with java \
                 -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit, node --perf-basic-prof, \
                 python3 -X perf"
                    .into(),
            );
        }
        // What has no file has no symbols to install.
        let file = !worst.starts_with(['[', '/']);
        file.then(|| format!("install the debug symbols of {worst}, or build it without stripping"))
    }
}

/// Notes why symbols of a binary could not be had.
pub(crate) fn tell(problem: &Problem, ledger: &mut Ledger) {
    match problem {
        Problem::Changed { path, found, recorded } => {
            let found = found.map_or("none".into(), |id| id.to_string());
            ledger.note(
                NoteKind::Changed,
                format!(
                    "{path} is not the file that was recorded: its build-id is {found}, recorded was {recorded}"
                ),
                Some("its symbols were not used; put the old file under a folder and name it with --symfs".into()),
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
