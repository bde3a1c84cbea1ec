//! Events of a trace.dat, of CTF traces, or of both on one time: gathered into batches by
//! the thread that merges them, rendered by others.

use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_events::payload::{KallsymsSource, KernelNames};
use kymo_events::trace_dat::FormatTable;
use kymo_events::{
    EventSelection, EventSource, ReadSummary, RecordedEvent, SourceError, SourcePiece,
};
use kymo_files::tracedat::TraceDat;
use kymo_files::{Moment, Timeline};
use kymo_model::Note;

use crate::ctf::{CtfBatch, CtfFieldsError, CtfOptions, CtfRenderer, ctf_notes};
use crate::error::RenderError;
use crate::event_lines::EventLines;
use crate::ordered_pool::{OrderedJob, OrderedWorker};
use crate::perf_script::ChainOptions;
use crate::trace_cmd::{
    TraceCmdBatch, TraceCmdFeed, TraceCmdOptions, TraceCmdRenderer, trace_cmd_notes,
};

/// Bytes of events that go together.
const FULL: usize = 192 << 10;
/// Events that go together: with few bytes each they still are enough work.
const MANY: usize = 8 << 10;

/// A recording of the kernel, with what rendering its events needs.
pub struct KernelEvents<'t> {
    data: &'t TraceDat,
    formats: FormatTable<'t>,
    names: KernelNames,
}

impl<'t> KernelEvents<'t> {
    /// Reads what rendering needs, as far as it is known before the first event.
    pub fn new(data: &'t TraceDat) -> KernelEvents<'t> {
        let machine = data.machine();
        let kallsyms = KallsymsSource::EmbeddedByKernel(Arc::clone(&machine.kallsyms));
        let names = KernelNames::new(kallsyms, &machine.printk_formats);
        KernelEvents { data, formats: FormatTable::new(data), names }
    }
}

/// Origin of an event: a recording of the kernel by number, or this value for programs.
const PROGRAMS: u32 = u32::MAX;
/// Origin of an event of a perf.data, whose lines are made as events come: this plus its number.
const PERF_DATA: u32 = 1 << 31;

/// Events that are rendered together.
#[derive(Default)]
pub struct TimelineBatch {
    /// In their order: a number of the next events of a recording.
    runs: Vec<(u32, u32)>,
    events: usize,
    kernels: Vec<TraceCmdBatch>,
    programs: CtfBatch,
    /// Lines of each perf.data.
    perf: Vec<PerfLines>,
}

/// Lines of events of a perf.data, and where those of each event end.
#[derive(Default)]
struct PerfLines {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl TimelineBatch {
    fn new(kernels: usize) -> TimelineBatch {
        let kernels = std::iter::repeat_with(TraceCmdBatch::default).take(kernels).collect();
        TimelineBatch { kernels, ..TimelineBatch::default() }
    }

    #[inline]
    fn is_full(&self) -> bool {
        let of_kernels = || self.kernels.iter().map(|k| k.bytes()).sum::<usize>();
        let of_perf = || self.perf.iter().map(|p| p.text.len()).sum::<usize>();
        self.events >= MANY || of_kernels() + self.programs.bytes() + of_perf() >= FULL
    }

