//! From the flags as typed to what is meant.

use std::time::Duration;

use anyhow::{anyhow, bail};
use kymo_kernel::cpus::ChoiceError;
use kymo_kernel::events::{Catalog, EventSpec};
use kymo_kernel::{cpus, target};
use kymo_model::{Aggregation, AttrFlags};
use kymo_record::count::{CountOptions, CountTarget, CountedEvent, StartDelay, default_events};
use kymo_view::counts::{CountFormat, CountStyle, MetricWords};

use super::Args;
use super::metrics::events_of;
use super::output::OutputTarget;
use crate::called_name::CalledName;

/// Returns the options of the count.
pub(super) fn count_options(args: &Args) -> anyhow::Result<CountOptions> {
    let target = count_target(args)?;
    let by = aggregation(args)?;
    let machine = target == CountTarget::Machine;
    if (by.is_topology() || by == Aggregation::Cpu) && !machine {
        bail!(
            "-A, --per-core, --per-cluster, --per-cache, --per-die, --per-socket and --per-node \
             need -a or -C"
        );
    }
    if let Aggregation::Cache(level) = by
        && let Some(cpu) = cpus::online().iter().find(|cpu| cpus::cache(**cpu, level).is_none())
    {
        let level = if level == 0 { String::new() } else { format!(" of level {level}") };
        bail!("--per-cache: the kernel reports no cache{level} of CPU {cpu}");
    }
    if (args.cgroup.is_some() || args.for_each_cgroup.is_some()) && !machine {
        bail!("cgroups are counted on all CPUs: add -a");
    }
    let runs = args.repeat.unwrap_or(1);
    if runs != 1 && args.command.is_empty() {
        bail!("-r repeats a command, and none was given");
    }
    let cpus = match &args.cpu {
        Some(list) => Some(chosen_cpus(list)?),
        None => machine.then(cpus::online),
    };
    Ok(CountOptions {
        events: counted_events(args, machine)?,
        default_events: args.events.is_empty() && args.metrics.is_empty(),
        target,
        command: args.command.clone(),
        pinned: Vec::new(),
        cpus,
        by,
        inherit: !args.no_inherit && by != Aggregation::Thread,
        scale: args.scale || !args.no_scale,
        runs,
        interval: args.interval_print.map(Duration::from_millis),
        interval_count: args.interval_count,
        summary: args.summary,
        timeout: args.timeout.map(Duration::from_millis),
        delay: start_delay(args.delay),
        control: args.control.clone(),
        sync: args.sync,
        file: None,
    })
}

/// Returns the format of the output.
pub(super) fn count_style(args: &Args, by: Aggregation) -> CountStyle {
    let separator = args.field_separator.as_deref();
    let format = count_format(separator, args.json_output, args.no_big_num);
    CountStyle {
        format,
        by,
        metrics: metric_words(args),
        metric_only: args.metric_only,
        intervals: args.interval_print.is_some(),
        csv_summary: !args.no_csv_summary,
    }
}

/// Text next to derived numbers. perf 7 derives those of its default events and of `-M`.
fn metric_words(args: &Args) -> MetricWords {
    match CalledName::get() {
        CalledName::Perf if !args.metrics.is_empty() => {
            MetricWords::Name(Some(args.metrics.clone()))
        }
        CalledName::Perf if args.events.is_empty() => MetricWords::Name(None),
        CalledName::Perf => MetricWords::Name(Some(Vec::new())),
        _ => MetricWords::Unit,
    }
}

/// The form of the output.
pub(super) fn count_format(separator: Option<&str>, json: bool, no_big_num: bool) -> CountFormat {
    match separator {
        Some("\\t") => CountFormat::Csv("\t".into()),
        Some(separator) => CountFormat::Csv(separator.to_owned()),
        None if json => CountFormat::Json,
        None => CountFormat::Text { thousands: !no_big_num && locale_has_thousands() },
    }
}

/// Returns the target of the output.
pub(super) fn output_target(args: &Args) -> OutputTarget {
    match (&args.output, args.log_fd) {
        // As perf takes it.
        (Some(path), _) if path.as_os_str() == "-" => OutputTarget::Stderr,
        (Some(path), _) => OutputTarget::File { path: path.clone(), append: args.append },
        (None, Some(fd)) => OutputTarget::Descriptor(fd),
        (None, None) => OutputTarget::Stderr,
    }
}

fn count_target(args: &Args) -> anyhow::Result<CountTarget> {
    if let Some(list) = &args.pid {
        return Ok(CountTarget::Processes(target::parse_ids(list)?));
    }
    if let Some(list) = &args.tid {
        return Ok(CountTarget::Threads(target::parse_ids(list)?));
    }
    if args.per_thread {
        if !args.command.is_empty() && !args.all_cpus {
            bail!("--per-thread needs -p, -t or -a, or no command");
        }
        return Ok(CountTarget::AllThreads);
    }
    let machine = args.cpu.is_some() || args.all_cpus || args.command.is_empty();
    Ok(if machine { CountTarget::Machine } else { CountTarget::Command })
}

