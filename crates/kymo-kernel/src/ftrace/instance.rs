//! Trace instances of our own: made for one purpose, removed with their guard, and found again when
//! the guard never ran.
//!
//! The name identifies the owner of an instance: `kymo-PID-START-NS-what`, with the owner's process
//! id, its start time in clock ticks (so that a later process with the same id is not taken for it)
//! and the id of its pid namespace (tracefs is one for all containers, process ids are not).
//! [`Instance::remove_stale`] removes those whose owner is dead, and only those. An instance with a
//! name of its own ([`Instance::create_named`]) has no owner and lives until it is removed.
//!
//! Signals: a process ended by a signal runs no guards. The holder of an instance listens with
//! [`crate::process::Signals`] and returns when asked to end; SIGKILL is what `remove_stale` is
//! for.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::dir::TraceDir;
use super::error::{FtraceError, fact};
use super::owner::Owner;
use crate::tracefs::Tracefs;

/// Number of tries and the pause between them when a busy instance is removed: readers that are
/// just closing their files keep it for a moment.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(10);

/// An instance of ours; dropping it switches its events and its tracing off and
/// removes it. Close its pipes first: an open one keeps it.
#[derive(Debug)]
pub struct Instance {
    dir: TraceDir,
    guarded: bool,
}

/// An instance whose owner is dead, which was removed or could not be.
#[derive(Debug)]
pub struct Stale {
    /// Its name.
    pub name: String,
    /// The process that made it.
    pub pid: u32,
    /// Why it is still there, if it is.
    pub error: Option<FtraceError>,
}

/// Distinguishes instances of one process.
static COUNT: AtomicU32 = AtomicU32::new(0);

impl Instance {
    /// Makes an instance for this process. `what` is a short word for people
    /// who look into `instances/`. Nothing is enabled in it, and its tracing is
    /// off, so that nothing happens before everything is set.
    pub fn create(tracefs: &Tracefs, what: &str) -> Result<Instance, FtraceError> {
        let owner = Owner::this_process();
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let more = if n == 0 { String::new() } else { format!(".{n}") };
        Instance::create_named(tracefs, &format!("{}-{what}{more}", owner.prefix()))
    }

    /// Makes an instance with a name that states no owner. It is guarded like
    /// any other until [`keep`](Instance::keep) is called.
    pub fn create_named(tracefs: &Tracefs, name: &str) -> Result<Instance, FtraceError> {
        let dir = TraceDir::named(tracefs, name);
        std::fs::create_dir(dir.root()).map_err(|source| {
            let path = dir.root().to_owned();
            let fact = match source.kind() {
                io::ErrorKind::AlreadyExists => Some("it already exists".to_owned()),
                io::ErrorKind::NotFound => {
                    Some("this kernel has no trace instances (Linux 3.10 or later)".to_owned())
                }
                _ => fact(&path, "", &source, tracefs.root()),
            };
            FtraceError::Create { path, error: source, fact }
        })?;
        let instance = Instance { dir, guarded: true };
        instance.set_tracing(false)?;
        Ok(instance)
    }

    /// Leaves the instance to the machine, for instance for a session that
    /// outlives its maker.
    pub fn keep(mut self) -> TraceDir {
        self.guarded = false;
        self.dir.clone()
    }

    /// Removes the instance and reports if that failed.
    pub fn remove(mut self) -> Result<(), FtraceError> {
        self.guarded = false;
        remove(&self.dir)
    }

    /// Removes an instance that was kept.
    pub fn remove_named(tracefs: &Tracefs, name: &str) -> Result<(), FtraceError> {
        remove(&TraceDir::open(tracefs, name)?)
    }

    /// Removes the instances that kymo made and whose owner is dead. The caller reports them to the
    /// user.
    pub fn remove_stale(tracefs: &Tracefs) -> Vec<Stale> {
        let this = Owner::this_process();
        let names = TraceDir::instances(tracefs).unwrap_or_default();
        names
            .into_iter()
            .filter_map(|name| Some((Owner::parse(&name)?, name)))
            // Process ids of another namespace say nothing here.
            .filter(|(owner, _)| owner.namespace == this.namespace && !owner.alive())
            .filter_map(|(owner, name)| {
                let error = match remove(&TraceDir::named(tracefs, &name)) {
                    // Another kymo was faster.
                    Err(e) if e.errno() == Some(libc::ENOENT) => return None,
                    result => result.err(),
                };
                Some(Stale { name, pid: owner.pid, error })
            })
            .collect()
    }
}

impl Deref for Instance {
    type Target = TraceDir;

    fn deref(&self) -> &TraceDir {
        &self.dir
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.guarded {
            // The error cannot be reported; the next start finds what is left.
            let _ = remove(&self.dir);
        }
    }
}

fn remove(dir: &TraceDir) -> Result<(), FtraceError> {
    // Removing does these as well; doing them first ends the tracing immediately, even if the
    // directory is busy. Failures here are reported by rmdir.
    let _ = dir.set("tracing_on", "0");
    let _ = dir.set("events/enable", "0");
    let mut tries = 0;
    loop {
        match std::fs::remove_dir(dir.root()) {
            Ok(()) => return Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            Err(error) => {
                return Err(FtraceError::Remove { path: dir.root().to_owned(), error });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_instances_of_the_dead_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let instances = root.path().join("instances");
        std::fs::create_dir(&instances).unwrap();
        let me = Owner::this_process();
        let dead = Owner { pid: i32::MAX as u32, ..me };
        let elsewhere = Owner { namespace: me.namespace + 1, ..dead };
        for name in [
            format!("{}-a", me.prefix()),
            format!("{}-b", dead.prefix()),
            format!("{}-c", elsewhere.prefix()),
            "foreign".to_owned(),
        ] {
            std::fs::create_dir(instances.join(name)).unwrap();
        }
        let tracefs = Tracefs::at(root.path());
        let removed = Instance::remove_stale(&tracefs);
        let names: Vec<&str> = removed.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, [format!("{}-b", dead.prefix())]);
        assert!(removed.iter().all(|s| s.error.is_none() && s.pid == dead.pid), "{removed:?}");
        assert_eq!(TraceDir::instances(&tracefs).unwrap().len(), 3);
    }
}
