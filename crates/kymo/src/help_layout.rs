//! Layout of the help: the main options of a command first, by use, and all others below
//! headings. `-h` shows the main ones, `--help` shows all.

use clap::{Arg, Command};

/// Order of the options that every command has: after its own.
pub(crate) const LAST: usize = 900;
/// Heading of the options that are accepted for scripts that were written for perf.
pub(crate) const WITHOUT_EFFECT: &str = "Accepted for perf's scripts";
/// Heading of the options that no other heading describes.
const FURTHER: &str = "Further options";

/// Columns of the list of commands.
const NAMES_WIDTH: usize = 78;

/// Columns that lines of notes in the source fill at least, if the next line continues them.
const SOURCE_WIDTH: usize = 76;

/// Main options of the commands that have many, most used first.
const MAIN: &[(&str, &str)] = &[
    (
        "annotate",
        "input symbol top event comms dsos pid tid cpu time percent-limit source no-source \
         print-line full-paths stdio percent-type disassembler-style bundle",
    ),
    (
        "convert",
        "format input output event comms dsos weight split tid cpu time no-inline \
         percent-limit diff bundle",
    ),
    (
        "count",
        "event filter by hist lhist sum avg min max latency pid top interval timeout stats \
         user-event json",
    ),
    (
        "diff",
        "run runs until before after of gate per stat sort graph view report json csv save \
         against exact-names accept-sequential",
    ),
    ("kmem pagealloc", "input pid comm cpu time sort limit columns max-stack all-cpus json csv"),
    (
        "kmem stat",
        "input slab page caller alloc live pid comm cpu time sort limit columns raw-ip \
         all-cpus json csv",
    ),
    (
        "lock contention",
        "input live pid comm cpu time futex pairs threads lock-addr key entries type-filter \
         lock-filter callstack-filter max-stack all-cpus json csv columns",
    ),
    (
        "offcpu report",
        "input live pid tid comm cpu time tasks inverted pairs sort limit percent-limit \
         columns all-cpus json csv",
    ),
    (
        "probe",
        "add del list vars funcs line exec module definition filter dry-run no-inlines source \
         preflight force",
    ),
    (
        "profile",
        "pid all-cpus time view cpu-only freq call-graph top comm cpu tid cgroup timeout \
         output json strict",
    ),
    (
        "record",
        "event call-graph freq count all-cpus pid tid cpu cgroup output filter probe bundle \
         delay timeout max-size switch-output overwrite compression-level no-inherit uid \
         force",
    ),
    (
        "report",
        "input call-graph children no-children sort fields event comms dsos symbols \
         percent-limit time pid tid cpu hierarchy tasks stats no-inline header bundle json \
         field-separator",
    ),
    ("run", "cmd pid list mode output include dry-run unsafe budget show-program info no-warnings"),
    (
        "sched latency",
        "input live pid tid comm cpu time sort limit causes histogram pids columns all-cpus \
         json csv",
    ),
    (
        "sched timehist",
        "input live pid tid comm cpu time summary with-summary wakeups next state migrations \
         no-call-graph max-stack all-cpus json",
    ),
    (
        "script",
        "input fields event filter comm pid tid cpu time symbols dsos max-stack \
         hide-call-graph no-inline reltime deltatime ns header per-event-dump bundle json",
    ),
    (
        "stat",
        "event pid tid all-cpus cpu cgroup repeat interval-print metrics detailed per-thread \
         per-core no-aggr no-inherit filter probe delay timeout json-output field-separator \
         output",
    ),
    (
        "syscalls report",
        "input live pid tid comm cpu time calls failed slowest errno-summary summary-mode \
         histogram sort limit columns all-cpus json csv",
    ),
    (
        "top",
        "pid tid all-cpus cpu event freq call-graph off-cpu window comms dsos symbols sort \
         tasks children no-children percent-limit delay stdio",
    ),
    (
        "trace",
        "pid calls duration failure summary with-summary times event filter probe user-event \
         output input all-cpus stacks call-graph tracer function string-limit count json",
    ),
    ("view", "input output title diff time select path-of port bundle force"),
    ("why", "input span pid tid comm slowest parts time cpu live all-cpus view json"),
];

/// Headings of the other options, by name.
const HEADINGS: &[(&str, &str)] = &[
    (
        "Selection",
        "all-cgroups all-cpus addr-range caller cgroup comm comms cpu dsos event \
         exclude-other exclude-perf filter filter-pids for-each-cgroup hide-unresolved \
         hide_kernel_symbols hide_user_symbols level no-inherit parallelism per-thread \
         percent-limit pid prio show-on-off-events socket-filter state stop-bt switch-off \
         switch-on symbol-filter symbols tid time uid",
    ),
    (
        "Events",
        "all-kernel all-user count exec freq group intr-regs latency min-stack no-syscalls \
         period pf probe strict-freq switch-events user-event user-regs weight",
    ),
    (
        "Stacks",
        "branch-any branch-filter call-graph children convert-callchain hide-call-graph \
         ignore-callees inverted kernel-callchains kernel-syscall-graph max-stack \
         merge-callchains no-call-graph no-children no-merge-callchains parent \
         show-ref-call-graph stack-skip unwind-style user-callchains",
    ),
    (
        "Symbols and source",
        "addr2line addr2line-style asm-raw bundle debuginfod demangle demangle-kernel \
         disassembler-style full-paths full-source-path ignore-vmlinux inline kallsyms \
         modules no-bundle no-debuginfod no-demangle no-inline no-source objdump prefix \
         prefix-strip print-line raw-ip source symfs vmlinux",
    ),
    (
        "Output",
        "big-num column-widths columns csv disable-order dump-raw-trace entries field \
         field-separator fields header header-only hierarchy histogram json json-output limit \
         log-fd no-big-num ns output percent-type percentage pretty quiet show-cpu show-info \
         show-nr-samples show-prio show-total-period sort stdio stdio-color stdio2 strict \
         title verbose",
    ),
    (
        "Recording and buffers",
        "affinity aio buffer-size clock clockid compression compression-level control delay \
         force max-size mmap-flush mmap-pages no-buffering num-thread-synthesize overwrite \
         proc-map-timeout realtime switch-max-files switch-output switch-output-event \
         tail-synthesize timeout timestamp-boundary timestamp-filename",
    ),
];

