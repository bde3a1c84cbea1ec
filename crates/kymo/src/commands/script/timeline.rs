//! Events of a trace.dat, of CTF traces, or of both on one time. They are merged and
//! gathered on one thread, rendered on others.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use kymo_files::Timeline;
use kymo_files::ctf::read::Times;
use kymo_files::tracedat::TraceDat;
use kymo_model::NoteKind;
use kymo_render::ctf::CtfOptions;
use kymo_render::perf_script::FieldSpec;
use kymo_render::timeline::{
    KernelEvents, TimelineFeed, TimelineOptions, TimelineRenderer, timeline_notes,
};
use kymo_render::trace_cmd::{TraceCmdOptions, trace_cmd_cpus, trace_cmd_header};

use super::{Args, ctf_header, nothing, output};
use crate::commands::timeline::{end, ledger};

/// More threads than this only wait for the one that merges.
const MAX_RENDERERS: usize = 6;

pub(super) fn run(args: &Args, paths: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let mut timeline = Timeline::open(paths)?;
    refuse(args, &timeline)?;
    if let Some(programs) = timeline.programs_mut().filter(|_| args.real_time) {
        programs.set_times(Times::Real);
    }
    let filter = args.selection(|| Ok(timeline.span()?))?;
    if args.header || args.header_only {
        timeline
            .kernels()
            .iter()
            .try_for_each(|k| output::write(trace_cmd_header(k).as_bytes()))?;
        timeline.programs().map_or(Ok(()), |p| output::write(ctf_header::text(p).as_bytes()))?;
        if args.header_only {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let kernels: Vec<KernelEvents<'_>> = timeline.kernels().iter().map(KernelEvents::new).collect();
    if let ([data], None, false) = (timeline.kernels(), timeline.programs(), args.json) {
        output::write(trace_cmd_cpus(data).as_bytes())?;
    }
    timeline.kernels().iter().try_for_each(write_texts)?;
    let first = TimelineRenderer::new(&args.timeline_options()?, &timeline, &kernels, &filter)?;
    // A time since the line before is known to who wrote that line.
    let in_turn = args.reltime || args.deltatime;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let n = if in_turn { 1 } else { threads.min(MAX_RENDERERS) };
    let renderers = std::iter::repeat_with(|| first.fork_for_thread()).take(n).collect();
    let feed = TimelineFeed::new(!args.json, &timeline, &kernels);
    let (stats, renderers) = output::render_in_order(renderers, |give| feed.run(&filter, give))?;
    let stats = stats?;
    let mut ledger = ledger(&timeline, &stats);
    timeline_notes(&renderers).into_iter().for_each(|note| ledger.push(note));
    let texts = timeline.kernels().iter().flat_map(|k| k.buffers()).any(|b| b.text.is_some());
    if !texts && !renderers.iter().any(TimelineRenderer::has_shown) {
        ledger.tell(NoteKind::Nothing, nothing(args), None);
    }
    std::io::stderr().write_all(ledger.to_text("").as_bytes())?;
    Ok(end(&timeline, &stats, (&ledger, args.strict), "was printed"))
}

/// Flags that mean nothing for these recordings.
fn refuse(args: &Args, timeline: &Timeline) -> anyhow::Result<()> {
    let shows = args.show_task_events
        || args.show_mmap_events
        || args.show_lost_events
        || args.show_switch_events;
    let (kernel, programs) = (!timeline.kernels().is_empty(), timeline.programs().is_some());
    for (given, flag) in [
        (args.dump_raw_trace, "-D"),
        (shows, "--show-…-events"),
        (!args.symbols.is_empty(), "-S"),
        (args.finding.symfs.is_some(), "--symfs"),
        (args.finding.vmlinux.is_some(), "-k"),
        (args.finding.kallsyms.is_some(), "--kallsyms"),
        (args.finding.bundle.is_some(), "--bundle"),
        (kernel && !args.fields.is_empty(), "-F"),
        (kernel && args.reltime, "--reltime"),
        (kernel && args.deltatime, "--deltatime"),
    ] {
        if given && kernel {
            bail!("{flag} is for perf.data, not for a trace.dat");
        }
        if given {
            bail!("{flag} is not for a CTF trace");
        }
    }
    if args.latency && programs {
        bail!("-l is not for a CTF trace");
    }
    if args.real_time && timeline.is_mixed() {
        bail!(
            "--real-time is for traces of programs alone: the kernel's times are CLOCK_MONOTONIC"
        );
    }
    Ok(())
}

/// Writes the kernel's own text, which recordings of latency tracers hold.
fn write_texts(data: &TraceDat) -> anyhow::Result<()> {
    for buffer in data.buffers().iter().filter(|b| b.text.is_some()) {
        data.read_text(buffer, &mut output::write)?;
    }
    Ok(())
}

impl Args {
    fn timeline_options(&self) -> anyhow::Result<TimelineOptions> {
        let kernel = TraceCmdOptions { json: self.json, latency: self.latency, ns: self.ns };
        let fields = FieldSpec::parse(&self.fields)?;
        let programs = CtfOptions { fields, style: self.style(), json: self.json };
        Ok(TimelineOptions { kernel, programs })
    }
}
