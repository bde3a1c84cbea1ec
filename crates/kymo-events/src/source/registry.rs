//! Numbers of layouts, and what a selection means for each of them: decided once, when the
//! first event of a class comes.

use std::ops::ControlFlow;

use crate::event::RecordedEvent;
use crate::filter::BoundFilter;
use crate::schema::{LayoutId, RecordedClass};
use crate::selection::EventSelection;

/// What is wanted of the events of one layout.
struct LayoutSelection<'f> {
    is_wanted: bool,
    filter: Option<BoundFilter<'f>>,
}

/// The layouts that came so far.
pub(super) struct Registry<'f> {
    selection: &'f EventSelection,
    layouts: Vec<LayoutSelection<'f>>,
    everything: bool,
}

impl<'f> Registry<'f> {
    pub(super) fn new(selection: &'f EventSelection) -> Registry<'f> {
        Registry { selection, layouts: Vec::new(), everything: selection.is_everything() }
    }

    pub(super) fn selection(&self) -> &'f EventSelection {
        self.selection
    }

    /// The number of the next layout.
    pub(super) fn next_layout(&self) -> LayoutId {
        LayoutId(self.layouts.len() as u32)
    }

    /// Takes a class in, whose layout has the next number.
    pub(super) fn add(&mut self, class: RecordedClass) -> Box<RecordedClass> {
        debug_assert_eq!(class.layout, self.next_layout());
        let filter = self.selection.filter.as_ref();
        let bound = filter.and_then(|f| f.bind(&class));
        let is_wanted = self.selection.wants_event(&class.names())
            // A class without the fields has no event that matches.
            && (filter.is_none() || bound.is_some());
        self.layouts.push(LayoutSelection { is_wanted, filter: bound });
        Box::new(class)
    }

    /// Whether events of a layout can be wanted at all.
    #[inline]
    pub(super) fn wants_layout(&self, layout: LayoutId) -> bool {
        self.everything || self.layouts.get(layout.index()).is_some_and(|l| l.is_wanted)
    }

    /// Hands an event on if it is selected.
    #[inline]
    pub(super) fn give(
        &self,
        event: &RecordedEvent<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self.everything || self.wants(event) {
            true => sink(event),
            false => ControlFlow::Continue(()),
        }
    }

    fn wants(&self, event: &RecordedEvent<'_>) -> bool {
        let s = self.selection;
        let Some(layout) = self.layouts.get(event.class.layout.index()) else {
            debug_assert!(false, "layout of {} is not registered", event.class.full_name);
            return true;
        };
        let wants_task = || {
            let task = event.task();
            s.wants_task(task.pid, task.tid, task.comm())
        };
        layout.is_wanted
            && s.wants_time(event.time)
            && s.wants_cpu(event.cpu())
            && (!s.has_task_conditions() || wants_task())
            && layout.filter.as_ref().is_none_or(|f| f.matches(event))
    }
}
