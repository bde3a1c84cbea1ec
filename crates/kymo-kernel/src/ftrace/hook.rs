//! A closure on tracepoints of the running kernel.
//!
//! What a kernel module does with `register_trace_*`, from a program: [`Hook`]
//! switches the events on in an instance of its own, and [`Hook::run`] calls a
//! closure for each that fires, in the order of time, a few milliseconds later.
//! The kernel does not wait for the closure; what it cannot keep up with is
//! counted by [`Hook::lost`].

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use kymo_format::{EventFormat, FormatIndex, RenderContext, Symbols as _, Value};
use kymo_model::Endian;

use super::dir::TraceDir;
use super::error::FtraceError;
use super::events::Selection;
use super::instance::Instance;
use super::pipe::wait_readable;
use super::stream::{Item, Stream};
use crate::kallsyms::Kallsyms;
use crate::process::{Signal, Signals};
use crate::tracefs::Tracefs;

/// Between two looks at the rings: what comes meanwhile is handed over together.
const GAP: Duration = Duration::from_millis(2);

/// Tracepoints that a closure is attached to.
#[derive(Debug)]
pub struct Hook {
    // Closed before the instance is removed: fields are dropped in this order.
    stream: Stream,
    instance: Instance,
    formats: FormatIndex,
    symbols: OnceCell<Kallsyms>,
    until: Option<Instant>,
    lost: u64,
    // Last: a signal must not end the program while the instance is removed.
    signals: Signals,
}

/// A tracepoint fired.
#[derive(Clone, Copy)]
pub struct Fired<'a> {
    /// On which CPU.
    pub cpu: u32,
    /// When, in nanoseconds of `CLOCK_MONOTONIC` where the kernel can (else of its
    /// own trace clock).
    pub time: u64,
    payload: &'a [u8],
    format: &'a EventFormat,
    symbols: &'a OnceCell<Kallsyms>,
}

impl Hook {
    /// Switches events on (as `irq:tasklet_entry`, `irq`, `sched:*wak*`; several with commas) in an
    /// instance made for it. They fire from here on; nothing is called before [`run`](Hook::run).
    /// Until the hook is dropped this thread holds SIGINT, SIGTERM and SIGHUP back.
    pub fn attach(events: &str) -> Result<Hook, FtraceError> {
        let ends = [Signal::Int, Signal::Term, Signal::Hup];
        let tracefs = Tracefs::open()?;
        let signals = Signals::listen(&ends)
            .map_err(|error| FtraceError::Pipe { path: tracefs.root().to_owned(), error })?;
        let instance = Instance::create(&tracefs, "hook")?;
        let mut formats = FormatIndex::default();
        for word in events.split(',') {
            let selection = Selection::parse(word.trim())?;
            for event in instance.select(&selection)? {
                formats.insert(format(&instance, &event.system, &event.name)?);
            }
            instance.enable(&selection)?;
        }
        // Older kernels have other clocks, or wake at the first event anyway.
        let _ = instance.set_clock("mono");
        let _ = instance.set_wake_percent(0);
        let stream = Stream::open(&instance, &instance.cpus()?)?;
        instance.set_tracing(true)?;
        let symbols = OnceCell::new();
        Ok(Hook { stream, instance, formats, symbols, until: None, lost: 0, signals })
    }

    /// The instance, for filters, whose events are taken and the like.
    pub fn instance(&self) -> &TraceDir {
        &self.instance
    }

    /// Lets [`run`](Hook::run) return after this time.
    #[must_use]
    pub fn for_at_most(mut self, time: Duration) -> Hook {
        self.until = Instant::now().checked_add(time);
        self
    }

    /// Events that were written over before they could be read, up to now.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Calls `f` for every event, until it breaks off, the time is over, or
    /// Ctrl-C (or SIGTERM, SIGHUP) asks the program to end; dropping the hook
    /// then leaves the machine as it was.
    pub fn run(
        &mut self,
        mut f: impl FnMut(&Fired<'_>) -> ControlFlow<()>,
    ) -> Result<(), FtraceError> {
        let path = self.instance.root().to_owned();
        let io = |error| FtraceError::Pipe { path: path.clone(), error };
        loop {
            let mut fds = vec![self.signals.as_fd()];
            fds.extend(self.stream.fds());
            let left = self.until.map(|u| u.saturating_duration_since(Instant::now()));
            let most = if self.stream.pending() { Some(GAP) } else { left };
            wait_readable(&fds, most).map_err(io)?;
            let over = self.signals.next().map_err(io)?;
            let over = over.is_some() || left.is_some_and(|l| l.is_zero());
            if self.round(over, &mut f)?.is_break() || over {
                return Ok(());
            }
            std::thread::sleep(GAP);
        }
    }

    fn round(
        &mut self,
        last: bool,
        f: &mut dyn FnMut(&Fired<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, FtraceError> {
        let (formats, symbols, lost) = (&self.formats, &self.symbols, &mut self.lost);
        let mut flow = ControlFlow::Continue(());
        self.stream.round(last, &mut |item| {
            flow = match item {
                Item::Event { cpu, time, payload } => {
                    match formats.of_payload(payload, Endian::NATIVE) {
                        Some(format) => f(&Fired { cpu, time, payload, format, symbols }),
                        // Stacks and marks of the instance itself.
                        None => ControlFlow::Continue(()),
                    }
                }
                Item::Lost { count, .. } => {
                    *lost += count.unwrap_or(1);
                    ControlFlow::Continue(())
                }
                Item::Damaged { .. } => ControlFlow::Continue(()),
            };
            flow
        })?;
        Ok(flow)
    }
}

/// An event's format with its group.
fn format(dir: &TraceDir, system: &str, name: &str) -> Result<EventFormat, FtraceError> {
    let text = dir.tree().event_format(system, name)?;
    let unusable = |_| FtraceError::Unexpected {
        path: dir.path(&format!("events/{system}/{name}/format")),
        text: text.chars().take(60).collect(),
        expected: "an event's format",
    };
    Ok(EventFormat::parse(&text).map_err(unusable)?.with_system(system))
}

impl Fired<'_> {
    /// The event's group and name, as in `irq:tasklet_entry`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.format.system, self.format.name)
    }

    /// The thread that was running.
    pub fn tid(&self) -> u32 {
        self.int("common_pid").unwrap_or(0) as u32
    }

    /// A field as a number; `None` if there is no such field or it is none.
    pub fn int(&self, field: &str) -> Option<i64> {
        self.format.field(field)?.int(self.payload, Endian::NATIVE)
    }

    /// A field as text; `None` if there is no such field or it is none.
    pub fn str(&self, field: &str) -> Option<Cow<'_, str>> {
        match self.format.field(field)?.value(self.payload, Endian::NATIVE) {
            Value::Text(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }

    /// The name of the kernel function whose address a field holds.
    pub fn symbol(&self, field: &str) -> Option<&str> {
        let address = self.int(field)? as u64;
        Some(self.symbols.get_or_init(Kallsyms::running).kernel(address)?.name)
    }

    /// The whole event as the kernel's `trace` file words it.
    pub fn text(&self) -> String {
        let symbols = self.symbols.get_or_init(Kallsyms::running);
        let mut out = Vec::new();
        let context = RenderContext { symbols, ..RenderContext::default() };
        self.format.render(&mut out, self.payload, &context);
        String::from_utf8_lossy(&out).into_owned()
    }
}
