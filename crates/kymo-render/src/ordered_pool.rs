//! Rendering on several threads with the output in order.
//!
//! Jobs are dealt in next, and texts are collected in the same next, so that
//! no numbers need be carried and nobody can run far ahead. A worker does not
//! render the jobs of others, but sees those that change the meaning of later
//! ones.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::error::RenderError;

/// Jobs waiting for each worker.
const WAITING: usize = 2;

/// Renders jobs; has a state that jobs may change.
pub trait OrderedWorker<J>: Send {
    /// Appends the text of a job.
    fn render(&mut self, job: &J, out: &mut Vec<u8>) -> Result<(), RenderError>;

    /// Takes note of a job that another worker renders.
    fn pass(&mut self, job: &J);
}

/// What comes from the feeding thread.
pub struct OrderedJob<J> {
    /// The work.
    pub job: J,
    /// Whether workers that do not render it must see it.
    pub for_all: bool,
}

enum PoolTask<J> {
    Render(Arc<J>),
    Pass(Arc<J>),
}

type RenderedText = Result<Vec<u8>, RenderError>;

/// One worker's ends of the channels.
struct Lane {
    texts: Receiver<RenderedText>,
    used: SyncSender<Vec<u8>>,
}

/// Runs `feed` on a thread, which gives jobs to the function it is handed;
/// renders them on one thread a worker and hands their texts to `write`. The jobs' giver is told to stop when the output cannot be written.
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
    std::thread::scope(|scope| {
        let (mut inputs, mut lanes, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for worker in workers {
            let (input, tasks) = sync_channel::<PoolTask<J>>(WAITING);
            let (text, texts) = sync_channel::<RenderedText>(1);
            let (used, spare) = sync_channel::<Vec<u8>>(2);
            inputs.push(input);
            lanes.push(Lane { texts, used });
            threads.push(scope.spawn(move || work(worker, &tasks, &text, &spare)));
        }
        let feeder = scope.spawn(move || {
            let mut next = 0;
            feed(&mut |job| deal(&inputs, &mut next, job))
        });
        let written = collect(&lanes, write);
        // Whoever still works finds nobody who takes the text, and stops.
        drop(lanes);
        let failed = |_| RenderError::ThreadFailed;
        let fed = feeder.join().map_err(failed)?;
        let workers = threads.into_iter().map(|t| t.join().map_err(failed));
        let workers = workers.collect::<Result<Vec<W>, RenderError>>()?;
        written.map(|()| (fed, workers))
    })
}

fn deal<J>(
    inputs: &[SyncSender<PoolTask<J>>],
    next: &mut usize,
    job: OrderedJob<J>,
) -> ControlFlow<()> {
    let shared = Arc::new(job.job);
    for (n, input) in inputs.iter().enumerate() {
        let task = match n == *next {
            true => PoolTask::Render(Arc::clone(&shared)),
            false if job.for_all => PoolTask::Pass(Arc::clone(&shared)),
            false => continue,
        };
        if input.send(task).is_err() {
            return ControlFlow::Break(());
        }
    }
    *next = (*next + 1) % inputs.len();
    ControlFlow::Continue(())
}

fn work<J, W: OrderedWorker<J>>(
    mut worker: W,
    tasks: &Receiver<PoolTask<J>>,
    text: &SyncSender<RenderedText>,
    spare: &Receiver<Vec<u8>>,
) -> W {
    for task in tasks {
        let job = match task {
            PoolTask::Render(job) => job,
            PoolTask::Pass(job) => {
                worker.pass(&job);
                continue;
            }
        };
        let mut out = spare.try_recv().unwrap_or_default();
        let rendered = worker.render(&job, &mut out).map(|()| out);
        drop(job);
        if text.send(rendered).is_err() {
            break;
        }
    }
    worker
}

fn collect(
    lanes: &[Lane],
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), RenderError> {
    for lane in lanes.iter().cycle() {
        // No more from the one whose turn it is: no more from anybody.
        let Ok(text) = lane.texts.recv() else { break };
        let mut text = text?;
        write(&text).map_err(RenderError::Output)?;
        text.clear();
        let _ = lane.used.try_send(text);
    }
    Ok(())
}
