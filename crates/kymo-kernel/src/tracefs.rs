//! The tracefs tree: where it is, and the static facts in it (systems, events,
//! ids, formats). Nothing here changes how the kernel traces.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::lockdown;
use crate::system_root::{SystemRoot, system_path};

/// A tracefs root, which may be a directory made by a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracefs {
    root: PathBuf,
}

/// Why the tree, or something in it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// Neither place holds a tracefs, and mounting one failed.
    #[error(
        "tracefs is not mounted and mounting it failed ({error}); as root: mount -t tracefs nodev /sys/kernel/tracing"
    )]
    NotMounted {
        /// Error of mount(2).
        error: io::Error,
    },
    /// The kernel makes no files in it.
    #[error(
        "the kernel is in lockdown (/sys/kernel/security/lockdown = confidentiality): kernel \
         tracepoints, functions and probes are not accessible; samples, counters and user-space \
         tracepoints work"
    )]
    Lockdown,
    /// It is there, but only root may look into it.
    #[error(
        "no permission to read {}; run as root (for perf events it is enough that root makes it \
         readable: mount -o remount,mode=755 {})",
        path.display(),
        root.display()
    )]
    Denied {
        /// Unreadable path.
        path: PathBuf,
        /// The mounted tree.
        root: PathBuf,
    },
    /// The kernel has no such event.
    #[error("no event {system}:{name} in {}", root.display())]
    NoEvent {
        /// System part of the name.
        system: String,
        /// Event part of the name.
        name: String,
        /// The mounted tree.
        root: PathBuf,
    },
    /// No file can be opened for want of descriptors.
    #[error(
        "cannot read {}: {error}; raise the open file limit (ulimit -n), or use fewer events",
        path.display()
    )]
    Descriptors {
        /// Unreadable path.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Any other failure.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// Unreadable path.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A file that should hold a number does not.
    #[error("{} holds {text:?}, not a number", path.display())]
    NotANumber {
        /// Which file.
        path: PathBuf,
        /// Contents of the file.
        text: String,
    },
}

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The most bytes taken from one file of the tree. `saved_cmdlines` and
/// `printk_formats` are the largest and stay well below.
const LIMIT: u64 = 64 << 20;

impl Tracefs {
    /// The machine's tracefs; mounts it if it is not mounted and we may.
    pub fn open() -> Result<Tracefs, TracefsError> {
        for place in PLACES {
            let root = system_path(place);
            let events = root.join("events");
            match std::fs::read_dir(&events) {
                Ok(_) => return Ok(Tracefs { root }),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(TracefsError::Denied { path: events, root });
                }
                // It may well be there: without a descriptor this cannot be checked.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    return Err(TracefsError::Descriptors { path: events, error: e });
                }
                Err(_) => {}
            }
        }
        if let Some(root) = mounted_elsewhere() {
            return Ok(Tracefs { root });
        }
        // Only files of a test are below another root.
        if !SystemRoot::machine().is_machine() {
            let error = io::ErrorKind::NotFound.into();
            return Err(TracefsError::NotMounted { error });
        }
        if lockdown::is_confidential() {
            return Err(TracefsError::Lockdown);
        }
        mount(PLACES[0]).map_err(|error| TracefsError::NotMounted { error })?;
        Ok(Tracefs { root: PathBuf::from(PLACES[0]) })
    }

    /// A tree at a given place, which is not looked at yet.
    pub fn at(root: impl Into<PathBuf>) -> Tracefs {
        Tracefs { root: root.into() }
    }

    /// Root of the tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path below the root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    fn error(&self, path: PathBuf, source: io::Error) -> TracefsError {
        if source.kind() == io::ErrorKind::PermissionDenied {
            return TracefsError::Denied { path, root: self.root.clone() };
        }
        if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
            return TracefsError::Descriptors { path, error: source };
        }
        TracefsError::Io { path, error: source }
    }

    /// The text of a file below the root.
    pub fn read(&self, relative: &str) -> Result<String, TracefsError> {
        let path = self.path(relative);
        let mut bytes = vec![0; 16 * 1024];
        std::fs::File::open(&path)
            .and_then(|mut f| {
                // Some files (`header_page`) answer only the first read, with as
                // much as fits: it must be a large one.
                let first = f.read(&mut bytes)?;
                bytes.truncate(first);
                f.take(LIMIT).read_to_end(&mut bytes)
            })
            .map_err(|e| self.error(path, e))?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    fn directories(&self, relative: &str) -> Result<Vec<String>, TracefsError> {
        let path = self.path(relative);
        let entries = std::fs::read_dir(&path).map_err(|e| self.error(path.clone(), e))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| self.error(path.clone(), e))?;
            if entry.file_type().is_ok_and(|t| t.is_dir())
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Names of the event systems, sorted.
    pub fn systems(&self) -> Result<Vec<String>, TracefsError> {
        self.directories("events")
    }

    /// Names of the events of one system, sorted.
    pub fn events(&self, system: &str) -> Result<Vec<String>, TracefsError> {
        if !plain(system) {
            return Ok(Vec::new());
        }
        self.directories(&format!("events/{system}"))
    }

    /// The file `file` of an event.
    fn event_file(&self, system: &str, name: &str, file: &str) -> Result<String, TracefsError> {
        let none = || TracefsError::NoEvent {
            system: system.to_owned(),
            name: name.to_owned(),
            root: self.root.clone(),
        };
        if !plain(system) || !plain(name) {
            return Err(none());
        }
        match self.read(&format!("events/{system}/{name}/{file}")) {
            Err(TracefsError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Err(none())
            }
            other => other,
        }
    }

    /// The id of an event: the `config` of its tracepoint attribute.
    pub fn event_id(&self, system: &str, name: &str) -> Result<u64, TracefsError> {
        let text = self.event_file(system, name, "id")?;
        text.trim().parse().map_err(|_| TracefsError::NotANumber {
            path: self.path(&format!("events/{system}/{name}/id")),
            text: text.trim().chars().take(40).collect(),
        })
    }

    /// The text that lays out an event's fields and its print format.
    pub fn event_format(&self, system: &str, name: &str) -> Result<String, TracefsError> {
        self.event_file(system, name, "format")
    }

    /// Layout of a ring page's header.
    pub fn header_page(&self) -> Result<String, TracefsError> {
        self.read("events/header_page")
    }

    /// Layout of an event's header in the ring.
    pub fn header_event(&self) -> Result<String, TracefsError> {
        self.read("events/header_event")
    }

    /// Addresses and texts of the kernel's `trace_printk` formats.
    pub fn printk_formats(&self) -> Result<String, TracefsError> {
        self.read("printk_formats")
    }

    /// Names of recently traced tasks.
    pub fn saved_cmdlines(&self) -> Result<String, TracefsError> {
        self.read("saved_cmdlines")
    }

    /// Dynamic events as the kernel lists them: one definition a line
    /// (`p:group/name place args…`). Kernels before 5.0 have only
    /// `kprobe_events` and `uprobe_events`, which are read then.
    pub fn dynamic_events(&self) -> Result<Vec<DynamicEvent>, TracefsError> {
        let text = match self.read("dynamic_events") {
            Ok(text) => text,
            Err(e @ TracefsError::Denied { .. }) => return Err(e),
            Err(_) => ["kprobe_events", "uprobe_events"]
                .iter()
                .filter_map(|f| self.read(f).ok())
                .collect(),
        };
        Ok(text.lines().filter_map(DynamicEvent::parse).collect())
    }
}

