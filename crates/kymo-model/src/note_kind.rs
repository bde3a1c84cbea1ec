//! Kinds of ledger notes: one enumeration, each with the code that stands in
//! text and JSON, its weight, its meaning and what to do. `docs/trust.md` is this
//! table; a test compares them.

use std::fmt;

/// Weight of a note for the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// The result is not all that was asked for: `--strict` fails.
    #[default]
    Doubt,
    /// The result is what was asked for; this says how it was come by.
    Choice,
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Weight::Doubt => "doubt",
            Weight::Choice => "choice",
        })
    }
}

/// Defines the kinds: variant, code, weights, meaning, what to do.
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
        "Names of system calls may be those of another ABI: the recording has their numbers alone."
        "Record with `kymo syscalls record`, which keeps the mappings that tell programs of 32 bits.";
    Boundary "boundary" [Doubt]
        "Samples of a function do not lie where an instruction of the file begins."
        "The code changed while it ran, or is data: look at `code` and `changed`.";
    Bundle "bundle" [Doubt]
        "A bundle of binaries cannot be used, or not all of it."
        "Make it again where the recording was made: `kymo bundle`.";
    Cache "cache" [Choice]
        "A file of kymo's cache was not used; the result is right and took longer."
        "Nothing: the file is made anew. `KYMO_CACHE` names another directory, or is `off`.";
    Chains "chains" [Doubt]
        "Call chains are absent, make no sense, or were cut short by the kernel."
        "Build with frame pointers, record with `--call-graph dwarf`, or raise `kernel.perf_event_max_stack`.";
    Changed "changed" [Doubt]
        "A binary is not the one that was recorded: its build-id is another, so its symbols were not used."
        "Put the old file under a directory and name that with `--symfs`, or take a bundle.";
    Children "children" [Doubt]
        "Events of child processes are not in the result."
        "Trace on a kernel that follows forks (`event-fork`, Linux 4.7), or name the children.";
    Clock "clock" [Doubt, Choice]
        "States which clock the times are of, or how far the clocks of several recordings agree."
        "If in doubt, record with CLOCK_MONOTONIC (the default) on both sides.";
    Code "code" [Doubt, Choice]
        "Functions with samples are not shown, because their code cannot be had."
        "Install or name the binary (`--symfs`, a bundle); `--skip-missing` accepts it.";
    Comparison "comparison" [Doubt, Choice]
        "The sides of a comparison differ in more than the program: events, rates, machines, names, what is inlined."
        "Record both sides alike, in turns: `kymo diff --run`.";
    Compression "compression" [Doubt]
        "The recording could not be compressed and is whole, but larger."
        "Make room on the disk and record again, or keep it as it is.";
    Control "control" [Doubt]
        "A line that came over `--control` is no command, and nothing was done."
        "There are `enable`, `disable`, `snapshot`, `stop` and `ping`.";
    Cost "cost" [Choice]
        "A probe needs single-stepping, which costs some 15 times as much per hit."
        "Choose a neighboring instruction; `kymo probe bench` measures the cost here.";
    Cut "cut" [Doubt]
        "Something ended before it was complete: a copy of a stack, a record, a listing."
        "Record with a larger copy (`--call-graph dwarf,SIZE`).";
    Damaged "damaged" [Doubt]
        "Part of the recording could not be read; what came before is shown."
        "Copy or record it again.";
    Debug "debug" [Doubt]
        "Debugging information needed for a listing is absent or damaged."
        "Install the debug package of the binary, or build it with `-g`.";
    DebugInfo "debuginfo" [Doubt]
        "Debugging information of a binary could not be read, or not all of it."
        "Install the debug package again; kymo reads DWARF 2 to 5.";
    Debuginfod "debuginfod" [Doubt, Choice]
        "States what came from debuginfod servers, or which server failed."
        "`--no-debuginfod` asks no server; `DEBUGINFOD_URLS` names others.";
    DefaultEvent "default-event" [Choice]
        "No event was named and the usual one is not supported: another one is recorded."
        "Name one with `-e`; `kymo list` shows what the machine has.";
    Empty "empty" [Doubt, Choice]
        "Nothing was recorded, or nothing is in the result."
        "Check the event, the target and the filters.";
    Entries "entries" [Doubt]
        "A report has more distinct entries than are counted separately."
        "Sort by fewer keys (`-s`).";
    Events "events" [Choice]
        "The result holds only some of the events of the recording."
        "Name the others with `-e`.";
    Few "few" [Doubt]
        "There are so few samples that shares are rough."
        "Record longer, or at a higher rate (`-F`).";
    File "file" [Choice]
        "The code shown is that of a file, which the running kernel had patched."
        "Nothing, if the function is not patched at run time.";
    Format "format" [Doubt]
        "The format of an event cannot be read, so its fields are not shown."
        "Report it with the text of the format.";
    FramePointers "frame-pointers" [Doubt]
        "Stacks by frame pointers do not lead to the start of the program or thread."
        "Build with frame pointers, or record with `--call-graph dwarf`.";
    Frequency "frequency" [Doubt]
        "The kernel allows no sampling at the rate that was asked for."
        "Raise `kernel.perf_event_max_sample_rate`.";
    Functions "functions" [Doubt, Choice]
        "Traced functions begin before the recording or end after it."
        "Record longer, with a larger buffer.";
    Group "group" [Doubt]
        "An event was not counted together with its group."
        "Put fewer events into the group.";
    Hazard "hazard" [Doubt]
        "A probe that could make the program fail was added because of `--force`."
        "Put it on another instruction.";
    Hidden "hidden" [Doubt]
        "The kernel hides its symbols, so its functions have no names."
        "Run as root, or set `kernel.kptr_restrict=0 kernel.perf_event_paranoid=1`.";
    Internal "internal" [Doubt]
        "A number of kymo's own led nowhere: what it stands for is left out or shown without a name."
        "This is an error in kymo: report it with the text of the note.";
    Kernel "kernel" [Doubt]
        "Symbols of the kernel that was recorded cannot be had."
        "Name them with `--kallsyms` or `--vmlinux`.";
    KernelSymbols "kernel-symbols" [Doubt]
        "Kernel addresses are hidden while recording: kernel functions will have no names."
        "Record as root, or set `kernel.kptr_restrict=0`.";
    Keys "keys" [Doubt]
        "A counter inside a program was hit with more keys than it can hold: what came under the others is counted together."
        "Count by something that takes fewer values.";
    Lines "lines" [Choice]
        "Not every address of code has a source line."
        "Install the debug package of the named binaries, or build them with `-g`.";
    Lost "lost" [Doubt]
        "Events were dropped because a buffer was full."
        "Record with a larger buffer (`-m`, `--buffer-size`), fewer events or a filter.";
    LostSamples "lost-samples" [Doubt]
        "The kernel dropped samples before they reached a buffer."
        "Record at a lower rate (`-F`), with a larger buffer (`-m`).";
    Machine "machine" [Doubt]
        "The recording is of another machine, and binaries without a build-id were taken by their paths."
        "Make a bundle where it was recorded (`kymo bundle`), or use `--symfs`.";
    Malformed "malformed" [Doubt]
        "Records are too short for their event, or of an event that the file does not describe."
        "Record again; report it if the recorder was kymo.";
    Maps "maps" [Doubt]
        "Mappings of running processes could not be read in time: their code has no names."
        "Give it longer with `--proc-map-timeout`.";
    MaxSize "max-size" [Choice]
        "The recording stopped at the size that was asked for."
        "A larger `--max-size`.";
    Metadata "metadata" [Choice]
        "States how something in the metadata of a CTF trace was taken."
        "Nothing; the tracer writes what the specification leaves open.";
    Missing "missing" [Doubt]
        "Binaries, variables or parts of debugging information were not found."
        "Install what is named; look at the fact of the note.";
    Mlock "mlock" [Choice]
        "Buffers are smaller than usual because no more memory may be locked."
        "Raise `kernel.perf_event_mlock_kb` or `ulimit -l`.";
    Multiplexed "multiplexed" [Doubt]
        "An event was counted only a part of the time, and its count is scaled up."
        "Name fewer events.";
    Narrow "narrow" [Choice]
        "Narrow parts of a flame graph are not drawn."
        "`--percent-limit 0` draws all of them.";
    NoBpf "no-bpf" [Choice]
        "Programs ran in user space, on events out of rings: the kernel runs none for this user."
        "Run it as root or with CAP_BPF and CAP_PERFMON, on Linux 5.8 or later: it costs less there.";
    NotCounted "not-counted" [Doubt]
        "An event never ran while it was counted."
        "Name fewer events, or count for longer.";
    NotSupported "not-supported" [Doubt, Choice]
        "The machine does not have an event."
        "`kymo list` shows what it can count.";
    Nothing "nothing" [Choice]
        "No events of the recording match the selection."
        "Look at the filters, the time span and the names.";
    Order "order" [Doubt]
        "Records are out of time order by more than the reader waits for."
        "Report it if the recorder was kymo.";
    Overhead "overhead" [Choice]
        "States how much processor time kymo itself used while it watched."
        "Choose fewer events, or record and look later.";
    Overwritten "overwritten" [Choice]
        "Older events gave way to newer ones, as a flight recorder is asked to do."
        "To keep more: a larger `--buffer-size`.";
    Payload "payload" [Doubt, Choice]
        "The fields of an event are shown as bytes, or by the format of another kernel."
        "Record with the formats: `kymo record`, `perf record` and trace-cmd keep them.";
    Program "program" [Doubt]
        "A traced program could not be traced, or not entirely."
        "Look at the fact of the note.";
    Programs "programs" [Choice]
        "No program had such events."
        "Check the name of the event: `kymo list`.";
    Prologue "prologue" [Choice]
        "A probe was moved behind the place where a function stores its parameters."
        "Name the address to probe the entry itself.";
    Refused "refused" [Doubt]
        "A file that should have had a binary's symbols was not taken: it does not belong to it."
        "Install the debug package of the same version.";
    Sampled "sampled" [Doubt]
        "Hits of a tracepoint may be missing in the recording: counts, pairs and times are of those that are there."
        "Record without `-F` and `-c`; `-e cpu-clock/freq=4000/` is for one event.";
    Scope "scope" [Doubt, Choice]
        "The result covers more or less than was asked for."
        "Look at the fact of the note.";
    Sequential "sequential" [Doubt]
        "One side of a comparison was recorded after the other: what changed on the machine meanwhile counts as a change, and false alarms are more frequent than stated."
        "Record both in turns: `kymo diff --run`.";
    Source "source" [Doubt, Choice]
        "Source files were not found, or are younger than the binary."
        "Name where they are with `--symfs`, or take them from a bundle made with `--sources`.";
    Sources "sources" [Choice]
        "Source files are not in the bundle."
        "Make the bundle where they are readable.";
    Stacks "stacks" [Doubt, Choice]
        "States how many stacks are complete, and why others are not."
        "Follow the notes `cut` and `stopped`; `-g` or `--call-graph dwarf` record stacks.";
    Stalled "stalled" [Doubt]
        "Runs stand out from the others of their side, as if something had held them up."
        "Repeat the measurement on a quiet machine; ranks limit what such a run does to the result.";
    Stopped "stopped" [Doubt]
        "Stacks end in binaries whose call frame information is absent or wrong."
        "Install their debug packages, or rebuild with frame pointers.";
    Target "target" [Choice]
        "Options that exclude each other were named: the narrower one counts."
        "Leave out one of them.";
    Throttled "throttled" [Doubt]
        "The kernel paused sampling because it took too much time."
        "Record at a lower frequency (`-F`) or a larger period (`-c`).";
    Unfinished "unfinished" [Doubt]
        "The recorder did not finish the file, or the command had not ended."
        "What is in the file is right; its end is missing.";
    Unknown "unknown" [Doubt]
        "Records or events of a kind that the file does not describe were skipped."
        "Take a newer kymo, if the recorder was newer.";
    Unmatched "unmatched" [Doubt, Choice]
        "Halves of intervals have no partner: the recording begins or ends in between, or lacks events."
        "Record all CPUs, with larger rings, before what is of interest begins.";
    Unread "unread" [Doubt]
        "Texts of system calls are shown as addresses: they could not be read while the call was made."
        "Trace with the right to run programs in the kernel (root, or CAP_BPF and CAP_PERFMON), which read them in time.";
    Unresolved "unresolved" [Doubt]
        "Addresses have no symbol."
        "Install the debug symbols of the named binaries, or build them unstripped.";
    Unusable "unusable" [Doubt]
        "A file is no ELF file that symbols can be read from."
        "Name the right file with `--symfs`.";
    UserOnly "user-only" [Doubt]
        "Events are recorded or counted in user space only, since more is not permitted."
        "Run as root, or lower `kernel.perf_event_paranoid`.";
    Weight "weight" [Doubt, Choice]
        "Events without the field that was to be summed, or with a negative one, are left out."
        "Name the events that have it with `-e`.";
    Work "work" [Choice]
        "States which unit of work amounts are per."
        "`kymo diff --per` names another one.";
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
# Ledger notes

Whatever prints a result ends with what could make it wrong: lines under `Trust:` are doubts, \
which `--strict` turns into exit status 3; lines under `Note:` state choices that were made for \
the user. With `--json` they are objects: `kind` is one of the codes below, `fact` the text with \
its figures, `advice` the way out or null, `doubt` true or false. Codes are stable; facts are \
for people.

This table is `NoteKind` of kymo-model (`BLESS=1 cargo nextest run -p kymo-model trust` renews it).

| code | weight | meaning | what to do |
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
