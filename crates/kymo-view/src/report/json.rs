//! The report as one JSON object.

use std::io::{self, Write};

use kymo_analysis::chain_tree::Viewer;
use kymo_analysis::histogram::{HistEntry, Key};
use kymo_analysis::payload_labels::PayloadLabels;
use kymo_analysis::profile::{EventProfile, Profile};
use kymo_analysis::report_config::{ChainStyle, ReportConfig, ReportWhole};
use serde_json::{Value, json};

use super::columns;
use crate::percent;

/// Writes the report of events: of groups of them whose entries have the numbers of all.
pub fn write_json(
    out: &mut dyn Write,
    profile: &Profile,
    config: &ReportConfig,
    labels: &PayloadLabels,
    groups: &[Vec<usize>],
) -> io::Result<()> {
    let mut events = Vec::new();
    for group in groups {
        let members: Vec<&EventProfile> =
            group.iter().filter_map(|n| profile.events.get(*n)).collect();
        let (Some(number), Some(event)) = (group.first().copied(), members.first()) else {
            continue;
        };
        let layout = config.layout(number, event, labels);
        let found = config.histogram(profile, &members, &layout);
        let rank = |f| profile.rank(f);
        let same = |f| config.merge_key(profile, f);
        let mut viewer = Viewer::new(&found.tree, &rank, &same);
        let wholes = config.wholes(profile, &members, &found);
        let all = wholes.first().copied().unwrap_or_default();
        let whole = all.weight;
        let beside = |e: &HistEntry| -> Value {
            let one = |(n, (whole, event)): (usize, (&ReportWhole, &&EventProfile))| {
                let numbers = e.numbers_of(n);
                json!({
                    "event": event.desc.name,
                    "samples": numbers.samples,
                    "period": numbers.period,
                    "percent": percent(numbers.period, whole.period),
                })
            };
            wholes.iter().zip(&members).enumerate().map(one).collect()
        };
        let least = (whole as f64 * (layout.least / 100.0)) as u64;
        let rows: Vec<Value> = found
            .entries
            .iter()
            .filter(|e| {
                let weight = if layout.histogram.children { e.total } else { e.own };
                percent(weight, whole) >= config.percent_limit
            })
            .map(|e| {
                let mut row = json!({
                    "comm": profile.machine.comm(e.comm),
                    "pid": e.pid,
                    "tid": e.tid,
                    "dso": columns::dso(profile, e),
                    "symbol": columns::symbol(profile, e),
                    "level": e.level.to_string(),
                    "samples": e.samples,
                    "period": e.period,
                    "percent": percent(e.period, all.period),
                });
                if members.len() > 1 {
                    row["group"] = beside(e);
                }
                if config.latency {
                    row["latency"] = e.own.into();
                    row["latency_percent"] = percent(e.own, whole).into();
                }
                if layout.histogram.children {
                    row["children_period"] = e.total.into();
                    row["children_percent"] = percent(e.total, whole).into();
                }
                for key in &layout.histogram.keys {
                    match key {
                        Key::Srcline => row["srcline"] = profile.srcline(e.frame, true).into(),
                        Key::Srcfile => row["srcfile"] = profile.srcfile(e.frame, true).into(),
                        Key::Cpu => row["cpu"] = e.cpu.into(),
                        Key::Parallelism => row["parallelism"] = e.parallelism.into(),
                        Key::Parent => {
                            row["parent"] = e.parent.map(|p| profile.frame_name(p)).into();
                        }
                        Key::Label(part) if labels.sample_word(number, *part).is_some() => {
                            let word = labels.sample_word(number, *part).unwrap_or_default();
                            row[word] = labels.text(e.label, *part).into();
                        }
                        Key::Label(part) => {
                            let (name, ..) = labels.heading(number, *part);
                            let name = if name == "Trace output" { "text" } else { &name };
                            row["trace"][name] = labels.text(e.label, *part).into();
                        }
                        _ => {}
                    }
                }
                if layout.drawing != ChainStyle::None {
                    let chains = viewer.chains(&e.chains, least);
                    row["chains"] = chains
                        .iter()
                        .map(|c| {
                            let names: Vec<String> =
                                c.frames.iter().map(|f| config.frame_name(profile, *f)).collect();
                            json!({"frames": names, "period": c.own})
                        })
                        .collect();
                }
                row
            })
            .collect();
        events.push(json!({
            "event": event.desc.name,
            "samples": event.samples,
            "period": event.period,
            "entries": rows,
        }));
    }
    let all = json!({
        "lost_samples": profile.stats.lost_events(),
        "events": events,
    });
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}
