//! Causes of waits, found from the kernel functions in which a task waits.

use kymo_events::BlockedThread;

use crate::tasks::SwitchOutState;

/// Cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OffCpuCause {
    /// It could run, and another task was given its CPU.
    Preempted,
    /// It was woken, and had no CPU yet.
    Woken,
    /// It was new, and had no CPU yet.
    New,
    /// The CPU quota of its cgroup was used up.
    Throttled,
    /// Input or output of a disk.
    Disk,
    /// A page fault that reads from disk or waits for the program.
    PageFault,
    /// A futex: locks and conditions of programs.
    Futex,
    /// A mutex of the kernel.
    Mutex,
    /// A reader-writer semaphore of the kernel.
    Rwsem,
    /// Other locks of the kernel.
    KernelLock,
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// Several files: poll, select, epoll.
    Poll,
    /// An eventfd, timerfd, signalfd or inotify.
    EventFile,
    /// Completions of io_uring or of asynchronous I/O.
    AsyncIo,
    /// A terminal.
    Terminal,
    /// Time.
    Sleep,
    /// A lock of a file: flock, fcntl, leases.
    FileLock,
    /// A System V semaphore.
    SysvSemaphore,
    /// A System V message queue.
    SysvMessages,
    /// A POSIX message queue.
    MessageQueue,
    /// A child process.
    Child,
    /// A child made by vfork, until it executes a program or exits.
    Vfork,
    /// A signal.
    Signal,
    /// It was stopped, or is traced.
    Stopped,
    /// A thread of the kernel without work.
    IdleWorker,
    /// Another cause, or none known.
    Blocked,
}

use OffCpuCause as C;

/// Functions that wait for a cause, and those that begin so where a `*` ends the name.
const FUNCTIONS: [(OffCpuCause, &[&str]); 22] = [
    // Within a work item or a softirq a worker is not idle, whatever it waits for.
    (
        C::Blocked,
        &[
            "process_one_work",
            "run_ksoftirqd",
            "handle_softirqs",
            "__do_softirq",
            "jbd2_journal_commit_transaction",
            "balance_pgdat",
            "kcompactd_do_work",
            "io_worker_handle_work",
            "irq_thread_fn",
            "irq_forced_thread_fn",
            "rcu_do_batch",
        ],
    ),
    // Futexes with priority inheritance wait on the kernel's own mutex.
    (C::Futex, &["futex_*", "__futex_*", "do_futex", "rt_mutex_wait_proxy_lock"]),
    (C::Mutex, &["__mutex_lock*", "mutex_lock*", "__ww_mutex_lock*", "ww_mutex_lock*"]),
    (C::Rwsem, &["rwsem_down_*", "down_read*", "down_write*", "__down_read*", "__down_write*"]),
    (
        C::KernelLock,
        &[
            "rt_mutex_lock*",
            "__rt_mutex_lock*",
            "rt_mutex_slowlock",
            "__rt_mutex_slowlock_locked",
            "rt_spin_*",
            "rtlock_*",
            "__down",
            "__down_common",
            "___down_common",
            "__down_interruptible",
            "__down_killable",
            "__down_timeout",
            "percpu_rwsem_wait",
            "__percpu_down_read",
            "percpu_down_write",
        ],
    ),
    (
        C::Pipe,
        &[
            "pipe_read",
            "pipe_write",
            "anon_pipe_read",
            "anon_pipe_write",
            "fifo_pipe_read",
            "fifo_pipe_write",
            "pipe_wait_*",
            "wait_for_partner",
            "fifo_open",
        ],
    ),
    (
        C::Socket,
        &[
            "sk_wait_data",
            "sk_stream_wait_*",
            "unix_stream_read_generic",
            "unix_stream_data_wait",
            "unix_stream_connect",
            "unix_wait_for_peer",
            "__skb_wait_for_more_packets",
            "__unix_dgram_recvmsg",
            "unix_dgram_recvmsg",
            "sock_alloc_send_pskb",
            "inet_csk_accept",
            "unix_accept",
            "__inet_stream_connect",
            "inet_wait_for_connect",
            "vsock_*",
            "tcp_recvmsg*",
            "udp_recvmsg",
            "netlink_recvmsg",
        ],
    ),
    (
        C::Poll,
        &[
            "ep_poll",
            "do_epoll_wait",
            "do_poll",
            "do_sys_poll",
            "do_select",
            "core_sys_select",
            "poll_schedule_timeout*",
        ],
    ),
    (
        C::EventFile,
        &[
            "eventfd_read",
            "eventfd_write",
            "timerfd_read*",
            "signalfd_read*",
            "signalfd_dequeue",
            "inotify_read",
        ],
    ),
    (C::AsyncIo, &["io_cqring_wait*", "read_events", "do_io_getevents"]),
    (C::Terminal, &["n_tty_read", "n_tty_write", "tty_wait_until_sent", "tty_read"]),
    (
        C::Sleep,
        &["do_nanosleep", "hrtimer_nanosleep", "common_nsleep*", "msleep*", "usleep_range*"],
    ),
    (
        C::FileLock,
        &[
            "locks_lock_inode_wait",
            "flock_lock_inode_wait",
            "posix_lock_inode_wait",
            "do_lock_file_wait*",
            "fcntl_setlk*",
            "__do_sys_flock",
            "__x64_sys_flock",
            "__break_lease",
        ],
    ),
    (C::SysvSemaphore, &["do_semtimedop", "__do_semtimedop"]),
    (C::SysvMessages, &["do_msgrcv", "do_msgsnd"]),
    (C::MessageQueue, &["wq_sleep", "do_mq_timedreceive", "do_mq_timedsend"]),
    (C::Child, &["do_wait", "__do_wait", "kernel_wait4", "kernel_waitid"]),
    (C::Vfork, &["wait_for_vfork_done", "kernel_clone", "_do_fork", "__do_sys_vfork"]),
    (C::Signal, &["sigsuspend", "do_sigtimedwait", "__x64_sys_pause", "__do_sys_pause"]),
    (C::PageFault, &["handle_userfault", "migration_entry_wait*", "pmd_migration_entry_wait"]),
    (C::Disk, &["io_schedule", "io_schedule_timeout", "blk_io_schedule", "wait_on_page_bit*"]),
    (
        C::IdleWorker,
        &[
            "worker_thread",
            "smpboot_thread_fn",
            "kthreadd",
            "kswapd",
            "kcompactd",
            "khugepaged",
            "rcu_gp_kthread",
            "rcu_nocb_*",
            "rcu_tasks_*",
            "kjournald2",
            "oom_reaper",
            "ksmd",
            "io_wq_worker",
            "irq_thread",
            "kthread_worker_fn",
            "kauditd_thread",
            "psi_rtpoll_worker",
        ],
    ),
];

