//! Watchpoints on arguments of functions: attached when the function is called.

use std::collections::BTreeSet;

use kymo_bpf::{AttachPoint, AttachTarget};
use kymo_kernel::bpf::{BpfLink, BpfProgram};
use kymo_kernel::process::continue_process;
use kymo_model::{Note, NoteKind};

use crate::actions::WatchRequest;
use crate::attach;

/// The watchpoints of a program, and what is watched.
#[derive(Default)]
pub(crate) struct Watchpoints {
    /// Each with the number of its program.
    pub points: Vec<(AttachPoint, usize)>,
    links: Vec<(String, u64, Vec<BpfLink>)>,
    process: Option<u32>,
    failures: BTreeSet<String>,
    failed: usize,
}

impl Watchpoints {
    pub(crate) fn of_process(process: Option<u32>) -> Watchpoints {
        Watchpoints { process, ..Watchpoints::default() }
    }

    /// Watches an address, or ends that; the process continues.
    pub(crate) fn serve(&mut self, request: &WatchRequest, loaded: &[(String, BpfProgram)]) {
        let WatchRequest { point, address, pid } = request;
        let Some(wanted) = point else {
            return self.links.retain(|(_, watched, _)| watched != address);
        };
        let is_known = self.links.iter().any(|(name, at, _)| name == wanted && at == address);
        let points = self.points.iter().filter(|(point, _)| point.name == *wanted && !is_known);
        for (point, index) in points {
            let Some((_, program)) = loaded.get(*index) else { continue };
            match attach::watch(program, &point.target, *address, *pid) {
                Ok(links) => self.links.push((wanted.clone(), *address, links)),
                Err(why) => {
                    self.failed += 1;
                    self.failures.insert(why);
                }
            }
        }
        self.resume(*pid);
    }

    /// Only watchpoints that are not asynchronous stop a process.
    fn resume(&self, pid: u32) {
        let stops = |(point, _): &(AttachPoint, usize)| {
            matches!(point.target, AttachTarget::Watchpoint { asynchronous: false, .. })
        };
        if self.points.iter().any(stops) {
            // It may have ended.
            let _ = continue_process(pid);
        }
    }

    /// Watches nothing any more; what could not be watched.
    pub(crate) fn end(&mut self) -> Option<Note> {
        self.links.clear();
        if let Some(pid) = self.process {
            self.resume(pid);
        }
        let why: Vec<&str> = self.failures.iter().map(String::as_str).collect();
        let fact = format!("{} addresses were not watched: {}", self.failed, why.join("; "));
        let failed = std::mem::take(&mut self.failed);
        (failed > 0).then(|| Note::doubt(NoteKind::Scope, fact, None))
    }
}
