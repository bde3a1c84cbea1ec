//! The report as one JSON object.

use std::io::{self, Write};

use kymo_analysis::chain_tree::Viewer;
use kymo_analysis::histogram::histogram;
use kymo_analysis::profile::Profile;
use kymo_view::{Ledger, percent};
use serde_json::{Value, json};

use super::fields;
use super::meaning::{Drawing, Meaning};

pub(crate) fn write(
    out: &mut dyn Write,
    profile: &Profile,
    meant: &Meaning,
    ledger: &Ledger,
) -> io::Result<()> {
    let mut events = Vec::new();
    for event in &profile.events {
        let shape = meant.shape(event.has_chains(), event.period);
        let found = histogram(profile, event, &shape.histogram, &|_| false);
        let rank = |f| profile.rank(f);
        let mut viewer = Viewer::new(&found.tree, &rank);
        let least = (event.period as f64 * (shape.least / 100.0)) as u64;
        let rows: Vec<Value> = found
            .entries
            .iter()
            .map(|e| {
                let mut row = json!({
                    "comm": profile.machine.comm(e.comm),
                    "pid": e.pid,
                    "tid": e.tid,
                    "dso": fields::dso(profile, e),
                    "symbol": fields::symbol(profile, e),
                    "level": e.level.to_string(),
                    "samples": e.samples,
                    "period": e.own,
                    "percent": percent(e.own, event.period),
                });
                if shape.histogram.children {
                    row["children_period"] = e.total.into();
                    row["children_percent"] = percent(e.total, event.period).into();
                }
                if shape.drawing != Drawing::None {
                    let chains = viewer.chains(&e.chains, least);
                    row["chains"] = chains
                        .iter()
                        .map(|(frames, period)| {
                            let names: Vec<String> =
                                frames.iter().map(|f| profile.frame_name(*f)).collect();
                            json!({"frames": names, "period": period})
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
        "lost_samples": profile.stats.lost_samples,
        "events": events,
        "ledger": ledger.to_json(),
    });
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}
