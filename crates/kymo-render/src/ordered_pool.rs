//! Rendering on several threads with the output in order: each job leaves with a receipt, and
//! the texts are collected in the order of the receipts.
//!
//! ```text
//!   feeding thread ─┬─ job ──► worker 0 ── text ─┐
//!                   ├─ job ──► worker 1 ── text ─┤
//!                   └─ receipts ─────────────────┴─► writing thread
//! ```
//!
//! A worker does not render the jobs of others, but sees those that change the meaning of later
//! ones.

use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use kymo_events::worker_pool::{PoolWorker, WorkerPool};

use crate::error::RenderError;

/// Jobs for each worker whose texts are not written yet.
const UNWRITTEN: usize = 3;

/// Renders jobs; has a state that jobs may change.
pub trait OrderedWorker<J>: Send {
    /// Appends the text of a job.
    fn render(&mut self, job: &J, out: &mut Vec<u8>) -> Result<(), RenderError>;

    /// Takes note of a job that another worker renders.
    fn pass(&mut self, job: &J);
}

/// Job from the feeding thread.
pub struct OrderedJob<J> {
    /// The work.
    pub job: J,
    /// Whether workers that do not render it must see it.
    pub for_all: bool,
}

type RenderedText = Result<Vec<u8>, RenderError>;

/// A job, and where its text goes from the worker that renders it.
struct RenderTask<J> {
    job: Arc<J>,
    text: Option<SyncSender<RenderedText>>,
}

/// Texts that were written, whose memory is used again.
type SpareTexts = Mutex<Vec<Vec<u8>>>;

struct RenderWorker<'s, W> {
    worker: W,
    spare: &'s SpareTexts,
}

impl<J: Send + Sync, W: OrderedWorker<J>> PoolWorker<RenderTask<J>> for RenderWorker<'_, W> {
    fn work(&mut self, task: RenderTask<J>) {
        let Some(text) = task.text else { return self.worker.pass(&task.job) };
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut out = spare.unwrap_or_default();
        let rendered = self.worker.render(&task.job, &mut out).map(|()| out);
        // It is not received if the output cannot be written: the feeding thread stops then.
        let _ = text.send(rendered);
    }
}

/// Runs `feed` on a thread, which gives jobs to the function it is handed; renders them on one
/// thread a worker and hands their texts to `write`. The feeding function is stopped when the
/// output cannot be written.
pub fn render_in_order<J, W, R>(
    workers: Vec<W>,
    feed: impl FnOnce(&mut dyn FnMut(OrderedJob<J>) -> ControlFlow<()>) -> R + Send,
    write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(R, Vec<W>), RenderError>
where
    J: Send + Sync,
    W: OrderedWorker<J>,
    R: Send,
{
    let spare = SpareTexts::default();
    std::thread::scope(|scope| {
        let (promise, receipts) = sync_channel(UNWRITTEN * workers.len().max(1));
        let workers = workers.into_iter().map(|worker| RenderWorker { worker, spare: &spare });
        let workers: Vec<RenderWorker<'_, W>> = workers.collect();
        let feeder = scope.spawn(move || {
            let mut pool = WorkerPool::start(scope, "render", workers);
            let fed = feed(&mut |OrderedJob { job, for_all }| {
                let (text, receipt) = sync_channel(1);
                if promise.send(receipt).is_err() {
                    return ControlFlow::Break(());
                }
                let (job, mut text) = (Arc::new(job), Some(text));
                if for_all {
                    pool.give_each(|is_next| RenderTask {
                        job: Arc::clone(&job),
                        text: text.take_if(|_| is_next),
                    })
                } else {
                    pool.give(RenderTask { job, text })
                }
                ControlFlow::Continue(())
            });
            // The writing thread ends with the last receipt.
            drop(promise);
            (fed, pool.finish())
        });
        let written = collect(receipts, &spare, write);
        let (fed, workers) = feeder.join().map_err(|_| RenderError::ThreadFailed)?;
        let workers = workers.into_iter().map(|w| w.worker).collect();
        written.map(|()| (fed, workers))
    })
}

fn collect(
    receipts: Receiver<Receiver<RenderedText>>,
    spare: &SpareTexts,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), RenderError> {
    for receipt in receipts {
        // A worker that panicked sends none; joining its thread reports it.
        let Ok(text) = receipt.recv() else { break };
        let mut text = text?;
        write(&text).map_err(RenderError::Output)?;
        text.clear();
        spare.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
    Ok(())
}
