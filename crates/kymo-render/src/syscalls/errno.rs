//! Names of errors and signals.

use syscalls::Errno;

use super::flags::{ValueNames, value_names};

/// Errors from here on are the kernel's own, which only a tracer sees: the call is restarted.
const FIRST_INTERNAL: i32 = 512;

/// The signals below the real-time ones.
pub(super) const SIGNALS: ValueNames = value_names![
    SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
    SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG
    SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS
];

/// Name of an error, such as `ENOENT`.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    Errno::new(errno).name()
}

/// The system's text for an error.
pub(super) fn errno_text(errno: i32) -> String {
    if errno >= FIRST_INTERNAL {
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
        assert_eq!(errno_name(2), Some("ENOENT"));
        assert_eq!(errno_text(2), "No such file or directory");
        assert_eq!(errno_name(libc::EAGAIN), Some("EAGAIN"));
        assert_eq!(errno_name(512), Some("ERESTARTSYS"));
        assert_eq!(errno_name(516), Some("ERESTART_RESTARTBLOCK"));
        assert_eq!(errno_name(4000), None);
    }
}
