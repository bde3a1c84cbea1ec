//! Options of perf's that change nothing here, because what they ask for always holds or is never
//! shown, and options that perf takes before a subcommand. Both are declared beside a command's own
//! flags, so that its help describes their effect.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use crate::{help_layout, shared_options};

/// Whether an option has a value.
#[derive(Clone, Copy)]
enum OptionValue {
    None,
    /// Behind `=` alone.
    Optional(&'static str),
    Required(&'static str),
}

use OptionValue::{None as NoValue, Optional, Required};

/// An option without effect.
struct IdleOption {
    /// Commands by path; `sched *` are all subcommands of sched.
    commands: &'static [&'static str],
    long: &'static str,
    short: Option<char>,
    value: OptionValue,
    reason: &'static str,
}

const fn idle(
    commands: &'static [&'static str],
    long: &'static str,
    short: Option<char>,
    value: OptionValue,
    reason: &'static str,
) -> IdleOption {
    IdleOption { commands, long, short, value, reason }
}

/// Commands that show a recording, a subcommand of each where there are several.
const SHOWING: &[&str] = &[
    "report", "annotate", "script", "top", "sched *", "lock *", "kmem *", "kwork *", "trace",
    "archive",
];

/// Commands that record events of all tasks.
const RECORDING_MACHINE: &[&str] = &[
    "sched record",
    "kmem record",
    "kwork record",
    "lock record",
    "io record",
    "offcpu record",
    "syscalls record",
    "why record",
    "timechart record",
];

