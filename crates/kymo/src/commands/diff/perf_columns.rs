//! perf's own table of `perf diff`: under that name, or with `-c`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_analysis::histogram::Key;
use kymo_analysis::payload_labels::PayloadLabels;
use kymo_analysis::profile::{LoadOptions, Profile, SampleLabels};
use kymo_analysis::report_config::{ReportConfig, ReportRequest};
use kymo_events::EventSource;
use kymo_files::perfdata::PerfData;
use kymo_view::Ledger;
use kymo_view::report::{DiffComputation, DiffTable, KeyedEntries};
use kymo_view::trust::profile_ledger;

use super::Args;
use super::read::reasons;
use crate::exit;

/// The value of `-c`.
pub(super) fn computation(text: &str) -> Result<DiffComputation, String> {
    let text = text.trim_start_matches('+');
    match text.split_once(':') {
        None if text == "delta" => Ok(DiffComputation::Delta),
        None if text == "delta-abs" => Ok(DiffComputation::DeltaAbs),
        None if text == "ratio" => Ok(DiffComputation::Ratio),
        Some(("wdiff", weights)) => {
            let both = weights.split_once(',').ok_or("wdiff has two weights: wdiff:1,2")?;
            let weight =
                |text: &str| text.trim().parse().map_err(|_| format!("`{text}` is not a weight"));
            Ok(DiffComputation::WeightedDiff(weight(both.0)?, weight(both.1)?))
        }
        None if text == "cycles" => {
            Err("cycles of blocks are those of branch records, which are not decoded; use perf"
                .into())
        }
        _ => Err("not delta, delta-abs, ratio or wdiff:W1,W2".into()),
    }
}

/// Shows recordings beside the first one.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut paths = args.files.clone();
    paths.extend(args.before.iter().chain(&args.after).cloned());
    let named = |name: &str| PathBuf::from(name);
    match paths.len() {
        0 => paths = vec![named("perf.data.old"), named("perf.data")],
        1 => paths.insert(0, named("perf.data")),
        _ => {}
    }
    let order = match args.output.as_deref().map(|text| text.to_string_lossy().into_owned()) {
        None => 1,
        Some(text) => text.parse().ok().filter(|n| *n < paths.len()).with_context(|| {
            format!("-o {text}: the order is the number of a recording, up to {}", paths.len() - 1)
        })?,
    };
    let mut ledger = Ledger::default();
    let mut damage = None;
    let mut files: Vec<Vec<KeyedEntries>> = Vec::new();
    for path in &paths {
        let read = entries(args, path, (&mut ledger, &mut damage));
        files.push(read.with_context(|| path.display().to_string())?);
    }
    let table = DiffTable {
        computation: args.compute.unwrap_or(DiffComputation::DeltaAbs),
        periods: args.period,
        formula: args.formula,
        matched_only: args.baseline_only,
        order,
        separator: args.field_separator.as_deref(),
        quiet: args.quiet,
    };
    let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    crate::progress::end();
    let mut out = crate::streams::stdout().lock();
    let mut is_first = true;
    let Some((baseline, others)) = files.split_first() else { return Ok(ExitCode::SUCCESS) };
    for event in baseline {
        let beside =
            |file: &Vec<KeyedEntries>| file.iter().find(|e| e.event == event.event).cloned();
        let Some(others) = others.iter().map(beside).collect::<Option<Vec<_>>>() else { continue };
        if !is_first {
            writeln!(out)?;
        }
        is_first = false;
        let all: Vec<KeyedEntries> = std::iter::once(event.clone()).chain(others).collect();
        table.write(&mut out, &names, &all)?;
    }
    out.flush()?;
    if is_first {
        bail!("the recordings have no event in common{}", reasons(ledger.notes()));
    }
    exit::tell(&ledger);
    Ok(exit::status(names.join(", "), damage.as_deref(), &ledger, args.strict))
}

fn config(args: &Args) -> anyhow::Result<ReportConfig> {
    let joined = |names: &[String]| (!names.is_empty()).then(|| names.join(","));
    let keys = args.table.keys();
    let sort = if keys.is_empty() { "dso,symbol".to_owned() } else { keys.join(",") };
    let (comms, dsos, symbols) = (joined(&args.comms), joined(&args.dsos), joined(&args.symbols));
    Ok(ReportConfig::new(&ReportRequest {
        sort: Some(&sort),
        children: Some(false),
        call_graph: Some("none"),
        comms: comms.as_deref(),
        dsos: dsos.as_deref(),
        symbols: symbols.as_deref(),
        relative: args.percentage.as_deref() == Some("relative"),
        ..ReportRequest::default()
    })?)
}

/// Entries of each event of a recording.
fn entries(
    args: &Args,
    path: &PathBuf,
    (ledger, damage): (&mut Ledger, &mut Option<String>),
) -> anyhow::Result<Vec<KeyedEntries>> {
    let symbols = args.finding.options(path);
    let source = EventSource::open(std::slice::from_ref(path), symbols.clone())?;
    let selection = args.selection(&source)?;
    drop(source);
    let mut file = PerfData::open(path)?;
    let mut config = config(args)?;
    config.settle(file.events());
    let mut labels = PayloadLabels::new(&config.payload_keys, symbols.bundle.clone());
    let options = LoadOptions {
        symbols,
        merge_threads: !config.has(Key::Pid) && !config.has(Key::Tid),
        labels: if config.payload_keys.is_empty() {
            SampleLabels::None
        } else {
            SampleLabels::Payloads(&mut labels)
        },
        by_cpu: config.has(Key::Cpu),
        no_chains: config.needs_no_chains(),
        lines: config.needs_lines(),
        selection: Some(&selection),
        ..LoadOptions::default()
    };
    let profile = Profile::read(&mut file, options)?;
    config.check(&labels, profile.stats.samples > 0)?;
    let unmet = selection.unmet_notes_in(&mut file);
    for note in profile_ledger(&profile, &file).notes().iter().chain(&unmet) {
        ledger.push(kymo_model::Note {
            fact: format!("{}: {}", path.display(), note.fact),
            ..note.clone()
        });
    }
    if let Some(why) = &profile.stats.damaged {
        damage.get_or_insert(format!("{}: {why}; everything before it is shown", path.display()));
    }
    let events = profile.events.iter().enumerate().filter(|(_, event)| event.samples > 0);
    let keyed = events.map(|(n, event)| KeyedEntries::new(&profile, event, n, &config, &labels));
    Ok(keyed.collect())
}
