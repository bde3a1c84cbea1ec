//! Recordings, read for several threads: batches of events are handed to workers, which look
//! at fields and count.

use std::ops::ControlFlow;

use kymo_files::perfdata::RecordOrder;
use kymo_files::{Moment, Timeline, TimelineSelect};

use super::ctf::CtfContext;
use super::event_batch::EventBatch;
use super::ftrace::KernelContext;
use super::ftrace_feed::KernelFeed;
use super::hand_off::{EventConsumer, EventFeed, EventReader, SharedBatches};
use super::perf::SampleFeed;
use super::registry::Registry;
use super::summary::PerfSummary;
use super::{EventSource, ReadSummary, SourceError, time_of};
use crate::selection::EventSelection;
use crate::worker_pool::{WorkerPool, worker_count};

impl EventSource {
    /// Hands the selected events to several consumers, each on a thread of its own where
    /// that pays. A stack that ftrace records as an event of its own comes with the event it
    /// belongs to. Every consumer sees its events of one recording by time, but not all of
    /// them, and recordings one after the other; `Break` of one stops all. Events do not say
    /// what was lost before them (`RecordedEvent::lost`): the summary has the sums.
    ///
    /// # Errors
    /// If reading fails, or the filter fits no event class.
    pub fn for_each_on_threads<C: EventConsumer>(
        &self,
        selection: &EventSelection,
        mut consumer: impl FnMut() -> C,
    ) -> Result<(ReadSummary, Vec<C>), SourceError> {
        self.check(selection)?;
        let timeline = self.timeline.as_ref();
        let kernels = timeline.map_or_else(Vec::new, |t| self.kernel_contexts(t));
        let mut lanes = timeline.map(|t| TimelineFeed::new((self, t), &kernels));
        let mut samples: Vec<SampleFeed> =
            (0..self.perf.len()).map(|n| SampleFeed::new(n, &self.symbols)).collect();
        let shared = SharedBatches::default();
        let facts: Vec<_> = kernels.iter().map(KernelContext::facts).collect();
        let readers: Vec<_> = std::iter::repeat_with(|| {
            let samples = samples.iter().map(SampleFeed::reader).collect();
            let programs = lanes.as_ref().and_then(|l| l.programs.as_ref());
            let programs = programs.map(CtfContext::reader);
            EventReader::new(consumer(), facts.clone(), programs, samples, &shared)
        })
        .take(worker_count())
        .collect();
        let mut registry = Registry::new(selection);
        std::thread::scope(|scope| {
            let pool = WorkerPool::start(scope, "events", readers);
            let mut feed = EventFeed::new(pool, &shared, &registry);
            let mut summary = ReadSummary::default();
            for (number, samples) in samples.iter_mut().enumerate() {
                let Some(mut data) = self.perf(number) else { continue };
                let stats = data.for_each_batch(RecordOrder::Time, &mut |records| {
                    feed.give(samples.prepare(records, &mut registry))
                })?;
                summary.perf.push(PerfSummary::new(&data, stats));
            }
            if let Some((timeline, lanes)) = timeline.zip(lanes.as_mut()) {
                // Events of programs may come several in one piece where nothing of the kernel has
                // to be known for each of them.
                let select =
                    TimelineSelect { runs: lanes.kernels.is_empty(), ..self.select(selection) };
                let mut walk = timeline.walk(&select)?;
                let (from, until) = (self.whole_from.unwrap_or(0), selection.until());
                let flow = walk.run(u64::MAX, &mut |moment| {
                    match time_of(&moment) {
                        time if time > until => return ControlFlow::Break(()),
                        time if time < from => return ControlFlow::Continue(()),
                        _ => {}
                    }
                    lanes.moment(moment, &mut registry, &mut feed.batch);
                    if feed.batch.is_full() {
                        feed.flush(&registry, |old, new| lanes.carry(old, new))
                    } else {
                        ControlFlow::Continue(())
                    }
                })?;
                let _ = (flow, feed.flush(&registry, |_, _| {}));
                summary.timeline = Some(walk.into_stats());
            }
            let consumers = feed.finish();
            samples.into_iter().for_each(|s| summary.add_samples(s.finish()));
            kernels.iter().for_each(|kernel| summary.add(kernel.notes()));
            let programs = lanes.as_ref().and_then(|l| l.programs.as_ref());
            programs.iter().for_each(|programs| summary.add(programs.notes()));
            Ok((summary, consumers))
        })
    }
}

/// The recordings of trace.dat and CTF under way.
struct TimelineFeed<'s> {
    kernels: Vec<KernelFeed<'s>>,
    programs: Option<CtfContext<'s>>,
}

impl<'s> TimelineFeed<'s> {
    fn new(
        (source, timeline): (&'s EventSource, &'s Timeline),
        kernels: &'s [KernelContext<'s>],
    ) -> TimelineFeed<'s> {
        let first = source.perf.len();
        let names = kernels.first().map(KernelContext::names);
        let feed = |(n, k): (usize, &'s KernelContext<'s>)| KernelFeed::new(k, first + n, n);
        let number = first + kernels.len();
        TimelineFeed {
            kernels: kernels.iter().enumerate().map(feed).collect(),
            programs: timeline
                .programs()
                .map(|p| CtfContext::new(p, number, names, &source.symbols)),
        }
    }

    #[inline]
    fn moment<'f>(
        &mut self,
        moment: Moment<'_>,
        registry: &mut Registry<'f>,
        batch: &mut EventBatch<'f>,
    ) {
        match moment {
            Moment::Kernel(number, event) => {
                if let Some(kernel) = self.kernels.get_mut(number) {
                    kernel.event(event, registry, batch);
                }
            }
            Moment::Program(event) => {
                if let Some(programs) = &mut self.programs {
                    programs.hand_off(event, registry, batch);
                }
            }
            Moment::Run(run) => {
                if let Some(programs) = &mut self.programs {
                    programs.hand_off_run(run, registry, batch);
                }
            }
        }
    }

    fn carry<'f>(&mut self, batch: &mut EventBatch<'f>, next: &mut EventBatch<'f>) {
        self.kernels.iter_mut().for_each(|kernel| kernel.carry(batch, next));
    }
}
