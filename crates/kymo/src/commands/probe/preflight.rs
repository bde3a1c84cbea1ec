//! `--preflight`: lets new probes run for a while and says how often they are hit
//! and what that costs.

use std::time::Duration;

use kymo_kernel::ftrace::{Instance, Selection};
use kymo_kernel::probe_events::{ProbeFile, events_of};
use kymo_kernel::tracefs::Tracefs;

use super::live::Planned;

/// What one hit of a program's probe costs, measured: on an instruction that the
/// kernel emulates, and on one that it must single-step.
const CHEAP_NS: f64 = 1_300.0;
const DEAR_NS: f64 = 15_000.0;

pub(super) fn run(tracefs: &Tracefs, planned: &Planned, seconds: f64) -> anyhow::Result<()> {
    let events = events_of(&planned.lines);
    let instance = Instance::create(tracefs, "preflight")?;
    let before = hits(tracefs)?;
    for (_, group, event) in &events {
        // Its ring stays off: hits are counted all the same.
        instance.enable(&Selection::parse(&format!("{group}:{event}"))?)?;
    }
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let after = hits(tracefs)?;
    instance.remove()?;
    for (file, group, event) in &events {
        let of = |all: &[Counted]| -> u64 {
            all.iter().filter(|(g, e, _)| g == group && e == event).map(|(.., hits)| hits).sum()
        };
        let rate = of(&after).saturating_sub(of(&before)) as f64 / seconds;
        let each = match file {
            ProbeFile::User if planned.dear => DEAR_NS,
            _ => CHEAP_NS,
        };
        let cost = rate * each / 1e6;
        anstream::println!(
            "Preflight: {group}:{event} is hit {rate:.1} times a second, about {cost:.2} ms of every second"
        );
    }
    Ok(())
}

/// Group, event, hits; one for each place.
type Counted = (String, String, u64);

fn hits(tracefs: &Tracefs) -> anyhow::Result<Vec<Counted>> {
    let all = tracefs.probes()?.into_iter();
    Ok(all.map(|p| (p.event.system, p.event.name, p.hits.map_or(0, |h| h.hits))).collect())
}
