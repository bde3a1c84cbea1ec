//! Samples of a perf.data, chosen for a reader that keeps the state of the machine itself.

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_files::perfdata::{Entry, PerfData};
use kymo_model::Sample;
use kymo_symbols::{Resolver, ResolverOptions};

use super::SourceError;
use super::perf::{PerfClasses, classes, task_of};
use super::registry::Registry;
use crate::chain_frames::ChainFrame;
use crate::event::{EventBody, PerfState, RecordedEvent, TaskInfo};
use crate::event_switch::SwitchState;
use crate::perf_data::TracepointPayloads;
use crate::schema::LayoutId;
use crate::selection::{EventSelection, SelectionError};
use crate::state::MachineState;

/// Chooses samples for a reader that keeps the state of the machine itself.
pub struct SampleSelector<'f> {
    selection: &'f EventSelection,
    switch: SwitchState,
    registry: Registry<'f>,
    classes: PerfClasses,
}

/// Machine state that the caller maintains.
struct BorrowedState<'m>(&'m MachineState);

impl PerfState for BorrowedState<'_> {
    fn task(&self, pid: u32, tid: u32) -> TaskInfo {
        task_of(self.0, pid, tid)
    }

    fn cgroup(&self, id: u64) -> Option<Arc<[u8]>> {
        self.0.cgroup(id).cloned()
    }

    fn name(&self, _pid: u32, _addr: u64, _mode: u16) -> Option<String> {
        None
    }

    /// Always empty: a sample selector shows neither samples nor their chains.
    fn chain(&self, _entry: &Entry<'_>, _sample: &Sample<'_>) -> Vec<ChainFrame> {
        Vec::new()
    }

    fn with_symbols(&self, _see: &mut dyn FnMut(&Resolver)) {}

    fn write_payload(&self, _entry: &Entry<'_>, _raw: &[u8], _out: &mut Vec<u8>) {}
    fn write_message(&self, _entry: &Entry<'_>, _raw: &[u8], _out: &mut Vec<u8>) {}
}

impl<'f> SampleSelector<'f> {
    /// `symbols`: where a bundle beside the recording is.
    ///
    /// # Errors
    /// If the filter fits no event of the recording, cgroups were named and not recorded, or an
    /// event that switches is not there.
    pub fn new(
        selection: &'f EventSelection,
        data: &PerfData,
        symbols: &ResolverOptions,
    ) -> Result<SampleSelector<'f>, SourceError> {
        selection.check_cgroups(data)?;
        selection.switch.check(data).map_err(SelectionError)?;
        if let Some(filter) = selection.filter.as_ref().filter(|_| !data.is_pipe()) {
            filter.check(classes(data, 0, &mut LayoutId::default(), symbols).iter())?;
        }
        let payloads = TracepointPayloads::new(symbols.bundle.clone());
        Ok(SampleSelector {
            selection,
            switch: SwitchState::new(&selection.switch),
            registry: Registry::new(selection),
            classes: PerfClasses::new(payloads),
        })
    }

    /// By number of the event, whether no sample of it can be selected, for a recording whose
    /// events are known in advance.
    pub fn unwanted(&self) -> Vec<bool> {
        match self.selection.switch.is_given() {
            // Those that switch are looked at, whatever they are.
            true => Vec::new(),
            false => self.classes.unwanted(&self.registry),
        }
    }

    /// Whether a sample is selected; `machine` is the state at its time.
    pub fn wants(&mut self, entry: &Entry<'_>, machine: &MachineState) -> bool {
        let switch = &self.selection.switch;
        if switch.is_given() && self.selection.wants_time(entry.time) {
            let name = entry.desc().map_or("", |event| &event.name);
            if !self.switch.wants(switch, name) {
                return false;
            }
        }
        let Some(class) = self.classes.class(entry, 0, &mut self.registry) else { return true };
        if !self.registry.wants_layout(class.layout) {
            return false;
        }
        let state = BorrowedState(machine);
        let body = EventBody::Perf { entry, sample: OnceCell::new(), state: &state };
        let mut wanted = false;
        let _ = self.registry.give(&RecordedEvent::new(class, entry.time, body), &mut |_| {
            wanted = true;
            ControlFlow::Continue(())
        });
        wanted
    }
}
