//! `kymo trace -i`: the system calls of a recording, as the lines that are shown while they
//! happen.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use kymo_events::{EventSelection, EventSource, ReadOptions};
use kymo_model::NoteKind;
use kymo_render::syscalls::SyscallLines;
use kymo_view::Ledger;

use super::call_feed::CallFeed;
use super::live_output::is_coloured;
use super::traced_tasks::TracedTasks;
use super::{Args, syscalls};
use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Text that is kept before it is written.
const BUFFER: usize = 1 << 16;

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    if !args.events.is_empty() {
        bail!("-i shows system calls: `kymo script` shows the events of a recording");
    }
    let source = EventSource::open(&[path.to_owned()], SymbolArgs::default().options(path))?;
    let source = source.in_nanoseconds()?;
    let architecture = source.architecture();
    if let Some(other) = architecture.filter(|name| name != std::env::consts::ARCH) {
        bail!("system calls of {other} are not described here: `kymo syscalls report` counts them");
    }
    let mut selection = EventSelection::of_tasks(args.comm.clone(), args.pids()?, args.tid.clone());
    if let Some(cpus) = &args.cpu {
        selection.set_cpus(cpus)?;
    }
    // An event that switches must be there.
    let switch = args.sampled.switch.switch();
    let mut switching = EventSelection::default();
    switching.set_event_names(switch.on.into_iter().chain(switch.off).collect());
    source.check_events(&switching)?;
    let only = syscalls::numbers(&args.call.calls)?;
    let tasks = TracedTasks::of_recording();
    let style = syscalls::style(args, (is_coloured(), true), false);
    let lines = SyscallLines::new(None, tasks, style, None, args.count).with_calls(only);
    let mut lines = syscalls::with_perf_form(lines, args);
    let mut feed = CallFeed::new(args);
    let mut failed = Ok(());
    let options = ReadOptions::default();
    let summary = source.for_each(&selection, options, &mut |event| {
        feed.take(&mut lines, event);
        if lines.output.len() >= BUFFER {
            failed = syscalls::flush(&mut lines.output);
        }
        if failed.is_err() || lines.is_full() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    failed?;
    lines.finish();
    syscalls::flush(&mut lines.output)?;
    let mut ledger = Ledger::from_notes(summary.notes(&source));
    lines.note(&mut |note| ledger.push(note));
    let unmet = selection.unmet_notes(|| source.extent());
    feed.width_note().into_iter().for_each(|note| ledger.push(note));
    if unmet.is_empty() && lines.inspected == 0 {
        let advice = "`kymo syscalls record` and `perf trace record` make such a recording";
        ledger.tell(NoteKind::Nothing, "there are no system calls", Some(advice.into()));
    }
    unmet.into_iter().for_each(|note| ledger.push(note));
    if !args.quiet {
        exit::tell(&ledger);
    }
    let damage = summary.is_damaged(&source).then_some("damaged; what can be read was shown");
    Ok(exit::status(source.name(), damage, &ledger, args.strict))
}
