//! Ledger notes of a profile: what could make it wrong, and what to do about it.

mod stacks;
mod symbols;

use std::collections::BTreeMap;

use kymo_analysis::profile::{EventProfile, FrameId, Profile};
use kymo_events::{losses, notes_on_trace_data};
use kymo_files::perfdata::PerfData;
use kymo_model::{NoteKind, counted};
use kymo_symbols::{DsoId, DsoKind};

use crate::{Ledger, percent};

pub use stacks::{note_chains, note_frame_pointers, note_unwinding};
pub use symbols::{byte_size, note_symbols};

/// Share of addresses without a symbol, in percent, below which nothing is noted.
pub const HARMLESS_PERCENT: f64 = 1.0;

/// Ledger of a profile and of the recording that it was read from.
pub fn profile_ledger(profile: &Profile, file: &PerfData) -> Ledger {
    let mut ledger = Ledger::default();
    note_reading(profile, file, &mut ledger);
    note_unwinding(&profile.unwinding, &profile.machine.symbols, &mut ledger);
    for event in &profile.events {
        note_frame_pointers(profile, event, &mut ledger);
    }
    note_unresolved(profile, &mut ledger);
    note_lines(profile, &mut ledger);
    note_symbols(&profile.machine.symbols, &mut ledger);
    ledger
}

fn note_reading(profile: &Profile, file: &PerfData, ledger: &mut Ledger) {
    let s = &profile.stats;
    losses::note(s, &file.features().cmdline).into_iter().for_each(|n| ledger.push(n));
    if s.throttled > 0 {
        let advice = Some("record at a lower frequency: -F".to_string());
        let fact = format!("sampling was throttled {}", counted(s.throttled, "time", "times"));
        ledger.note(NoteKind::Throttled, fact, advice);
    }
    if let Some(d) = &s.damaged {
        let fact = format!("{d}; everything before it is shown");
        ledger.note(NoteKind::Damaged, fact, None);
    }
    if s.unfinished {
        ledger.note(NoteKind::Unfinished, "the recorder did not finish the file", None);
    }
    notes_on_trace_data(s).into_iter().for_each(|n| ledger.push(n));
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
        ledger.note(
            NoteKind::Order,
            counted(s.out_of_order, "record out of time order", "records out of time order"),
            None,
        );
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
            let fact = format!("{name}: {bad} of {all} call chains are invalid and left out");
            let advice = "build with -fno-omit-frame-pointer or -C force-frame-pointers=yes";
            ledger.note(NoteKind::Chains, fact, Some(advice.into()));
        }
        note_cut_chains(e, ledger);
    }
}

/// Notes the call chains that are as long as the kernel makes them.
pub fn note_cut_chains(event: &EventProfile, ledger: &mut Ledger) {
    if event.cut_chains > 0 {
        let name = &event.desc.name;
        let fact =
            format!("{name}: {} of {} call chains cut short", event.cut_chains, event.samples);
        let advice = Some("raise kernel.perf_event_max_stack before recording".to_string());
        ledger.note(NoteKind::Chains, fact, advice);
    }
}

/// Notes how many addresses have a source line, and which binaries lack them.
fn note_lines(profile: &Profile, ledger: &mut Ledger) {
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
    let advice = if first.starts_with('[') {
        "install the kernel's debug package, or name its vmlinux with -k".to_string()
    } else {
        format!("install the debug package of {first}, or build it with -g")
    };
    ledger.tell(NoteKind::Lines, fact, Some(advice));
}

fn note_unresolved(profile: &Profile, ledger: &mut Ledger) {
    for e in &profile.events {
        // Samples of tracepoints without an address have nothing to resolve.
        let nameless = NamelessCode::new(profile, e.stacks().map(|(s, _)| (s.leaf, s.samples)));
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

/// Whether a mapping is of a file in memory (memfd_create), which has no name to find it by.
fn is_memory_file(name: &str) -> bool {
    name.starts_with("/memfd:")
}

/// Weight that was spent in code without symbols.
pub struct NamelessCode<'a> {
    /// All of it.
    pub sum: u64,
    /// By binary, most first.
    pub worst: Vec<(&'a str, u64)>,
    /// Whether the file of the worst is not there, or is another one now.
    is_missing: bool,
    /// Whether the worst is memory that a program wrote itself.
    is_written: bool,
}

impl<'a> NamelessCode<'a> {
    /// Sums weights of frames.
    pub fn new(
        profile: &'a Profile,
        spent: impl Iterator<Item = (FrameId, u64)>,
    ) -> NamelessCode<'a> {
        let symbols = &profile.machine.symbols;
        let mut by_dso: BTreeMap<&str, (u64, Option<DsoId>)> = BTreeMap::new();
        for (leaf, weight) in spent {
            let frame = profile.frame(leaf);
            if frame.symbol.is_none() && frame.ip != 0 {
                let (sum, dso) = by_dso.entry(symbols.dso_name(frame.dso)).or_default();
                *sum += weight;
                *dso = dso.or(frame.dso);
            }
        }
        let mut worst: Vec<(&str, (u64, Option<DsoId>))> = by_dso.into_iter().collect();
        worst.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
        let first = worst.first().and_then(|(_, (_, dso))| symbols.get((*dso)?));
        let is_missing = first.is_some_and(|dso| {
            dso.kind == DsoKind::File && symbols.files().binary(&dso.binary()).is_none()
        });
        let is_written = first.is_some_and(|dso| is_memory_file(&dso.long_name));
        let worst: Vec<(&str, u64)> = worst.into_iter().map(|(name, (n, _))| (name, n)).collect();
        NamelessCode { sum: worst.iter().map(|(_, n)| n).sum(), worst, is_missing, is_written }
    }

    /// Advice that would give the worst of them its names.
    pub fn advice(&self) -> Option<String> {
        let (worst, _) = self.worst.first()?;
        if worst.starts_with("perf-") && worst.ends_with(".map") {
            return Some(
                "this is JIT code: have the runtime write a perf map, as with java \
                 -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit, node --perf-basic-prof, \
                 python3 -X perf"
                    .into(),
            );
        }
        if self.is_written {
            return Some(
                "this is code in memory that a program wrote (memfd), as JIT code is: `kymo inject -j` \
                 adds the names of a jitdump file, which the runtime writes if it is asked to"
                    .into(),
            );
        }
        if self.is_missing {
            return Some(format!(
                "the recorded file of {worst} is missing: name a directory that contains it with --symfs, or use a bundle from the machine of the recording (kymo bundle)"
            ));
        }
        // What has no file has no symbols to install.
        let file = !worst.starts_with(['[', '/']);
        file.then(|| format!("install the debug symbols of {worst}, or build it without stripping"))
    }
}
