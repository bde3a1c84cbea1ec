//! Events for several threads. One thread reads, and resolves what depends on the order of
//! events: classes, tasks, mappings, stacks that are events of their own. Others look at
//! fields and count; they replay nothing.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use kymo_files::ctf::read::CtfEvent;

use super::ctf::BodyReader;
use super::event_batch::{EventBatch, ItemBody};
use super::ftrace::KernelFacts;
use super::perf::{SampleBatch, SampleReader};
use super::registry::Registry;
use crate::event::{EventBody, FtraceBody, RecordedEvent};
use crate::worker_pool::{PoolWorker, WorkerPool};

/// Looks at the events of one thread.
pub trait EventConsumer: Send {
    /// Takes an event; `Break`: no more are wanted, by none of the threads.
    fn event(&mut self, event: &RecordedEvent<'_>) -> ControlFlow<()>;
}

/// Message to a worker.
pub(super) enum HandOff<'f> {
    Events(EventBatch<'f>),
    Samples(SampleBatch<'f>),
}

/// State that the threads share.
#[derive(Default)]
pub(super) struct SharedBatches<'f> {
    /// A receiver has stopped.
    stopped: AtomicBool,
    /// Batches that were worked on, whose memory is used again.
    spare: Mutex<Vec<EventBatch<'f>>>,
}

impl<'f> SharedBatches<'f> {
    fn take(&self, registry: &Registry<'f>) -> EventBatch<'f> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match spare {
            // Its registry is set when it is handed on.
            Some(batch) => batch,
            None => EventBatch::new(registry),
        }
    }

    fn give_back(&self, mut batch: EventBatch<'f>) {
        batch.clear();
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
    }
}

/// Reads the events of batches.
pub(super) struct EventReader<'s, 'f, C> {
    consumer: C,
    kernels: Vec<KernelFacts<'s>>,
    programs: Option<BodyReader<'s>>,
    samples: Vec<SampleReader>,
    shared: &'s SharedBatches<'f>,
    /// Values that a body depends on.
    outer: Vec<u64>,
}

impl<'s, 'f, C: EventConsumer> EventReader<'s, 'f, C> {
    pub(super) fn new(
        consumer: C,
        kernels: Vec<KernelFacts<'s>>,
        programs: Option<BodyReader<'s>>,
        samples: Vec<SampleReader>,
        shared: &'s SharedBatches<'f>,
    ) -> EventReader<'s, 'f, C> {
        EventReader { consumer, kernels, programs, samples, shared, outer: Vec::new() }
    }

    pub(super) fn into_consumer(self) -> C {
        self.consumer
    }

    fn read(&mut self, batch: &EventBatch<'f>) -> ControlFlow<()> {
        let EventReader { consumer, kernels, programs, outer, .. } = self;
        for item in &batch.items {
            let Some(class) = batch.registry.class(item.layout) else { continue };
            let mut give = |event: RecordedEvent<'_>| {
                batch.registry.give(&event, &mut |event| consumer.event(event))
            };
            match &item.body {
                ItemBody::Ftrace(body) => {
                    let facts = kernels.get(body.kernel as usize);
                    let Some((facts, task)) = facts.zip(batch.task(item)) else { continue };
                    let of = (body.buffer as usize, body.cpu);
                    let payload = batch.payload(body);
                    let (kernel, user, user_process) = batch.stack(body);
                    let of = facts.body(of, payload, task);
                    let body = FtraceBody { kernel, user, user_process, ..of };
                    give(RecordedEvent::new(class, Some(item.time), EventBody::Ftrace(&body)))?;
                }
                ItemBody::Ctf(body) => {
                    let Some(reader) = programs else { continue };
                    let event = CtfEvent {
                        time: item.time,
                        class: body.class,
                        stream: body.stream,
                        trace: body.trace,
                        cpu: body.cpu,
                        missed: None,
                        body: body.body.unpack(&batch.bytes, outer),
                    };
                    let trace =
                        reader.ctf().traces().get(body.trace as usize).map_or("", |t| t.name());
                    let body =
                        EventBody::Ctf { event: &event, trace, program: None, fields: reader };
                    let event = RecordedEvent::new(class, Some(item.time), body);
                    give(event.with_task(batch.task(item)))?;
                }
                ItemBody::Moved => {}
            }
        }
        ControlFlow::Continue(())
    }
}

impl<'f, C: EventConsumer> PoolWorker<HandOff<'f>> for EventReader<'_, 'f, C> {
    fn work(&mut self, job: HandOff<'f>) {
        if self.shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        let flow = match job {
            HandOff::Events(batch) => {
                let flow = self.read(&batch);
                self.shared.give_back(batch);
                flow
            }
            HandOff::Samples(batch) => match self.samples.get_mut(batch.recording) {
                Some(reader) => reader.read(&batch, &mut self.consumer),
                None => ControlFlow::Continue(()),
            },
        };
        if flow.is_break() {
            self.shared.stopped.store(true, Ordering::Relaxed);
        }
    }
}

/// Gathers events of one recording after the other, and deals them out.
pub(super) struct EventFeed<'p, 's, 'f, C> {
    pool: WorkerPool<'p, HandOff<'f>, EventReader<'s, 'f, C>>,
    shared: &'s SharedBatches<'f>,
    pub(super) batch: EventBatch<'f>,
}

impl<'p, 's: 'p, 'f: 's, C: EventConsumer + 's> EventFeed<'p, 's, 'f, C> {
    pub(super) fn new(
        pool: WorkerPool<'p, HandOff<'f>, EventReader<'s, 'f, C>>,
        shared: &'s SharedBatches<'f>,
        registry: &Registry<'f>,
    ) -> EventFeed<'p, 's, 'f, C> {
        EventFeed { pool, shared, batch: EventBatch::new(registry) }
    }

    /// Hands on the events that were gathered; those that may still get a stack are taken
    /// over into the next batch by `carry`.
    pub(super) fn flush(
        &mut self,
        registry: &Registry<'f>,
        carry: impl FnOnce(&mut EventBatch<'f>, &mut EventBatch<'f>),
    ) -> ControlFlow<()> {
        let mut next = self.shared.take(registry);
        carry(&mut self.batch, &mut next);
        let mut batch = std::mem::replace(&mut self.batch, next);
        // Classes may have come since it was begun.
        batch.registry = registry.clone();
        self.pool.give(HandOff::Events(batch));
        self.flow()
    }

    /// Hands on records of a perf.data.
    pub(super) fn give(&mut self, samples: SampleBatch<'f>) -> ControlFlow<()> {
        self.pool.give(HandOff::Samples(samples));
        self.flow()
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.shared.stopped.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Waits for all of it.
    pub(super) fn finish(self) -> Vec<C> {
        self.pool.finish().into_iter().map(EventReader::into_consumer).collect()
    }
}
