//! Scope of events: CPUs, tasks, tasks on CPUs, cgroups.

use std::fs::File;
use std::sync::Arc;

use kymo_kernel::events::EventSpec;
use kymo_kernel::target;

use crate::error::RecordError;

/// Tasks and CPUs that events are opened on.
#[derive(Clone, Debug)]
pub(crate) enum CounterScope {
    /// These tasks, wherever they run.
    Tasks(Vec<u32>),
    /// These tasks on these CPUs, each pair by itself.
    TasksOn { tids: Vec<u32>, cpus: Vec<u32> },
    /// Whatever runs on these CPUs.
    Cpus(Vec<u32>),
}

/// One place of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterPlace {
    pub(crate) cpu: Option<u32>,
    pub(crate) tid: Option<u32>,
}

impl CounterPlace {
    /// The CPU as perf_event_open(2) takes it.
    pub(crate) fn cpu(self) -> i32 {
        self.cpu.map_or(-1, |cpu| cpu as i32)
    }

    /// The task as perf_event_open(2) takes it.
    pub(crate) fn pid(self) -> i32 {
        self.tid.map_or(-1, |tid| tid as i32)
    }
}

impl CounterScope {
    /// Places of an event, by CPU; an event that only some CPUs have is on no other.
    pub(crate) fn places(&self, spec: &EventSpec) -> Vec<CounterPlace> {
        let has_event = |cpu: &&u32| spec.cpus.as_ref().is_none_or(|mask| mask.contains(cpu));
        match self {
            CounterScope::TasksOn { cpus, .. } if spec.terms.system_wide => cpus
                .iter()
                .filter(has_event)
                .map(|&cpu| CounterPlace { cpu: Some(cpu), tid: None })
                .collect(),
            CounterScope::Tasks(tids) => {
                tids.iter().map(|&tid| CounterPlace { cpu: None, tid: Some(tid) }).collect()
            }
            CounterScope::TasksOn { tids, cpus } => cpus
                .iter()
                .filter(has_event)
                .flat_map(|&cpu| {
                    tids.iter().map(move |&tid| CounterPlace { cpu: Some(cpu), tid: Some(tid) })
                })
                .collect(),
            CounterScope::Cpus(cpus) => cpus
                .iter()
                .filter(has_event)
                .map(|&cpu| CounterPlace { cpu: Some(cpu), tid: None })
                .collect(),
        }
    }

    /// Whether events follow tasks rather than CPUs.
    pub(crate) fn is_of_tasks(&self) -> bool {
        !matches!(self, CounterScope::Cpus(_))
    }
}

/// A cgroup to watch.
#[derive(Debug)]
pub struct Cgroup {
    /// Its name, as the user gave it.
    pub name: String,
    /// Its directory, opened.
    pub(crate) dir: File,
}

impl Cgroup {
    /// Opens the directory of a cgroup named as `-G` takes it.
    pub fn open(name: &str) -> Result<Arc<Cgroup>, RecordError> {
        let path = target::cgroup_dir(name)?;
        let dir = File::open(&path).map_err(|source| RecordError::Cgroup { path, source })?;
        Ok(Arc::new(Cgroup { name: name.to_owned(), dir }))
    }
}
