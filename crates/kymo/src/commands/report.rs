//! `kymo report`: where the samples of a recording come from.

mod events;

use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use kymo_analysis::event_groups::{EventGrouping, event_groups};
use kymo_analysis::histogram::Key;
use kymo_analysis::payload_labels::{PayloadLabels, TimeSpans};
use kymo_analysis::profile::{
    EventProfile, LoadOptions, Profile, SampleLabels, StackLimit, has_chains,
};
use kymo_analysis::record_overview::RecordOverview;
use kymo_analysis::report_config::{ReportConfig, ReportConfigError, ReportRequest};
use kymo_events::{EventSelection, RecordedExtent, notes_on_perf_data};
use kymo_files::RecordingFormat;
use kymo_files::perfdata::read::FeatureSection;
use kymo_files::perfdata::{EventDesc, Feature, PerfData};
use kymo_model::{AttrFlags, NoteKind};
use kymo_view::record_overview::{write_statistics, write_tasks};
use kymo_view::recording_header::write_header;
use kymo_view::report::{ReportWriter, write_json};
use kymo_view::trust::profile_ledger;
use kymo_view::{Ledger, container_of};

use super::{captured_on, open_description};
use crate::args::events::EventSelectionArgs;
use crate::args::switch::SwitchArgs;
use crate::args::symbols::SymbolArgs;
use crate::args::values::span_of_time;
use crate::called_name::CalledName;
use crate::exit;

