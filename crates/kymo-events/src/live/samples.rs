//! Events of perf rings while they happen: records of the kernel become the same events that a
//! perf.data of them gives, with the names and mappings of its sideband.

use std::ops::ControlFlow;

use kymo_files::perfdata::{Batch, EventDesc, Features, RingRecords};
use kymo_symbols::ResolverOptions;

use crate::event::RecordedEvent;
use crate::selection::EventSelection;
use crate::source::ReadSummary;
use crate::source::perf::{PerfContext, PerfLane};
use crate::source::registry::Registry;
use crate::source::summary::PerfSummary;
use crate::task_tree::TaskTree;

/// Takes events of perf rings; `Break` ends the handing out.
pub type SampleSink<'k> = &'k mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>;

/// Events of perf rings, by time. All rings are read in turn, then the round ends, and what is
/// complete is handed out.
pub struct LiveSamples<'s> {
    records: RingRecords,
    registry: Registry<'s>,
    lane: PerfLane<PerfContext>,
}

impl<'s> LiveSamples<'s> {
    /// Events as they were opened, on the machine that `features` describe.
    pub fn new(
        selection: &'s EventSelection,
        (events, features): (Vec<EventDesc>, Features),
        symbols: &ResolverOptions,
    ) -> LiveSamples<'s> {
        let lane = PerfLane::new(PerfContext::new(&features, symbols), 0);
        let registry = Registry::new(selection);
        LiveSamples { records: RingRecords::new(events, features), registry, lane }
    }

    /// Adds tasks that start to `tree`.
    pub fn follow(&self, tree: &TaskTree) {
        self.lane.context.follow(tree);
    }

    /// Takes what a ring holds: whole records in two pieces, of which the first may end in a
    /// record that the second begins with.
    pub fn push(&mut self, first: &[u8], second: &[u8]) {
        self.records.push(first, second);
    }

    /// All rings were read: hands out the events that no ring can have an older one than.
    pub fn end_round(&mut self, sink: SampleSink<'_>) -> ControlFlow<()> {
        let LiveSamples { records, registry, lane } = self;
        records.end_round(&mut |batch| give(&batch, registry, lane, sink))
    }

    /// Nothing more comes: hands out the rest.
    pub fn finish(&mut self, sink: SampleSink<'_>) -> ControlFlow<()> {
        let LiveSamples { records, registry, lane } = self;
        records.finish(&mut |batch| give(&batch, registry, lane, sink))
    }

    /// Records that were lost, as far as the rings have reported them.
    pub fn lost(&self) -> u64 {
        self.records.lost()
    }

    /// Summary of what was read.
    pub fn into_summary(self) -> ReadSummary {
        let mut summary = ReadSummary::default();
        summary.perf.push(PerfSummary::of_rings(self.records.stats()));
        summary.add_samples(self.lane.context.finish());
        summary
    }
}

fn give(
    batch: &Batch,
    registry: &mut Registry<'_>,
    lane: &mut PerfLane<PerfContext>,
    sink: SampleSink<'_>,
) -> ControlFlow<()> {
    batch.entries().try_for_each(|entry| lane.record(&entry, registry, sink))
}
