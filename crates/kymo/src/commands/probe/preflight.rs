//! `--preflight`: lets new probes run for a while and says how often they are hit
//! and what that costs on this machine.

use std::time::Duration;

use kymo_kernel::ftrace::{Instance, Selection};
use kymo_kernel::probe_events::{ProbeFile, events_of};
use kymo_kernel::tracefs::Tracefs;
use kymo_probe::PlannedProbes;
use kymo_probe::bench::{ProbedInstruction, hit_cost};

pub(super) fn run(tracefs: &Tracefs, planned: &PlannedProbes, seconds: f64) -> anyhow::Result<()> {
    let events = events_of(planned.added());
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
        let hits_of = |all: &[Counted]| -> u64 {
            all.iter().filter(|(g, e, _)| g == group && e == event).map(|(.., hits)| hits).sum()
        };
        let rate = hits_of(&after).saturating_sub(hits_of(&before)) as f64 / seconds;
        let is_return = planned.added().any(|d| d.is_of(group, event) && d.kind.is_return());
        let stepped = planned.single_stepped && *file == ProbeFile::User && !is_return;
        let instruction = match (is_return, stepped) {
            (true, _) => ProbedInstruction::Return,
            (false, true) => ProbedInstruction::SingleStepped,
            (false, false) => ProbedInstruction::Emulated,
        };
        let cost = match hit_cost(tracefs, *file, instruction) {
            Some(each) => format!(
                "about {:.2} ms of every second ({each:.0} ns a hit, measured here now)",
                rate * each / 1e6
            ),
            None => "what that costs could not be measured".into(),
        };
        outln!("Preflight: {group}:{event} is hit {rate:.1} times a second, {cost}");
    }
    Ok(())
}

/// Group, event, hits; one for each probe point.
type Counted = (String, String, u64);

fn hits(tracefs: &Tracefs) -> anyhow::Result<Vec<Counted>> {
    let all = tracefs.probes()?.into_iter();
    let counted = all.map(|p| {
        let event = p.event().to_owned();
        (p.definition.group, event, p.hits.map_or(0, |h| h.hits))
    });
    Ok(counted.collect())
}
