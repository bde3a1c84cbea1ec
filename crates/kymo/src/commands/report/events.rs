//! `kymo report` of events, whatever recording they are of: which events, of which tasks, on
//! which CPUs, with which values in their fields, from which functions.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use kymo_analysis::{EventEntry, EventKey, EventTable, EventTableConfig};
use kymo_events::EventSource;
use kymo_model::NoteKind;
use kymo_view::trust::note_chains;
use kymo_view::{EventRow, EventTableView, Ledger, StackDrawing};

use super::Args;
use crate::exit;

/// Keys that samples do not have: a request for one selects a table of events.
const EVENT_KEYS: [&str; 3] = ["event", "instance", "stack"];

/// Whether `--sort` asks for a table of events.
pub(super) fn is_asked_for(sort: Option<&str>) -> bool {
    let words = sort.unwrap_or("").split(',').map(str::trim);
    words.into_iter().any(|w| EVENT_KEYS.contains(&w))
}

pub(super) fn run(args: &Args, paths: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let keys = EventKey::parse_list(args.sort.as_deref().unwrap_or("event,comm"))?;
    let stacks = parse_drawing(args.call_graph.as_deref())?;
    let first = paths.first().cloned().unwrap_or_default();
    crate::progress::begin(first.display());
    let source = EventSource::open(paths, args.finding.options(&first))?;
    refuse(args, &source)?;
    EventKey::check(&keys, &source)?;
    let comms = args.comms.as_deref().map(|c| c.split(',').map(|c| c.trim().to_owned()).collect());
    let selection = args.select.selection(comms.unwrap_or_default(), || Ok(source.span()?))?;
    let stacks_wanted = stacks != StackDrawing::None;
    let config = EventTableConfig { keys: &keys, selection: &selection, stacks: stacks_wanted };
    let (table, summary) = EventTable::count(&source, &config)?;
    let notes = summary.notes(&source).into_iter().chain(table.notes());
    let mut ledger = Ledger::from_notes(notes);
    note_chains(&summary, &mut ledger);
    let unmet = selection.unmet_notes(|| source.extent());
    if unmet.is_empty() && table.events == 0 && !selection.is_everything() {
        ledger.tell(NoteKind::Nothing, "no events match", None);
    }
    unmet.into_iter().for_each(|note| ledger.push(note));
    let view = view(args, &keys, &table, (source.clock(), stacks));
    crate::screen::page_tables();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    if args.json {
        view.write_json(&mut out)?
    } else {
        view.write_text(&mut out, &ledger)?
    }
    out.flush()?;
    let damage = summary.is_damaged(&source).then_some("damaged; what can be read is counted");
    Ok(exit::status(source.name(), damage, &ledger, args.strict))
}

fn view(
    args: &Args,
    keys: &[EventKey],
    table: &EventTable,
    (clock, stacks): (String, StackDrawing),
) -> EventTableView {
    let row = |(cells, e): &(Vec<String>, EventEntry)| EventRow {
        cells: cells.clone(),
        events: e.events,
        stacks: e
            .stacks
            .iter()
            .map(|(s, n)| (s.iter().map(|f| table.function(*f).to_owned()).collect(), *n))
            .collect(),
    };
    EventTableView {
        keys: keys.iter().map(|k| (k.title(), k.name())).collect(),
        rows: table.entries.iter().map(row).collect(),
        events: table.events,
        clock,
        stacks,
        separator: args.field_separator.clone(),
        percent_limit: args.percent_limit.unwrap_or(0.0),
    }
}

/// Reads `-g`.
fn parse_drawing(text: Option<&str>) -> anyhow::Result<StackDrawing> {
    let mut stacks = StackDrawing::Graph;
    // A bare -g, whose order of callers is that of samples.
    let text = text.filter(|t| *t != "graph,caller");
    for word in text.unwrap_or("graph").split(',') {
        stacks = match word {
            "none" => StackDrawing::None,
            "graph" | "callee" => StackDrawing::Graph,
            "flat" => StackDrawing::Flat,
            "folded" => StackDrawing::Folded,
            _ => bail!("-g {word}: of a trace there are graph, flat, folded, none"),
        };
    }
    Ok(stacks)
}

/// Flags that mean nothing for events.
fn refuse(args: &Args, source: &EventSource) -> anyhow::Result<()> {
    let has_perf = source.perf_count() > 0;
    let timeline = source.timeline();
    let programs = timeline.and_then(|t| t.programs().filter(|_| t.kernels().is_empty()));
    let what = match (has_perf, programs.is_some()) {
        (true, _) => "a table of events",
        (false, true) => "a CTF trace",
        (false, false) => "a trace.dat",
    };
    for (given, flag, samples_only) in [
        (args.children, "--children", true),
        (args.fields.is_some(), "-F", true),
        (args.dsos.is_some(), "--dsos", true),
        (args.symbols.is_some(), "--symbols", true),
        (args.header || args.header_only, "--header (kymo script --header shows it)", true),
        (args.parent.is_some(), "--parent", true),
        (args.ignore_callees.is_some(), "--ignore-callees", true),
        (args.latency, "--latency", true),
        (args.switch.is_given(), "--switch-on", true),
        (args.ns, "--ns", true),
        (args.parallelism.is_some(), "--parallelism", true),
        (args.finding.symfs.is_some(), "--symfs", !has_perf),
        (args.finding.vmlinux.is_some(), "-k", !has_perf),
        (args.finding.bundle.is_some(), "--bundle", !has_perf),
        (args.finding.kallsyms.is_some(), "--kallsyms (a trace.dat has its own)", !has_perf),
    ] {
        if !given || !samples_only {
            continue;
        }
        if programs.is_some() {
            bail!("{} is not for a CTF trace", flag.replace(" (a trace.dat has its own)", ""));
        }
        bail!("{flag} is for perf.data, not for {what}");
    }
    let has_stacks = || {
        source.classes().iter().any(|c| {
            c.fields.iter().any(|f| f.name == "callstack_kernel" || f.name == "callstack_user")
        })
    };
    if programs.is_some() && args.call_graph.is_some() && !has_stacks() {
        bail!("-g: the events of this CTF trace have no stacks (LTTng's contexts callstack-…)");
    }
    Ok(())
}