    #[inline]
    fn count(&mut self, whose: u32, events: usize) {
        self.events += events;
        match self.runs.last_mut() {
            Some((of, n)) if *of == whose => *n += events as u32,
            _ => self.runs.push((whose, events as u32)),
        }
    }
}

/// Merges recordings by time and gathers their events into batches.
pub struct TimelineFeed<'a> {
    source: &'a EventSource,
    kernels: Vec<TraceCmdFeed<'a>>,
    perf_lines: EventLines,
}

impl<'a> TimelineFeed<'a> {
    /// Events of perf.data are rendered as they come, with their call chains if `chains` says
    /// how.
    pub fn new(
        options: TraceCmdOptions,
        chains: Option<ChainOptions>,
        source: &'a EventSource,
        kernels: &'a [KernelEvents<'_>],
    ) -> TimelineFeed<'a> {
        // Entries and exits of functions are put together in text.
        let graph = !options.json;
        let feed = |k: &'a KernelEvents<'_>| TraceCmdFeed::new(k.data, &k.formats, graph);
        let perf_lines = EventLines::new(options).with_chains(chains);
        TimelineFeed { source, kernels: kernels.iter().map(feed).collect(), perf_lines }
    }

    /// Hands over batches of the events that `filter` may want.
    pub fn run(
        mut self,
        filter: &EventSelection,
        give: &mut dyn FnMut(OrderedJob<TimelineBatch>) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        let count = self.kernels.len();
        let mut batch = TimelineBatch::new(count);
        let mut give = |batch: TimelineBatch| {
            let for_all = batch.kernels.iter().any(TraceCmdBatch::defines_tasks);
            give(OrderedJob { job: batch, for_all })
        };
        let source = self.source;
        let summary = source.for_each_piece(filter, |piece| {
            self.add(piece, &mut batch);
            if !batch.is_full() {
                return ControlFlow::Continue(());
            }
            let within = self.kernels.iter().any(TraceCmdFeed::is_within);
            if within && batch.events < 4 * MANY {
                return ControlFlow::Continue(());
            }
            self.kernels.iter_mut().for_each(TraceCmdFeed::separate);
            self.complete(&mut batch);
            give(std::mem::replace(&mut batch, TimelineBatch::new(count)))
        });
        if batch.events > 0 {
            self.complete(&mut batch);
            let _ = give(batch);
        }
        summary
    }

    /// Adds to lines the texts that are resolved for many samples together.
    fn complete(&mut self, batch: &mut TimelineBatch) {
        for (recording, lines) in batch.perf.iter_mut().enumerate() {
            self.perf_lines.add_sources(recording, &mut lines.text, &mut lines.ends);
        }
    }

    fn add_sample(&mut self, event: &RecordedEvent<'_>, batch: &mut TimelineBatch) {
        let recording = event.class.recording;
        if batch.perf.len() <= recording {
            batch.perf.resize_with(recording + 1, PerfLines::default);
        }
        let Some(lines) = batch.perf.get_mut(recording) else { return };
        self.perf_lines.write(event, &mut lines.text);
        lines.ends.push(lines.text.len());
        batch.count(PERF_DATA | recording as u32, 1);
    }

    #[inline]
    fn add(&mut self, piece: SourcePiece<'_, '_>, batch: &mut TimelineBatch) {
        let moment = match piece {
            SourcePiece::Moment(moment) => moment,
            SourcePiece::Event(event) => {
                self.kernels.iter_mut().for_each(TraceCmdFeed::separate);
                return self.add_sample(event, batch);
            }
        };
        match moment {
            Moment::Kernel(number, event) => {
                let (feed, place) = (self.kernels.get_mut(number), batch.kernels.get_mut(number));
                if let (Some(feed), Some(place)) = (feed, place)
                    && feed.add(event, place)
                {
                    batch.count(number as u32, 1);
                }
            }
            Moment::Program(event) => {
                self.kernels.iter_mut().for_each(TraceCmdFeed::separate);
                batch.programs.push(event);
                batch.count(PROGRAMS, 1);
            }
            Moment::Run(run) => {
                self.kernels.iter_mut().for_each(TraceCmdFeed::separate);
                batch.programs.push_run(run);
                batch.count(PROGRAMS, run.events.len());
            }
        }
    }
}

/// Options of rendering events of several recordings.
#[derive(Clone, Debug)]
pub struct TimelineOptions {
    /// Form of events of the kernel.
    pub kernel: TraceCmdOptions,
    /// Form of events of programs.
    pub programs: CtfOptions,
}

/// Renders events of the kernel and of programs.
pub struct TimelineRenderer<'t> {
    kernels: Vec<TraceCmdRenderer<'t>>,
    programs: Option<CtfRenderer<'t>>,
    /// Lines of perf.data were printed.
    shown: bool,
}

