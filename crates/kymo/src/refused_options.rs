//! Options of perf's that kymo does not have for a reason: they are refused by name, with
//! what to use in their place. docs/perf.md is made of these answers, too.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options and why they are refused; of the named commands, or of all.
struct RefusedOption {
    commands: &'static [&'static str],
    options: &'static [&'static str],
    reason: &'static str,
}

const REFUSED: &[RefusedOption] = &[
    RefusedOption {
        commands: &["report", "annotate", "script", "inject"],
        options: &["itrace"],
        reason: "hardware traces (AUX area) are not decoded; use perf",
    },
    RefusedOption {
        commands: &["script"],
        options: &["insn-trace", "call-trace", "call-ret-trace", "xed"],
        reason: "hardware traces (AUX area) are not decoded; use perf",
    },
    RefusedOption {
        commands: &["record"],
        options: &["aux-sample", "snapshot"],
        reason: "hardware traces (AUX area) are not recorded; use perf",
    },
    RefusedOption {
        commands: &["script"],
        options: &["gen-script", "script", "list"],
        reason: "no Perl or Python is built in; use `kymo script --json` and a script that reads \
                 lines",
    },
    RefusedOption {
        commands: &["script"],
        options: &["dlfilter", "dlarg", "list-dlfilters"],
        reason: "no shared objects are loaded into kymo; use `--filter`, or `--json` and a program \
                 that reads lines",
    },
    RefusedOption {
        commands: &["record"],
        options: &["clang-opt", "clang-path"],
        reason: "BPF programs are not compiled by clang; use `kymo run` or `kymo count`",
    },
    RefusedOption {
        commands: &["trace"],
        options: &["map-dump", "force-btf", "bpf-summary"],
        reason: "no BPF maps of a trace are there to be shown; use `kymo run` for programs with maps",
    },
    RefusedOption {
        commands: &["trace"],
        options: &["libtraceevent_print"],
        reason: "payloads are printed by kymo itself, by the kernel's print formats",
    },
    RefusedOption {
        commands: &["report", "annotate"],
        options: &["tui", "gtk"],
        reason: "results are text; use `kymo view` for a page to look at",
    },
    RefusedOption {
        commands: &["report", "script"],
        options: &["stitch-lbr"],
        reason: "branch records are not used as call stacks; record with `--call-graph dwarf`",
    },
    RefusedOption {
        commands: &["report", "annotate"],
        options: &["objdump", "addr2line"],
        reason: "code and lines are read by kymo itself; no other program is started",
    },
    RefusedOption {
        commands: &["report", "script"],
        options: &["addr2line-style", "unwind-style", "addr2line"],
        reason: "lines and stacks are found by kymo itself; there is one way",
    },
    RefusedOption {
        commands: &["report"],
        options: &["disassembler-style", "asm-raw", "source", "prefix", "prefix-strip"],
        reason: "the report shows no code; use `kymo annotate`",
    },
    RefusedOption {
        commands: &["report", "annotate"],
        options: &["modules", "ignore-vmlinux"],
        reason: "the kernel's symbols are those of the recorded kernel; name others with `-k` or \
                 `--kallsyms`",
    },
    RefusedOption {
        commands: &["stat"],
        options: &["smi-cost", "iostat", "record-tpebs", "tpebs-mode"],
        reason: "counters of single CPU models are not known by purpose; name events with -e",
    },
    RefusedOption {
        commands: &["record"],
        options: &["aio", "affinity", "num-thread-synthesize", "mmap-flush"],
        reason: "rings are written as they are, without copies; there is nothing to tune",
    },
    RefusedOption {
        commands: &["record"],
        options: &["threads"],
        reason: "a recording is one file, which one thread writes without copies; use -m for \
                 larger rings",
    },
    RefusedOption {
        commands: &["buildid-cache"],
        options: &["kcore"],
        reason: "code of the kernel is read from the running one, or from its vmlinux: add that \
                 with -a",
    },
];

/// What to say of an error of the command line in place of what it says itself.
pub(crate) fn explain(command: &str, error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let option = typed.strip_prefix("--")?.split('=').next()?;
    let has = |r: &&RefusedOption| r.commands.contains(&command) && r.options.contains(&option);
    let refused = REFUSED.iter().find(has)?;
    Some(format!("error: kymo {command} has no --{option}: {}\n", refused.reason))
}
