//! Kinds of ledger notes: one enumeration, each with its code in text and JSON, its weight, its
//! meaning and its remedy. `docs/trust.md` is generated from this table; a test compares them.

use std::fmt;

/// Weight of a note for the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// Warning: the result may be wrong or incomplete; `--strict` fails.
    #[default]
    Doubt,
    /// Note: the result is as requested; describes how it was obtained.
    Choice,
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Weight::Doubt => "warning",
            Weight::Choice => "note",
        })
    }
}

/// Defines the kinds: variant, code, weights, meaning, remedy.
macro_rules! note_kinds {
    ($($variant:ident $code:literal [$($weight:ident),+] $meaning:literal $remedy:literal;)+) => {
        /// Kind of a ledger note.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum NoteKind {
            $(#[doc = concat!($meaning, " ", $remedy)] $variant,)+
        }

        impl NoteKind {
            /// All kinds, in the order of their codes.
            pub const ALL: &[NoteKind] = &[$(NoteKind::$variant,)+];

            /// Stable word for scripts, as in `--json`.
            pub const fn code(self) -> &'static str {
                match self { $(NoteKind::$variant => $code,)+ }
            }

            /// Weights that notes of this kind may have.
            pub const fn weights(self) -> &'static [Weight] {
                match self { $(NoteKind::$variant => &[$(Weight::$weight),+],)+ }
            }

            /// Meaning of such a note, one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(NoteKind::$variant => $meaning,)+ }
            }

            /// Action that the user can take.
            pub const fn remedy(self) -> &'static str {
                match self { $(NoteKind::$variant => $remedy,)+ }
            }
        }
    };
}