/// Flags of `kymo report`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Recording to read
    ///
    /// A perf.data, a trace.dat, or a directory of CTF traces or of a session; `-`: standard input.
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Recordings to read; several of one machine are added up
    #[arg(value_name = "FILE", conflicts_with = "input")]
    files: Vec<PathBuf>,
    /// Plain text (the only output mode)
    #[arg(long)]
    stdio: bool,
    /// Call graph: graph, fractal, flat, folded, none; caller, callee
    ///
    /// Comma-separated; `srcline` distinguishes source lines, a number sets the minimum percentage.
    #[arg(short = 'g', long, value_name = "SPEC", num_args = 0..=1, default_missing_value = "graph,caller")]
    call_graph: Option<String>,
    /// Value of -g in perf's configuration
    #[arg(long, hide = true)]
    configured_call_graph: Option<String>,
    /// Include callees in each function's overhead
    #[arg(long, overrides_with = "no_children")]
    children: bool,
    /// Show only each function's own overhead
    #[arg(long)]
    no_children: bool,
    /// Group by these keys: comm, dso, symbol, pid, srcline, …
    ///
    /// Keys: comm, dso, symbol, pid (thread), tgid (process), cpu, parallelism, parent, srcline,
    /// srcfile, time, cgroup, code_page_size, weight, local_weight, ins_lat; with --latency:
    /// latency; for tracepoints: trace, trace_fields, FIELD, EVENT.FIELD; for events of any
    /// recording: event, comm, pid, cpu, instance, stack, FIELD, EVENT.FIELD.
    #[arg(short, long, value_name = "KEYS")]
    sort: Option<String>,
    /// Value of -s in perf's configuration, for a perf.data without keys
    #[arg(long, hide = true)]
    configured_sort: Option<String>,
    /// Columns to show: overhead, sample, period, sort keys, …
    ///
    /// Columns: overhead, overhead_children, overhead_sys, overhead_us, latency, sample, period,
    /// and sort keys.
    #[arg(short = 'F', long, value_name = "FIELDS")]
    fields: Option<String>,
    /// Only tasks with these names
    #[arg(short, long, value_name = "NAMES")]
    comms: Option<String>,
    /// Only these binaries
    #[arg(short, long, value_name = "NAMES")]
    dsos: Option<String>,
    /// Only these symbols
    #[arg(short = 'S', long, value_name = "NAMES")]
    symbols: Option<String>,
    /// Hide entries below this percentage, and branches, unless -g sets another limit
    #[arg(long, value_name = "PERCENT")]
    percent_limit: Option<f64>,
    /// Show the header of the recording first
    #[arg(long)]
    header: bool,
    /// Show only the header
    #[arg(long)]
    header_only: bool,
    /// Show the full header: processors, caches, memory, clock
    #[arg(short = 'I', long)]
    show_info: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Show the number of samples
    #[arg(short = 'n', long)]
    show_nr_samples: bool,
    /// Show the sum of periods
    #[arg(long)]
    show_total_period: bool,
    /// Show entries as a tree with one level per sort key; -g adds graphs to the last one
    #[arg(short = 'H', long, conflicts_with_all = ["fields", "json", "children"])]
    hierarchy: bool,
    /// Show the shares of kernel (sys) and user space (usr)
    #[arg(long, alias = "showcpuutilization")]
    show_cpu_utilization: bool,
    /// Separate columns by SEP, without padding
    #[arg(short = 't', long, value_name = "SEP")]
    field_separator: Option<String>,
    /// Show inlined functions in call graphs, from debugging information [default]
    #[arg(long, overrides_with = "no_inline")]
    inline: bool,
    /// Do not show inlined functions
    #[arg(long)]
    no_inline: bool,
    /// Show full paths of source files
    #[arg(long)]
    full_source_path: bool,
    #[command(flatten)]
    select: EventSelectionArgs,
    /// Only events on the CPUs of this socket
    #[arg(long, value_name = "SOCKET", conflicts_with = "cpu")]
    socket_filter: Option<u32>,
    #[command(flatten)]
    finding: SymbolArgs,
    #[command(flatten)]
    switch: SwitchArgs,
    /// Interval for grouping by -s time, in ns, us, ms or s
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = span_of_time)]
    time_quantum: u64,
    /// Show times of -s time in nanoseconds
    #[arg(long)]
    ns: bool,
    /// Group by the first caller whose name matches [default with key `parent`:
    /// ^sys_|^do_page_fault]
    #[arg(short, long, value_name = "REGEX")]
    parent: Option<String>,
    /// Attribute callees of functions with matching names to these functions
    #[arg(long, value_name = "REGEX")]
    ignore_callees: Option<String>,
    /// Only entries whose caller matches -p
    #[arg(short = 'x', long)]
    exclude_other: bool,
    /// Only entries whose symbol contains this text
    #[arg(long, value_name = "TEXT")]
    symbol_filter: Option<String>,
    /// Hide entries without a symbol
    #[arg(short = 'U', long)]
    hide_unresolved: bool,
    /// Show call graphs from the outermost caller inwards
    #[arg(short = 'G', long)]
    inverted: bool,
    /// Maximum number of frames per call chain, in the order of the graph
    #[arg(long, value_name = "N")]
    max_stack: Option<usize>,
    /// Base of percentages: all samples (absolute) or the shown ones (relative)
    #[arg(long, value_name = "OF", default_value = "absolute",
          value_parser = ["absolute", "relative"])]
    percentage: String,
    /// Colors: auto, always, never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "always",
          value_parser = ["auto", "always", "never"])]
    stdio_color: String,
    /// Show the number of records by type, and of samples by event
    #[arg(long)]
    stats: bool,
    /// Show the tasks of the recording as a tree
    #[arg(long)]
    tasks: bool,
    /// Show tasks with their mappings
    #[arg(long)]
    mmaps: bool,
    /// Weight samples by wall-clock time: period divided by the number of running threads (needs
    /// `record --latency`)
    #[arg(long)]
    latency: bool,
    /// Only samples taken while this many threads were running: 1,3-4
    #[arg(long, value_name = "LIST", value_parser = parallelism)]
    parallelism: Option<Parallelisms>,
    /// Show events of a group side by side (default for recorded groups); without groups, all
    /// events
    #[arg(long, overrides_with = "no_group")]
    group: bool,
    /// Show events of a group one after another
    #[arg(long)]
    no_group: bool,
    /// Show raw values of tracepoint fields, without the print format; without -s, one column per
    /// field
    #[arg(long)]
    raw_trace: bool,
    /// Sort entries by event N of a group, starting at 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    group_sort_idx: usize,
    /// Print only rows: no headings, no ledger
    #[arg(short, long)]
    quiet: bool,
    /// Ignore the owner of the file [always on]
    #[arg(short, long)]
    force: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut paths = args.files.clone();
    paths.extend(args.input.clone());
    if paths.is_empty() {
        paths.push(super::default_recording());
    }
    let path = match paths.as_slice() {
        // What is no recording at all is explained below.
        [path]
            if matches!(RecordingFormat::of(path), None | Some(RecordingFormat::PerfData))
                && !events::is_asked_for(args.sort.as_deref()) =>
        {
            path.clone()
        }
        _ => return events::run(&args, &paths),
    };
    let mut config = config(&args)?;
    let mut file = if args.header_only { open_description(&path)? } else { PerfData::open(&path)? };
    let color = match args.stdio_color.as_str() {
        "always" => !args.json,
        "never" => false,
        // A terminal, and what the environment says of colours there (`NO_COLOR`).
        _ => crate::streams::is_colored() && !args.json,
    };
    if args.header_only {
        let mut out = tables(color);
        write_header(&mut out, &file, captured_on(&path).as_deref(), args.show_info)?;
        out.flush()?;
        return Ok(exit::of_description(&file));
    }
    if args.stats || args.tasks || args.mmaps {
        let mut out = tables(color);
        if args.header || args.show_info {
            write_header(&mut out, &file, captured_on(&path).as_deref(), args.show_info)?;
        }
        let code = write_records(&mut out, &args, file)?;
        out.flush()?;
        return Ok(code);
    }
    config.settle(file.events());
    crate::progress::begin(path.display());
    let symbols = args.finding.options(&path);
    let mut selection = args.select.selection(Vec::new(), || Ok(file.sample_span()?))?;
    selection.switch = args.switch.switch();
    if let Some(socket) = args.socket_filter {
        selection.set_cpus(&cpus_of_socket(&file, socket)?)?;
    }
    let selection = selection;
    let parallelism = config.parallelism();
    let has_switches = |e: &EventDesc| e.attr.flags.contains(AttrFlags::CONTEXT_SWITCH);
    if parallelism.is_asked_for() && !file.is_pipe() && !file.events().iter().any(has_switches) {
        bail!(
            "{}: it does not tell how many threads ran at a time: record it with `kymo record \
             --latency` (or --switch-events)",
            path.display()
        );
    }
    let times = TimeSpans { length: args.time_quantum, in_nanoseconds: args.ns };
    let mut labels = PayloadLabels::new(&config.payload_keys, symbols.bundle.clone())
        .with_times(times)
        .with_raw_fields(args.raw_trace);
    let options = LoadOptions {
        symbols,
        merge_threads: !config.has(Key::Pid) && !config.has(Key::Tid),
        labels: if config.payload_keys.is_empty() {
            SampleLabels::None
        } else {
            SampleLabels::Payloads(&mut labels)
        },
        by_cpu: config.has(Key::Cpu),
        // As in perf, the end that the graphs begin with stays.
        max_stack: args
            .max_stack
            .map(|frames| StackLimit { frames, outermost: config.begins_outermost() }),
        no_chains: config.needs_no_chains(),
        inlines: config.inlines
            && !config.needs_no_chains()
            && file.events().iter().any(has_chains),
        lines: config.needs_lines(),
        selection: Some(&selection),
        parallelism,
        ..LoadOptions::default()
    };
    let profile = Profile::read(&mut file, options).context("report")?;
    let mut unmet = selection.unmet_notes_in(&mut file);
    labels.name_cgroups(&|id| {
        let path = profile.machine.cgroup(id);
        path.map(|path| {
            let path = String::from_utf8_lossy(path).into_owned();
            match container_of(&path) {
                // Scripts that read perf's rows know none.
                Some(name) if CalledName::get() != CalledName::Perf => {
                    format!("{path} (container {name})")
                }
                _ => path,
            }
        })
    });
    config.check(&labels, profile.stats.samples > 0)?;
    let mut out = tables(color);
    let left = |e: &EventProfile| e.stacks().any(|(s, _)| config.wants(&profile, &s));
    let everything = config.wants_all()
        && args.select.is_everything()
        && args.socket_filter.is_none()
        && !args.switch.is_given();
    let nothing = !everything && !profile.events.iter().any(left);
    if let Some(comms) = config.comms.as_ref().filter(|_| nothing && unmet.is_empty()) {
        // Names are chosen among what was counted.
        let chosen = EventSelection::of_tasks(comms.clone(), Vec::new(), Vec::new());
        for (stack, _) in profile.events.iter().flat_map(EventProfile::stacks) {
            chosen.wants_comm(stack.tid, profile.machine.comm(stack.comm).as_bytes());
        }
        unmet = chosen.unmet_notes(RecordedExtent::default);
    }
    let grouping = match (args.group, args.no_group) {
        (_, true) => EventGrouping::Apart,
        (true, false) => EventGrouping::Forced,
        (false, false) => EventGrouping::Recorded,
    };
    let columns = |event: usize| {
        let keys = 0..config.payload_keys.len();
        let names = keys.map(|key| labels.columns_of(event, key).map(|n| labels.heading(event, n)));
        names.flatten().map(|(name, ..)| name).collect::<Vec<_>>()
    };
    // Events whose samples are those of others have no columns of their own.
    let alike = |a, b| columns(b).is_empty() || columns(a) == columns(b);
    let recorded = &file.features().groups;
    let groups = event_groups(&profile.events, recorded, grouping, &alike);
    let ledger = std::thread::scope(|scope| {
        // It is printed last.
        let ledger = scope.spawn(|| {
            let mut ledger = profile_ledger(&profile, &file);
            if unmet.is_empty() && nothing {
                ledger.tell(NoteKind::Nothing, "no samples match", None);
            }
            unmet.into_iter().for_each(|note| ledger.push(note));
            ledger
        });
        let ledger = || ledger.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if args.json {
            let ledger = ledger();
            let groups: Vec<Vec<usize>> = if args.group {
                groups.into_iter().map(|group| group.events).collect()
            } else {
                (0..profile.events.len()).map(|number| vec![number]).collect()
            };
            write_json(&mut out, &profile, &config, &labels, &groups)?;
            return anyhow::Ok(ledger);
        }
        let mut report = ReportWriter {
            out: &mut out,
            profile: &profile,
            config: &config,
            labels: &labels,
            color,
            quiet: args.quiet,
        };
        if !args.quiet {
            report.write_prologue()?;
        }
        if args.header || args.show_info {
            write_header(report.out, &file, captured_on(&path).as_deref(), args.show_info)?;
        }
        for group in groups {
            let events: Vec<&EventProfile> =
                group.events.iter().filter_map(|n| profile.events.get(*n)).collect();
            let Some((number, event)) = group.events.first().zip(events.first()) else { continue };
            let layout = config.layout(*number, event, &labels);
            let entries = config.histogram(&profile, &events, &layout);
            report.write_events((&group.title, &events), &layout, &entries)?;
        }
        let ledger = ledger();
        if !args.quiet && args.field_separator.is_none() {
            report.write_epilogue(&ledger)?;
        }
        Ok(ledger)
    })?;
    out.flush()?;
    let damage =
        profile.stats.damaged.as_ref().map(|d| format!("{d}; everything before it is shown"));
    let code = exit::status(path.display(), damage.as_deref(), &ledger, args.strict);
    // The process ends here; giving each piece back takes longer than the rest.
    std::mem::forget(profile);
    Ok(code)
}