impl<'t> TimelineRenderer<'t> {
    /// Fails if fields were asked for that events of programs do not have.
    pub fn new(
        options: &TimelineOptions,
        source: &'t EventSource,
        kernels: &'t [KernelEvents<'t>],
        filter: &EventSelection,
    ) -> Result<TimelineRenderer<'t>, CtfFieldsError> {
        let kernel = |k: &'t KernelEvents<'t>| {
            TraceCmdRenderer::new(options.kernel, k.data, &k.formats, &k.names, filter.clone())
        };
        let timeline = source.timeline();
        let beside = source.perf_count() > 0 || timeline.is_some_and(Timeline::is_mixed);
        let programs = timeline.and_then(Timeline::programs);
        let programs =
            programs.map(|p| CtfRenderer::new(&options.programs, p, filter.clone(), beside));
        let kernels = kernels.iter().map(kernel).collect();
        Ok(TimelineRenderer { kernels, programs: programs.transpose()?, shown: false })
    }

    /// Renderer for another thread, which has seen nothing.
    pub fn fork_for_thread(&self) -> TimelineRenderer<'t> {
        TimelineRenderer {
            kernels: self.kernels.iter().map(TraceCmdRenderer::fork_for_thread).collect(),
            programs: self.programs.as_ref().map(CtfRenderer::fork_for_thread),
            shown: false,
        }
    }

    /// Whether anything was printed.
    pub fn has_shown(&self) -> bool {
        self.shown
            || self.kernels.iter().any(|k| k.shown)
            || self.programs.as_ref().is_some_and(|p| p.shown)
    }
}

impl OrderedWorker<TimelineBatch> for TimelineRenderer<'_> {
    fn render(&mut self, batch: &TimelineBatch, out: &mut Vec<u8>) -> Result<(), RenderError> {
        // For each recording the next event and the next name.
        let mut places = vec![(0, 0); batch.kernels.len()];
        // For each perf.data the next event, and where its lines begin.
        let mut lines = vec![(0, 0); batch.perf.len()];
        let mut program = 0;
        for (whose, count) in &batch.runs {
            if (PERF_DATA..PROGRAMS).contains(whose) {
                let number = (*whose - PERF_DATA) as usize;
                if let (Some(all), Some((event, from))) =
                    (batch.perf.get(number), lines.get_mut(number))
                {
                    *event += *count as usize;
                    let to = all.ends.get(*event - 1).copied().unwrap_or(*from);
                    out.extend_from_slice(all.text.get(*from..to).unwrap_or(&[]));
                    (*from, self.shown) = (to, true);
                }
                continue;
            }
            if *whose == PROGRAMS {
                if let Some(printer) = &mut self.programs {
                    let next = program + *count as usize;
                    let comms = self.kernels.first().map(TraceCmdRenderer::comms);
                    printer.render(&batch.programs, program..next, comms, out);
                    program = next;
                }
                continue;
            }
            let number = *whose as usize;
            if let (Some(printer), Some(events), Some((event, name))) =
                (self.kernels.get_mut(number), batch.kernels.get(number), places.get_mut(number))
            {
                for _ in 0..*count {
                    printer.render(events, *event, name, out);
                    *event += 1;
                }
            }
        }
        // What holds after the last event.
        let kernels = self.kernels.iter_mut().zip(&batch.kernels).zip(places);
        kernels.for_each(|((printer, b), (_, change))| printer.pass(b, change));
        Ok(())
    }

    fn pass(&mut self, batch: &TimelineBatch) {
        self.kernels.iter_mut().zip(&batch.kernels).for_each(|(printer, b)| printer.pass(b, 0));
    }
}

/// Notes on events that could not be rendered.
pub fn timeline_notes(renderers: &[TimelineRenderer<'_>]) -> Vec<Note> {
    let kernels = renderers.first().map_or(0, |r| r.kernels.len());
    let of_kernel = |number: usize| {
        trace_cmd_notes(renderers.iter().filter_map(move |r| r.kernels.get(number)))
    };
    let mut notes: Vec<Note> = (0..kernels).flat_map(of_kernel).collect();
    notes.extend(ctf_notes(renderers.iter().filter_map(|r| r.programs.as_ref())));
    notes
}
