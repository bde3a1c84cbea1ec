//! Filter of stacks by task name, binary, process and thread.

use crate::profile::{Profile, Stack};

/// Lists of what counts; an empty list lets everything pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleFilter<'a> {
    /// Task names.
    pub comms: &'a [String],
    /// Short names of binaries.
    pub dsos: &'a [String],
    /// Processes.
    pub pids: &'a [u32],
    /// Threads.
    pub tids: &'a [u32],
}

impl SampleFilter<'_> {
    /// Whether a stack counts. As in `report`, this is about the place where the
    /// processor was, not about its callers.
    pub fn wants(&self, profile: &Profile, stack: &Stack) -> bool {
        let symbols = &profile.machine.symbols;
        let has = |list: &[String], name: &str| list.iter().any(|l| l == name);
        (self.comms.is_empty() || has(self.comms, profile.machine.comm(stack.comm)))
            && (self.dsos.is_empty()
                || has(self.dsos, symbols.dso_name(profile.frame(stack.leaf).dso)))
            && (self.pids.is_empty() || self.pids.contains(&stack.pid))
            && (self.tids.is_empty() || self.tids.contains(&stack.tid))
    }
}