/// A dynamic event of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicEvent {
    /// The letter that starts the definition: `p` and `r` for probes, `e` for
    /// event probes, `s` for synthetic events, `f` and `t` for fprobes.
    pub kind: char,
    /// Its system.
    pub system: String,
    /// Its name.
    pub name: String,
    /// The rest of the definition: where, and what is fetched.
    pub definition: String,
}

impl DynamicEvent {
    /// Reads one line of the list; `None` for what is not one.
    pub fn parse(line: &str) -> Option<DynamicEvent> {
        let (head, definition) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (kind, name) = head.split_once(':')?;
        let (system, name) = name.split_once('/').unwrap_or(("synthetic", name));
        Some(DynamicEvent {
            kind: kind.chars().next()?,
            system: system.to_owned(),
            name: name.trim_end_matches(';').to_owned(),
            definition: definition.trim().to_owned(),
        })
    }
}

/// Whether a name may be one directory of the tree (and not a way out of it).
fn plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// A tracefs mounted in neither usual place.
fn mounted_elsewhere() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let place = words.next()?;
            (words.next()? == "tracefs").then(|| PathBuf::from(place))
        })
        .find(|root| root.join("events").is_dir())
}

fn mount(place: &str) -> io::Result<()> {
    let target = std::ffi::CString::new(place)?;
    // SAFETY: all pointers are to NUL-terminated strings that outlive the call;
    // the data argument of mount(2) may be null.
    let rc = unsafe {
        libc::mount(c"nodev".as_ptr(), target.as_ptr(), c"tracefs".as_ptr(), 0, std::ptr::null())
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_tree() {
        let t = Tracefs::at("/nonexistent");
        for (system, name) in [("..", "x"), ("a/../..", "x"), ("sched", "..")] {
            assert!(matches!(t.event_id(system, name), Err(TracefsError::NoEvent { .. })));
        }
    }

    #[test]
    fn definitions_of_dynamic_events() {
        let e = DynamicEvent::parse("p:probe_sh/main /bin/sh:0x0000000000001234 a=%di").unwrap();
        assert_eq!((e.kind, e.system.as_str(), e.name.as_str()), ('p', "probe_sh", "main"));
        assert_eq!(e.definition, "/bin/sh:0x0000000000001234 a=%di");
        let e = DynamicEvent::parse("s:synthetic/lat u64 delta;").unwrap();
        assert_eq!((e.kind, e.name.as_str()), ('s', "lat"));
    }
}
