//! `--preflight`: lets new probes run for a while and says how often they are hit
//! and what that costs on this machine.

use std::time::Duration;

use kymo_kernel::ftrace::{Instance, Selection};
use kymo_kernel::probe_events::{ProbeFile, events_of};
use kymo_kernel::tracefs::Tracefs;

use super::bench::cost_now;
use super::live::Planned;

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
        let ret = planned.lines.iter().any(|l| {
            (l.group.as_str(), l.event.as_str()) == (*group, *event) && l.text.starts_with('r')
        });
        let dear = planned.dear && *file == ProbeFile::User && !ret;
        let cost = match cost_now(tracefs, *file, ret, dear) {
            Some(each) => format!(
                "about {:.2} ms of every second ({each:.0} ns a hit, measured here now)",
                rate * each / 1e6
            ),
            None => "what that costs could not be measured".into(),
        };
        anstream::println!("Preflight: {group}:{event} is hit {rate:.1} times a second, {cost}");
    }
    Ok(())
}

/// Group, event, hits; one for each place.
type Counted = (String, String, u64);

fn hits(tracefs: &Tracefs) -> anyhow::Result<Vec<Counted>> {
    let all = tracefs.probes()?.into_iter();
    Ok(all.map(|p| (p.event.system, p.event.name, p.hits.map_or(0, |h| h.hits))).collect())
}
