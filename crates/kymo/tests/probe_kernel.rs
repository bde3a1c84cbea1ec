//! `kymo probe --definition` against `perf probe -D` on Debian's kernel and a module
//! of it: the same definitions, and where they differ why. Needs the kernel's debug
//! package: `cargo xtask vm fetch --debug`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use kymo_testkit::{Need, kernel_debug, perf, require, run};

/// Descriptions for which both give the same.
const SAME: &[&str] = &[
    "vfs_read file file->f_mode",
    "vfs_read",
    "vfs_read:6 count",
    "vfs_read+8 count",
    "do_sys_openat2 filename:string how->flags",
    "do_sys_openat2 dfd filename:ustring how",
    "schedule",
    "vfs_re*",
    "vfs_read $vars",
    "vfs_read $params",
    "vfs_read pos count:x8",
    "myev=vfs_read %di +0(%di):u32",
    "grp:myev=vfs_read $stack0 $stack",
    "vfs_read @jiffies",
    "vfs_write file->f_path.dentry->d_name.name:string",
    "vfs_write file->f_inode->i_ino file->f_inode->i_sb->s_id:string",
    "vfs_write count:u pos:x buf:s",
    "vfs_read@fs/read_write.c file",
    "do_exit code",
    "do_exit%return",
    "wake_up_new_task p->pid p->comm:string",
    "try_to_wake_up p->pid p->tgid state wake_flags",
    "ksys_read fd",
    "ksys_read:3",
    "__x64_sys_read regs->di",
    "tcp_sendmsg sk size msg->msg_iter.count",
    "tcp_sendmsg sk->__sk_common.skc_dport sk->__sk_common.skc_rcv_saddr",
    "tcp_v4_connect sk uaddr addr_len",
    "ip_rcv skb->len skb->dev->name:string",
    "__alloc_pages gfp order",
    "__alloc_pages gfp:x32 order preferred_nid",
    "kmem_cache_alloc s->name:string",
    "security_file_open file->f_flags",
    "filp_close filp",
    "submit_bio bio->bi_opf bio->bi_iter.bi_sector",
    "blk_mq_start_request rq->__sector",
    "wake_up_process p->prio p->static_prio",
    "finish_task_switch prev->pid",
    "kernel_clone args->flags",
    "fs/read_write.c:468",
    "sched_fork clone_flags p->on_cpu",
    "copy_process:20",
    "handle_mm_fault vma->vm_start address flags",
    "handle_mm_fault vma->vm_flags",
    "inet_csk_accept sk flags",
    "task_tick_fair",
    "pick_next_task_fair",
    "get_page_from_freelist order",
    "free_unref_page page order",
    "rcu_sched_clock_irq user",
    "mutex_lock lock",
    "mutex_lock lock->owner.counter",
    "tick_sched_timer timer",
    "hrtimer_interrupt dev",
    "exc_page_fault regs error_code",
    "vfs_open path->dentry file->f_flags",
    "path_openat nd op flags",
    "link_path_walk name:string",
    "link_path_walk nd->depth",
    "d_alloc_parallel name->len",
    "generic_file_read_iter iocb->ki_pos iter->count",
    "generic_perform_write",
    "do_sys_poll nfds",
    "sock_sendmsg sock msg",
    "netif_receive_skb skb",
    "dev_queue_xmit",
    "kfree_skb_reason skb reason",
    "__kmalloc size flags",
    "exit_mmap mm->map_count",
    "mmput mm->mm_users.counter",
    "unmap_region",
    "oom_kill_process oc->order message:string",
    "panic fmt:string",
    "vprintk_emit level",
    "mod_timer timer expires",
    "queue_work_on cpu wq work",
    "worker_thread __worker",
    "kthread_create_on_node",
    "load_elf_binary bprm->filename:string",
    "begin_new_exec bprm->interp:string",
    "send_signal_locked sig t->pid",
    "do_send_sig_info sig p->pid",
    "ptrace_attach task->pid request",
    "cgroup_attach_task leader->pid threadgroup",
    "update_curr cfs_rq",
    "enqueue_task_fair p flags",
    "set_next_entity se->vruntime",
    "select_task_rq_fair p->cpus_ptr",
    "account_user_time cputime",
    "notify_change dentry->d_iname:string",
    "kill_pid sig",
    "tty_write",
    "n_tty_read nr",
    "console_unlock",
    "bpf_prog_load",
    "ext4_file_open",
    "iov_iter_advance i size",
    "folio_add_lru folio",
    "lru_add_drain_cpu cpu",
    "__page_cache_alloc",
    "do_nanosleep mode",
    "hrtimer_nanosleep rqtp",
    "futex_wait uaddr val",
    "futex_wake nr_wake bitset",
    "rwsem_down_write_slowpath",
    "msleep msecs",
    "csum_partial",
    "clear_page_rep",
    "vfs_read:0",
    "vfs_read:20",
    "schedule:2",
    "schedule:10",
    "vfs_write+0x10",
    "vfs_write+1",
    "vfs_statx dfd flags stat",
];