note_kinds! {
    Abi "abi" [Doubt]
        "System call names may be wrong: the recording has only numbers, which differ between ABIs."
        "Record with `kymo syscalls record`, which keeps the mappings that identify 32-bit programs.";
    Boundary "boundary" [Doubt]
        "Samples do not fall on instruction boundaries of the file's code."
        "The code changed at run time, or the address is data: see `code` and `changed`.";
    Bundle "bundle" [Doubt]
        "A bundle cannot be used, or only in part."
        "Create it again on the recorded machine: `kymo bundle`.";
    Cache "cache" [Choice]
        "A cache file was ignored; the result is correct but took longer."
        "No action needed: the file is rebuilt. Set `KYMO_CACHE` to another directory, or to \
         `off`.";
    Chains "chains" [Doubt]
        "Call chains are missing, invalid or truncated by the kernel."
        "Build with frame pointers, record with `--call-graph dwarf`, or raise `kernel.perf_event_max_stack`.";
    Changed "changed" [Doubt]
        "A binary has changed since the recording: its build-id differs, so its symbols were not \
         used."
        "Put the old file below a directory and pass it with `--symfs`, or use a bundle.";
    Children "children" [Doubt]
        "Events of child processes are missing."
        "Use a kernel that follows forks (`event-fork`, Linux 4.7), or select the children.";
    Clock "clock" [Doubt, Choice]
        "States the clock of the timestamps, or how well the clocks of several recordings agree."
        "Record with CLOCK_MONOTONIC (the default) on both sides.";
    Code "code" [Doubt, Choice]
        "Functions with samples are not shown because their code is not available."
        "Install the binary, or provide it with `--symfs` or a bundle; `--skip-missing` skips \
         them.";
    Comparison "comparison" [Doubt, Choice]
        "The two sides differ in more than the program: events, rates, machines, names or inlining."
        "Record both sides the same way, alternating: `kymo diff --run`.";
    Compression "compression" [Doubt]
        "The recording is complete but could not be compressed."
        "Free some disk space and record again, or keep it uncompressed.";
    Control "control" [Doubt]
        "An unknown command received over `--control` was ignored."
        "Commands are `enable`, `disable`, `snapshot`, `stop` and `ping`.";
    Cost "cost" [Choice]
        "A probe needs single-stepping, which makes each hit about 15 times as expensive; or times \
         contain the cost of the probes that measured them."
        "Probe a neighboring instruction; `kymo probe bench` measures the cost on this machine.";
    Cut "cut" [Doubt]
        "Something was truncated: a stack copy, a record or a listing."
        "For stacks, record with a larger copy (`--call-graph dwarf,SIZE`).";
    Damaged "damaged" [Doubt]
        "Part of the recording could not be read; everything before it is shown."
        "Copy the file again, or repeat the recording.";
    Debug "debug" [Doubt]
        "Debugging information needed for a listing is missing or damaged."
        "Install the debug package of the binary, or build it with `-g`.";
    DebugInfo "debuginfo" [Doubt]
        "Debugging information of a binary could not be read, or only partly."
        "Reinstall the debug package; kymo reads DWARF 2 to 5.";
    Debuginfod "debuginfod" [Doubt, Choice]
        "Lists the files fetched from debuginfod servers, or names the server that failed."
        "Turn this off with `--no-debuginfod`, or set other servers in `DEBUGINFOD_URLS`.";
    DefaultEvent "default-event" [Choice]
        "The default event is not supported here, so another one is recorded."
        "Choose an event with `-e`; `kymo list` shows the supported ones.";
    Empty "empty" [Doubt, Choice]
        "The recording or the result is empty."
        "Check the event, the target and the filters.";
    Entries "entries" [Doubt]
        "The report has more entries than can be counted separately."
        "Sort by fewer keys (`-s`).";
    Events "events" [Choice]
        "The result covers only some of the recorded events."
        "Select the others with `-e`.";
    Few "few" [Doubt]
        "There are too few samples for precise shares."
        "Record longer, or at a higher rate (`-F`).";
    File "file" [Choice]
        "The code shown is from a file; the running kernel had patched it."
        "No action needed unless the function is patched at run time.";
    Format "format" [Doubt]
        "The format of an event cannot be parsed, so its fields are not shown."
        "Report a bug and include the format file.";
    FramePointers "frame-pointers" [Doubt]
        "Frame-pointer stacks do not reach the entry point of the program or thread."
        "Build with frame pointers, or record with `--call-graph dwarf`.";
    Frequency "frequency" [Doubt]
        "The kernel does not allow sampling at the requested rate."
        "Raise `kernel.perf_event_max_sample_rate`.";
    Functions "functions" [Doubt, Choice]
        "Some function calls begin before the recording or end after it."
        "Record longer, or with a larger buffer.";
    Group "group" [Doubt]
        "An event was not counted with its group."
        "Use fewer events in the group.";
    Hazard "hazard" [Doubt, Choice]
        "A probe that can crash the program was added because of `--force`; as a note, one that \
         crashes it if an exception leaves the function."
        "Probe another instruction.";
    Hidden "hidden" [Doubt]
        "The kernel hides its symbol addresses, so kernel functions have no names."
        "Run as root, or set `kernel.kptr_restrict=0 kernel.perf_event_paranoid=1`.";
    Internal "internal" [Doubt]
        "An internal index is invalid: the object is omitted or shown without a name."
        "This is a bug in kymo: report it with the text of the warning.";
    Kernel "kernel" [Doubt]
        "Symbols of the recorded kernel are not available."
        "Provide them with `--kallsyms` or `--vmlinux`.";
    KernelSymbols "kernel-symbols" [Doubt]
        "Kernel addresses were hidden during recording, so kernel functions have no names."
        "Record as root, or set `kernel.kptr_restrict=0`.";
    Keys "keys" [Doubt]
        "A counter in a program ran out of keys: the remaining keys are counted together."
        "Count by a field with fewer distinct values.";
    Lines "lines" [Choice]
        "Some code addresses have no source line."
        "Install debug packages for the listed binaries, or build them with `-g`.";
    Lost "lost" [Doubt]
        "Events were dropped because a buffer was full."
        "Use a larger buffer (`-m`, `--buffer-size`), fewer events or a filter.";
    LostSamples "lost-samples" [Doubt]
        "The kernel dropped samples before they reached a buffer."
        "Record at a lower rate (`-F`) or with a larger buffer (`-m`).";
    Machine "machine" [Doubt]
        "The recording is from another machine, and binaries without a build-id were matched by \
         path."
        "Create a bundle on the recorded machine (`kymo bundle`), or use `--symfs`.";
    Malformed "malformed" [Doubt]
        "Records are too short for their event, or their event is not described in the file."
        "Record again; report a bug if kymo recorded it.";
    Maps "maps" [Doubt]
        "Mappings of running processes could not be read in time, so their code has no names."
        "Raise `--proc-map-timeout`.";
    MaxSize "max-size" [Choice]
        "The recording stopped at the requested size."
        "Raise `--max-size`.";
    Metadata "metadata" [Choice]
        "States how ambiguous CTF metadata was interpreted."
        "No action needed: the specification leaves this open.";
    Missing "missing" [Doubt]
        "Binaries, variables or parts of debugging information were not found."
        "Install the listed files.";
    Mlock "mlock" [Choice]
        "Buffers are smaller than usual because of the limit on locked memory."
        "Raise `kernel.perf_event_mlock_kb` or `ulimit -l`.";
    Multiplexed "multiplexed" [Doubt]
        "An event was counted only part of the time, and its count is scaled up."
        "Count fewer events.";
    Names "names" [Choice]
        "Names of tasks are those at the end of the recording: no event in it states when they \
         changed."
        "Record `task:task_rename` beside the other events.";
    Narrow "narrow" [Choice]
        "The narrowest frames of a flame graph are not drawn."
        "Draw all frames with `--percent-limit 0`.";
    NoBpf "no-bpf" [Choice]
        "Programs ran in user space, on events read from ring buffers, because this user cannot \
         load BPF programs."
        "Run as root, or with CAP_BPF and CAP_PERFMON on Linux 5.8 or later, for lower overhead.";
    NotCounted "not-counted" [Doubt]
        "An event was never scheduled on a counter."
        "Count fewer events, or count for longer.";
    NotSupported "not-supported" [Doubt, Choice]
        "An event is not supported on this machine."
        "`kymo list` shows the supported events.";
    Nothing "nothing" [Choice]
        "No recorded events match the selection."
        "Check the filters, the time span and the names.";
    Order "order" [Doubt]
        "Records are out of order by more than the reader's window."
        "Report a bug if kymo recorded it.";
    Overhead "overhead" [Choice]
        "States the CPU time that kymo itself used while tracing."
        "Trace fewer events, or record now and analyze later.";
    Overwritten "overwritten" [Choice]
        "Older events were overwritten by newer ones, as requested for a flight recorder."
        "Keep more with a larger `--buffer-size`.";
    Payload "payload" [Doubt, Choice]
        "Fields of an event are shown as raw bytes, or decoded with another kernel's format."
        "Record with a tool that stores the formats: `kymo record`, `perf record` or trace-cmd.";
    Program "program" [Doubt]
        "A program could not be traced, or only partly."
        "The text of the warning gives the reason.";
    Programs "programs" [Choice]
        "No program has the requested events."
        "Check the event's name with `kymo list ust`.";
    Prologue "prologue" [Choice]
        "A probe was moved after the point where a function stores its parameters."
        "Use the address to probe the entry itself.";
    Refused "refused" [Doubt]
        "A debug file was ignored because it belongs to another build of the binary."
        "Install the debug package of the same version.";
    Sampled "sampled" [Doubt]
        "A tracepoint was sampled: counts, pairs and times cover only the recorded hits."
        "Record without `-F` and `-c`; set a rate for one event as in `-e cpu-clock/freq=4000/`.";
    Scope "scope" [Doubt, Choice]
        "The result covers more or less than was requested."
        "The text of the warning gives the reason.";
    Sequential "sequential" [Doubt]
        "One side was recorded after the other: drift of the machine counts as a change, and \
         false alarms are more frequent than stated."
        "Record both sides alternately: `kymo diff --run`.";
    Source "source" [Doubt, Choice]
        "Source files are missing or newer than the binary."
        "Pass their directory with `--symfs`, or use a bundle made with `--sources`.";
    Sources "sources" [Choice]
        "Source files are not in the bundle."
        "Create the bundle where the sources are readable.";
    Stacks "stacks" [Doubt, Choice]
        "States how many stacks are complete, and why others are not."
        "See `cut` and `stopped`; record stacks with `-g` or `--call-graph dwarf`.";
    Stalled "stalled" [Doubt]
        "Some runs are outliers, as if something had delayed them."
        "Repeat the measurement on an idle machine; rank statistics limit the effect of such runs.";
    Stopped "stopped" [Doubt]
        "Stacks end in binaries with missing or wrong call frame information."
        "Install their debug packages, or rebuild with frame pointers.";
    Target "target" [Choice]
        "Conflicting options were given: the narrower one applies."
        "Remove one of them.";
    Throttled "throttled" [Doubt]
        "The kernel paused sampling because it took too much time, or paused tasks because the CPU \
         quota of their cgroup was used up."
        "Record at a lower frequency (`-F`) or a larger period (`-c`); raise the quota (`cpu.max`).";
    Unfinished "unfinished" [Doubt]
        "The recorder was interrupted, or the command was still running."
        "The contents are correct, but the end is missing.";
    Unknown "unknown" [Doubt]
        "Records or events of an unknown kind were skipped."
        "Use a newer kymo if the recorder was newer.";
    Unmatched "unmatched" [Doubt, Choice]
        "Some intervals have only a start or only an end: the recording cuts them, or events are \
         missing."
        "Record all CPUs with larger buffers, and start before the period of interest.";
    Unread "unread" [Doubt]
        "String arguments of system calls are shown as addresses: they could not be read during \
         the call."
        "Trace as root, or with CAP_BPF and CAP_PERFMON, so that BPF programs read them in time.";
    Unresolved "unresolved" [Doubt]
        "Some addresses have no symbol."
        "Install debug symbols for the listed binaries, or use unstripped builds.";
    Unusable "unusable" [Doubt]
        "A file is not an ELF file, or its symbols cannot be read."
        "Provide the right file with `--symfs`.";
    UserOnly "user-only" [Doubt]
        "Events are recorded or counted in user space only, because kernel events are not \
         permitted."
        "Run as root, or lower `kernel.perf_event_paranoid`.";
    Weight "weight" [Doubt, Choice]
        "Events are left out whose summed field is missing or negative."
        "Select the events that have the field with `-e`.";
    Work "work" [Choice]
        "States the unit of work that amounts are divided by."
        "Choose another unit with `kymo diff --per`.";
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of `docs/trust.md`.
    fn page() -> String {
        let mut text = "\
# Warnings and notes by code

Each result ends with a ledger. Lines under `Trust:` are warnings: the result may be wrong or
incomplete, and `--strict` makes the exit status 3. Lines under `Note:` state how the result was
obtained. With `--json` they are objects: `kind` is one of the codes below, `fact` the text with its
numbers, `advice` the remedy or null, and `doubt` true for warnings. Codes are stable; texts may
change.

This table is generated from `NoteKind` in kymo-model (`BLESS=1 cargo nextest run -p kymo-model
trust`).

| Code | Kind | Meaning | Remedy |
|---|---|---|---|
"
        .to_owned();
        for kind in NoteKind::ALL {
            let weights: Vec<String> = kind.weights().iter().map(Weight::to_string).collect();
            text += &format!(
                "| `{kind}` | {} | {} | {} |\n",
                weights.join(" or "),
                kind.meaning(),
                kind.remedy()
            );
        }
        text
    }

    #[test]
    fn the_page_on_trust_has_all_kinds() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trust.md");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(kept == page(), "docs/trust.md differs from NoteKind: renew it with BLESS=1");
    }

    #[test]
    fn codes_are_words_in_order_and_said_once() {
        let word = |c: &str| c.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        assert!(NoteKind::ALL.iter().all(|k| word(k.code()) && !k.code().is_empty()));
        let codes: Vec<&str> = NoteKind::ALL.iter().map(|k| k.code()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        // One sentence each, and no cell may end its table.
        for kind in NoteKind::ALL {
            for text in [kind.meaning(), kind.remedy()] {
                assert!(text.ends_with('.') && !text.contains(['|', '\n']), "{kind}: {text}");
            }
        }
    }
}
