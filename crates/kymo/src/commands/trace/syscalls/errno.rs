//! Names of errors and signals.

#[rustfmt::skip]
const ERRORS: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"), (libc::ENOENT, "ENOENT"), (libc::ESRCH, "ESRCH"),
    (libc::EINTR, "EINTR"), (libc::EIO, "EIO"), (libc::ENXIO, "ENXIO"), (libc::E2BIG, "E2BIG"),
    (libc::ENOEXEC, "ENOEXEC"), (libc::EBADF, "EBADF"), (libc::ECHILD, "ECHILD"),
    (libc::EAGAIN, "EAGAIN"), (libc::ENOMEM, "ENOMEM"), (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"), (libc::ENOTBLK, "ENOTBLK"), (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"), (libc::EXDEV, "EXDEV"), (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"), (libc::EISDIR, "EISDIR"), (libc::EINVAL, "EINVAL"),
    (libc::ENFILE, "ENFILE"), (libc::EMFILE, "EMFILE"), (libc::ENOTTY, "ENOTTY"),
    (libc::ETXTBSY, "ETXTBSY"), (libc::EFBIG, "EFBIG"), (libc::ENOSPC, "ENOSPC"),
    (libc::ESPIPE, "ESPIPE"), (libc::EROFS, "EROFS"), (libc::EMLINK, "EMLINK"),
    (libc::EPIPE, "EPIPE"), (libc::EDOM, "EDOM"), (libc::ERANGE, "ERANGE"),
    (libc::EDEADLK, "EDEADLK"), (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOLCK, "ENOLCK"), (libc::ENOSYS, "ENOSYS"), (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ELOOP, "ELOOP"), (libc::ENOMSG, "ENOMSG"), (libc::EIDRM, "EIDRM"),
    (libc::ECHRNG, "ECHRNG"), (libc::EL2NSYNC, "EL2NSYNC"), (libc::EL3HLT, "EL3HLT"),
    (libc::EL3RST, "EL3RST"), (libc::ELNRNG, "ELNRNG"), (libc::EUNATCH, "EUNATCH"),
    (libc::ENOCSI, "ENOCSI"), (libc::EL2HLT, "EL2HLT"), (libc::EBADE, "EBADE"),
    (libc::EBADR, "EBADR"), (libc::EXFULL, "EXFULL"), (libc::ENOANO, "ENOANO"),
    (libc::EBADRQC, "EBADRQC"), (libc::EBADSLT, "EBADSLT"), (libc::EBFONT, "EBFONT"),
    (libc::ENOSTR, "ENOSTR"), (libc::ENODATA, "ENODATA"), (libc::ETIME, "ETIME"),
    (libc::ENOSR, "ENOSR"), (libc::ENONET, "ENONET"), (libc::ENOPKG, "ENOPKG"),
    (libc::EREMOTE, "EREMOTE"), (libc::ENOLINK, "ENOLINK"), (libc::EADV, "EADV"),
    (libc::ESRMNT, "ESRMNT"), (libc::ECOMM, "ECOMM"), (libc::EPROTO, "EPROTO"),
    (libc::EMULTIHOP, "EMULTIHOP"), (libc::EDOTDOT, "EDOTDOT"), (libc::EBADMSG, "EBADMSG"),
    (libc::EOVERFLOW, "EOVERFLOW"), (libc::ENOTUNIQ, "ENOTUNIQ"), (libc::EBADFD, "EBADFD"),
    (libc::EREMCHG, "EREMCHG"), (libc::ELIBACC, "ELIBACC"), (libc::ELIBBAD, "ELIBBAD"),
    (libc::ELIBSCN, "ELIBSCN"), (libc::ELIBMAX, "ELIBMAX"), (libc::ELIBEXEC, "ELIBEXEC"),
    (libc::EILSEQ, "EILSEQ"), (libc::ERESTART, "ERESTART"), (libc::ESTRPIPE, "ESTRPIPE"),
    (libc::EUSERS, "EUSERS"), (libc::ENOTSOCK, "ENOTSOCK"), (libc::EDESTADDRREQ, "EDESTADDRREQ"),
    (libc::EMSGSIZE, "EMSGSIZE"), (libc::EPROTOTYPE, "EPROTOTYPE"),
    (libc::ENOPROTOOPT, "ENOPROTOOPT"), (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"), (libc::ENOTSUP, "ENOTSUP"),
    (libc::EPFNOSUPPORT, "EPFNOSUPPORT"), (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EADDRINUSE, "EADDRINUSE"), (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ENETDOWN, "ENETDOWN"), (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::ENETRESET, "ENETRESET"), (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNRESET, "ECONNRESET"), (libc::ENOBUFS, "ENOBUFS"), (libc::EISCONN, "EISCONN"),
    (libc::ENOTCONN, "ENOTCONN"), (libc::ESHUTDOWN, "ESHUTDOWN"),
    (libc::ETOOMANYREFS, "ETOOMANYREFS"), (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"), (libc::EHOSTDOWN, "EHOSTDOWN"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"), (libc::EALREADY, "EALREADY"),
    (libc::EINPROGRESS, "EINPROGRESS"), (libc::ESTALE, "ESTALE"), (libc::EUCLEAN, "EUCLEAN"),
    (libc::ENOTNAM, "ENOTNAM"), (libc::ENAVAIL, "ENAVAIL"), (libc::EISNAM, "EISNAM"),
    (libc::EREMOTEIO, "EREMOTEIO"), (libc::EDQUOT, "EDQUOT"), (libc::ENOMEDIUM, "ENOMEDIUM"),
    (libc::EMEDIUMTYPE, "EMEDIUMTYPE"), (libc::ECANCELED, "ECANCELED"), (libc::ENOKEY, "ENOKEY"),
    (libc::EKEYEXPIRED, "EKEYEXPIRED"), (libc::EKEYREVOKED, "EKEYREVOKED"),
    (libc::EKEYREJECTED, "EKEYREJECTED"), (libc::EOWNERDEAD, "EOWNERDEAD"),
    (libc::ENOTRECOVERABLE, "ENOTRECOVERABLE"), (libc::ERFKILL, "ERFKILL"),
    // The kernel's own, which only a tracer sees: the call starts anew, or is restarted.
    (512, "ERESTARTSYS"), (513, "ERESTARTNOINTR"), (514, "ERESTARTNOHAND"),
    (515, "ENOIOCTLCMD"), (516, "ERESTART_RESTARTBLOCK"),
];

#[rustfmt::skip]
pub(super) const SIGNALS: &[(u64, &str)] = &[
    (libc::SIGHUP as u64, "SIGHUP"), (libc::SIGINT as u64, "SIGINT"),
    (libc::SIGQUIT as u64, "SIGQUIT"), (libc::SIGILL as u64, "SIGILL"),
    (libc::SIGTRAP as u64, "SIGTRAP"), (libc::SIGABRT as u64, "SIGABRT"),
    (libc::SIGBUS as u64, "SIGBUS"), (libc::SIGFPE as u64, "SIGFPE"),
    (libc::SIGKILL as u64, "SIGKILL"), (libc::SIGUSR1 as u64, "SIGUSR1"),
    (libc::SIGSEGV as u64, "SIGSEGV"), (libc::SIGUSR2 as u64, "SIGUSR2"),
    (libc::SIGPIPE as u64, "SIGPIPE"), (libc::SIGALRM as u64, "SIGALRM"),
    (libc::SIGTERM as u64, "SIGTERM"), (libc::SIGSTKFLT as u64, "SIGSTKFLT"),
    (libc::SIGCHLD as u64, "SIGCHLD"), (libc::SIGCONT as u64, "SIGCONT"),
    (libc::SIGSTOP as u64, "SIGSTOP"), (libc::SIGTSTP as u64, "SIGTSTP"),
    (libc::SIGTTIN as u64, "SIGTTIN"), (libc::SIGTTOU as u64, "SIGTTOU"),
    (libc::SIGURG as u64, "SIGURG"), (libc::SIGXCPU as u64, "SIGXCPU"),
    (libc::SIGXFSZ as u64, "SIGXFSZ"), (libc::SIGVTALRM as u64, "SIGVTALRM"),
    (libc::SIGPROF as u64, "SIGPROF"), (libc::SIGWINCH as u64, "SIGWINCH"),
    (libc::SIGIO as u64, "SIGIO"), (libc::SIGPWR as u64, "SIGPWR"),
    (libc::SIGSYS as u64, "SIGSYS"),
];

/// The name of an error.
pub(super) fn name(errno: i32) -> Option<&'static str> {
    ERRORS.iter().find(|(n, _)| *n == errno).map(|(_, name)| *name)
}

/// What the system says to an error.
pub(super) fn text(errno: i32) -> String {
    if errno >= 512 {
        return "to be restarted".to_owned();
    }
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names_and_texts() {
        assert_eq!((name(2), text(2).as_str()), (Some("ENOENT"), "No such file or directory"));
        assert_eq!(name(4000), None);
    }
}