/// Descriptions with the same result, of the module xfs.
const SAME_IN_XFS: &[&str] = &[
    "xfs_file_open",
    "xfs_file_open inode->i_ino file->f_flags",
    "xfs_file_read_iter iocb->ki_pos",
    "xfs_file_read_iter iocb->ki_filp->f_flags to->count",
    "xfs_alloc_vextent args->len args->minlen args->type",
    "xfs_trans_commit",
    "xfs_trans_commit tp->t_flags",
    "xfs_iget ino flags",
    "xfs_buf_submit bp->b_length",
    "xfs_lookup dp->i_ino name->name:string",
    "xfs_create",
    "xfs_log_force flags",
    "xfs_bmapi_write ip->i_ino bno len",
    "xfs_inode_alloc",
    "xfs_ilock ip lock_flags",
    "xfs_ilock+4",
    "xfs_dir_*",
    "xfs_file.c:1200",
    "xfs_ifork_init_attr",
    "xfs_fs_statfs dentry statp",
];

/// `(description, reason, part of what kymo gives)`.
const OURS: &[(&str, &str, &str)] = &[
    (
        "shmem_fault vmf->pgoff",
        "perf does not look into anonymous members of anonymous members",
        "pgoff=+16(%di):x64",
    ),
    (
        "signal_wake_up_state t state",
        "perf gives up at the first value that is a constant",
        "state=\\0:x32",
    ),
    (
        "vfs_getattr path->mnt query_flags",
        "the same",
        "vfs_getattr+0 mnt=+0(%di):x64 query_flags=%cx:x32",
    ),
    ("vfs_fsync_range start end datasync", "the same", "end=\\9223372036854775807:s64"),
    ("get_pid_task pid type", "the same", "get_pid_task+0 pid=%di:x64 type=%si:x32"),
    (
        "vfs_read:1",
        "perf refuses a line that shares its first address",
        "p:probe/vfs_read_L1 vfs_read+0",
    ),
    (
        "vfs_read%return $retval",
        "perf records the register without its type: an error is a large number",
        "r:probe/vfs_read__return vfs_read+0 $retval:s64",
    ),
];