/// Function that dequeues a task because its cgroup has no CPU time left (Linux 6.18). It is on
/// the stack where the kernel is preemptible; elsewhere the switch comes after it.
const THROTTLE: &str = "throttle_cfs_rq_work";

/// Innermost functions of a task that leaves its CPU after work that was due at its return to user
/// mode, below the scheduler's own. Throttling is such work, and so are closing a file and more.
const TASK_WORK: [&[&str]; 3] = [
    &["__cond_resched", "_cond_resched", "dynamic_cond_resched"],
    &["task_work_run"],
    // The last one is compiled into its callers.
    &[
        "get_signal",
        "exit_to_user_mode_loop",
        "exit_to_user_mode_prepare",
        "exit_to_guest_mode_work",
        "irqentry_exit_to_user_mode",
        "irqentry_exit",
        "syscall_exit_to_user_mode",
        "do_syscall_64",
        "ret_from_fork",
    ],
];

/// Shortest wait after such work that is a throttled one. Periods of quotas are 100 ms unless they
/// are set; a task that was preempted there has a CPU again after a few slices of others.
const LEAST_THROTTLED: u64 = 10_000_000;

/// Evidence in a kernel stack that the CPU quota of a task's cgroup was used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThrottleEvidence {
    /// None.
    #[default]
    None,
    /// It left its CPU after work of which throttling is one kind.
    Possible,
    /// The function that throttles is on the stack.
    Proof,
}

/// Properties of a kernel stack that are not those of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackFacts {
    /// It is below the handler of a page fault.
    pub faults: bool,
    /// Whether it is that of a task whose CPU quota was used up.
    pub throttled: ThrottleEvidence,
}

impl StackFacts {
    /// The facts of the names of a kernel stack's functions, innermost first, without those of
    /// the scheduler.
    pub fn of<'n>(functions: impl Iterator<Item = &'n str>) -> StackFacts {
        let mut facts = StackFacts::default();
        let (mut depth, mut is_work, mut is_proven) = (0, true, false);
        for name in functions.map(whole) {
            facts.faults |= name == "handle_mm_fault";
            is_proven |= name == THROTTLE;
            is_work &= TASK_WORK.get(depth).is_none_or(|names| names.contains(&name));
            depth += 1;
        }
        if is_proven {
            facts.throttled = ThrottleEvidence::Proof;
        } else if is_work && depth >= TASK_WORK.len() {
            facts.throttled = ThrottleEvidence::Possible;
        }
        facts
    }
}

