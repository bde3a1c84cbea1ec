//! Owner of a kernel object that outlives its creator: process id, start time (the id may be
//! reused) and pid namespace (tracefs is shared by all containers, process ids are not), as words
//! of a name.

use std::path::Path;

use crate::proc_maps::start_time;

/// Whom something belongs to, as its name states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) namespace: u64,
}

impl Owner {
    /// Ourselves.
    pub(crate) fn this_process() -> Owner {
        let pid = std::process::id();
        Owner { pid, start: start_time(pid).unwrap_or(0), namespace: namespace() }
    }

    /// Prefix of names of objects that we own.
    pub(crate) fn prefix(self) -> String {
        format!("kymo-{}-{}-{:x}", self.pid, self.start, self.namespace)
    }

    /// Parses the owner from a name with this prefix.
    pub(crate) fn parse(name: &str) -> Option<Owner> {
        let mut words = name.strip_prefix("kymo-")?.splitn(4, '-');
        let owner = Owner {
            pid: words.next()?.parse().ok()?,
            start: words.next()?.parse().ok()?,
            namespace: u64::from_str_radix(words.next()?, 16).ok()?,
        };
        words.next().map(|_| owner)
    }

    /// Whether it still runs here; asked only of our own namespace.
    pub(crate) fn alive(self) -> bool {
        match start_time(self.pid) {
            Some(start) => start == self.start,
            // Without /proc no process is known: none counts as dead then.
            None => !Path::new("/proc/self/stat").exists(),
        }
    }
}

/// A name for what this process owns and must not outlive it.
pub fn own_name(what: &str) -> String {
    format!("{}-{what}", Owner::this_process().prefix())
}

/// Whether a name is made as [`own_name`] makes them, by whomever.
pub fn is_owned(name: &str) -> bool {
    Owner::parse(name).is_some()
}

/// Whether a name of [`own_name`] begins so that its owner was of our pid namespace and
/// is dead. Of names that are made otherwise nothing is known.
pub fn is_left_behind(name: &str) -> bool {
    Owner::parse(name).is_some_and(|owner| owner.namespace == namespace() && !owner.alive())
}

fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_name_tells_the_owner() {
        let owner = Owner::this_process();
        assert!(owner.start > 0 && owner.namespace > 0 && owner.alive());
        let name = format!("{}-trace-events", owner.prefix());
        assert_eq!(Owner::parse(&name), Some(owner));
        assert_eq!(Owner::parse(&own_name("x")), Some(owner));
        assert!(!is_left_behind(&own_name("x")) && !is_left_behind("kymo-1-2"));
        let dead = Owner { start: owner.start + 1, ..owner };
        assert!(is_left_behind(&format!("{}-x", dead.prefix())));
        for other in ["kymo-session", "kymo-1-2", "foo", "kymo-a-1-1-x", "kymo-1-1-zz-x"] {
            assert_eq!(Owner::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_reused_pid_is_not_the_owner() {
        let me = Owner::this_process();
        assert!(!Owner { start: me.start + 1, ..me }.alive());
        assert!(!Owner { pid: i32::MAX as u32, ..me }.alive());
    }

    #[test]
    fn a_dead_process_that_nobody_reaped_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let start = start_time(pid);
        for _ in 0..500 {
            if start_time(pid).is_none() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(start_time(pid).is_none(), "was {start:?}");
        child.wait().unwrap();
    }
}
