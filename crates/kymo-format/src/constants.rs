//! Names of enumerators and variables that some kernels leave in print
//! formats without resolving them.

/// Lookup of a constant's value by name.
pub trait Constants {
    /// The value of `name`, if known.
    fn value(&self, name: &str) -> Option<i64>;
}

/// The values that are part of the kernel's stable interface.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtin;

impl Constants for Builtin {
    fn value(&self, name: &str) -> Option<i64> {
        Some(match name {
            "NULL" | "false" => 0,
            "true" => 1,
            "IOPRIO_CLASS_NONE" => 0,
            "IOPRIO_CLASS_RT" => 1,
            "IOPRIO_CLASS_BE" => 2,
            "IOPRIO_CLASS_IDLE" => 3,
            "IOPRIO_CLASS_INVALID" => 7,
            "TCP_ESTABLISHED" => 1,
            "TCP_SYN_SENT" => 2,
            "TCP_SYN_RECV" => 3,
            "TCP_FIN_WAIT1" => 4,
            "TCP_FIN_WAIT2" => 5,
            "TCP_TIME_WAIT" => 6,
            "TCP_CLOSE" => 7,
            "TCP_CLOSE_WAIT" => 8,
            "TCP_LAST_ACK" => 9,
            "TCP_LISTEN" => 10,
            "TCP_CLOSING" => 11,
            "TCP_NEW_SYN_RECV" => 12,
            "HRTIMER_MODE_ABS" => 0,
            "HRTIMER_MODE_REL" => 1,
            "HRTIMER_MODE_ABS_PINNED" => 2,
            "HRTIMER_MODE_REL_PINNED" => 3,
            "HRTIMER_MODE_ABS_SOFT" => 4,
            "HRTIMER_MODE_REL_SOFT" => 5,
            "HRTIMER_MODE_ABS_PINNED_SOFT" => 6,
            "HRTIMER_MODE_REL_PINNED_SOFT" => 7,
            "HRTIMER_MODE_ABS_HARD" => 8,
            "HRTIMER_MODE_REL_HARD" => 9,
            "HRTIMER_MODE_ABS_PINNED_HARD" => 10,
            "HRTIMER_MODE_REL_PINNED_HARD" => 11,
            "VDSO_CLOCKMODE_NONE" => 0,
            "VDSO_CLOCKMODE_TSC" => 1,
            "PM_QOS_ADD_REQ" => 0,
            "PM_QOS_UPDATE_REQ" => 1,
            "PM_QOS_REMOVE_REQ" => 2,
            "DEV_PM_QOS_RESUME_LATENCY" => 1,
            "DEV_PM_QOS_FLAGS" => 4,
            // Where x86-64 puts its page structures when it does not randomise them.
            "vmemmap_base" => 0xffff_ea00_0000_0000_u64 as i64,
            _ => return fault(name),
        })
    }
}

/// Bits of page faults.
fn fault(name: &str) -> Option<i64> {
    let bit = match name {
        "VM_FAULT_OOM" | "FAULT_FLAG_WRITE" => 0,
        "VM_FAULT_SIGBUS" | "FAULT_FLAG_MKWRITE" => 1,
        "VM_FAULT_MAJOR" | "FAULT_FLAG_ALLOW_RETRY" => 2,
        "FAULT_FLAG_RETRY_NOWAIT" => 3,
        "VM_FAULT_HWPOISON" | "FAULT_FLAG_KILLABLE" => 4,
        "VM_FAULT_HWPOISON_LARGE" | "FAULT_FLAG_TRIED" => 5,
        "VM_FAULT_SIGSEGV" | "FAULT_FLAG_USER" => 6,
        "FAULT_FLAG_REMOTE" => 7,
        "VM_FAULT_NOPAGE" | "FAULT_FLAG_INSTRUCTION" => 8,
        "VM_FAULT_LOCKED" | "FAULT_FLAG_INTERRUPTIBLE" => 9,
        "VM_FAULT_RETRY" => 10,
        "VM_FAULT_FALLBACK" => 11,
        "VM_FAULT_DONE_COW" | "FAULT_FLAG_VMA_LOCK" => 12,
        "VM_FAULT_NEEDDSYNC" => 13,
        "VM_FAULT_COMPLETED" => 14,
        _ => return None,
    };
    Some(1 << bit)
}
