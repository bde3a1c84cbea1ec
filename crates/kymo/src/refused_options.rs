//! Options and commands of perf that kymo deliberately lacks: they are refused by name, with an
//! alternative. docs/perf.md contains the reasons for options, too.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of the listed commands, and why they are refused.
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
        reason: "Perl and Python are not built in; use `kymo script --json` and a script that \
                 reads lines",
    },
    RefusedOption {
        commands: &["script"],
        options: &["dlfilter", "dlarg", "list-dlfilters"],
        reason: "kymo loads no shared objects; use `--filter`, or `--json` and a program that \
                 reads lines",
    },
    RefusedOption {
        commands: &["trace"],
        options: &["map-dump", "force-btf", "bpf-summary"],
        reason: "a trace has no BPF maps; use `kymo run` for programs with maps",
    },
    RefusedOption {
        commands: &["report", "annotate"],
        options: &["tui", "gtk"],
        reason: "results are plain text; use `kymo view` for an interactive page",
    },
    RefusedOption {
        commands: &["report", "script"],
        options: &["stitch-lbr"],
        reason: "branch records are not used as call stacks; use `--call-graph dwarf` when \
                 recording",
    },
    RefusedOption {
        commands: &["stat"],
        options: &["smi-cost", "iostat", "record-tpebs", "tpebs-mode"],
        reason: "model-specific counters have no built-in groups; select events with -e",
    },
    RefusedOption {
        commands: &["buildid-cache"],
        options: &["kcore"],
        reason: "kernel code is read from the running kernel or its vmlinux, which you can add \
                 with -a",
    },
    RefusedOption {
        commands: &["report"],
        options: &["branch-history", "branch-stack", "b", "total-cycles"],
        reason: "branch stacks are not aggregated; `kymo script -F brstacksym` prints them",
    },
    RefusedOption {
        commands: &["top"],
        options: &["group", "group-sort-idx"],
        reason: "events are shown one after another; save the samples and use `kymo report \
                 --group`",
    },
    RefusedOption {
        commands: &["report"],
        options: &["mem-mode"],
        reason: "memory accesses are not decoded; `kymo script -F addr,data_src,weight` prints \
                 them",
    },
    RefusedOption {
        commands: &["top"],
        options: &["raw-trace"],
        reason: "save the samples and use `kymo report --raw-trace`",
    },
    RefusedOption {
        commands: &["annotate"],
        options: &["data-type", "type-stat", "insn-stat", "code-with-type"],
        reason: "data types of instructions are not resolved; use perf",
    },
    RefusedOption {
        commands: &["script"],
        options: &["all-cpus", "a"],
        reason: "script does not record; use `kymo record -a`, then `kymo script`",
    },
    RefusedOption {
        commands: &["script"],
        options: &["graph-function", "max-blocks"],
        reason: "instructions between branches are not decoded; `-F brstack` prints the branches",
    },
    RefusedOption {
        commands: &["script", "inject"],
        options: &[
            "guest-code",
            "guestkallsyms",
            "guestmodules",
            "guestmount",
            "guestvmlinux",
            "guest-data",
            "vm-time-correlation",
        ],
        reason: "record inside the guest, and merge with `kymo script HOST GUEST`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["sym-annotate", "stitch-lbr"],
        reason: "top shows no code; save the samples and use `kymo annotate`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["branch-any", "b", "branch-filter", "j", "branch-history"],
        reason: "branches are not counted live; use `kymo record -b` and `kymo script -F brstack`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["switch-on", "switch-off", "show-on-off-events"],
        reason: "use `kymo record`, then `kymo report --switch-on`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["dump-symtab"],
        reason: "use `kymo kallsyms` for symbols of the running kernel",
    },
    RefusedOption {
        commands: &["top"],
        options: &["ignore-callees", "hierarchy", "fields"],
        reason: "columns and trees are fixed; save the samples and use `kymo report`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["all-cgroups"],
        reason: "use `kymo record` with this option, then `kymo report`",
    },
    RefusedOption {
        commands: &["stat"],
        options: &["topdown", "td-level"],
        reason: "top-down levels are not computed; if the CPU has slot events, use -e \
                 '{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}'",
    },
    RefusedOption {
        commands: &["stat"],
        options: &["transaction", "T"],
        reason: "model-specific formulas are not built in; if the CPU has transactions, use -e \
                 '{cycles,cpu/tx-start/,cpu/cycles-t/,cpu/cycles-ct/}'",
    },
    RefusedOption {
        commands: &["stat"],
        options: &["cputype", "pmu-filter"],
        reason: "put the PMU into the event: -e PMU/EVENT/",
    },
    RefusedOption {
        commands: &["record"],
        options: &["kcore"],
        reason: "kernel code is read during analysis, or by `kymo record --bundle` for other \
                 machines",
    },
    RefusedOption {
        commands: &["record"],
        options: &["off-cpu", "off-cpu-thresh"],
        reason: "use `kymo offcpu record` or `kymo profile` for time off CPU",
    },
    RefusedOption {
        commands: &["record"],
        options: &["setup-filter", "sample-mem-info"],
        reason: "use the kernel's event filters (--filter), or `kymo run`",
    },
    RefusedOption {
        commands: &["trace"],
        options: &["print-sample"],
        reason: "use `kymo script -D` to print the fields of samples",
    },
    RefusedOption {
        commands: &["sched replay"],
        options: &[ANY_OPTION],
        reason: "loads are not replayed; use `perf sched replay`",
    },
    RefusedOption {
        commands: &["lock contention"],
        options: &["lock-cgroup", "g"],
        reason: "rows are functions, tasks or locks; --cgroup selects tasks in a recording made \
                 with --all-cgroups",
    },
    RefusedOption {
        commands: &["lock contention"],
        options: &["lock-owner"],
        reason: "`kymo lock record --wakers` records the task that released a lock",
    },
    RefusedOption {
        commands: &["lock contention"],
        options: &["inject-delay"],
        reason: "kymo does not inject delays",
    },
    RefusedOption {
        commands: &["offcpu record", "why record", "io record", "syscalls record"],
        options: &["pid", "p", "tid", "t"],
        reason: "all tasks are recorded, because other tasks wake and delay these; select tasks \
                 in the report (-p PID)",
    },
    RefusedOption {
        commands: &["inject"],
        options: &["sched-stat", "s"],
        reason: "use `kymo offcpu`, which shows where tasks slept from plain sched events",
    },
    RefusedOption {
        commands: &["diff"],
        options: &["cycles-hist", "stream"],
        reason: "branch records are not aggregated; use perf",
    },
    RefusedOption {
        commands: &["diff"],
        options: &["dump-raw-trace", "D"],
        reason: "`kymo script -D` prints the records of a file",
    },
];

