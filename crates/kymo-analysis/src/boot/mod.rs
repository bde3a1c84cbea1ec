//! Analysis of a slow boot: the critical path to the first process, with each part of it named by
//! what its task did then (initcall, module, work item, process) and by the device it waited for;
//! and how far disks and their hosts worked at the same time.
//!
//! ```text
//! critical path ──────────────────────────────┐
//! initcalls, modules, work items, execs ──────┼─► BootPart … ─► totals, timeline
//! commands of SCSI devices, block requests ───┘
//! ```

mod activity;
mod answers;
mod compare;
mod devices;
mod notes;
mod report;

pub use activity::{ActivityId, ActivityKind, BootActivity};
pub(crate) use answers::schemas;
pub use answers::{UnitTime, compare_answer};
pub use compare::{BootDifference, compare_boots};
pub use devices::{BootDevice, BootHost, DeviceLoad};
pub use notes::boot_notes;
pub use report::{BootConfig, BootPart, BootReport, BootRow, report_boot};

/// Events that a boot is traced by: what there is of them.
pub const BOOT_EVENTS: [&str; 18] = [
    "initcall:initcall_start",
    "initcall:initcall_finish",
    "module:module_load",
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup_new",
    "sched:sched_process_fork",
    "sched:sched_process_exec",
    "sched:sched_process_exit",
    "workqueue:workqueue_queue_work",
    "workqueue:workqueue_execute_start",
    "workqueue:workqueue_execute_end",
    "block:block_rq_issue",
    "block:block_rq_requeue",
    "block:block_rq_complete",
    "scsi:scsi_dispatch_cmd_start",
    "scsi:scsi_dispatch_cmd_done",
    "printk:console",
];
