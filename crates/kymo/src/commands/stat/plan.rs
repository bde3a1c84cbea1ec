//! From the flags as typed to what is meant.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_kernel::events::{Catalog, EventSpec};
use kymo_kernel::{cpus, target};

use super::Args;
use super::counters::{Cgroup, Wanted};
use super::events::EventArg;
use super::print::Form;
use super::rows::Aggregate;

/// Whom to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The command and its children.
    Command,
    /// Processes with all their threads.
    Processes(Vec<u32>),
    /// Threads.
    Threads(Vec<u32>),
    /// Every thread there is, each by itself.
    AllThreads,
    /// CPUs.
    Machine,
}

/// Where the result goes.
#[derive(Clone, Debug)]
pub(super) enum Output {
    Stderr,
    File { path: PathBuf, append: bool },
    Descriptor(u32),
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) wanted: Vec<Wanted>,
    /// Whether the events are perf's default set, not the user's.
    pub(super) default_events: bool,
    /// -a was given beside -p or -t, which say otherwise.
    pub(super) all_overridden: bool,
    pub(super) target: Target,
    /// Chosen, or all that are online when the target is the machine.
    pub(super) cpus: Option<Vec<u32>>,
    /// What stands between the quotes of "Performance counter stats for".
    pub(super) title: String,
    pub(super) by: Aggregate,
    pub(super) form: Form,
    pub(super) output: Output,
    pub(super) inherit: bool,
    pub(super) scale: bool,
    /// 0 is for ever.
    pub(super) runs: u32,
    pub(super) interval: Option<Duration>,
    pub(super) interval_count: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) delay: Delay,
    pub(super) summary: bool,
    pub(super) csv_summary: bool,
    pub(super) metric_only: bool,
    pub(super) table: bool,
    pub(super) quiet: bool,
    pub(super) sync: bool,
    pub(super) verbose: bool,
    pub(super) strict: bool,
    pub(super) command: Vec<OsString>,
}

/// When counting begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delay {
    None,
    For(Duration),
    Never,
}

impl Plan {
    pub(super) fn new(args: Args) -> anyhow::Result<Plan> {
        let (target, title) = target_of(&args)?;
        let by = aggregate(&args)?;
        let cpus = match (&args.cpu, &target) {
            (Some(list), _) => Some(chosen_cpus(list)?),
            (None, Target::Machine) => Some(cpus::online()),
            _ => None,
        };
        let machine = target == Target::Machine;
        if (by.is_place() || by == Aggregate::Cpu) && !machine {
            bail!("-A, --per-core, --per-die, --per-socket and --per-node need -a or -C");
        }
        let cgroups = args.cgroup.is_some() || args.for_each_cgroup.is_some();
        if cgroups && !machine {
            bail!("cgroups are counted on all CPUs: add -a");
        }
        let runs = args.repeat.unwrap_or(1);
        if runs != 1 && args.command.is_empty() {
            bail!("-r repeats a command, and none was given");
        }
        let specs = if args.null { Vec::new() } else { specs(&args, machine)? };
        let form = match (&args.field_separator, args.json_output) {
            (Some(sep), _) => Form::Csv(if sep == "\\t" { "\t".into() } else { sep.clone() }),
            (None, true) => Form::Json,
            (None, false) => Form::Text { thousands: !args.no_big_num && locale_has_thousands() },
        };
        Ok(Plan {
            default_events: args.events.list.is_empty(),
            all_overridden: args.all_cpus && (args.pid.is_some() || args.tid.is_some()),
            wanted: in_cgroups(specs, &args)?,
            target,
            cpus,
            title,
            by,
            form,
            output: match (args.output, args.log_fd) {
                (Some(path), _) => Output::File { path, append: args.append },
                (None, Some(fd)) => Output::Descriptor(fd),
                (None, None) => Output::Stderr,
            },
            inherit: !args.no_inherit && by != Aggregate::Thread,
            scale: args.scale || !args.no_scale,
            runs,
            interval: args.interval_print.map(Duration::from_millis),
            interval_count: args.interval_count,
            timeout: args.timeout.map(Duration::from_millis),
            delay: match args.delay {
                None | Some(0) => Delay::None,
                Some(ms) => u64::try_from(ms)
                    .map_or(Delay::Never, |ms| Delay::For(Duration::from_millis(ms))),
            },
            summary: args.summary,
            csv_summary: !args.no_csv_summary,
            metric_only: args.metric_only,
            table: args.table,
            quiet: args.quiet,
            sync: args.sync,
            verbose: args.verbose > 0,
            strict: args.strict,
            command: args.command,
        })
    }
}

fn target_of(args: &Args) -> anyhow::Result<(Target, String)> {
    Ok(if let Some(list) = &args.pid {
        (Target::Processes(target::parse_ids(list)?), format!("process id '{list}'"))
    } else if let Some(list) = &args.tid {
        (Target::Threads(target::parse_ids(list)?), format!("thread id '{list}'"))
    } else if args.per_thread {
        if !args.command.is_empty() && !args.all_cpus {
            bail!("--per-thread needs -p, -t or -a, or no command");
        }
        (Target::AllThreads, "'system wide'".into())
    } else if let Some(list) = &args.cpu {
        (Target::Machine, format!("'CPU(s) {list}'"))
    } else if args.all_cpus || args.command.is_empty() {
        (Target::Machine, "'system wide'".into())
    } else {
        let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
        (Target::Command, format!("'{}'", words.join(" ")))
    })
}

