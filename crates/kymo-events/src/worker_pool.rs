//! Work for several threads: one feeds, each of the others takes every n-th job. Jobs are
//! dealt out in turn, so that results do not depend on who is faster.
//!
//! ```text
//!   feeding thread ── job, job, job … ─┬─► worker 0
//!                                      └─► worker 1
//! ```
//!
//! A job holds all that its work needs: workers keep no state that jobs of others change.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Number of workers that the user chose; 0: none.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);
/// Jobs that wait for each worker.
const WAITING: usize = 2;

/// Does the work of one thread.
pub trait PoolWorker<J>: Send {
    /// Does a job.
    fn work(&mut self, job: J);
}

/// Chooses the number of threads that work beside the feeding one, for this process.
pub fn choose_worker_count(count: usize) {
    CHOSEN.store(count, Ordering::Relaxed);
}

/// Number of threads that work beside the feeding one: the number of CPUs, unless another one was
/// set.
pub fn worker_count() -> usize {
    match CHOSEN.load(Ordering::Relaxed) {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        chosen => chosen,
    }
}

/// Workers on threads of their own, or one on the feeding thread where more would not pay.
pub struct WorkerPool<'s, J, W> {
    own: Vec<W>,
    others: Vec<(SyncSender<J>, ScopedJoinHandle<'s, W>)>,
    next: usize,
}

impl<'s, J: Send + 's, W: PoolWorker<J> + 's> WorkerPool<'s, J, W> {
    /// Starts the workers on threads called `name`.
    pub fn start(
        scope: &'s Scope<'s, '_>,
        name: &str,
        workers: impl IntoIterator<Item = W>,
    ) -> WorkerPool<'s, J, W> {
        let mut workers: Vec<W> = workers.into_iter().collect();
        let mut others = Vec::new();
        while workers.len() + others.len() > 1 {
            let Some(mut worker) = workers.pop() else { break };
            let (sender, jobs) = sync_channel::<J>(WAITING);
            let work = move || {
                for job in jobs {
                    worker.work(job);
                }
                worker
            };
            // Without more threads it takes longer.
            let Ok(thread) = Builder::new().name(name.into()).spawn_scoped(scope, work) else {
                break;
            };
            others.push((sender, thread));
        }
        WorkerPool { own: workers, others, next: 0 }
    }

    /// Has a job done.
    pub fn give(&mut self, job: J) {
        self.give_to(self.next, job);
        self.next = (self.next + 1) % self.others.len().max(1);
    }

    /// Has every worker do a job; `job` receives whether the next job is that worker's.
    pub fn give_each(&mut self, mut job: impl FnMut(bool) -> J) {
        for number in 0..self.others.len().max(1) {
            self.give_to(number, job(number == self.next));
        }
        self.next = (self.next + 1) % self.others.len().max(1);
    }

    fn give_to(&mut self, number: usize, job: J) {
        match (self.others.get(number), self.own.first_mut()) {
            // It cannot fail but after a panic, which `finish` passes on.
            (Some((sender, _)), _) => drop(sender.send(job)),
            (None, Some(worker)) => worker.work(job),
            (None, None) => debug_assert!(false, "a pool without workers"),
        }
    }

    /// Waits for the jobs that were given; all workers.
    pub fn finish(self) -> Vec<W> {
        let join = |(sender, thread): (SyncSender<J>, ScopedJoinHandle<'s, W>)| {
            drop(sender);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let others = self.others.into_iter().map(join);
        self.own.into_iter().chain(others).collect()
    }
}