const IDLE: &[IdleOption] = &[
    idle(SHOWING, "verbose", Some('v'), NoValue, "warnings are always shown"),
    idle(&["lock *"], "quiet", Some('q'), NoValue, "there are no messages except the ledger"),
    idle(&["annotate"], "quiet", Some('q'), NoValue, "there are no messages except the ledger"),
    idle(
        &["report", "annotate", "script"],
        "demangle",
        None,
        NoValue,
        "names are demangled unless --no-demangle is given",
    ),
    idle(
        &["report", "annotate", "script", "top"],
        "demangle-kernel",
        None,
        NoValue,
        "kernel names are demangled like all others",
    ),
    idle(
        &["report", "annotate"],
        "skip-empty",
        None,
        NoValue,
        "events without samples are never shown",
    ),
    idle(
        &["report", "top"],
        "column-widths",
        Some('w'),
        Required("WIDTHS"),
        "columns are as wide as their contents",
    ),
    idle(&["report"], "disable-order", None, NoValue, "records are always sorted by time"),
    idle(&["report"], "pretty", None, Required("STYLE"), "there is only one style"),
    idle(
        &["report"],
        "show-ref-call-graph",
        None,
        NoValue,
        "events without call chains are shown without them",
    ),
    idle(&["report"], "threads", Some('T'), NoValue, "`stat report` shows counts of --per-thread"),
    idle(&["annotate"], "stdio-color", None, Required("WHEN"), "the output has no colors"),
    idle(&["annotate"], "stdio2", None, NoValue, "plain text is the only output"),
    idle(&["annotate"], "source", None, NoValue, "source lines are shown where available"),
    idle(&["script"], "debug-mode", None, NoValue, "damaged records are always reported"),
    idle(
        &["script"],
        "show-kernel-path",
        None,
        NoValue,
        "the kernel is shown with its recorded name",
    ),
    idle(&["top"], "force", Some('f'), NoValue, "no file is read"),
    idle(
        &["top"],
        "tui",
        None,
        NoValue,
        "the terminal interface is the default unless --stdio is given",
    ),
    idle(&["top"], "namespaces", None, NoValue, "tasks are distinguished by ID and name"),
    idle(
        &["top"],
        "no-bpf-event",
        None,
        NoValue,
        "BPF programs are resolved with the kernel's symbols",
    ),
    idle(
        &["top"],
        "num-thread-synthesize",
        None,
        Required("N"),
        "one thread reads the running tasks",
    ),
    idle(&["top"], "overwrite", None, NoValue, "the newest data is shown in any case"),
    idle(
        &["record"],
        "tail-synthesize",
        None,
        NoValue,
        "existing tasks are described at the start of each file",
    ),
    idle(&["stat"], "affinity", None, NoValue, "each counter is read on its own CPU"),
    idle(&["stat"], "hybrid-merge", None, NoValue, "counts of different PMUs are never summed"),
    idle(
        &["stat"],
        "percore-show-thread",
        None,
        NoValue,
        "the event modifier `percore` is not supported",
    ),
    idle(&["list"], "debug", None, NoValue, "there is no debug output"),
    idle(&["list"], "deprecated", None, NoValue, "no event is hidden as deprecated"),
    idle(&["list"], "desc", Some('d'), NoValue, "descriptions are always shown, if available"),
    idle(&["list"], "long-desc", None, NoValue, "descriptions are always shown, if available"),
    idle(&["sched map"], "color-cpus", None, Required("CPUS"), "the map has no colors"),
    idle(&["sched map"], "color-pids", None, Required("PIDS"), "the map has no colors"),
    idle(
        &["lock report", "lock info"],
        "kallsyms",
        None,
        Required("FILE"),
        "locks are shown with the names in the events",
    ),
    idle(
        &["lock report", "lock info"],
        "vmlinux",
        Some('k'),
        Required("FILE"),
        "locks are shown with the names in the events",
    ),
    idle(
        &["lock contention"],
        "map-nr-entries",
        None,
        Required("N"),
        "rows are not kept in BPF maps",
    ),
    idle(&["trace"], "sort-events", None, NoValue, "events are always sorted by time"),
    idle(&["trace"], "tool_stats", None, NoValue, "warnings state what was lost"),
    idle(
        &["trace"],
        "proc-map-timeout",
        None,
        Required("MS"),
        "mappings of running tasks are not read in advance",
    ),
    idle(&["trace"], "syscalls", None, NoValue, "system calls are traced unless -e or -u is given"),
    idle(
        &["report", "annotate", "script", "top"],
        "addr2line",
        None,
        Required("PATH"),
        "kymo reads code and lines itself",
    ),
    idle(
        &["report", "script"],
        "addr2line-style",
        None,
        Required("STYLES"),
        "there is only one way to find lines",
    ),
    idle(
        &["report", "script", "inject"],
        "unwind-style",
        None,
        Required("STYLES"),
        "there is only one unwinder",
    ),
    idle(
        &["report", "annotate", "top"],
        "objdump",
        None,
        Required("PATH"),
        "kymo reads code and lines itself",
    ),
    idle(
        &["report", "top"],
        "disassembler-style",
        Some('M'),
        Required("STYLE"),
        "use `kymo annotate` to show code",
    ),
    idle(&["report", "top"], "asm-raw", None, NoValue, "use `kymo annotate` to show code"),
    idle(&["report", "top"], "source", None, NoValue, "use `kymo annotate` to show code"),
    idle(
        &["report", "top"],
        "prefix",
        None,
        Required("PREFIX"),
        "use `kymo annotate` to show code",
    ),
    idle(
        &["report", "top"],
        "prefix-strip",
        None,
        Required("N"),
        "use `kymo annotate` to show code",
    ),
    idle(&["report"], "samples", None, Required("N"), "use `kymo script` to print single samples"),
    idle(&["report"], "percent-type", None, Required("TYPE"), "use `kymo annotate` to show code"),
    idle(
        &["report", "annotate", "diff"],
        "modules",
        Some('m'),
        NoValue,
        "module symbols are always resolved",
    ),
    idle(
        &["record"],
        "affinity",
        None,
        Required("MODE"),
        "one thread writes ring buffers directly, without copies",
    ),
    idle(
        &["record"],
        "aio",
        None,
        Optional("N"),
        "one thread writes ring buffers directly, without copies",
    ),
    idle(
        &["record"],
        "mmap-flush",
        None,
        Required("SIZE"),
        "one thread writes ring buffers directly, without copies",
    ),
    idle(
        &["record"],
        "num-thread-synthesize",
        None,
        Required("N"),
        "one thread writes ring buffers directly, without copies",
    ),
    idle(
        &["record"],
        "threads",
        None,
        Optional("SPEC"),
        "one thread writes ring buffers directly, without copies",
    ),
    idle(
        RECORDING_MACHINE,
        "no-inherit",
        Some('i'),
        NoValue,
        "all tasks of the machine are recorded",
    ),
    idle(
        &["record"],
        "clang-opt",
        None,
        Required("OPTIONS"),
        "`kymo run` and `kymo count` compile BPF programs without clang or vmlinux",
    ),
    idle(
        &["record"],
        "clang-path",
        None,
        Required("PATH"),
        "`kymo run` and `kymo count` compile BPF programs without clang or vmlinux",
    ),
    idle(
        &["record"],
        "vmlinux",
        None,
        Required("FILE"),
        "`kymo run` and `kymo count` compile BPF programs without clang or vmlinux",
    ),
    idle(
        &["record"],
        "debuginfod",
        None,
        Optional("URLS"),
        "debug files are fetched from DEBUGINFOD_URLS when a recording is read",
    ),
    idle(
        &["inject"],
        "vmlinux",
        Some('k'),
        Required("FILE"),
        "kernel code is neither resolved nor decoded",
    ),
    idle(
        &["inject"],
        "kallsyms",
        None,
        Required("FILE"),
        "kernel code is neither resolved nor decoded",
    ),
    idle(
        &["inject"],
        "ignore-vmlinux",
        None,
        NoValue,
        "kernel code is neither resolved nor decoded",
    ),
    idle(
        &["trace"],
        "no-bpf-summary",
        None,
        NoValue,
        "calls are counted in user space, not in BPF maps",
    ),
    idle(
        &["trace"],
        "libtraceevent_print",
        None,
        NoValue,
        "fields are always printed with the kernel's print formats",
    ),
    idle(
        &["report", "annotate"],
        "ignore-vmlinux",
        None,
        NoValue,
        "kernel symbols are those of the recorded kernel unless -k is given",
    ),
    idle(&["top"], "ignore-vmlinux", None, NoValue, "symbols are those of the running kernel"),
    idle(
        &["top"],
        "vmlinux",
        Some('k'),
        Required("FILE"),
        "symbols are those of the running kernel",
    ),
    idle(&["top"], "kallsyms", None, Required("FILE"), "symbols are those of the running kernel"),
    idle(
        &["stat"],
        "metric-no-group",
        None,
        NoValue,
        "events are grouped as in -e, and metrics add no events",
    ),
    idle(
        &["stat"],
        "metric-no-merge",
        None,
        NoValue,
        "events are grouped as in -e, and metrics add no events",
    ),
    idle(
        &["stat"],
        "metric-no-threshold",
        None,
        NoValue,
        "events are grouped as in -e, and metrics add no events",
    ),
];

