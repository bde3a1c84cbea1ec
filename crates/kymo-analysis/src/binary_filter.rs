//! Filter of stacks by binary.

use crate::profile::{Profile, Stack};

/// Short names of binaries; none lets everything pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct BinaryFilter<'a>(pub &'a [String]);

impl BinaryFilter<'_> {
    /// Whether a stack counts. As in `report`, this is about the place where the
    /// processor was, not about its callers.
    pub fn wants(&self, profile: &Profile, stack: &Stack) -> bool {
        let name = || profile.machine.symbols.dso_name(profile.frame(stack.leaf).dso);
        self.0.is_empty() || self.0.iter().any(|l| l == name())
    }
}
