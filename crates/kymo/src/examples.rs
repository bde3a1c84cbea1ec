//! Examples at the end of the help of commands whose own help has none.

use clap::Command;

/// Command, and what is typed, with what it is for where that is not plain.
const EXAMPLES: [(&str, &str); 25] = [
    (
        "test",
        "  kymo test                              check the requirements of recording
  kymo record -g -- kymo test -w leafloop  a workload with known functions",
    ),
    ("check", "  kymo check feature libelf,zstd         exit status 0 if kymo has both"),
    (
        "timechart",
        "  kymo timechart record -- make -j4
  kymo timechart                         perf.data as output.svg",
    ),
    (
        "list",
        "  kymo list 'sched:*'                    events of a group
  kymo list -v sched:sched_switch        its fields
  kymo list perf.data                    the events of a recording",
    ),
    (
        "stat",
        "  kymo stat -- make -j4
  kymo stat -e page-faults,context-switches -I 1000 -p 1234
  kymo stat -r 10 -x , -- ./program      ten runs, for a script",
    ),
    (
        "record",
        "  kymo record -g -- ./program
  kymo record --call-graph dwarf -- ./program    complete stacks without frame pointers
  kymo record -F 99 -a -- sleep 10               system-wide, for ten seconds
  kymo record -e sched:sched_switch -p 1234
  kymo record -g --bundle -- ./program           with a bundle for other machines",
    ),
    (
        "report",
        "  kymo report
  kymo report -g --children --percent-limit 1
  kymo report -s comm,dso,sym --comm nginx
  kymo report -i trace.dat               events of a trace.dat, counted",
    ),
    (
        "data",
        "  kymo data convert --to-json samples.json
  kymo data convert --to-ctf trace -i perf.data     for babeltrace2 and Trace Compass",
    ),
    (
        "script",
        "  kymo script
  kymo script -F comm,tid,time,event,ip,sym
  kymo script -i trace.dat --comm nginx --time 10%-20%
  kymo script --json | jq 'select(.comm == \"nginx\")'",
    ),
    (
        "trace",
        "  kymo trace -- ls                       system calls of a command
  kymo trace --calls openat,connect -p 1234
  kymo trace -s -- make                  a table of system calls
  kymo trace -i perf.data --failure      failed calls of a recording
  kymo trace -e sched:sched_switch --filter 'prev_prio < 100'
  kymo trace -e 'block:*' -o x.dat -- ./program",
    ),
    (
        "event",
        "  kymo event list 'block:*'
  kymo event enable sched:sched_switch
  kymo event disable '*:*'",
    ),
    (
        "session",
        "  kymo session create box -e sched:sched_switch -e irq
  kymo session start box
  kymo session snapshot box -o last.dat  the last seconds
  kymo session destroy box",
    ),
    (
        "probe",
        "  kymo probe 'vfs_read count'            a kernel function and its argument
  kymo probe -x ./prog 'parse:12 len'    a source line of a program
  kymo probe -x ./prog --funcs           functions that can be probed
  kymo probe --list
  kymo probe --del '*'",
    ),
    ("listen", "  kymo listen --dir traces --bind 192.0.2.1:7411 --secret-file secret"),
    (
        "bundle",
        "  kymo bundle
  kymo bundle perf.data -o perf.data.bundle.tar",
    ),
    (
        "cache",
        "  kymo cache list
  kymo cache clear",
    ),
    (
        "evlist",
        "  kymo evlist
  kymo evlist -v -i perf.data",
    ),
    (
        "config",
        "  kymo config --list
  kymo config report.children=false",
    ),
    (
        "buildid-cache",
        "  kymo buildid-cache --add ./program
  kymo buildid-cache --list",
    ),
    (
        "buildid-list",
        "  kymo buildid-list -i perf.data
  kymo buildid-list --kernel",
    ),
    ("kallsyms", "  kymo kallsyms vfs_read"),
    ("manual", "  kymo manual record | man -l -"),
    ("version", "  kymo version"),
    (
        "annotate",
        "  kymo annotate                          the hottest functions
  kymo annotate -i perf.data parse_line",
    ),
    (
        "convert",
        "  kymo convert --to flamegraph -o profile.svg
  kymo convert --to pprof -o profile.pb.gz
  kymo convert --to folded -i perf.data",
    ),
];

/// Adds a command's examples.
pub(crate) fn append(command: Command, name: &str) -> Command {
    let Some((_, text)) = EXAMPLES.iter().find(|(of, _)| *of == name) else { return command };
    let own = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    match own {
        Some(own) if own.contains("EXAMPLES") || own.contains("Examples:") => command,
        Some(own) => command.after_long_help(format!("{own}\n\nEXAMPLES\n{text}")),
        None => command.after_long_help(format!("EXAMPLES\n{text}")),
    }
}