/// Commands of perf's that kymo does not have, and what to use.
const REFUSED_COMMANDS: &[(&str, &str)] = &[
    ("bench", "use `perf bench`"),
    (
        "c2c",
        "shared cache lines are not analyzed; `kymo record -d -W -e EVENT` records memory \
         accesses, and `kymo script -F addr,data_src,weight` prints them",
    ),
    ("daemon", "use `kymo session`, which keeps traces running and writes their last seconds"),
    (
        "ftrace",
        "use `kymo trace --tracer function` or `--tracer function_graph` for kernel functions, \
         and `kymo count --latency` for latencies",
    ),
    ("iostat", "model-specific counters have no built-in groups; `kymo io` shows block requests"),
    (
        "kvm",
        "record inside the guest, and merge with `kymo script HOST GUEST`; `kymo count -e \
         kvm:kvm_exit --by exit_reason` counts exits",
    ),
    (
        "mem",
        "memory accesses are not decoded; `kymo record -d -W -e EVENT` records them, and `kymo \
         script -F addr,data_src,weight` prints them",
    ),
    ("script record", RECORDING_SCRIPTS),
    ("script report", RECORDING_SCRIPTS),
];

const RECORDING_SCRIPTS: &str = "Perl and Python are not built in; use `kymo script --json` and a \
                                 script that reads lines";

/// Message about a command of perf's that kymo does not have, in place of clap's error. `words`:
/// the first two words as typed.
pub(crate) fn explain_command(words: [&str; 2]) -> Option<String> {
    let [command, within] = words;
    let both = format!("{command} {within}");
    let (name, reason) = REFUSED_COMMANDS.iter().find(|(n, _)| *n == command || *n == both)?;
    Some(format!("error: kymo has no {name}: {reason}\n"))
}

/// Stands for all options of a command that is not there.
const ANY_OPTION: &str = "*";

impl RefusedOption {
    /// Whether it is of this command, or of all that are within a command.
    fn is_of(&self, path: &str) -> bool {
        let group = path.split_once(' ').map_or(path, |(group, _)| group);
        self.commands.contains(&path) || self.commands.contains(&group)
    }
}

/// Message about an error of the command line, in place of clap's. `path`: the command and
/// sub-commands as typed; `options`: options after them, as typed.
pub(crate) fn explain(path: &str, options: &[String], error: &clap::Error) -> Option<String> {
    let by_name = |typed: &str, name: &str| {
        REFUSED
            .iter()
            .find(|r| r.is_of(path) && r.options.contains(&name))
            .map(|refused| format!("error: kymo {path} has no {typed}: {}\n", refused.reason))
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
                return None;
            };
            let typed = typed.split('=').next()?;
            by_name(typed, typed.trim_start_matches('-'))
        }
        ErrorKind::InvalidSubcommand => {
            let refused =
                REFUSED.iter().find(|r| r.is_of(path) && r.options.contains(&ANY_OPTION))?;
            match options.first() {
                Some(option) => by_name(option, ANY_OPTION),
                None => Some(format!("error: kymo has no {path}: {}\n", refused.reason)),
            }
        }
        _ => None,
    }
}
