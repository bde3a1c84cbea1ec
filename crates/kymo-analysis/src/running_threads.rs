//! Number of threads that run at a time, by the context switch records of a recording: the
//! parallelism of a sample, by which perf report --latency divides its period.

use kymo_files::perfdata::Entry;
use kymo_model::{RecordKind, Sideband};
use rustc_hash::FxHashMap;

/// Use of the parallelism of samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParallelismOptions {
    /// Samples weigh their period divided by it.
    pub weigh: bool,
    /// Samples of different parallelism are kept apart.
    pub keep_apart: bool,
}

impl ParallelismOptions {
    /// Whether it has to be known.
    pub fn is_asked_for(&self) -> bool {
        self.weigh || self.keep_apart
    }
}

/// Threads that run.
#[derive(Debug)]
pub(crate) struct RunningThreads {
    /// Whether each thread that was seen runs.
    threads: FxHashMap<u32, bool>,
    running: u32,
    cpus: u32,
}

impl RunningThreads {
    /// Creates the state for a machine with this number of CPUs, if it is known.
    pub(crate) fn new(cpus: Option<u32>) -> RunningThreads {
        let cpus = cpus.filter(|n| *n > 0).unwrap_or(u32::MAX);
        RunningThreads { threads: FxHashMap::default(), running: 0, cpus }
    }

    fn set(&mut self, tid: u32, runs: Option<bool>) {
        // Neither idle tasks nor threads that are being released are distinguished.
        if matches!(tid, 0 | u32::MAX) {
            return;
        }
        let before = match runs {
            Some(runs) => self.threads.insert(tid, runs),
            None => self.threads.remove(&tid),
        };
        self.running -= u32::from(before == Some(true));
        self.running += u32::from(runs == Some(true));
    }

    /// Takes note of a record that is no sample.
    pub(crate) fn apply(&mut self, entry: &Entry<'_>) {
        let wanted = [RecordKind::SWITCH, RecordKind::SWITCH_CPU_WIDE, RecordKind::EXIT];
        if !wanted.contains(&entry.raw.kind) {
            return;
        }
        let id = entry.desc().and_then(|desc| entry.raw.sample_id(&desc.attr).ok());
        match (Sideband::parse(&entry.raw), id.and_then(|id| id.tid)) {
            (Ok(Some(Sideband::Exit(exit))), _) => self.set(exit.tid, None),
            (Ok(Some(Sideband::Switch(switch))), Some((_, tid))) => {
                self.set(tid, Some(!switch.out));
            }
            _ => {}
        }
    }

    /// Number of threads that run while a thread is sampled, itself included.
    pub(crate) fn at_sample(&mut self, tid: u32) -> u32 {
        // It ran before the first record of it; after its last one it is on its way out.
        if !self.threads.contains_key(&tid) {
            self.set(tid, Some(true));
        }
        let leaves = self.threads.get(&tid) == Some(&false);
        (self.running + u32::from(leaves)).clamp(1, self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_run_from_their_first_sample_to_their_end() {
        let mut r = RunningThreads::new(Some(3));
        assert_eq!([r.at_sample(7), r.at_sample(7), r.at_sample(8)], [1, 1, 2]);
        r.set(7, Some(false));
        assert_eq!([r.at_sample(8), r.at_sample(7), r.at_sample(0)], [1, 2, 1]);
        [7, 9, 10].into_iter().for_each(|tid| r.set(tid, Some(true)));
        assert_eq!(r.at_sample(8), 3, "no more than there are CPUs");
        [7, 8, 9].into_iter().for_each(|tid| r.set(tid, None));
        r.set(8, None);
        assert_eq!(r.at_sample(10), 1);
        r.set(0, Some(true));
        assert_eq!(r.at_sample(0), 1);
    }
}