/// Options that perf takes before the subcommand; they count as if they stood behind it.
struct LeadingOption {
    command: &'static str,
    long: &'static str,
    short: Option<char>,
    value: OptionValue,
}

const fn leading(
    command: &'static str,
    long: &'static str,
    short: Option<char>,
    value: OptionValue,
) -> LeadingOption {
    LeadingOption { command, long, short, value }
}

const LEADING: &[LeadingOption] = &[
    leading("data", "input", Some('i'), Required("FILE")),
    leading("data", "to-json", None, Required("FILE")),
    leading("data", "to-ctf", None, Required("DIR")),
    leading("data", "time", None, Required("START,STOP")),
    leading("data", "all", None, NoValue),
    leading("data", "tod", None, NoValue),
    leading("data", "force", Some('f'), NoValue),
    leading("data", "verbose", Some('v'), NoValue),
    leading("sched", "input", Some('i'), Required("FILE")),
    leading("sched", "dump-raw-trace", Some('D'), NoValue),
    leading("sched", "force", Some('f'), NoValue),
    leading("sched", "verbose", Some('v'), NoValue),
    leading("lock", "input", Some('i'), Required("FILE")),
    leading("lock", "vmlinux", Some('k'), Required("FILE")),
    leading("lock", "kallsyms", None, Required("FILE")),
    leading("lock", "dump-raw-trace", Some('D'), NoValue),
    leading("lock", "output", Some('o'), Required("FILE")),
    leading("lock", "force", Some('f'), NoValue),
    leading("lock", "quiet", Some('q'), NoValue),
    leading("lock", "verbose", Some('v'), NoValue),
    leading("kmem", "input", Some('i'), Required("FILE")),
    leading("kmem", "sort", Some('s'), Required("KEYS")),
    leading("kmem", "line", Some('l'), Required("N")),
    leading("kmem", "time", None, Required("START,STOP")),
    leading("kmem", "alloc", None, NoValue),
    leading("kmem", "caller", None, NoValue),
    leading("kmem", "live", None, NoValue),
    leading("kmem", "page", None, NoValue),
    leading("kmem", "slab", None, NoValue),
    leading("kmem", "raw-ip", None, NoValue),
    leading("kmem", "force", Some('f'), NoValue),
    leading("kmem", "verbose", Some('v'), NoValue),
    leading("kwork", "dump-raw-trace", Some('D'), NoValue),
    leading("kwork", "force", Some('f'), NoValue),
    leading("kwork", "verbose", Some('v'), NoValue),
];