fn aggregate(args: &Args) -> anyhow::Result<Aggregate> {
    let chosen: Vec<Aggregate> = [
        (args.no_aggr, Aggregate::Cpu),
        (args.per_core, Aggregate::Core),
        (args.per_die, Aggregate::Die),
        (args.per_socket, Aggregate::Socket),
        (args.per_node, Aggregate::Node),
        (args.per_thread, Aggregate::Thread),
    ]
    .into_iter()
    .filter_map(|(on, by)| on.then_some(by))
    .collect();
    match chosen.as_slice() {
        [] => Ok(Aggregate::Global),
        [one] => Ok(*one),
        _ => bail!(
            "give one of -A, --per-core, --per-die, --per-socket, --per-node and --per-thread"
        ),
    }
}

fn chosen_cpus(list: &str) -> anyhow::Result<Vec<u32>> {
    let chosen = cpus::parse_list(list)?;
    let online = cpus::online();
    if let Some(off) = chosen.iter().find(|c| !online.contains(c)) {
        bail!("CPU {off} is not online");
    }
    if chosen.is_empty() {
        bail!("-C names no CPU");
    }
    Ok(chosen)
}

fn specs(args: &Args, machine: bool) -> anyhow::Result<Vec<EventSpec>> {
    if let Some(filter) = &args.events.orphan {
        bail!("--filter {filter:?} needs an -e with a tracepoint before it");
    }
    let catalog = Catalog::open();
    if !args.events.list.is_empty() {
        let mut specs = Vec::new();
        for EventArg { events, filters } in &args.events.list {
            let mut new = catalog.parse(events)?;
            set_filters(&mut new, events, filters)?;
            specs.append(&mut new);
        }
        return Ok(specs);
    }
    // perf's own choice, in its order.
    let mut names = vec![
        if machine { "cpu-clock" } else { "task-clock" },
        "context-switches",
        "cpu-migrations",
        "page-faults",
        "cycles",
    ];
    let stalled = ["stalled-cycles-frontend", "stalled-cycles-backend"];
    let pmu = Path::new("/sys/bus/event_source/devices/cpu/events");
    names.extend(stalled.iter().filter(|name| pmu.join(name).exists()));
    names.extend(["instructions", "branches", "branch-misses"]);
    let detail: [&[&str]; 3] = [
        &["L1-dcache-loads", "L1-dcache-load-misses", "LLC-loads", "LLC-load-misses"],
        &[
            "L1-icache-loads",
            "L1-icache-load-misses",
            "dTLB-loads",
            "dTLB-load-misses",
            "iTLB-loads",
            "iTLB-load-misses",
        ],
        &["L1-dcache-prefetches", "L1-dcache-prefetch-misses"],
    ];
    names.extend(detail.iter().take(args.detailed.into()).copied().flatten());
    Ok(catalog.parse(&names.join(","))?)
}

fn set_filters(specs: &mut [EventSpec], events: &str, filters: &[String]) -> anyhow::Result<()> {
    let joined = match filters {
        [] => return Ok(()),
        [one] => one.clone(),
        several => several.iter().map(|f| format!("({f})")).collect::<Vec<_>>().join(" && "),
    };
    if let Some(other) = specs.iter().find(|s| !s.is_tracepoint()) {
        bail!("--filter {joined:?} after -e {events}: {} is not a tracepoint", other.name);
    }
    specs.iter_mut().for_each(|s| s.filter = Some(joined.clone()));
    Ok(())
}

fn in_cgroups(specs: Vec<EventSpec>, args: &Args) -> anyhow::Result<Vec<Wanted>> {
    let plain = |spec| Wanted { spec, cgroup: None };
    if let Some(names) = &args.for_each_cgroup {
        let mut all = Vec::new();
        for (round, name) in (0u32..).zip(names.split(',').filter(|n| !n.is_empty())) {
            let cgroup = open_cgroup(name)?;
            all.extend(specs.iter().cloned().map(|mut spec| {
                // Groups of different cgroups are different groups.
                spec.group = spec.group.map(|g| g.wrapping_add(round.wrapping_mul(1 << 16)));
                Wanted { spec, cgroup: Some(cgroup.clone()) }
            }));
        }
        return Ok(all);
    }
    let Some(names) = &args.cgroup else {
        return Ok(specs.into_iter().map(plain).collect());
    };
    let names: Vec<&str> = names.split(',').collect();
    let cgroups: Vec<Option<Rc<Cgroup>>> = names
        .iter()
        .map(|name| if name.is_empty() { Ok(None) } else { open_cgroup(name).map(Some) })
        .collect::<anyhow::Result<_>>()?;
    if cgroups.len() > specs.len() {
        bail!("-G names {} cgroups for {} events", cgroups.len(), specs.len());
    }
    Ok(specs
        .into_iter()
        .enumerate()
        .map(|(i, spec)| {
            let at = if cgroups.len() == 1 { 0 } else { i };
            Wanted { spec, cgroup: cgroups.get(at).cloned().flatten() }
        })
        .collect())
}

fn open_cgroup(name: &str) -> anyhow::Result<Rc<Cgroup>> {
    let path = target::cgroup_dir(name)?;
    let dir = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Rc::new(Cgroup { name: name.to_owned(), dir }))
}

/// Whether the user's locale separates thousands; C and POSIX do not.
fn locale_has_thousands() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    set("LC_ALL")
        .or_else(|| set("LC_NUMERIC"))
        .or_else(|| set("LANG"))
        .is_some_and(|l| !l.starts_with("C.") && l != "C" && l != "POSIX")
}
