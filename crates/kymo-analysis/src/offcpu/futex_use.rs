//! Uses of futexes, by the functions that wait for them: a lock that another thread holds, or
//! something that has yet to happen.

/// Object of a wait at a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexUse {
    /// A lock.
    Lock,
    /// A condition variable, a semaphore, the end of a thread.
    Event,
    /// The functions do not tell.
    Unknown,
}

/// Parts of the names of functions that take a lock.
const LOCKS: [&str; 8] = [
    "lll_lock",
    "mutex_lock",
    "mutex_timedlock",
    "mutex_clocklock",
    "rwlock",
    "lock_slow",
    "lock_contended",
    "futex_lock_pi",
];
/// Names of functions that wait for something else.
const EVENTS: [&str; 5] = ["pthread_cond_", "pthread_join", "pthread_clockjoin", "cnd_", "sem_"];
/// Functions that take a lock which is made of a condition variable.
const LOCKS_OF_EVENTS: [&str; 3] = ["take_gil", "ObjectMonitor::enter", "Monitor::lock"];

impl FutexUse {
    /// The use of a stack, by the names of its functions, innermost first.
    pub fn of<'n>(functions: impl IntoIterator<Item = &'n str>) -> FutexUse {
        let mut found = FutexUse::Unknown;
        for name in functions {
            let own = name.trim_start_matches('_');
            if LOCKS_OF_EVENTS.iter().any(|known| name.contains(known)) {
                return FutexUse::Lock;
            }
            if found != FutexUse::Unknown {
                continue;
            }
            if LOCKS.iter().any(|known| name.contains(known)) {
                return FutexUse::Lock;
            }
            if EVENTS.iter().any(|known| own.starts_with(known)) {
                found = FutexUse::Event;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_of_a_library_tells_the_use() {
        let of = |stack: &[&str]| FutexUse::of(stack.iter().copied());
        let kernel = ["futex_wait_queue", "do_futex", "__x64_sys_futex"];
        let with = |names: &[&'static str]| of(&[&kernel[..], names].concat());
        assert_eq!(with(&["__GI___lll_lock_wait", "join_strings", "main"]), FutexUse::Lock);
        assert_eq!(with(&["___pthread_mutex_lock", "worker"]), FutexUse::Lock);
        assert_eq!(
            with(&["__futex_abstimed_wait_common", "___pthread_cond_wait", "get_task"]),
            FutexUse::Event
        );
        // A condition gives the mutex back and takes it again.
        assert_eq!(with(&["__lll_lock_wait", "___pthread_cond_wait"]), FutexUse::Lock);
        assert_eq!(
            with(&["syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended"]),
            FutexUse::Lock
        );
        let gil = ["__futex_abstimed_wait_common", "pthread_cond_timedwait", "take_gil", "mutex_x"];
        assert_eq!(with(&gil), FutexUse::Lock);
        assert_eq!(with(&["pthread_cond_wait", "mutex_lock_user"]), FutexUse::Event);
        assert_eq!(with(&["syscall", "main"]), FutexUse::Unknown);
    }
}
