//! Events of one running program: what its packets hold becomes events of known classes.

use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_files::ctf::read::{Body, Ctf, CtfEvent};

use super::{LiveItem, LiveSink};
use crate::event::{EventBody, RecordedEvent};
use crate::schema::RecordedClass;
use crate::source::ctf::Walker;
use crate::source::registry::Registry;

/// A program and the classes of which events came.
pub(super) struct LiveProgram {
    /// Its event classes.
    pub(super) trace: Arc<Ctf>,
    number: usize,
    classes: Vec<Option<Arc<RecordedClass>>>,
}

impl LiveProgram {
    /// `number`: its number among recordings.
    pub(super) fn new(trace: Arc<Ctf>, number: usize) -> LiveProgram {
        LiveProgram { trace, number, classes: Vec::new() }
    }

    /// Takes a class in, of which an event came.
    pub(super) fn add_class(&mut self, class: u32, registry: &mut Registry<'_>) {
        let index = class as usize;
        if self.classes.get(index).is_some_and(Option::is_some) {
            return;
        }
        let Some(of) = self.trace.class(class) else { return };
        if self.classes.len() <= index {
            self.classes.resize_with(index + 1, || None);
        }
        let new = RecordedClass::from_ctf(&of, (registry.next_layout(), self.number));
        if let Some(slot) = self.classes.get_mut(index) {
            *slot = Some(registry.add(new));
        }
    }

    /// Hands an event on if it is selected; `walker` reads the values of its trace.
    pub(super) fn event(
        &self,
        (time, (program, class, cpu), body): (u64, (u32, u32, Option<u32>), Body<'_>),
        walker: &Walker<'_>,
        registry: &Registry<'_>,
        sink: LiveSink<'_>,
    ) -> ControlFlow<()> {
        let Some(Some(known)) = self.classes.get(class as usize) else {
            return ControlFlow::Continue(());
        };
        if !registry.wants_layout(known.layout) {
            return ControlFlow::Continue(());
        }
        let event = CtfEvent { time, class, stream: 0, trace: 0, cpu, missed: None, body };
        let name = self.trace.traces().first().map_or("", |t| t.name());
        let body = EventBody::Ctf {
            event: &event,
            trace: name,
            program: Some((program, walker)),
            fields: walker,
        };
        let event = RecordedEvent::new(known, Some(time), body);
        registry.give(&event, &mut |event| sink(LiveItem::Event(event)))
    }
}
