//! Names of events and fields in other tracers and kernels than the one whose names are used here
//! (ftrace's of today), and the roles of fields. Data, not code: a new kernel or tracer is a new
//! row.

use crate::field_type::{FieldRole, FieldType};

/// LTTng's names of events whose kernel tracepoint is called otherwise, with the kernel's.
/// LTTng drops the system: `sched_switch` is `sched:sched_switch`.
const LTTNG_SYSTEMS: &[(&str, &str)] = &[
    ("sched_", "sched"),
    ("lock_", "lock"),
    ("irq_handler_", "irq"),
    ("irq_softirq_", "irq"),
    ("block_", "block"),
    ("kmem_", "kmem"),
    ("timer_hrtimer_", "timer"),
    ("timer_", "timer"),
    ("workqueue_", "workqueue"),
    ("net_", "net"),
    ("power_", "power"),
    ("writeback_", "writeback"),
    ("signal_", "signal"),
];

/// Events whose names differ by more than the system.
const LTTNG_EVENTS: &[(&str, &str)] = &[
    ("irq_softirq_entry", "irq:softirq_entry"),
    ("irq_softirq_exit", "irq:softirq_exit"),
    ("irq_softirq_raise", "irq:softirq_raise"),
    ("timer_hrtimer_start", "timer:hrtimer_start"),
    ("timer_hrtimer_cancel", "timer:hrtimer_cancel"),
    ("timer_hrtimer_expire_entry", "timer:hrtimer_expire_entry"),
    ("timer_hrtimer_expire_exit", "timer:hrtimer_expire_exit"),
    ("kmem_mm_page_alloc", "kmem:mm_page_alloc"),
    ("kmem_mm_page_free", "kmem:mm_page_free"),
    ("kmem_mm_page_free_batched", "kmem:mm_page_free_batched"),
    ("kmem_mm_page_alloc_zone_locked", "kmem:mm_page_alloc_zone_locked"),
    ("kmem_mm_page_alloc_extfrag", "kmem:mm_page_alloc_extfrag"),
    ("kmem_mm_page_pcpu_drain", "kmem:mm_page_pcpu_drain"),
    ("kmem_kmalloc", "kmem:kmalloc"),
    ("kmem_kmalloc_node", "kmem:kmalloc_node"),
    ("kmem_kfree", "kmem:kfree"),
    ("kmem_cache_alloc", "kmem:kmem_cache_alloc"),
    ("kmem_cache_free", "kmem:kmem_cache_free"),
    ("net_dev_xmit", "net:net_dev_xmit"),
    ("syscall_entry_futex", "syscalls:sys_enter_futex"),
    ("syscall_exit_futex", "syscalls:sys_exit_futex"),
];

/// `(events, ftrace's name of the field, another name of it)`; an empty event stands for all
/// of them.
const FIELDS: &[(&str, &str, &str)] = &[
    ("sched_switch", "prev_pid", "prev_tid"),
    ("sched_switch", "next_pid", "next_tid"),
    ("sched_wakeup", "pid", "tid"),
    ("sched_wakeup_new", "pid", "tid"),
    ("sched_waking", "pid", "tid"),
    ("sched_migrate_task", "pid", "tid"),
    ("sched_process_exit", "pid", "tid"),
    ("sched_process_free", "pid", "tid"),
    ("sched_process_wait", "pid", "tid"),
    ("sched_process_exec", "pid", "tid"),
    ("sched_process_fork", "child_pid", "child_tid"),
    ("sched_process_fork", "parent_pid", "parent_tid"),
    ("sched_stat_", "pid", "tid"),
    ("sched_pi_setprio", "pid", "tid"),
];

/// `(end of a field's name, type, role)`, the first that fits counts.
const ROLES: &[(&str, FieldRole)] = &[
    ("comm", FieldRole::TaskName),
    ("pid", FieldRole::TaskId),
    ("tid", FieldRole::TaskId),
    ("cpu", FieldRole::Cpu),
    ("cpu_id", FieldRole::Cpu),
    ("call_site", FieldRole::KernelCode),
    ("caller", FieldRole::KernelCode),
    ("function", FieldRole::KernelCode),
    ("parent_ip", FieldRole::KernelCode),
    ("func", FieldRole::KernelCode),
    ("bytes_req", FieldRole::Size),
    ("bytes_alloc", FieldRole::Size),
    ("bytes", FieldRole::Size),
    ("delay", FieldRole::Duration),
    ("runtime", FieldRole::Duration),
    ("vruntime", FieldRole::Duration),
    ("ptr", FieldRole::DataAddress),
    ("filename", FieldRole::UserText),
];

