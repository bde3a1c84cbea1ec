//! Whether this machine can count an event: found out by opening it, disabled,
//! for this process, and closing it again.

use kymo_model::AttrFlags;

use super::{CounterSource, EventSpec};
use crate::perf_event::{OpenFlags, PerfEvent};

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It opens.
    Yes,
    /// It opens for user mode only; the kernel's side is not permitted.
    UserOnly,
    /// This machine or kernel does not have it; the error number says how the
    /// kernel put it.
    No(i32),
    /// It may be there, but this process may not open it.
    Denied,
}

impl EventSpec {
    /// Asks the kernel whether the event can be counted here. Values that need
    /// no perf event are always there.
    pub fn support(&self) -> Support {
        if self.source != CounterSource::Perf {
            return Support::Yes;
        }
        let mut attr = self.attr.clone();
        attr.flags |= AttrFlags::DISABLED;
        // PMUs that cannot tell modes or guests apart refuse being asked to.
        let plain = attr.flags & !(AttrFlags::EXCLUDE_GUEST | AttrFlags::EXCLUDE_HOST);
        let user = attr.flags | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        let first_cpu = self.cpus.as_ref().and_then(|c| c.first()).copied().unwrap_or(0) as i32;
        // Uncore PMUs count for CPUs, not for tasks.
        let places = [(0, -1), (-1, first_cpu)];
        let mut refusal = None;
        for (flags, answer) in
            [(attr.flags, Support::Yes), (plain, Support::Yes), (user, Support::UserOnly)]
        {
            attr.flags = flags;
            for (pid, cpu) in places {
                match PerfEvent::open(&attr, pid, cpu, None, OpenFlags::NONE) {
                    Ok(_) => return answer,
                    // EINVAL may be about the flags or the place: go on asking.
                    Err(e) if e.errno == libc::EINVAL => {
                        refusal.get_or_insert(Support::No(e.errno));
                    }
                    Err(e) if e.is_denied() => refusal = Some(Support::Denied),
                    Err(e) => return Support::No(e.errno),
                }
            }
            if answer == Support::Yes && refusal.is_none() {
                break;
            }
        }
        refusal.unwrap_or(Support::No(libc::EINVAL))
    }
}
