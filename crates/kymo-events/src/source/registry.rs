//! Numbers of layouts, and what a selection means for each of them: decided once, when the
//! first event of a class comes.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::event::RecordedEvent;
use crate::filter::BoundFilter;
use crate::schema::{LayoutId, RecordedClass};
use crate::selection::EventSelection;

/// A class, and what is wanted of its events.
pub(crate) struct SelectedClass<'f> {
    pub(crate) class: Arc<RecordedClass>,
    is_wanted: bool,
    filter: Option<BoundFilter<'f>>,
}

/// The layouts that came so far.
#[derive(Clone)]
pub(crate) struct Registry<'f> {
    selection: &'f EventSelection,
    /// Shared with those who work on events that were handed to other threads.
    layouts: Arc<Vec<Arc<SelectedClass<'f>>>>,
    everything: bool,
    /// Nothing but the class of an event decides.
    of_classes: bool,
}

impl<'f> Registry<'f> {
    pub(crate) fn new(selection: &'f EventSelection) -> Registry<'f> {
        let (everything, of_classes) = (selection.is_everything(), selection.is_of_classes());
        Registry { selection, layouts: Arc::default(), everything, of_classes }
    }

    pub(crate) fn selection(&self) -> &'f EventSelection {
        self.selection
    }

    /// The number of the next layout.
    pub(crate) fn next_layout(&self) -> LayoutId {
        LayoutId(self.layouts.len() as u32)
    }

    /// Takes a class in, whose layout has the next number.
    pub(crate) fn add(&mut self, class: RecordedClass) -> Arc<RecordedClass> {
        debug_assert_eq!(class.layout, self.next_layout());
        let filter = self.selection.filter.as_ref();
        let bound = filter.and_then(|f| f.bind(&class));
        let is_wanted = self.selection.wants_event(&class.names())
            // A class without the fields has no event that matches.
            && (filter.is_none() || bound.is_some());
        let class = Arc::new(class);
        let selected = SelectedClass { class: Arc::clone(&class), is_wanted, filter: bound };
        Arc::make_mut(&mut self.layouts).push(Arc::new(selected));
        class
    }

    /// The class of a layout.
    #[inline]
    pub(crate) fn class(&self, layout: LayoutId) -> Option<&RecordedClass> {
        self.layouts.get(layout.index()).map(|l| &*l.class)
    }

    /// Whether events of a layout can be wanted at all.
    #[inline]
    pub(crate) fn wants_layout(&self, layout: LayoutId) -> bool {
        self.everything || self.layouts.get(layout.index()).is_some_and(|l| l.is_wanted)
    }

    /// Hands an event on if it is selected.
    #[inline]
    pub(crate) fn give(
        &self,
        event: &RecordedEvent<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let is_wanted =
            if self.of_classes { self.wants_layout(event.class.layout) } else { self.wants(event) };
        if is_wanted { sink(event) } else { ControlFlow::Continue(()) }
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
            && (!s.names_cgroups() || s.wants_cgroup(event.cgroup().as_deref()))
            && layout.filter.as_ref().is_none_or(|f| s.note_filter(f.matches(event)))
    }
}
