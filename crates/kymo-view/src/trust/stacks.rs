//! Completeness of the unwound stacks of a recording, for the ledger: shares, reasons, and advice.

use std::collections::BTreeMap;

use kymo_analysis::profile::{EventProfile, Profile};
use kymo_events::ReadSummary;
use kymo_events::unwind::{LARGEST_COPY, Needed, Tally, UnwindStop};
use kymo_model::{AttrFlags, BranchType, NoteKind, SampleType, by_number, counted};
use kymo_symbols::unwind::CfiError;
use kymo_symbols::{Dso, DsoKind, Resolver};

use super::{is_memory_file, note_symbols};
use crate::{Ledger, percent};

/// Below this share of all stacks nothing is said of one reason.
const HARMLESS_PERCENT: f64 = 0.1;
/// Advice for stacks that end in code of a just-in-time compiler.
const JIT_ADVICE: &str = "if it is JIT code, have the runtime keep frame pointers, as with java \
                          -XX:+PreserveFramePointer";
/// Binaries named for one reason.
const NAMED: usize = 3;
/// Sizes that are suggested for the copy; the last one is the kernel's limit.
const SIZES: [u64; 4] = [8192, 16384, 32768, LARGEST_COPY];

/// Notes how many unwound stacks are complete and why others are not. A recording
/// without such stacks has nothing to note.
pub fn note_unwinding(tally: &Tally, symbols: &Resolver, ledger: &mut Ledger) {
    if tally.stacks == 0 {
        return;
    }
    let share = |n: u64| format!("{n} ({:.1}%)", percent(n, tally.stacks));
    let mut parts =
        vec![format!("{} of {} user stacks are complete", share(tally.complete), tally.stacks)];
    let others = [
        (tally.cut, "cut by the size of the copy"),
        (tally.absent, "not in memory when they were copied"),
        (tally.other_stack, "gone on to another stack"),
        (tally.stops.values().sum(), "stopped at unknown code"),
        (tally.too_deep, "too deep"),
        (tally.unusable, "without registers of a 64-bit program"),
    ];
    parts.extend(
        others.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", share(*n))),
    );
    // Nearly all of them complete is no reason for doubt.
    if percent(tally.stacks - tally.complete, tally.stacks) < FEW_PERCENT {
        ledger.tell(NoteKind::Stacks, parts.join(", "), None);
        return;
    }
    ledger.note(NoteKind::Stacks, parts.join(", "), None);
    if tally.cut > 0 {
        cut(tally, ledger);
    }
    stops(tally, symbols, ledger);
}

/// Notes what limits the call chains that were resolved while recordings were read.
pub fn note_chains(summary: &ReadSummary, ledger: &mut Ledger) {
    for chains in &summary.chains {
        note_unwinding(&chains.tally, &chains.symbols, ledger);
        note_symbols(&chains.symbols, ledger);
    }
}

/// Functions that a program or a thread begins in. Where the C library keeps no
/// frame pointers, `main` or the function behind it is as far as they lead.
const OUTERMOST: [&str; 13] = [
    "_start",
    "main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "start_thread",
    "clone3",
    "__clone3",
    "__clone",
    // Of a goroutine, and of the threads of Go's runtime.
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.mstart",
    "runtime.mstart.abi0",
    "runtime.rt0_go.abi0",
];
/// Up to this share of broken stacks is no reason for doubt: signals, starts and ends of functions.
const FEW_PERCENT: f64 = 5.0;

/// Notes how many stacks by frame pointers or branch records lead to where a program or a thread
/// begins, and in which binaries the others end.
pub fn note_frame_pointers(profile: &Profile, event: &EventProfile, ledger: &mut Ledger) {
    let attr = &event.desc.attr;
    let unwound = attr.sample_type.contains(SampleType::STACK_USER);
    if !event.has_chains() || unwound || attr.flags.contains(AttrFlags::EXCLUDE_CALLCHAIN_USER) {
        return;
    }
    let symbols = &profile.machine.symbols;
    let longest = event.longest_chain();
    let (mut all, mut short, mut in_jit) = (0, 0, 0);
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, frames) in event.stacks() {
        let Some(outermost) = frames.iter().next_back().map(|f| profile.frame(f)) else { continue };
        if outermost.kernel || outermost.ip == 0 {
            continue;
        }
        all += stack.samples;
        // The kernel has cut it: that is another note.
        if frames.iter().count() >= longest {
            continue;
        }
        let name = outermost.symbol.map_or("", |s| symbols.name(s));
        // The dynamic symbol is `__libc_start_main@@GLIBC_2.34`.
        let name = name.split('@').next().unwrap_or(name);
        if !OUTERMOST.contains(&name) && name != "__libc_start_main" {
            short += stack.samples;
            let dso = outermost.dso.and_then(|id| symbols.get(id));
            in_jit += u64::from(dso.is_some_and(may_be_jit)) * stack.samples;
            *ends.entry(symbols.dso_name(outermost.dso)).or_default() += stack.samples;
        }
    }
    if percent(short, all) < FEW_PERCENT {
        return;
    }
    // Neither has it call frame information that copies of stacks could be unwound with.
    let is_jit = in_jit * 2 > short;
    let mut ends: Vec<(&str, u64)> = ends.into_iter().collect();
    ends.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), *name));
    let named: Vec<String> =
        ends.iter().take(NAMED).map(|(name, n)| format!("{name} ({n})")).collect();
    let fact = format!(
        "{}: {short} ({:.1}%) of {all} user stacks {} not lead to the beginning of the program \
         or thread: they end in {}",
        event.desc.name,
        percent(short, all),
        by_number(short, "does", "do"),
        named.join(", ")
    );
    let is_of_branches = attr.sample_type.contains(SampleType::BRANCH_STACK)
        && attr.branch_sample_type.contains(BranchType::CALL_STACK);
    let advice = if is_of_branches {
        "the processor's branch records (LBR) hold the innermost calls, up to 32: record whole \
         stacks with --call-graph fp or dwarf"
    } else if is_jit {
        JIT_ADVICE
    } else {
        "code there keeps no frame pointers: rebuild it with them, or record with --call-graph \
         dwarf"
    };
    ledger.note(NoteKind::FramePointers, fact, Some(advice.into()));
}

