//! `kymo report` of a trace.dat, of CTF traces or of both: which events, of which tasks,
//! on which CPUs, with which values in their fields, from where in the kernel.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use kymo_files::ctf::read::Times;
use kymo_files::{Moment, Select, Stats, Timeline, TimelineError};

use super::entries::{Entries, Found};
use super::keys::Key;
use super::{Args, ctf, keys, page, tracedat};
use crate::commands::timeline::{end, ledger};
use kymo_events::trace_dat::FormatTable;

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    let keys = keys::parse(args.sort.as_deref().unwrap_or("event,comm"))?;
    let stacks = page::Stacks::parse(args.call_graph.as_deref())?;
    let timeline = Timeline::open(&[path.to_owned()])?;
    refuse(args, &timeline)?;
    let formats: Vec<FormatTable<'_>> = timeline.kernels().iter().map(FormatTable::new).collect();
    keys::check(&keys, &formats, timeline.programs())?;
    let (found, stats) = count(args, &timeline, &formats, (&keys, stacks.wanted()))?;
    let mut ledger = ledger(&timeline, &stats);
    found.note(&mut ledger);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let page = page::Page { args, keys: &keys, found: &found, clock: clock(&timeline), stacks };
    if args.json {
        page.json(&mut out, &ledger)?;
    } else {
        page.text(&mut out, &ledger)?;
    }
    out.flush()?;
    Ok(end(&timeline, &stats, (&ledger, args.strict), "is counted"))
}

fn count(
    args: &Args,
    timeline: &Timeline,
    formats: &[FormatTable<'_>],
    (keys, trees): (&[Key], bool),
) -> Result<(Found, Stats), TimelineError> {
    let only = args.comms.as_deref();
    let kernels = timeline.kernels().iter().zip(formats);
    let mut kernels: Vec<tracedat::Counter<'_>> =
        kernels.map(|(data, f)| tracedat::Counter::new(data, f, keys, only, trees)).collect();
    let programs = timeline.programs();
    let mut programs = programs.map(|p| ctf::Counter::new(p, keys, only, trees));
    let mut entries = Entries::default();
    let stats = timeline.for_each(&Select::default(), &mut |moment| {
        match moment {
            Moment::Kernel(number, event) => {
                kernels.get_mut(number).into_iter().for_each(|c| c.event(event, &mut entries));
            }
            Moment::Program(event) => {
                let comms = kernels.first().map(tracedat::Counter::comms);
                programs.iter_mut().for_each(|c| c.event(event, comms, &mut entries));
            }
            // They were not asked for.
            Moment::Run(_) => {}
        }
        ControlFlow::Continue(())
    })?;
    kernels.iter_mut().for_each(|c| c.finish(&mut entries));
    Ok((entries.done(), stats))
}

/// The name of the clock, or what stands for several.
fn clock(timeline: &Timeline) -> String {
    let kernel = timeline.kernels().first().and_then(|k| k.buffers().first());
    let Some(programs) = timeline.programs() else {
        return kernel.map_or("?", |b| &b.clock).to_owned();
    };
    if let Some(kernel) = kernel {
        return kernel.clock.clone();
    }
    let first = programs.traces().first().and_then(|t| t.clock());
    match (programs.times(), first) {
        (Times::Real, _) => "real time".to_owned(),
        (Times::Clock, Some(clock)) => clock.name.clone(),
        (Times::Clock, None) => "none".to_owned(),
    }
}

/// Flags that mean nothing for these recordings.
fn refuse(args: &Args, timeline: &Timeline) -> anyhow::Result<()> {
    let programs = timeline.programs().filter(|_| timeline.kernels().is_empty());
    for (given, flag) in [
        (args.children, "--children"),
        (args.fields.is_some(), "-F"),
        (args.dsos.is_some(), "--dsos"),
        (args.symbols.is_some(), "--symbols"),
        (args.header || args.header_only, "--header (kymo script --header shows it)"),
        (args.parent.is_some(), "--parent"),
        (args.finding.symfs.is_some(), "--symfs"),
        (args.finding.vmlinux.is_some(), "-k"),
        (args.finding.bundle.is_some(), "--bundle"),
        (args.finding.kallsyms.is_some(), "--kallsyms (a trace.dat has its own)"),
    ] {
        if given && programs.is_some() {
            bail!("{} is not for a CTF trace", flag.replace(" (a trace.dat has its own)", ""));
        }
        if given {
            bail!("{flag} is for perf.data, not for a trace.dat");
        }
    }
    match programs {
        Some(programs) if args.call_graph.is_some() && !ctf::has_stacks(programs) => {
            bail!("-g: the events of this CTF trace have no stacks (LTTng's contexts callstack-…)")
        }
        _ => Ok(()),
    }
}