fn kymo(target: &[&str], descriptions: &[&str]) -> kymo_testkit::Outcome {
    let mut args = vec!["probe", "-q"];
    args.extend(target);
    args.extend(descriptions.iter().flat_map(|d| ["-D", d]));
    // An own cache: the index is made by the second run, and the others use it.
    let cache = kernel_debug().unwrap().own.join("kymo-cache");
    let kymo = ["KYMO_CACHE=", cache.to_str().unwrap()].concat();
    run("env", [&[kymo.as_str(), env!("CARGO_BIN_EXE_kymo")][..], &args].concat())
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns perf's answers to some descriptions. perf takes half a second for each, so the answers
/// are kept beside the package that they are about, by its version and perf's.
fn perf_says(target: &[&str], some: &[&str]) -> String {
    let mut args = vec!["probe", "-q"];
    args.extend(target);
    args.extend(some.iter().flat_map(|d| ["-D", d]));
    let version = perf(["--version"]).success().stdout;
    let fnv = |sum: u64, b: u8| (sum ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    let words = args.iter().flat_map(|a| a.bytes().chain([0])).chain(version.bytes());
    let name = format!("perf-says-{:016x}", words.fold(0xcbf2_9ce4_8422_2325, fnv));
    let kept = kernel_debug().unwrap().own.join(name);
    if let Ok(known) = std::fs::read_to_string(&kept) {
        return known;
    }
    let says = perf(&args).success().stdout;
    let fresh = kept.with_extension(std::process::id().to_string());
    std::fs::write(&fresh, &says).unwrap();
    std::fs::rename(fresh, kept).unwrap();
    says
}

/// Many descriptions a run: perf searches the whole kernel for each.
fn check_same(target: &[&str], all: &[&str]) {
    for some in all.chunks(16) {
        let theirs = perf_says(target, some);
        let ours = kymo(target, some).success().stdout;
        let (theirs, ours) = (sorted(&theirs), sorted(&ours));
        let only = |a: &[&str], b: &[&str]| {
            a.iter().filter(|l| !b.contains(l)).map(|l| (*l).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(only(&theirs, &ours), Vec::<String>::new(), "only perf has these of {some:?}");
        assert_eq!(only(&ours, &theirs), Vec::<String>::new(), "only kymo has these of {some:?}");
        assert!(ours.len() >= some.len());
    }
}

fn ready() -> bool {
    require(&[Need::Root, Need::Tracefs, Need::Perf, Need::KernelDebug])
}

#[test]
fn definitions_in_the_kernel() {
    if !ready() {
        return;
    }
    let debug = kernel_debug().unwrap();
    check_same(&["-k", debug.vmlinux.to_str().unwrap()], SAME);
}

#[test]
fn definitions_in_a_module() {
    if !ready() {
        return;
    }
    let debug = kernel_debug().unwrap();
    let module = debug.modules.join("kernel/fs/xfs/xfs.ko");
    assert!(Path::exists(&module), "{}", module.display());
    let module = module.to_str().unwrap();
    check_same(&["-m", module], SAME_IN_XFS);
    // An `int`: the upper half of the register is not part of it, and perf records all of it.
    let typed = kymo(&["-m", module], &["xfs_iget%return $retval"]).success().stdout;
    assert_eq!(typed.trim_end(), "r:probe/xfs_iget__return xfs:xfs_iget+0 $retval:s32");
}

#[test]
fn a_packed_module_is_asked_as_the_plain_one() {
    if !ready() || !require(&[Need::Tool("xz"), Need::Tool("zstd")]) {
        return;
    }
    let debug = kernel_debug().unwrap();
    let plain = debug.modules.join("kernel/drivers/scsi/scsi_debug.ko");
    let plain = plain.to_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let questions: [&[&str]; 4] = [
        &["-D", "scsi_debug_queuecommand shost->host_no scp->cmnd[0]", "-D", "scsi_debug_*"],
        &["-L", "scsi_debug_queuecommand"],
        &["-V", "scsi_debug_queuecommand"],
        &["-F"],
    ];
    let ask = |module: &str, question: &[&str]| {
        let kymo = ["KYMO_CACHE=off", env!("CARGO_BIN_EXE_kymo"), "probe", "-q", "-m", module];
        run("env", [&kymo[..], question].concat())
    };
    for (tool, end) in [("xz", "xz"), ("zstd", "zst"), ("gzip", "gz")] {
        let packed = dir.path().join("scsi_debug.ko.".to_owned() + end);
        let packed = packed.to_str().unwrap();
        let _ = run("sh", ["-c", &format!("{tool} -1c {plain} > {packed}")]).success();
        for question in questions {
            let (ours, wanted) = (ask(packed, question), ask(plain, question));
            // Without its sources the lines cannot be shown: by neither.
            assert_eq!(ours.stdout, wanted.stdout, "{end} {question:?}");
            assert_eq!(ours.status, wanted.status, "{end} {question:?}");
            assert!(!wanted.stdout.is_empty() || question[0] == "-L", "{}", wanted.stderr);
        }
    }
}

#[test]
fn where_perf_gives_up() {
    if !ready() {
        return;
    }
    let debug = kernel_debug().unwrap();
    let vmlinux = debug.vmlinux.to_str().unwrap();
    for (description, why, part) in OURS {
        let ours = kymo(&["-k", vmlinux], &[description]).success().stdout;
        assert!(ours.contains(part), "{description} ({why}): {part} is not in\n{ours}");
        let theirs = perf(["probe", "-q", "-k", vmlinux, "-D", description]).stdout;
        assert_ne!(sorted(&ours), sorted(&theirs), "{description}: {why} is no longer so");
    }
    for (description, why) in [
        ("do_fork", "no function do_fork in "),
        ("copy_process clone_flags", "it is live at line"),
        ("kfree objp", "there are object"),
        ("vfs_read:2", "nothing found"),
        ("spin_lock", "more than 128 probe points"),
    ] {
        let refused = kymo(&["-k", vmlinux], &[description]).failure();
        assert!(refused.stderr.contains(why), "{description}: {}", refused.stderr);
    }
}
