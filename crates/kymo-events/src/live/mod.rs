//! Events while they happen: what rings of the running kernel and of programs hold becomes the same
//! [`RecordedEvent`]s that a recording of them gives, in the order of time.
//!
//! ```text
//!  rings of the kernel, in order ────────────────┐
//!                                                ├─ window, by time ─ selection ─ sink
//!  rings of programs, packets as they come ──────┘
//! ```
//!
//! The reader of the rings states up to which time everything has been seen; what is younger waits
//! in the window. Events of the kernel alone need no window, since its stream is in order already.
//! Perf rings have a window of records ([`LiveSamples`]), which is that of the reader of perf.data.

mod formats;
mod kernel;
mod program;
mod samples;
mod task_names;

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_files::ctf::read::{Ctf, Packed, PacketEvent};
use kymo_kernel::ftrace::TraceDir;
use kymo_symbols::ResolverOptions;

use crate::event::RecordedEvent;
use crate::filter::FilterExprError;
use crate::selection::EventSelection;
use crate::source::ctf::Walker;
use crate::source::registry::Registry;

use kernel::LiveKernel;
use program::LiveProgram;
pub use samples::{LiveSamples, SampleSink};
pub use task_names::LiveTaskNames;

/// Item of a live stream.
#[derive(Clone, Copy)]
pub enum LiveItem<'i, 'e> {
    /// An event.
    Event(&'i RecordedEvent<'e>),
    /// Events of a CPU are missing here; how many, where the kernel reports the number.
    Lost {
        /// The CPU.
        cpu: u32,
        /// Number of lost events.
        count: Option<u64>,
    },
}

/// Takes what comes out of a live stream; `Break` ends the handing out.
pub type LiveSink<'k> = &'k mut dyn FnMut(LiveItem<'_, '_>) -> ControlFlow<()>;

/// Events of the running kernel and of running programs.
pub struct LiveEvents<'s> {
    registry: Registry<'s>,
    kernel: Option<LiveKernel>,
    /// Names that the kernel has for tasks, where its events are read.
    names: Option<LiveTaskNames>,
    programs: Vec<Option<LiveProgram>>,
    waiting: Vec<WaitingItem>,
    /// Payloads of what waits.
    bytes: Vec<u8>,
    symbols: ResolverOptions,
}

/// Something of the window, with its bytes apart.
struct WaitingItem {
    time: u64,
    what: Waiting,
}

enum Waiting {
    Kernel { cpu: u32, at: usize, len: usize },
    Lost { cpu: u32, count: Option<u64> },
    Program { number: u32, class: u32, cpu: Option<u32>, body: Packed },
}

/// The number that events of the kernel have among recordings.
const KERNEL: usize = 0;

impl<'s> LiveEvents<'s> {
    /// `kernel`: the directory whose rings are read, if events of the kernel are.
    pub fn new(selection: &'s EventSelection, kernel: Option<&TraceDir>) -> LiveEvents<'s> {
        LiveEvents {
            registry: Registry::new(selection),
            kernel: kernel.map(LiveKernel::new),
            names: kernel.map(|dir| LiveTaskNames::new(dir.tracefs())),
            programs: Vec::new(),
            waiting: Vec::new(),
            bytes: Vec::new(),
            symbols: ResolverOptions::default(),
        }
    }

    /// Whether the filter fits one of the events that are on.
    ///
    /// # Errors
    /// If it fits none.
    pub fn check_filter(&mut self) -> Result<(), FilterExprError> {
        let filter = self.registry.selection().filter.as_ref();
        match (filter, &mut self.kernel) {
            (Some(filter), Some(kernel)) => filter.check(kernel.enabled_classes().iter()),
            _ => Ok(()),
        }
    }

    /// Sets that other tools filled the ring before.
    #[must_use]
    pub fn of_filled_ring(self) -> LiveEvents<'s> {
        LiveEvents { names: self.names.map(LiveTaskNames::of_filled_ring), ..self }
    }

    /// Begins a round of reading: tasks may have other names.
    pub fn begin_round(&mut self) {
        self.names.iter().for_each(LiveTaskNames::expire);
    }

