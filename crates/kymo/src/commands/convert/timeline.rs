//! `kymo convert -f chrome` and `-f perfetto`: what was recorded over time, not only the stacks.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use flate2::Compression;
use flate2::write::GzEncoder;
use kymo_analysis::tasks::sched_notes;
use kymo_analysis::tracks::{TrackConfig, TrackTask, read_tracks};
use kymo_events::{ClassOrigin, EventPass, EventSelection, EventSource};
use kymo_model::{NoteKind, counted};
use kymo_render::syscalls::{syscall_name, syscall_names};
use kymo_view::Ledger;
use kymo_view::export::{chrome, perfetto};
use kymo_view::recording_stacks::{RecordingStacks, SampleWeight, StackPlan, TaskSplit};

use super::{Args, Format, is_packed, output};
use crate::exit;

pub(super) fn convert(
    args: &Args,
    format: Format,
    source: &EventSource,
    selection: &EventSelection,
) -> anyhow::Result<ExitCode> {
    if selection.has_task_conditions() || selection.cpus().is_some() {
        bail!("a timeline is of all tasks and CPUs: choose a part of it by --time");
    }
    if args.weight != SampleWeight::Period {
        bail!("--weight is for stacks: a timeline has the times themselves");
    }
    let config = TrackConfig {
        selection: selection.clone(),
        name_of: source.architecture().as_deref().map_or(syscall_name, syscall_names),
        lists_switches: true,
        text_limit: 0,
        progress: None,
    };
    source.explain(selection);
    // Tracepoints are on the tracks already, unless they are named.
    let mut sampled = selection.clone();
    let names = source.classes();
    let names = names.iter().filter(|c| c.origin == ClassOrigin::Sample);
    let names: Vec<String> = names.map(|c| c.full_name.clone()).collect();
    let has_samples = !names.is_empty() || selection.names_events();
    if !selection.names_events() && has_samples {
        sampled.set_event_names(names);
    }
    let plan = StackPlan {
        selection: &sampled,
        binaries: &args.chosen.dsos,
        split: TaskSplit::Tid,
        weight: SampleWeight::Period,
        moments: true,
        addresses: format == Format::Perfetto,
        inlines: !args.no_inline,
        one_event: false,
    };
    let (tracks, read) = if has_samples {
        let tracks = |beside: Option<EventPass<'_>>| read_tracks(source, &config, beside);
        RecordingStacks::read_beside(source, &plan, tracks)?
    } else {
        (read_tracks(source, &config, None)?.0, RecordingStacks::default())
    };
    let RecordingStacks { stacks, ledger: told, damage } = read;
    let mut ledger = Ledger::from_notes(tracks.summary().notes(source));
    ledger.extend(told);
    if tracks.sched.machine.counts.switches == 0 {
        let advice = "record them: -e sched:sched_switch -e sched:sched_waking";
        let fact = "CPUs and waits are missing: there are no sched_switch events";
        ledger.tell(NoteKind::Events, fact, Some(advice.into()));
    } else {
        let record = "kymo record -a -e sched:sched_switch -e sched:sched_waking";
        sched_notes(&tracks.sched, record).into_iter().for_each(|n| ledger.push(n));
    }
    tracks.counts.notes().into_iter().for_each(|n| ledger.push(n));
    let is_unknown = |task: &&TrackTask| task.tid != 0 && task.pid.is_none();
    let unknown = tracks.tasks.iter().filter(is_unknown).count();
    if unknown > 0 {
        // A trace.dat has thread ids alone.
        let threads = counted(unknown as u64, "thread", "threads");
        let fact = format!("the process of {threads} is not known: each is shown as its own");
        let advice = "record the start of tasks: -e task:task_newtask -e sched:sched_process_exec";
        ledger.tell(NoteKind::Events, fact, Some(advice.into()));
    }
    output::write(args.output.as_deref(), args.force, &mut |out: &mut dyn Write| {
        if format == Format::Perfetto {
            return perfetto::write(&tracks, &stacks, source.wall_offset(), out);
        }
        if !args.output.as_deref().is_some_and(is_packed) {
            return chrome::write(&tracks, &stacks, out);
        }
        let mut packed = GzEncoder::new(out, Compression::default());
        chrome::write(&tracks, &stacks, &mut packed)?;
        packed.finish().map(|_| ())
    })?;
    say!("{}", ledger.to_text(""));
    Ok(exit::status(source.name(), damage.as_deref(), &ledger, args.strict))
}