/// Standard output, from when there is something to show.
fn tables(has_colors: bool) -> std::io::BufWriter<crate::streams::StdoutTextLock> {
    crate::screen::page_tables();
    std::io::BufWriter::with_capacity(64 << 10, crate::streams::stdout().lock_colored(has_colors))
}

/// Writes the records of the file (statistics, tasks, mappings) instead of a report.
fn write_records(out: &mut dyn Write, args: &Args, mut file: PerfData) -> anyhow::Result<ExitCode> {
    let overview = RecordOverview::read(&mut file).context("report")?;
    if args.stats {
        write_statistics(out, &overview)?;
    }
    if args.tasks || args.mmaps {
        write_tasks(out, &overview, args.mmaps)?;
    }
    let ledger = Ledger::from_notes(notes_on_perf_data(&file, &overview.read));
    if !args.quiet && !ledger.is_empty() {
        write!(out, "{}", ledger.to_text("# "))?;
    }
    let damage = overview.read.damaged.as_ref();
    let damage = damage.map(|d| format!("{d}; everything before it is shown"));
    Ok(exit::status(file.name(), damage.as_deref(), &ledger, args.strict))
}

/// Numbers of threads.
#[derive(Clone, Debug)]
struct Parallelisms(Vec<RangeInclusive<u32>>);

