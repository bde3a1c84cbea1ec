//! `--add`: descriptions are resolved, judged, named and handed to the kernel.

use std::io::Write as _;
use std::process::ExitCode;

use kymo_kernel::probe_events::ProbeChange;
use kymo_kernel::probe_guard::ProbeNamesLock;
use kymo_kernel::probe_notes::ProbeNotes;
use kymo_probe::naming::TakenName;
use kymo_probe::{PlanOptions, PlannedProbes, event_names, explain_refusal, plan_probes};
use kymo_view::Ledger;

use super::target::{close, options, target};
use super::{Args, cached, preflight};
use crate::commands::tracing;

/// `--add`: everything or nothing.
pub(super) fn add(args: &Args) -> anyhow::Result<ExitCode> {
    let tracefs = tracing::open()?;
    let taken = if args.force { TakenName::Number } else { TakenName::Refuse };
    // Without it names may only meet those of one who adds at the same time.
    let lock = (!args.dry_run).then(ProbeNamesLock::take);
    let mut names = event_names(&tracefs, taken)?;
    let target = target(args);
    let mut cached = args.cache.then(|| cached::load(args, &target)).transpose()?;
    let plan = PlanOptions {
        target: &target,
        resolve: options(args),
        force: args.force,
        costs: args.verbose,
        cached: cached.as_ref(),
    };
    let mut planned = plan_probes(&args.add, &plan, &tracefs, &mut names)?;
    let ledger = Ledger::from_notes(planned.notes.clone());
    if !args.dry_run {
        tracefs.write_probes(&mut planned.changes).map_err(explain_refusal)?;
        drop(lock);
        ProbeNotes::renew(&tracefs)?;
        if let Some(cached) = &mut cached {
            cached::store(cached, &planned.resolved)?;
        }
        if let Some(seconds) = args.preflight {
            preflight::run(&tracefs, &planned, seconds)?;
        }
    }
    let mut out = crate::streams::stdout().lock();
    if args.verbose || args.dry_run {
        for change in &planned.changes {
            writeln!(out, "{change}")?;
        }
    }
    if !args.quiet {
        print_events(&mut out, args, &planned)?;
    }
    drop(out);
    Ok(close(args, &ledger))
}

fn print_events(
    out: &mut impl std::io::Write,
    args: &Args,
    planned: &PlannedProbes,
) -> anyhow::Result<()> {
    let last = planned.added().last();
    let what = match (args.dry_run, last) {
        (true, _) => "Would add",
        (false, Some(_)) => "Added",
        (false, None) => "Changed",
    };
    let events = if planned.shown.len() == 1 { "event" } else { "events" };
    writeln!(out, "{what} {}{events}:", if last.is_some() { "new " } else { "" })?;
    for (change, point) in &planned.shown {
        match planned.changes.get(*change) {
            Some(ProbeChange::Add(d)) => writeln!(out, "  {:20} (on {point})", d.full_name())?,
            Some(ProbeChange::Remove { file, group, event }) => {
                let group = group.as_deref().unwrap_or(file.default_group());
                writeln!(out, "  {group}:{} (removed)", event.as_deref().unwrap_or("*"))?;
            }
            None => {}
        }
    }
    if let Some(definition) = last.filter(|_| !args.dry_run) {
        let name = definition.full_name();
        writeln!(out, "\nYou can now use it, as in:\n\n\tkymo record -e {name} -a -- sleep 1\n")?;
    }
    Ok(())
}
