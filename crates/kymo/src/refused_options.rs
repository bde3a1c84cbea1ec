//! Options and commands of perf's that kymo does not have for a reason: they are refused by
//! name, with what to use in their place. docs/perf.md is made of the answers to options, too.

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
        commands: &["trace"],
        options: &["map-dump", "force-btf", "bpf-summary"],
        reason: "no BPF maps of a trace are there to be shown; use `kymo run` for programs with maps",
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
        commands: &["stat"],
        options: &["smi-cost", "iostat", "record-tpebs", "tpebs-mode"],
        reason: "counters of single CPU models are not known by purpose; name events with -e",
    },
    RefusedOption {
        commands: &["buildid-cache"],
        options: &["kcore"],
        reason: "code of the kernel is read from the running one, or from its vmlinux: add that \
                 with -a",
    },
    RefusedOption {
        commands: &["report"],
        options: &["branch-history", "branch-stack", "b", "total-cycles"],
        reason: "branch stacks are not counted; `kymo script -F brstacksym` prints them",
    },
    RefusedOption {
        commands: &["top"],
        options: &["group", "group-sort-idx"],
        reason: "events are shown one after another; save what was seen, and use `kymo report \
                 --group`",
    },
    RefusedOption {
        commands: &["report"],
        options: &["mem-mode"],
        reason: "accesses to memory are not decoded; `kymo script -F addr,data_src,weight` prints \
                 them",
    },
    RefusedOption {
        commands: &["top"],
        options: &["raw-trace"],
        reason: "save what was seen, and use `kymo report --raw-trace`",
    },
    RefusedOption {
        commands: &["annotate"],
        options: &["data-type", "type-stat", "insn-stat", "code-with-type"],
        reason: "types of the data that instructions touch are not found; use perf",
    },
    RefusedOption {
        commands: &["script"],
        options: &["all-cpus", "a"],
        reason: "it records nothing: `kymo record -a` does, and `kymo script` shows it",
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
        reason: "guests are recorded in the guest, and `kymo script HOST GUEST` merges what was \
                 recorded",
    },
    RefusedOption {
        commands: &["top"],
        options: &["sym-annotate", "stitch-lbr"],
        reason: "it shows no code; save what was seen, and use `kymo annotate`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["branch-any", "b", "branch-filter", "j", "branch-history"],
        reason: "branches are not counted live; use `kymo record -b` and `kymo script -F brstack`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["switch-on", "switch-off", "show-on-off-events"],
        reason: "use `kymo record` and `kymo report --switch-on`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["dump-symtab"],
        reason: "the kernel that runs has its own symbols (`kymo kallsyms`)",
    },
    RefusedOption {
        commands: &["top"],
        options: &["ignore-callees", "hierarchy", "fields"],
        reason: "columns and trees are those of the screen; save what was seen, and use `kymo \
                 report`",
    },
    RefusedOption {
        commands: &["top"],
        options: &["all-cgroups"],
        reason: "use `kymo record` with this option, and `kymo report`",
    },
    RefusedOption {
        commands: &["stat"],
        options: &["topdown", "td-level"],
        reason: "levels of the top-down method are not computed; where the CPU counts its slots, \
                 -e '{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}' \
                 shows how they were used",
    },
    RefusedOption {
        commands: &["stat"],
        options: &["transaction", "T"],
        reason: "formulas of single CPU models are not known; where the CPU has transactions, -e \
                 '{cycles,cpu/tx-start/,cpu/cycles-t/,cpu/cycles-ct/}' counts them",
    },
    RefusedOption {
        commands: &["stat"],
        options: &["cputype", "pmu-filter"],
        reason: "name the PMU in the event: -e PMU/EVENT/",
    },
    RefusedOption {
        commands: &["record"],
        options: &["kcore"],
        reason: "code of the kernel is read when a recording is shown, or by `kymo record --bundle` \
                 for other machines",
    },
    RefusedOption {
        commands: &["record"],
        options: &["off-cpu", "off-cpu-thresh"],
        reason: "`kymo offcpu record` and `kymo profile` record where tasks wait",
    },
    RefusedOption {
        commands: &["record"],
        options: &["setup-filter", "sample-mem-info"],
        reason: "events are filtered by the kernel's own filters (--filter), or in `kymo run`",
    },
    RefusedOption {
        commands: &["trace"],
        options: &["print-sample"],
        reason: "fields of samples are printed by `kymo script -D` of a recording",
    },
    RefusedOption {
        commands: &["sched replay"],
        options: &[ANY_OPTION],
        reason: "loads are not replayed; use `perf sched replay`",
    },
    RefusedOption {
        commands: &["lock contention"],
        options: &["lock-cgroup", "g"],
        reason: "a row is a function, a task or a lock; --cgroup chooses tasks of a recording \
                 made with --all-cgroups",
    },
    RefusedOption {
        commands: &["lock contention"],
        options: &["lock-owner"],
        reason: "`kymo lock record --wakers` records who released a lock",
    },
    RefusedOption {
        commands: &["lock contention"],
        options: &["inject-delay"],
        reason: "nothing is delayed; only what happens is shown",
    },
    RefusedOption {
        commands: &["offcpu record", "why record", "io record", "syscalls record"],
        options: &["pid", "p", "tid", "t"],
        reason: "all tasks are recorded, since others wake these and hold them up; choose some \
                 when it is shown (-p PID)",
    },
    RefusedOption {
        commands: &["inject"],
        options: &["sched-stat", "s"],
        reason: "`kymo offcpu` shows where tasks slept, out of sched events as they are",
    },
    RefusedOption {
        commands: &["diff"],
        options: &["cycles-hist", "stream"],
        reason: "branch records are not counted; use perf",
    },
    RefusedOption {
        commands: &["diff"],
        options: &["dump-raw-trace", "D"],
        reason: "`kymo script -D` prints the records of a file",
    },
    RefusedOption {
        commands: &["inject"],
        options: &["aslr"],
        reason: "addresses stay as they were recorded",
    },
];

/// Commands of perf's that kymo does not have, and what to use.
const REFUSED_COMMANDS: &[(&str, &str)] = &[
    ("bench", "it measures no parts of the kernel; use `perf bench`"),
    (
        "c2c",
        "lines of caches that CPUs share are not found; `kymo record -d -W -e EVENT` records \
         accesses to memory, and `kymo script -F addr,data_src,weight` prints them",
    ),
    ("daemon", "`kymo session` keeps traces running, and takes their last seconds"),
    (
        "ftrace",
        "`kymo trace --tracer function` and `--tracer function_graph` show functions of the \
         kernel, `kymo count --latency` how long things take",
    ),
    (
        "iostat",
        "counters of single CPU models are not known by purpose; `kymo io` shows requests to \
         block devices",
    ),
    (
        "kvm",
        "guests are recorded in the guest, and `kymo script HOST GUEST` merges what was recorded; \
         `kymo count -e kvm:kvm_exit --by exit_reason` counts the exits",
    ),
    (
        "mem",
        "accesses to memory are not decoded; `kymo record -d -W -e EVENT` records them, and `kymo \
         script -F addr,data_src,weight` prints them",
    ),
    ("script record", RECORDING_SCRIPTS),
    ("script report", RECORDING_SCRIPTS),
];

const RECORDING_SCRIPTS: &str = "no Perl or Python is built in; use `kymo script --json` and a \
                                 script that reads lines";

/// What to say of a command of perf's in place of an error about it: `words` are those that were
/// typed first.
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

/// What to say of an error of the command line in place of what it says itself. `path`: the
/// command and what is within it, as typed; `options`: options behind it, as typed.
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