/// Whether the code of a mapping may be of a just-in-time compiler.
fn may_be_jit(dso: &Dso) -> bool {
    dso.kind == DsoKind::PerfMap || is_memory_file(&dso.long_name)
}

fn cut(tally: &Tally, ledger: &mut Ledger) {
    let needed = tally.needed();
    let Needed { size, completes, too_large, unknown } = needed;
    let what = counted(tally.cut, "stack is", "stacks are");
    let mut fact = format!("{what} longer than the {} bytes copied", tally.asked);
    if too_large > 0 {
        fact += &format!("; {too_large} longer than any copy ({LARGEST_COPY})");
    }
    if unknown > 0 {
        fact += &format!("; the length of {unknown} is unknown");
    }
    let suggested = SIZES.iter().find(|s| **s >= size && **s > tally.asked);
    let advice = match suggested {
        Some(suggested) if completes > 0 => Some(format!(
            "--call-graph dwarf,{suggested}: {size} bytes are enough for {completes} of them, \
             judging by the complete stacks of the same threads"
        )),
        Some(suggested) if unknown > 0 => {
            Some(format!("--call-graph dwarf,{suggested} shows more of them"))
        }
        _ => None,
    };
    let rebuild = "rebuild with frame pointers and record with -g";
    ledger.note(NoteKind::Cut, fact, advice.or_else(|| Some(rebuild.into())));
}

fn stops(tally: &Tally, symbols: &Resolver, ledger: &mut Ledger) {
    let mut by_error: BTreeMap<Option<CfiError>, Vec<(UnwindStop, u64)>> = BTreeMap::new();
    for (stop, n) in &tally.stops {
        by_error.entry(stop.cfi_error).or_default().push((*stop, *n));
    }
    for (cfi_error, mut stops) in by_error {
        let sum: u64 = stops.iter().map(|(_, n)| n).sum();
        if percent(sum, tally.stacks) < HARMLESS_PERCENT {
            continue;
        }
        stops.sort_by_key(|(stop, n)| (std::cmp::Reverse(*n), *stop));
        let name = |stop: &UnwindStop| match stop.dso {
            Some(_) => symbols.dso_name(stop.dso).to_owned(),
            None => "memory without a mapping".to_owned(),
        };
        let named = stops.iter().take(NAMED).map(|(stop, n)| format!("{} ({n})", name(stop)));
        let named: Vec<String> = named.collect();
        let worst = stops.first().map_or(String::new(), |(stop, _)| name(stop));
        let is_jit = stops.first().and_then(|(stop, _)| symbols.get(stop.dso?));
        let is_written = is_jit.is_some_and(|dso| is_memory_file(&dso.long_name));
        let is_jit = is_jit.is_some_and(may_be_jit);
        let (why, advice) = match cfi_error {
            // Of other memory it is not known what was there.
            Some(CfiError::Memory) if !is_jit => ("no file of that code is known", None),
            // No directory has such a file.
            Some(CfiError::Missing) if is_written => explain(Some(CfiError::Memory), &worst),
            error => explain(error, &worst),
        };
        let fact =
            format!("{} in {}: {why}", counted(sum, "stack ends", "stacks end"), named.join(", "));
        ledger.note(NoteKind::Stopped, fact, advice);
    }
}

/// Returns the defect and advice.
fn explain(cfi_error: Option<CfiError>, worst: &str) -> (&'static str, Option<String>) {
    let symfs = "put the recorded file under a directory and name it with --symfs";
    match cfi_error {
        None => ("the return address found there leads into no code", None),
        // Memory that was recorded as data may be made code later.
        Some(CfiError::Memory) => (
            "memory of no file: JIT code without frame pointers, or no code",
            Some(JIT_ADVICE.into()),
        ),
        Some(CfiError::Missing) => ("the file is not there", Some(symfs.into())),
        Some(CfiError::Changed) => ("the file is not the one recorded", Some(symfs.into())),
        Some(CfiError::Unusable) => ("the file cannot be read", None),
        Some(CfiError::Silent) => (
            "no call frame information there, and no frame pointer",
            Some(format!(
                "install the debug package of {worst}, or rebuild it with frame pointers or \
                 -fasynchronous-unwind-tables"
            )),
        ),
        Some(CfiError::Damaged) => ("the call frame information is damaged or leads nowhere", None),
    }
}
