//! Source of a wake-up (a task, a timer, a disk, the network), found from its stack.

use crate::tasks::WakeupContext;

/// Source of the wake-up that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WakeSource {
    /// A task, which the path follows.
    Task,
    /// A timer.
    Timer,
    /// A request of a disk that was completed.
    Disk,
    /// Packets of the network.
    Network,
    /// A soft interrupt, of unknown work.
    SoftIrq,
    /// A hardware interrupt, of an unknown device.
    HardIrq,
    /// The wake-up is not in the recording, or its context is not.
    Unseen,
    /// The wait had not ended.
    NotEnded,
}

use WakeSource as W;

/// Functions in the stacks of wake-ups, and those that begin so where a `*` ends the name.
const FUNCTIONS: [(WakeSource, &[&str]); 3] = [
    (
        W::Timer,
        &["hrtimer_wakeup", "process_timeout", "call_timer_fn", "__hrtimer_run_queues", "posix_*"],
    ),
    (
        W::Disk,
        &[
            "bio_endio",
            "blk_update_request",
            "blk_mq_end_request*",
            "blk_mq_complete_request*",
            "blk_complete_reqs",
            "blk_done_softirq",
            "scsi_io_completion",
            "nvme_*",
            "virtblk_done",
        ],
    ),
    (
        W::Network,
        &[
            "net_rx_action",
            "__netif_receive_skb*",
            "process_backlog",
            "napi_*",
            "sock_def_readable",
        ],
    ),
];

/// Functions through which an interrupt comes upon what runs.
const ENTRIES: [&str; 6] =
    ["asm_*", "sysvec_*", "irq_exit*", "__irq_exit*", "common_interrupt*", "el*_interrupt"];

/// Functions in which a task runs soft interrupts that it raised itself.
const OWN_SOFTIRQS: [&str; 4] =
    ["__local_bh_enable_ip", "do_softirq*", "netif_rx*", "run_ksoftirqd"];

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((begin, end)) => {
            name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
        }
        None => name == pattern,
    }
}

/// Name of a function without the parts that the compiler split off.
fn whole(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

impl WakeSource {
    /// Classifies a wake-up by its context and the functions of its stack, innermost first.
    /// `is_idle`: it interrupted an idle task, which itself wakes no other.
    pub(super) fn of(context: WakeupContext, stack: &[&str], is_idle: bool) -> WakeSource {
        let among = |list: &[&str]| {
            let any = |name: &&str| list.iter().any(|p| fits(p, whole(name)));
            stack.iter().any(any)
        };
        match context {
            WakeupContext::Task if !is_idle => return W::Task,
            // The task that sends over the loopback device runs the receiver's side, too.
            WakeupContext::SoftIrq if !is_idle && !among(&ENTRIES) && among(&OWN_SOFTIRQS) => {
                return W::Task;
            }
            _ => {}
        }
        let told = FUNCTIONS.iter().find(|(_, names)| among(names)).map(|f| f.0);
        told.unwrap_or(match context {
            WakeupContext::SoftIrq => W::SoftIrq,
            WakeupContext::HardIrq | WakeupContext::DeviceIrq => W::HardIrq,
            WakeupContext::TimerIrq => W::Timer,
            WakeupContext::Task | WakeupContext::Unknown => W::Unseen,
        })
    }

    /// Stable word for scripts.
    pub fn code(self) -> &'static str {
        match self {
            W::Task => "task",
            W::Timer => "timer",
            W::Disk => "disk",
            W::Network => "network",
            W::SoftIrq => "softirq",
            W::HardIrq => "hardirq",
            W::Unseen => "unseen",
            W::NotEnded => "not-ended",
        }
    }

    /// Words behind the cause of a wait.
    pub fn text(self) -> &'static str {
        match self {
            W::Task => "",
            W::Timer => ", ended by a timer",
            W::Disk => ", ended by a disk",
            W::Network => ", ended by the network",
            W::SoftIrq => ", ended by a softirq",
            W::HardIrq => ", ended by an interrupt",
            W::Unseen => ", wake-up not recorded",
            W::NotEnded => ", not ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_tell_what_woke() {
        let of = |context, stack: &[&str]| WakeSource::of(context, stack, false);
        let (soft, hard) = (WakeupContext::SoftIrq, WakeupContext::HardIrq);
        assert_eq!(of(WakeupContext::Task, &[]), W::Task);
        assert_eq!(WakeSource::of(WakeupContext::Task, &[], true), W::Unseen);
        assert_eq!(of(hard, &["hrtimer_wakeup", "__hrtimer_run_queues"]), W::Timer);
        assert_eq!(of(hard, &["wake_up_page_bit", "bio_endio", "virtblk_done"]), W::Disk);
        assert_eq!((of(soft, &[]), of(hard, &[])), (W::SoftIrq, W::HardIrq));
        let sent = ["sock_def_readable", "tcp_v4_rcv", "do_softirq.part.0", "__local_bh_enable_ip"];
        assert_eq!(of(soft, &sent), W::Task);
        let met = ["sock_def_readable", "net_rx_action", "irq_exit_rcu", "asm_common_interrupt"];
        assert_eq!(of(soft, &met), W::Network);
        let both = ["tcp_v4_rcv", "net_rx_action", "__irq_exit_rcu", "__local_bh_enable_ip"];
        assert_eq!(of(soft, &both), W::Network);
    }
}