/// Options of a command with subcommands that stay where they stand and have a value.
const STAYING: [&str; 2] = ["-k", "--kwork"];

/// Adds these options to a command, and to those within it.
pub(crate) fn declare(command: Command, path: &str) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let mut command = command;
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |sub| declare(sub, &path));
    }
    let group = path.split_once(' ').map(|(group, _)| format!("{group} *"));
    let is_meant = |one: &&str| *one == path || group.as_deref() == Some(*one);
    for option in IDLE.iter().filter(|option| option.commands.iter().any(&is_meant)) {
        command = add(command, option.long, option.short, option.value, &|| {
            format!("No effect: {}", option.reason)
        });
    }
    command = shared_options::declare(command, &is_meant);
    for option in LEADING.iter().filter(|option| option.command == path) {
        command = add(command, option.long, option.short, option.value, &|| {
            "Same as after the subcommand".to_owned()
        });
    }
    command
}

/// Adds an option unless the command has one of that name; its letter, unless that is taken.
fn add(
    command: Command,
    long: &'static str,
    short: Option<char>,
    value: OptionValue,
    help: &dyn Fn() -> String,
) -> Command {
    let (mut has_long, mut has_short) = (false, false);
    for arg in command.get_arguments() {
        let names = arg.get_long_and_visible_aliases().unwrap_or_default();
        let letters = arg.get_short_and_visible_aliases().unwrap_or_default();
        has_long |= names.contains(&long) || arg.get_id() == long;
        has_short |= short.is_some_and(|letter| letters.contains(&letter));
    }
    if has_long {
        return command;
    }
    let mut arg = Arg::new(long)
        .long(long)
        .help(help())
        .help_heading(help_layout::WITHOUT_EFFECT)
        .hide_short_help(true);
    if let Some(letter) = short.filter(|_| !has_short) {
        arg = arg.short(letter);
    }
    arg = match value {
        NoValue => arg.action(ArgAction::Count),
        Optional(name) => arg
            .action(ArgAction::Append)
            .value_name(name)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(""),
        Required(name) => arg.action(ArgAction::Append).value_name(name),
    };
    command.arg(arg)
}