/// The kernel's name of an event that LTTng calls otherwise.
pub fn kernel_event(name: &str) -> Option<String> {
    if name.contains(':') {
        return None;
    }
    if let Some((_, kernel)) = LTTNG_EVENTS.iter().find(|(lttng, _)| *lttng == name) {
        return Some((*kernel).to_owned());
    }
    let (_, system) = LTTNG_SYSTEMS.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    Some(format!("{system}:{name}"))
}

/// Names that a tracepoint of the kernel may have in recordings: with its system, without, and
/// LTTng's.
pub fn recorded_names(kernel: &str) -> Vec<&str> {
    let bare = kernel.rsplit_once(':').map_or(kernel, |(_, bare)| bare);
    let lttng = LTTNG_EVENTS.iter().filter(|(_, k)| *k == kernel).map(|(lttng, _)| *lttng);
    [kernel, bare].into_iter().chain(lttng).collect()
}

/// Other names that a field of an event may have in a recording.
pub(crate) fn field_names(event: &str, field: &str) -> Vec<&'static str> {
    let bare = event.rsplit_once(':').map_or(event, |(_, bare)| bare);
    let of_event = |e: &str| e.is_empty() || bare == e || (e.ends_with('_') && bare.starts_with(e));
    let mut names = Vec::new();
    for (e, ftrace, other) in FIELDS.iter().filter(|(e, ..)| of_event(e)) {
        debug_assert!(ftrace != other, "{e}");
        if *ftrace == field {
            names.push(*other);
        } else if *other == field {
            names.push(*ftrace);
        }
    }
    names
}

/// Role of a field.
pub(crate) fn role(event: &str, field: &str, field_type: FieldType) -> FieldRole {
    if field == "ret" && event.contains("sys_exit") {
        return FieldRole::Errno;
    }
    let ends = |suffix: &str| {
        field == suffix || field.strip_suffix(suffix).is_some_and(|head| head.ends_with('_'))
    };
    let role = ROLES.iter().find(|(suffix, _)| ends(suffix)).map(|(_, role)| *role);
    let fits = |role: &FieldRole| match role {
        FieldRole::TaskName | FieldRole::UserText => field_type == FieldType::Text,
        FieldRole::Plain => true,
        _ => field_type.is_number(),
    };
    role.filter(fits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_fields_of_lttng_have_the_kernels_names() {
        let event = |n: &str| kernel_event(n).unwrap_or_default();
        assert_eq!(event("sched_switch"), "sched:sched_switch");
        assert_eq!(event("irq_softirq_entry"), "irq:softirq_entry");
        assert_eq!(event("irq_handler_entry"), "irq:irq_handler_entry");
        assert_eq!((event("shop:sale"), event("my_event")), (String::new(), String::new()));
        assert_eq!(recorded_names("irq:softirq_entry").last(), Some(&"irq_softirq_entry"));
        assert_eq!(recorded_names("sched:sched_switch"), ["sched:sched_switch", "sched_switch"]);
        assert_eq!(field_names("sched_switch", "prev_pid"), ["prev_tid"]);
        assert_eq!(field_names("sched:sched_switch", "next_tid"), ["next_pid"]);
        assert_eq!(field_names("sched:sched_stat_wait", "pid"), ["tid"]);
        assert!(field_names("shop:sale", "pid").is_empty());
    }

    #[test]
    fn roles_follow_names_and_types() {
        let int = FieldType::Integer { signed: true };
        assert_eq!(role("sched:sched_switch", "prev_pid", int), FieldRole::TaskId);
        assert_eq!(role("sched:sched_switch", "prev_comm", FieldType::Text), FieldRole::TaskName);
        assert_eq!(role("sched:sched_switch", "prev_comm", int), FieldRole::Plain);
        assert_eq!(role("raw_syscalls:sys_exit", "ret", int), FieldRole::Errno);
        assert_eq!(role("x:y", "stupid", int), FieldRole::Plain);
        assert_eq!(role("kmem:kmalloc", "call_site", FieldType::Address), FieldRole::KernelCode);
    }
}