/// Name of a function without the parts that the compiler split off.
fn whole(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

impl OffCpuCause {
    /// All, in the order in which they are declared.
    pub const ALL: [OffCpuCause; 27] = [
        C::Preempted,
        C::Woken,
        C::New,
        C::Throttled,
        C::Disk,
        C::PageFault,
        C::Futex,
        C::Mutex,
        C::Rwsem,
        C::KernelLock,
        C::Pipe,
        C::Socket,
        C::Poll,
        C::EventFile,
        C::AsyncIo,
        C::Terminal,
        C::Sleep,
        C::FileLock,
        C::SysvSemaphore,
        C::SysvMessages,
        C::MessageQueue,
        C::Child,
        C::Vfork,
        C::Signal,
        C::Stopped,
        C::IdleWorker,
        C::Blocked,
    ];

    /// Whether the task could run, and waits for a CPU.
    pub fn is_runnable(self) -> bool {
        matches!(self, C::Preempted | C::Woken | C::New)
    }

    /// Whether it could have run on, so that no wake-up ends it.
    pub fn has_no_waker(self) -> bool {
        matches!(self, C::Preempted | C::Throttled)
    }

    /// Whether nothing was to be done: such waits delay no task.
    pub fn is_idle(self) -> bool {
        self == C::IdleWorker
    }

    /// Whether a process that was there before may wait like this because it has nothing to do:
    /// for events of files that others cause.
    pub fn may_be_idle(self) -> bool {
        matches!(self, C::Poll | C::EventFile | C::Terminal)
    }

    /// A sentence's words.
    pub fn text(self) -> &'static str {
        match self {
            C::Preempted => "waiting for a CPU: preempted",
            C::Woken => "waiting for a CPU: after wake-up",
            C::New => "waiting for a CPU: new task",
            C::Throttled => "throttled: CPU quota of its cgroup",
            C::Disk => "blocked: disk",
            C::PageFault => "blocked: page fault",
            C::Futex => "blocked: futex",
            C::Mutex => "blocked: kernel mutex",
            C::Rwsem => "blocked: kernel rwsem",
            C::KernelLock => "blocked: kernel lock",
            C::Pipe => "blocked: pipe",
            C::Socket => "blocked: socket",
            C::Poll => "blocked: poll, select or epoll",
            C::EventFile => "blocked: event file",
            C::AsyncIo => "blocked: asynchronous I/O",
            C::Terminal => "blocked: terminal",
            C::Sleep => "sleeping",
            C::FileLock => "blocked: file lock",
            C::SysvSemaphore => "blocked: System V semaphore",
            C::SysvMessages => "blocked: System V message queue",
            C::MessageQueue => "blocked: POSIX message queue",
            C::Child => "blocked: child process",
            C::Vfork => "blocked: child of vfork",
            C::Signal => "blocked: signal",
            C::Stopped => "stopped",
            C::IdleWorker => "idle kernel thread",
            C::Blocked => "blocked",
        }
    }

    /// Stable word for scripts.
    pub fn code(self) -> &'static str {
        match self {
            C::Preempted => "preempted",
            C::Woken => "woken",
            C::New => "new",
            C::Throttled => "throttled",
            C::Disk => "disk",
            C::PageFault => "page-fault",
            C::Futex => "futex",
            C::Mutex => "mutex",
            C::Rwsem => "rwsem",
            C::KernelLock => "kernel-lock",
            C::Pipe => "pipe",
            C::Socket => "socket",
            C::Poll => "poll",
            C::EventFile => "event-file",
            C::AsyncIo => "async-io",
            C::Terminal => "terminal",
            C::Sleep => "sleep",
            C::FileLock => "file-lock",
            C::SysvSemaphore => "sysv-sem",
            C::SysvMessages => "sysv-msg",
            C::MessageQueue => "mqueue",
            C::Child => "child",
            C::Vfork => "vfork",
            C::Signal => "signal",
            C::Stopped => "stopped",
            C::IdleWorker => "idle-worker",
            C::Blocked => "blocked",
        }
    }

    /// The cause that a function of the kernel waits for.
    pub(super) fn of_function(name: &str) -> Option<OffCpuCause> {
        // Parts that the compiler split off are the function.
        let name = whole(name);
        let fits = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == *pattern,
        };
        FUNCTIONS.iter().find(|(_, names)| names.iter().any(fits)).map(|f| f.0)
    }

    /// The cause of a block in these functions of the kernel, innermost first, of a task in this
    /// state of /proc/PID/stat; none for a task that runs or may run.
    pub fn of_kernel_stack(state: u8, functions: &[String]) -> Option<OffCpuCause> {
        let state = match state {
            b'R' => return None,
            letter => SwitchOutState::Blocked(letter),
        };
        let facts = StackFacts::of(functions.iter().map(String::as_str));
        let causes = functions.iter().map(|name| OffCpuCause::of_function(name));
        Some(OffCpuCause::of_block(state, causes, facts))
    }

    /// The cause of the block of a thread, and the functions of the kernel that show it.
    pub(crate) fn of_thread(thread: &BlockedThread) -> (OffCpuCause, &[String]) {
        let functions = match thread.stack.as_slice() {
            [] => thread.function.as_slice(),
            stack => stack,
        };
        let cause = OffCpuCause::of_kernel_stack(thread.state, functions);
        (cause.unwrap_or(OffCpuCause::Blocked), functions)
    }

    /// The cause of a wait of a task in this state, where its stack is not known.
    pub fn of_state(state: SwitchOutState) -> OffCpuCause {
        OffCpuCause::of_block(state, std::iter::empty(), StackFacts::default())
    }

    /// The cause of a wait that has ended. `evidence` is that of its stack, where it may be one of
    /// a throttled task: a short one is that of a task that was preempted.
    pub fn of_ended(self, evidence: ThrottleEvidence, nanos: u64) -> OffCpuCause {
        let is_proven = evidence == ThrottleEvidence::Proof || nanos >= LEAST_THROTTLED;
        if self == C::Throttled && !is_proven { C::Preempted } else { self }
    }

    /// The cause of a block, by the causes of the functions of the kernel's stack, innermost
    /// first, and what the stack shows as a whole. Whether a task was throttled or preempted is
    /// decided at the end of the wait: see [`OffCpuCause::of_ended`].
    pub fn of_block(
        state: SwitchOutState,
        functions: impl Iterator<Item = Option<OffCpuCause>>,
        facts: StackFacts,
    ) -> OffCpuCause {
        match (state, functions.flatten().next()) {
            (state, _) if state.is_runnable() && facts.throttled != ThrottleEvidence::None => {
                C::Throttled
            }
            (SwitchOutState::Runnable | SwitchOutState::Preempted, _) => C::Preempted,
            (SwitchOutState::Blocked(b'T' | b't'), _) => C::Stopped,
            (SwitchOutState::Blocked(b'P'), _) => C::IdleWorker,
            (_, Some(C::Disk)) if facts.faults => C::PageFault,
            (_, Some(cause)) => cause,
            (SwitchOutState::Blocked(b'I'), None) => C::IdleWorker,
            (_, None) => C::Blocked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(state: i64, stack: &[&str]) -> &'static str {
        let facts = StackFacts::of(stack.iter().copied());
        let causes = stack.iter().map(|f| OffCpuCause::of_function(f));
        OffCpuCause::of_block(SwitchOutState::from_kernel(state), causes, facts).code()
    }

    #[test]
    fn the_innermost_function_that_waits_tells_the_cause() {
        let futex = ["futex_do_wait", "__futex_wait", "futex_wait", "do_futex", "__x64_sys_futex"];
        assert_eq!(cause(1, &futex), "futex");
        assert_eq!(cause(1, &["anon_pipe_read", "vfs_read", "ksys_read"]), "pipe");
        assert_eq!(cause(1, &["pipe_read.part.0", "vfs_read"]), "pipe");
        assert_eq!(cause(2, &["io_schedule", "folio_wait_bit_common", "filemap_read"]), "disk");
        let fault = ["io_schedule", "folio_wait_bit_common", "filemap_fault", "handle_mm_fault"];
        assert_eq!(cause(2, &fault), "page-fault");
        assert_eq!(cause(1, &["schedule_hrtimeout_range", "ep_poll", "do_epoll_wait"]), "poll");
        assert_eq!(cause(1, &["do_nanosleep", "hrtimer_nanosleep"]), "sleep");
        assert_eq!(cause(2, &["__mutex_lock.constprop.0", "pipe_write"]), "mutex");
        assert_eq!(cause(2, &["rwsem_down_write_slowpath", "down_write", "do_futex"]), "rwsem");
        assert_eq!(
            cause(2, &["schedule_timeout", "__wait_for_common", "synchronize_rcu"]),
            "blocked"
        );
        assert_eq!(cause(0x80, &["kthread", "ret_from_fork"]), "idle-worker");
        assert_eq!((cause(0, &futex), cause(0x100, &[])), ("preempted", "preempted"));
        assert_eq!((cause(4, &futex), cause(1, &[])), ("stopped", "blocked"));
        // What begins alike is not the same.
        assert_eq!(cause(1, &["do_wait_intr_irq"]), "blocked");
    }

    #[test]
    fn locks_and_queues_of_programs_have_their_names() {
        let flock = ["locks_lock_inode_wait", "__do_sys_flock", "do_syscall_64"];
        assert_eq!(cause(1, &flock), "file-lock");
        assert_eq!(cause(1, &["fcntl_setlk", "do_fcntl", "__x64_sys_fcntl"]), "file-lock");
        assert_eq!(cause(1, &["__do_semtimedop", "do_semtimedop"]), "sysv-sem");
        assert_eq!(cause(1, &["do_msgrcv", "do_syscall_64"]), "sysv-msg");
        let queue = ["schedule_hrtimeout_range_clock", "wq_sleep", "do_mq_timedreceive"];
        assert_eq!(cause(1, &queue), "mqueue");
        let inherits = ["rt_mutex_slowlock_block.constprop.0", "rt_mutex_wait_proxy_lock"];
        assert_eq!(cause(1, &inherits), "futex");
        let locks = ["rt_mutex_slowlock_block.constprop.0", "rt_mutex_slowlock", "i2c_transfer"];
        assert_eq!(cause(2, &locks), "kernel-lock");
        let vfork = ["wait_for_completion_state", "kernel_clone", "__do_sys_vfork"];
        assert_eq!(cause(2, &vfork), "vfork");
    }

    #[test]
    fn workers_are_idle_between_their_work_alone() {
        let between = ["worker_thread", "kthread", "ret_from_fork"];
        assert_eq!(cause(0x80, &between), "idle-worker");
        let within = ["schedule_timeout", "flush_something", "process_one_work"];
        assert_eq!(cause(2, &[&within[..], &between].concat()), "blocked");
        assert_eq!(cause(0x80, &[&within[..], &between].concat()), "blocked");
        let disk = ["io_schedule", "process_one_work"];
        assert_eq!(cause(2, &[&disk[..], &between].concat()), "disk");
    }

    #[test]
    fn short_waits_after_other_work_are_preempted_ones() {
        let kernel = ["exit_to_user_mode_loop", "do_syscall_64"];
        let after_work = [&["__cond_resched", "task_work_run"], &kernel[..]].concat();
        let within =
            [&["preempt_schedule_common", "throttle_cfs_rq_work", "task_work_run"], &kernel[..]]
                .concat();
        let ended = |stack: &[&str], nanos: u64| {
            let evidence = StackFacts::of(stack.iter().copied()).throttled;
            OffCpuCause::Throttled.of_ended(evidence, nanos)
        };
        assert_eq!(ended(&after_work, 30_000), OffCpuCause::Preempted);
        assert_eq!(ended(&after_work, 60_000_000), OffCpuCause::Throttled);
        assert_eq!(cause(0, &within), "throttled");
        assert_eq!(ended(&within, 30_000), OffCpuCause::Throttled);
        // Others stay what they are.
        let sleeping = OffCpuCause::Sleep.of_ended(ThrottleEvidence::None, 1);
        assert_eq!(sleeping, OffCpuCause::Sleep);
    }

    #[test]
    fn tasks_without_quota_are_throttled_and_not_preempted() {
        let stack = ["__cond_resched", "task_work_run", "exit_to_user_mode_loop", "do_syscall_64"];
        assert_eq!(cause(0, &stack), "throttled");
        let within = ["__cond_resched", "task_work_run", "irqentry_exit_to_user_mode"];
        assert_eq!(cause(0, &within), "throttled");
        assert_eq!(cause(0, &["__cond_resched", "task_work_run", "do_exit"]), "preempted");
        assert_eq!(cause(0, &stack[1..]), "preempted");
        assert_eq!(cause(0, &stack[..2]), "preempted");
        // Blocked is blocked.
        assert_eq!(cause(1, &stack), "blocked");
    }

    #[test]
    fn codes_and_order_are_those_of_the_list() {
        let mut codes: Vec<&str> = OffCpuCause::ALL.iter().map(|c| c.code()).collect();
        assert!(OffCpuCause::ALL.is_sorted());
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), OffCpuCause::ALL.len());
    }
}