/// Target as named after "Performance counter stats for".
pub(super) fn title(args: &Args) -> String {
    if let Some(list) = &args.pid {
        return format!("process id '{list}'");
    }
    if let Some(list) = &args.tid {
        return format!("thread id '{list}'");
    }
    match &args.cpu {
        Some(list) if !args.per_thread => format!("'CPU(s) {list}'"),
        _ if args.per_thread || args.all_cpus || args.command.is_empty() => "'system wide'".into(),
        _ => {
            let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
            format!("'{}'", words.join(" "))
        }
    }
}

fn aggregation(args: &Args) -> anyhow::Result<Aggregation> {
    let chosen = only_aggregation(&[
        (args.no_aggr, Aggregation::Cpu),
        (args.per_core, Aggregation::Core),
        (args.per_cluster, Aggregation::Cluster),
        (args.per_cache.is_some(), Aggregation::Cache(args.per_cache.unwrap_or(0))),
        (args.per_die, Aggregation::Die),
        (args.per_socket, Aggregation::Socket),
        (args.per_node, Aggregation::Node),
        (args.per_thread, Aggregation::Thread),
    ]);
    Ok(chosen?.unwrap_or_default())
}

/// The one that was asked for.
pub(super) fn only_aggregation(
    flags: &[(bool, Aggregation)],
) -> anyhow::Result<Option<Aggregation>> {
    let chosen: Vec<Aggregation> = flags.iter().filter_map(|(on, by)| on.then_some(*by)).collect();
    match chosen[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => bail!(
            "give one of -A, --per-core, --per-cluster, --per-cache, --per-die, --per-socket, \
             --per-node and --per-thread"
        ),
    }
}

/// `L1` to `L4`; nothing for the last level, as 0.
pub(super) fn cache_level(text: &str) -> Result<u8, String> {
    match text.strip_prefix(['L', 'l']).map(str::parse) {
        None if text.is_empty() => Ok(0),
        Some(Ok(level @ 1..=4)) => Ok(level),
        _ => Err("levels of caches are L1 to L4".into()),
    }
}

fn chosen_cpus(list: &str) -> anyhow::Result<Vec<u32>> {
    cpus::parse_online(list).map_err(|error| match error {
        // What scripts look for in perf's answer.
        ChoiceError::Offline(_) if CalledName::get() == CalledName::Perf => {
            anyhow!("{error}\nError:\nNo supported events found.")
        }
        ChoiceError::Empty => anyhow!("-C names no CPU"),
        error => error.into(),
    })
}

fn start_delay(millis: Option<i64>) -> StartDelay {
    match millis {
        None | Some(0) => StartDelay::None,
        Some(ms) => match u64::try_from(ms) {
            Ok(ms) => StartDelay::For(Duration::from_millis(ms)),
            Err(_) => StartDelay::Never,
        },
    }
}

fn counted_events(args: &Args, machine: bool) -> anyhow::Result<Vec<CountedEvent>> {
    let specs = specs(args, machine)?;
    if let Some(names) = &args.for_each_cgroup {
        let names: Vec<&str> = names.split(',').collect();
        return Ok(CountedEvent::in_each_cgroup(&specs, &names)?);
    }
    let Some(names) = &args.cgroup else {
        return Ok(specs.into_iter().map(CountedEvent::from).collect());
    };
    let names: Vec<&str> = names.split(',').collect();
    if names.len() > specs.len() {
        bail!("-G names {} cgroups for {} events", names.len(), specs.len());
    }
    Ok(CountedEvent::in_cgroups(specs, &names)?)
}

fn specs(args: &Args, machine: bool) -> anyhow::Result<Vec<EventSpec>> {
    if args.null {
        return Ok(Vec::new());
    }
    let catalog = Catalog::open();
    let mut of_metrics = Vec::new();
    for event in events_of(&args.metrics, machine)? {
        of_metrics.extend(catalog.parse(event)?);
    }
    if args.events.is_empty() && of_metrics.is_empty() {
        let mut specs = default_events(machine, args.detailed)?;
        leave_out(args, &mut specs);
        return Ok(specs);
    }
    let mut specs =
        if args.events.is_empty() { Vec::new() } else { args.events.specs(&catalog)? };
    of_metrics.retain(|event| specs.iter().all(|spec| spec.name != event.name));
    specs.append(&mut of_metrics);
    if args.group {
        specs.iter_mut().for_each(|spec| spec.group = Some(0));
    }
    leave_out(args, &mut specs);
    Ok(specs)
}

/// Leaves out the side that is not wanted.
fn leave_out(args: &Args, specs: &mut [EventSpec]) {
    let sides =
        [(args.all_user, AttrFlags::EXCLUDE_KERNEL), (args.all_kernel, AttrFlags::EXCLUDE_USER)];
    for (_, left_out) in sides.iter().filter(|(is_given, _)| *is_given) {
        specs.iter_mut().for_each(|spec| spec.attr.flags |= *left_out);
    }
}

/// Whether the user's locale separates thousands; C and POSIX do not.
fn locale_has_thousands() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    set("LC_ALL")
        .or_else(|| set("LC_NUMERIC"))
        .or_else(|| set("LANG"))
        .is_some_and(|l| !l.starts_with("C.") && l != "C" && l != "POSIX")
}
