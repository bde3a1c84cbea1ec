//! Events of the running kernel: bytes of its rings become events of known classes.

use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_format::{EventFormat, Symbols as _};
use kymo_kernel::ftrace::TraceDir;
use kymo_model::Endian;

use super::formats::LiveFormats;
use super::task_names::LiveTaskNames;
use super::{KERNEL, LiveItem, LiveSink};
use crate::event::{EventBody, FtraceBody, LiveText, RecordedEvent, StackNames};
use crate::payload::{KallsymsSource, KernelNames};
use crate::schema::{LayoutId, RecordedClass};
use crate::source::ftrace::{task, unknown};
use crate::source::registry::Registry;
use crate::trace_dat::{KnownEvent, TaskGroups};

/// Why an event has no format.
const NO_FORMAT: &str = "the kernel has no format of it any more";

/// The classes that came so far.
pub(super) struct LiveKernel {
    formats: LiveFormats,
    /// By number in `common_type`.
    classes: Vec<Option<LiveClass>>,
    functions: RunningFunctions,
    groups: TaskGroups,
}

/// Functions of the running kernel.
struct RunningFunctions(KernelNames);

impl StackNames for RunningFunctions {
    fn kernel_function(&self, addr: u64) -> Option<String> {
        self.0.kernel(addr).map(|symbol| symbol.name.to_owned())
    }

    fn binary(&self, _process: Option<i32>, _addr: u64) -> Option<String> {
        None
    }
}

struct LiveClass {
    class: Arc<RecordedClass>,
    known: Result<Box<KnownEvent>, &'static str>,
}

impl LiveKernel {
    pub(super) fn new(dir: &TraceDir) -> LiveKernel {
        let strings = dir.tracefs().printk_formats().unwrap_or_default();
        LiveKernel {
            formats: LiveFormats::new(dir),
            classes: Vec::new(),
            functions: RunningFunctions(KernelNames::new(KallsymsSource::Live, &strings)),
            groups: TaskGroups::default(),
        }
    }

    /// Classes of the events that are on.
    pub(super) fn enabled_classes(&self) -> Vec<RecordedClass> {
        let class = |f: &EventFormat| RecordedClass::from_format(f, (LayoutId(0), KERNEL));
        self.formats.enabled().iter().map(class).collect()
    }

    /// Hands an event on if it is selected.
    pub(super) fn event(
        &mut self,
        (cpu, time, payload): (u32, u64, &[u8]),
        names: &LiveTaskNames,
        registry: &mut Registry<'_>,
        sink: LiveSink<'_>,
    ) -> ControlFlow<()> {
        names.refresh();
        let id = EventFormat::payload_id(payload, Endian::NATIVE).unwrap_or(0);
        self.load(id, registry);
        let Some(Some(of)) = self.classes.get(usize::from(id)) else {
            return ControlFlow::Continue(());
        };
        let known = of.known.as_ref().map(|k| &**k).map_err(|why| *why);
        // As the kernel lays out the start of every event.
        let (flags, tid) = match *payload {
            [_, _, flags, preempt, a, b, c, d, ..] => {
                ((flags, preempt), i32::from_ne_bytes([a, b, c, d]))
            }
            _ => ((0, 0), -1),
        };
        let states_names = known.ok().filter(|k| k.states_names());
        let name = states_names.and_then(|known| names.learn(known, (tid, payload)));
        if !registry.wants_layout(of.class.layout) {
            return ControlFlow::Continue(());
        }
        if let Some(known) = known.ok().filter(|k| k.group.is_some()) {
            self.groups.learn(known, (tid, payload), Endian::NATIVE, |_, _| {});
        }
        let task = task((self.groups.get(tid), tid), name.or_else(|| names.find(tid)));
        let body = FtraceBody {
            payload,
            endian: Endian::NATIVE,
            cpu,
            task: &task,
            instance: "",
            kernel: &[],
            user: &[],
            user_process: None,
            names: &self.functions,
            live: Some(LiveText { flags, known, names: &self.functions.0 }),
        };
        let event = RecordedEvent::new(&of.class, Some(time), EventBody::Ftrace(&body));
        registry.give(&event, &mut |event| sink(LiveItem::Event(event)))
    }

    #[inline]
    fn load(&mut self, id: u16, registry: &mut Registry<'_>) {
        if self.classes.get(usize::from(id)).is_none_or(Option::is_none) {
            self.load_new(id, registry);
        }
    }

    #[cold]
    fn load_new(&mut self, id: u16, registry: &mut Registry<'_>) {
        let at = (registry.next_layout(), KERNEL);
        let known = self.formats.load(id).map(Box::new).ok_or(NO_FORMAT);
        let class = match &known {
            Ok(known) => RecordedClass::from_format(&known.format, at),
            Err(_) => unknown(id, at),
        };
        let class = registry.add(class);
        let index = usize::from(id);
        if self.classes.len() <= index {
            self.classes.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.classes.get_mut(index) {
            *slot = Some(LiveClass { class, known });
        }
    }
}