fn parallelism(text: &str) -> Result<Parallelisms, String> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n > 0);
        let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
        range.map(|(first, last)| first..=last).ok_or_else(|| {
            format!("`{part}` is neither a number of threads from 1 on nor a range of them, 2-4")
        })
    };
    text.split(',').map(range).collect::<Result<_, _>>().map(Parallelisms)
}

/// The flags, checked.
fn config(args: &Args) -> anyhow::Result<ReportConfig> {
    let request = ReportRequest {
        sort: args.sort.as_deref().or(args.configured_sort.as_deref()),
        fields: args.fields.as_deref(),
        parent: args.parent.as_deref(),
        ignore_callees: args.ignore_callees.as_deref(),
        call_graph: args.call_graph.as_deref().or(args.configured_call_graph.as_deref()),
        children: match (args.children, args.no_children) {
            (_, true) => Some(false),
            (true, false) => Some(true),
            _ => None,
        },
        comms: args.comms.as_deref(),
        dsos: args.dsos.as_deref(),
        symbols: args.symbols.as_deref(),
        percent_limit: args.percent_limit,
        show_nr_samples: args.show_nr_samples,
        show_total_period: args.show_total_period,
        show_cpu_utilization: args.show_cpu_utilization,
        hierarchy: args.hierarchy,
        field_separator: args.field_separator.as_deref(),
        no_inline: args.no_inline,
        full_source_path: args.full_source_path,
        relative: args.percentage == "relative",
        hide_unresolved: args.hide_unresolved,
        symbol_filter: args.symbol_filter.as_deref(),
        exclude_other: args.exclude_other,
        inverted: args.inverted,
        latency: args.latency,
        latency_beside: CalledName::get() == CalledName::Perf,
        symbol_level: CalledName::get() == CalledName::Perf
            && args.sort.as_ref().is_some_and(|keys| keys.contains("symbol")),
        parallelism: args.parallelism.as_ref().map_or(&[], |p| &p.0),
        group_sort_idx: args.group_sort_idx,
        raw_trace: args.raw_trace,
    };
    match ReportConfig::new(&request) {
        // `-g FILE`: the value of -g is optional.
        Err(ReportConfigError::CallGraphOption(word)) if Path::new(&word).exists() => {
            bail!("`{word}` is no call graph option: name the recording with -i, or before -g")
        }
        config => Ok(config?),
    }
}
/// The CPUs that a recording says to be of a socket, as a list.
fn cpus_of_socket(file: &PerfData, socket: u32) -> anyhow::Result<String> {
    let section = file.features().section(Feature::CPU_TOPOLOGY, file.endian());
    let Some((FeatureSection::CpuTopology(topology), _)) = section else {
        bail!("--socket-filter: the recording does not say which CPUs a socket has");
    };
    let all = topology.cpus.iter().enumerate();
    let own = all.filter(|(_, place)| place.socket == socket).map(|(cpu, _)| cpu.to_string());
    let own: Vec<String> = own.collect();
    if own.is_empty() {
        let mut sockets: Vec<u32> = topology.cpus.iter().map(|place| place.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        bail!("--socket-filter {socket}: the machine that was recorded has {sockets:?}");
    }
    Ok(own.join(","))
}
