//! Events of a trace.dat, of CTF traces, or of both on one time. They are merged and
//! gathered on one thread, rendered on others.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use kymo_events::EventSource;
use kymo_events::worker_pool::worker_count;
use kymo_files::Timeline;
use kymo_files::ctf::read::Times;
use kymo_files::tracedat::TraceDat;
use kymo_model::NoteKind;
use kymo_render::ctf::CtfOptions;
use kymo_render::perf_script::{ChainOptions, FieldSpec, SourceOptions};
use kymo_render::timeline::{
    KernelEvents, TimelineFeed, TimelineOptions, TimelineRenderer, timeline_notes,
};
use kymo_render::trace_cmd::{TraceCmdOptions, trace_cmd_cpus, trace_cmd_header};
use kymo_view::Ledger;
use kymo_view::trust::note_chains;

use super::{Args, ctf_header, frame_addresses, nothing, output};
use crate::exit;

pub(super) fn run(args: &Args, paths: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let first = paths.first().cloned().unwrap_or_default();
    let mut source = EventSource::open(paths, args.finding.options(&first))?;
    refuse(args, &source)?;
    let programs = source.timeline_mut().and_then(Timeline::programs_mut);
    if let Some(programs) = programs.filter(|_| args.real_time) {
        programs.set_times(Times::Real);
    }
    let source = source;
    let filter = args.selection(|| Ok(source.span()?))?;
    let trace_dats = || source.timeline().map_or(&[][..], Timeline::kernels).iter();
    let programs = source.timeline().and_then(Timeline::programs);
    if args.header || args.header_only {
        trace_dats().try_for_each(|k| output::write(trace_cmd_header(k).as_bytes()))?;
        programs.map_or(Ok(()), |p| output::write(ctf_header::text(p).as_bytes()))?;
        if args.header_only {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let kernels: Vec<KernelEvents<'_>> = trace_dats().map(KernelEvents::new).collect();
    let alone = source.perf_count() == 0 && programs.is_none() && kernels.len() == 1;
    if let Some(data) = trace_dats().next().filter(|_| alone && !args.json) {
        output::write(trace_cmd_cpus(data).as_bytes())?;
    }
    trace_dats().try_for_each(write_texts)?;
    let options = args.timeline_options()?;
    let first = TimelineRenderer::new(&options, &source, &kernels, &filter)?;
    // A time since the line before is known to who wrote that line.
    let sequential = args.reltime || args.deltatime;
    let n = if sequential { 1 } else { worker_count() };
    let renderers = std::iter::repeat_with(|| first.fork_for_thread()).take(n).collect();
    let feed = TimelineFeed::new(options.kernel, args.chain_options(), &source, &kernels);
    let (stats, renderers) = output::render_in_order(renderers, |give| feed.run(&filter, give))?;
    let summary = stats?;
    let mut ledger = Ledger::from_notes(summary.notes(&source));
    note_chains(&summary, &mut ledger);
    timeline_notes(&renderers).into_iter().for_each(|note| ledger.push(note));
    let texts = trace_dats().flat_map(|k| k.buffers()).any(|b| b.text.is_some());
    let unmet = filter.unmet_notes(|| source.extent());
    if unmet.is_empty() && !texts && !renderers.iter().any(TimelineRenderer::has_shown) {
        ledger.tell(NoteKind::Nothing, nothing(args), None);
    }
    unmet.into_iter().for_each(|note| ledger.push(note));
    exit::tell(&ledger);
    let damage = summary.is_damaged(&source).then_some("damaged; what can be read was printed");
    Ok(exit::status(source.name(), damage, &ledger, args.strict))
}

/// Flags that mean nothing for these recordings.
fn refuse(args: &Args, source: &EventSource) -> anyhow::Result<()> {
    let shows = args.show_task_events
        || args.show_mmap_events
        || args.show_lost_events
        || args.show_switch_events
        || args.show_namespace_events
        || args.show_cgroup_events
        || args.show_bpf_events
        || args.show_round_events
        || args.show_text_poke_events;
    let timeline = source.timeline();
    let has_perf = source.perf_count() > 0;
    let kernel = has_perf || timeline.is_some_and(|t| !t.kernels().is_empty());
    let programs = timeline.is_some_and(|t| t.programs().is_some());
    let is_mixed = kernel && programs;
    for (given, flag) in [
        (args.dump_raw_trace, "-D"),
        (shows, "--show-…-events"),
        (args.switch.is_given(), "--switch-on"),
        (!args.symbols.is_empty(), "-S"),
        (!args.dsos.is_empty(), "--dsos"),
        (!args.stop_bt.is_empty(), "--stop-bt"),
        (args.no_merge_callchains, "--no-merge-callchains"),
        (!has_perf && args.finding.symfs.is_some(), "--symfs"),
        (!has_perf && args.finding.vmlinux.is_some(), "-k"),
        (!has_perf && args.finding.kallsyms.is_some(), "--kallsyms"),
        (!has_perf && args.finding.bundle.is_some(), "--bundle"),
        (kernel && !args.fields.is_empty(), "-F"),
        (kernel && args.reltime, "--reltime"),
        (kernel && args.deltatime, "--deltatime"),
    ] {
        if given && kernel {
            let what = if has_perf { "several recordings" } else { "a trace.dat" };
            bail!("{flag} is for perf.data, not for {what}");
        }
        if given {
            bail!("{flag} is not for a CTF trace");
        }
    }
    if args.latency && (programs || has_perf) {
        let what = if has_perf { "perf.data" } else { "a CTF trace" };
        bail!("-l is not for {what}");
    }
    if args.real_time && is_mixed {
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
    fn chain_options(&self) -> Option<ChainOptions> {
        let sources = SourceOptions { inlines: !self.no_inline, full_paths: self.full_source_path };
        (!self.hide_call_graph).then(|| ChainOptions {
            max_stack: self.max_stack,
            addresses: frame_addresses(),
            sources,
        })
    }

    fn timeline_options(&self) -> anyhow::Result<TimelineOptions> {
        let kernel = TraceCmdOptions { json: self.json, latency: self.latency, ns: self.ns };
        let fields = FieldSpec::parse(&self.fields)?;
        let programs = CtfOptions { fields, style: self.style(), json: self.json };
        Ok(TimelineOptions { kernel, programs })
    }
}