/// Index of an option in a list of names.
fn position(names: &str, long: &str) -> Option<usize> {
    names.split(' ').position(|name| name == long)
}

/// Options that `-h` leaves out of commands whose main options are not listed.
fn is_rare(long: &str) -> bool {
    let is_below = |heading: &str| {
        HEADINGS.iter().any(|(name, longs)| *name == heading && position(longs, long).is_some())
    };
    is_below("Symbols and source")
        || is_below("Recording and buffers") && !matches!(long, "timeout" | "delay")
        || matches!(long, "dump-raw-trace" | "ns" | "quiet" | "strict" | "verbose")
}

/// Puts the options of a command and of its subcommands below their headings.
pub(crate) fn arrange(mut command: Command, path: &str) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |sub| arrange(sub, &path));
    }
    command = shorten_notes(command);
    let main = MAIN.iter().find(|(of, _)| *of == path).map(|(_, main)| *main);
    command.mut_args(|arg| place(arg, main))
}

/// Lists the commands by name alone, which fits one screen below the questions.
pub(crate) fn list_names(command: Command) -> Command {
    let mut lines = vec![String::from(" ")];
    for sub in command.get_subcommands() {
        if lines.last().is_some_and(|line| line.len() + 1 + sub.get_name().len() > NAMES_WIDTH) {
            lines.push(String::from(" "));
        }
        if let Some(line) = lines.last_mut() {
            line.extend([" ", sub.get_name()]);
        }
    }
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n\
         Commands (described by `kymo --help`, each by `kymo COMMAND -h`):\n{}\n\n\
         Options:\n{{options}}",
        lines.join("\n")
    ))
}

/// Joins the lines of paragraphs in the notes after the options, for the width of the reader, and
/// keeps only the examples in `-h`.
fn shorten_notes(command: Command) -> Command {
    let notes = command.get_after_help().map(ToString::to_string);
    let long = command.get_after_long_help().map(ToString::to_string).or_else(|| notes.clone());
    let Some(long) = long else { return command };
    let command = command.after_long_help(join_paragraphs(&long));
    let Some(notes) = notes else { return command };
    let is_heading = |line: &str| matches!(line, "EXAMPLES" | "Examples:");
    let examples: Vec<&str> = notes.lines().skip_while(|line| !is_heading(line)).collect();
    command.after_help(examples.join("\n"))
}

/// Joins lines of prose: a line continues the previous one if that is full and neither is indented.
fn join_paragraphs(notes: &str) -> String {
    let mut out = String::with_capacity(notes.len());
    let mut last: Option<&str> = None;
    for line in notes.lines() {
        let word = line.split(' ').next().unwrap_or_default();
        let continues = |last: &str| {
            // A gap separates columns of a table.
            let is_prose =
                |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.contains("   ");
            let width = last.chars().count() + 1 + word.chars().count();
            is_prose(last) && is_prose(line) && width > SOURCE_WIDTH
        };
        if let Some(last) = last {
            out.push(if continues(last) { ' ' } else { '\n' });
        }
        out.push_str(line);
        last = Some(line);
    }
    out
}

/// Gives an option its heading and its order.
fn place(arg: Arg, main: Option<&str>) -> Arg {
    let Some(long) = arg.get_long().filter(|_| arg.get_help_heading().is_none()) else {
        return arg;
    };
    let order = match main {
        Some(main) => position(main, long),
        None => (!is_rare(long)).then_some(0),
    };
    match order {
        Some(order) if main.is_some() => arg.display_order(order),
        Some(_) => arg,
        None => {
            let heading = HEADINGS.iter().find(|(_, longs)| position(longs, long).is_some());
            arg.help_heading(heading.map_or(FURTHER, |(name, _)| *name)).hide_short_help(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADINGS, MAIN, join_paragraphs, position};

    #[test]
    fn lines_of_a_paragraph_become_one() {
        let full = "a ".repeat(39) + "b";
        let notes =
            format!("WORDS\n{full}\nlast.\n\n  item   {full}\n         more\n{full}\n  item");
        let joined =
            format!("WORDS\n{full} last.\n\n  item   {full}\n         more\n{full}\n  item");
        assert_eq!(join_paragraphs(&notes), joined);
    }

    /// A name that no command has would say nothing.
    #[test]
    fn lists_name_options_of_their_commands() {
        let line = crate::full_command_line();
        let mut wrong = Vec::new();
        for (path, names) in MAIN {
            let command = path.split(' ').fold(&line, |command, name| {
                command.find_subcommand(name).unwrap_or_else(|| panic!("no command {path}"))
            });
            for name in names.split(' ') {
                let mut longs = command.get_arguments().filter_map(clap::Arg::get_long);
                if !longs.any(|long| long == name) {
                    wrong.push(format!("{path} has no --{name}"));
                }
            }
        }
        for (heading, names) in HEADINGS {
            for name in names.split(' ') {
                let mut others = HEADINGS.iter().filter(|(other, _)| other != heading);
                if others.any(|(_, longs)| position(longs, name).is_some()) {
                    wrong.push(format!("--{name} is below two headings"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