    /// Hands on an event of the kernel immediately. Its bytes start with `common_type`.
    pub fn kernel_event(
        &mut self,
        (cpu, time, payload): (u32, u64, &[u8]),
        sink: LiveSink<'_>,
    ) -> ControlFlow<()> {
        match (&mut self.kernel, &self.names) {
            (Some(kernel), Some(names)) => {
                kernel.event((cpu, time, payload), names, &mut self.registry, sink)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Puts an event of the kernel into the window.
    pub fn push_kernel_event(&mut self, (cpu, time, payload): (u32, u64, &[u8])) {
        let (at, len) = (self.bytes.len(), payload.len());
        self.bytes.extend_from_slice(payload);
        self.waiting.push(WaitingItem { time, what: Waiting::Kernel { cpu, at, len } });
    }

    /// Puts a mark of lost events into the window: behind what happened at `time`.
    pub fn push_lost(&mut self, time: u64, cpu: u32, count: Option<u64>) {
        self.waiting.push(WaitingItem { time, what: Waiting::Lost { cpu, count } });
    }

    /// Sets what a program says of its events by now. It says more of them in time, never
    /// less: numbers of classes stay.
    pub fn set_program(&mut self, number: u32, trace: Arc<Ctf>) {
        let index = number as usize;
        if self.programs.len() <= index {
            self.programs.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.programs.get_mut(index) {
            match slot {
                Some(program) => program.trace = trace,
                None => *slot = Some(LiveProgram::new(trace, KERNEL + 1 + index)),
            }
        }
    }

    /// Puts an event of a program into the window; `time`: `CLOCK_MONOTONIC`, nanoseconds.
    pub fn push_program_event(&mut self, number: u32, time: u64, event: &PacketEvent<'_>) {
        let body = event.body.pack(&mut self.bytes);
        let (class, cpu) = (event.class, event.cpu);
        self.waiting
            .push(WaitingItem { time, what: Waiting::Program { number, class, cpu, body } });
    }

    /// Hands out what happened before `until`, by time. What is left when `sink` breaks off
    /// is forgotten up to there.
    pub fn hand_out(&mut self, until: u64, sink: LiveSink<'_>) -> ControlFlow<()> {
        self.waiting.sort_by_key(|item| item.time);
        let ready = self.waiting.partition_point(|item| item.time < until);
        let flow = self.hand_out_first(ready, sink);
        self.waiting.drain(..ready);
        self.drop_bytes();
        flow
    }

    fn hand_out_first(&mut self, ready: usize, sink: LiveSink<'_>) -> ControlFlow<()> {
        let LiveEvents { registry, kernel, names, programs, waiting, bytes, symbols } = self;
        let items = waiting.get(..ready).unwrap_or(&[]);
        // Classes come first: what reads values borrows the traces that they are of.
        for item in items {
            if let Waiting::Program { number, class, .. } = item.what
                && let Some(Some(program)) = programs.get_mut(number as usize)
            {
                program.add_class(class, registry);
            }
        }
        let names = names.as_ref();
        names.iter().for_each(|n| n.refresh());
        let walkers: Vec<OnceCell<Walker<'_>>> = programs.iter().map(|_| OnceCell::new()).collect();
        let mut outer = Vec::new();
        for item in items {
            match item.what {
                Waiting::Kernel { cpu, at, len } => {
                    let payload = bytes.get(at..at + len).unwrap_or(&[]);
                    if let (Some(kernel), Some(names)) = (&mut *kernel, names) {
                        kernel.event((cpu, item.time, payload), names, registry, sink)?;
                    }
                }
                Waiting::Lost { cpu, count } => sink(LiveItem::Lost { cpu, count })?,
                Waiting::Program { number, class, cpu, body } => {
                    let index = number as usize;
                    if let (Some(Some(program)), Some(walker)) =
                        (programs.get(index), walkers.get(index))
                    {
                        let saved = names.map(LiveTaskNames::saved);
                        let walker =
                            walker.get_or_init(|| Walker::new(&program.trace, saved, symbols));
                        let of = (number, class, cpu);
                        let body = body.unpack(bytes, &mut outer);
                        program.event((item.time, of, body), walker, registry, sink)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Moves the bytes of what still waits to the front.
    fn drop_bytes(&mut self) {
        if self.waiting.is_empty() {
            self.bytes.clear();
            return;
        }
        let mut kept = Vec::new();
        let mut outer = Vec::new();
        for item in &mut self.waiting {
            match &mut item.what {
                Waiting::Kernel { at, len, .. } => {
                    let from = kept.len();
                    kept.extend_from_slice(self.bytes.get(*at..*at + *len).unwrap_or(&[]));
                    *at = from;
                }
                Waiting::Lost { .. } => {}
                Waiting::Program { body, .. } => {
                    *body = body.unpack(&self.bytes, &mut outer).pack(&mut kept);
                }
            }
        }
        self.bytes = kept;
    }
}
