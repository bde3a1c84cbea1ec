//! Several perf.data by time, each read and ordered by a thread of its own.

use std::sync::{Arc, Mutex};
use std::thread::Scope;

use kymo_files::perfdata::{Batch, Entry, PerfData, PerfDataReadError, PerfDataReadStats};

use super::batch_reader::{BatchReader, WAITING};
use super::perf::{PerfContext, PerfLane};

/// A recording among others.
struct BatchLane<'s> {
    reader: BatchReader<'s, Arc<Batch>>,
    batch: Option<Arc<Batch>>,
    at: usize,
}

impl BatchLane<'_> {
    /// Waits for the next batch if there is none; its next record's time.
    fn time(&mut self) -> Option<u64> {
        loop {
            if let Some(batch) = &self.batch
                && let Some(entry) = batch.get(self.at)
            {
                return Some(entry.time.unwrap_or(0));
            }
            self.batch = Some(self.reader.next()?);
            self.at = 0;
        }
    }
}

/// Several recordings by time.
pub(super) struct BatchMerge<'s, 'c> {
    readers: Vec<BatchLane<'s>>,
    lanes: Vec<PerfLane<&'c PerfContext>>,
}

impl<'s, 'c> BatchMerge<'s, 'c> {
    pub(super) fn start(
        scope: &'s Scope<'s, '_>,
        perf: &'s [Mutex<PerfData>],
        contexts: &'c [PerfContext],
    ) -> BatchMerge<'s, 'c> {
        let reader = |data: &'s Mutex<PerfData>| BatchLane {
            reader: BatchReader::start(scope, (data, WAITING), None, std::convert::identity),
            batch: None,
            at: 0,
        };
        let lanes = contexts.iter().enumerate().map(|(n, c)| PerfLane::new(c, n)).collect();
        BatchMerge { readers: perf.iter().map(reader).collect(), lanes }
    }

    /// The earliest record that was not yet handed out, and its recording.
    pub(super) fn next(&mut self) -> Option<(&mut PerfLane<&'c PerfContext>, Entry<'_>)> {
        let times = self.readers.iter_mut().enumerate().filter_map(|(n, r)| Some((r.time()?, n)));
        let (_, n) = times.min()?;
        let (reader, lane) = (self.readers.get_mut(n)?, self.lanes.get_mut(n)?);
        reader.at += 1;
        let entry = reader.batch.as_ref()?.get(reader.at - 1)?;
        Some((lane, entry))
    }

    /// Statistics of each reader.
    pub(super) fn finish(self) -> Vec<Result<PerfDataReadStats, PerfDataReadError>> {
        self.readers.into_iter().map(|lane| lane.reader.finish()).collect()
    }
}