/// The arguments with options that stand between a command (at `place`) and its subcommand
/// put behind the latter, where the command takes them there.
pub(crate) fn put_behind_subcommand(mut args: Vec<OsString>, place: usize) -> Vec<OsString> {
    let Some(command) = args.get(place).and_then(|name| name.to_str()) else { return args };
    let options: Vec<&LeadingOption> =
        LEADING.iter().filter(|option| option.command == command).collect();
    if options.is_empty() {
        return args;
    }
    let (mut moved, mut stay) = (Vec::new(), Vec::new());
    let mut at = place + 1;
    while let Some(text) = args.get(at).and_then(|arg| arg.to_str()) {
        if !text.starts_with('-') {
            break;
        }
        let taken = match options.iter().find_map(|option| words(option, text)) {
            Some(taken) => taken,
            None if STAYING.contains(&text) => {
                stay.extend(args.get(at..at + 2).unwrap_or_default().iter().cloned());
                at += 2;
                continue;
            }
            None if text.starts_with("-k") || text.starts_with("--kwork=") => {
                stay.extend(args.get(at).cloned());
                at += 1;
                continue;
            }
            None => return args,
        };
        moved.extend(args.get(at..at + taken).unwrap_or_default().iter().cloned());
        at += taken;
    }
    if moved.is_empty() || at >= args.len() {
        return args;
    }
    let behind = args.split_off(at);
    args.truncate(place + 1);
    args.extend(stay);
    let mut behind = behind.into_iter();
    args.extend(behind.next());
    args.extend(moved);
    args.extend(behind);
    args
}

/// Number of words of an option, if `text` is its first one.
fn words(option: &LeadingOption, text: &str) -> Option<usize> {
    let apart = match option.value {
        Required(_) => 2,
        NoValue | Optional(_) => 1,
    };
    if let Some(long) = text.strip_prefix("--") {
        return match long.split_once('=') {
            Some((name, _)) => (name == option.long).then_some(1),
            None => (long == option.long).then_some(apart),
        };
    }
    let mut letters = text.strip_prefix('-')?.chars();
    let is_short = letters.next().is_some_and(|letter| Some(letter) == option.short);
    is_short.then(|| if letters.next().is_some() { 1 } else { apart })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let args = put_behind_subcommand(args, 1);
        args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn options_before_a_subcommand_count_behind_it() {
        assert_eq!(put("perf sched -i x latency -p"), "perf sched latency -i x -p");
        assert_eq!(put("perf kmem --caller -l 3 stat"), "perf kmem stat --caller -l 3");
        assert_eq!(put("perf kmem -l3 --sort=hit stat"), "perf kmem stat -l3 --sort=hit");
        assert_eq!(put("perf kwork -k irq -f report"), "perf kwork -k irq report -f");
        // Nothing is moved that the subcommand would not be given.
        assert_eq!(put("perf sched --unknown latency"), "perf sched --unknown latency");
        assert_eq!(put("perf sched -i latency"), "perf sched -i latency");
        assert_eq!(put("perf report -i x"), "perf report -i x");
    }

    #[test]
    fn options_without_effect_are_valid_and_say_so() {
        let mut line = crate::full_command_line();
        line.build();
        line.clone().debug_assert();
        let of = |path: &str| {
            path.split(' ').fold(&line, |command, name| command.find_subcommand(name).unwrap())
        };
        for option in IDLE {
            for path in option.commands.iter().filter(|path| !path.ends_with('*')) {
                let known = |arg: &&Arg| arg.get_long() == Some(option.long);
                let arg = of(path).get_arguments().find(known);
                let arg = arg.unwrap_or_else(|| panic!("{path} --{}", option.long));
                let help = arg.get_help().unwrap().to_string();
                assert!(help.starts_with("No effect: "), "{path} --{}: {help}", option.long);
            }
        }
    }
}
