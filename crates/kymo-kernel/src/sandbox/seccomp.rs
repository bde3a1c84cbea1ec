//! System calls that a reader of recordings never makes, refused by a filter (seccomp(2)):
//! sockets, other processes' memory, and doors of the kernel at which a memory error would knock.

use std::io;

/// `struct seccomp_data`: the number of the call, then the architecture.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// `AUDIT_ARCH_*` of include/uapi/linux/audit.h.
const ARCHITECTURE: Option<u32> = match () {
    () if cfg!(target_arch = "x86_64") => Some(0xc000_003e),
    () if cfg!(target_arch = "aarch64") => Some(0xc000_00b7),
    () => None,
};

/// Numbers from here on are calls of x32, another way to the same; elsewhere there are none.
const X32: u32 = 0x4000_0000;

const REFUSED: [libc::c_long; 22] = [
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Refuses them with EPERM, for this thread and those that it starts from now on; sockets, too,
/// unless servers may be asked. To be called when no new rights can be had any more
/// (`no_new_privs`). A kernel without such filters leaves all as it is.
pub(super) fn restrict(has_network: bool) -> io::Result<()> {
    let Some(architecture) = ARCHITECTURE else { return Ok(()) };
    let sockets = [libc::SYS_socket];
    let refused = REFUSED.iter().chain(sockets.iter().filter(|_| !has_network));
    let program = filter(architecture, refused.map(|number| *number as u32));
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel reads as many instructions as there are, and copies them.
    let set = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if set == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        e if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => Ok(()),
        e => Err(e),
    }
}

/// The filter: what is of another architecture, or named, is refused.
fn filter(architecture: u32, numbers: impl Iterator<Item = u32>) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |at: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let give = |action: u32| statement(libc::BPF_RET | libc::BPF_K, action);
    // How many instructions are passed over if the test holds, and if it does not.
    let jump = |test: u32, k: u32, (jt, jf): (u8, u8)| libc::sock_filter {
        code: (libc::BPF_JMP | test | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    };
    let refuse = give(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let mut program = vec![load(ARCHITECTURE_AT)];
    program.extend([jump(libc::BPF_JEQ, architecture, (1, 0)), refuse, load(NUMBER_AT)]);
    program.extend([jump(libc::BPF_JGE, X32, (0, 1)), refuse]);
    for number in numbers {
        program.extend([jump(libc::BPF_JEQ, number, (0, 1)), refuse]);
    }
    program.push(give(libc::SECCOMP_RET_ALLOW));
    program
}
