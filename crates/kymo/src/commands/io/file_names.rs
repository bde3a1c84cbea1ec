//! Paths of the inodes that requests were for: of files that processes have open or mapped now or
//! that the kernel knows the name of, and, with --find, from the directories. Only on the machine
//! that made the recording; an inode that was made since is not the file's.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

use kymo_analysis::block_io::{BlockFile, BlockTable, FileName};
use kymo_events::EventSource;
use kymo_kernel::system::{
    InodeNumber, InodePath, MountedDevice, SystemRoot, find_inodes, find_known_inodes,
};

/// Files whose names are looked for.
const MOST_NAMED: usize = 4096;
/// Time for looking through directories.
const FIND_TIME: Duration = Duration::from_secs(10);

/// Largest difference between clocks.
const CLOCK_DRIFT: Duration = Duration::from_secs(2);

/// Names of files as this machine has them.
#[derive(Default)]
pub(super) struct KnownNames {
    paths: HashMap<InodeNumber, InodePath>,
    mounts: Vec<MountedDevice>,
    /// Whether it did not look at all directories.
    pub(super) is_cut: bool,
}

fn number(file: BlockFile) -> InodeNumber {
    let (major, minor) = file.key.device.numbers();
    (major, minor, file.key.inode)
}

/// Upper limit of the end of a recording: the time of its file, which is later for a copy, and that
/// of its last event, if it is of this boot.
fn end_of(source: &EventSource, last: u64) -> SystemTime {
    let made = std::fs::metadata(source.name()).ok().filter(|m| m.is_file());
    let made = made.and_then(|m| m.modified().ok()).unwrap_or_else(SystemTime::now);
    let booted = SystemRoot::machine().boot_time().and_then(|t| u64::try_from(t).ok());
    let told = booted.and_then(|t| {
        // The clocks of events and of the day drift apart, and the boot's time is in seconds.
        let since_boot = Duration::from_nanos(last).checked_add(CLOCK_DRIFT)?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(t))?.checked_add(since_boot)
    });
    told.map_or(made, |told| made.min(told))
}

impl KnownNames {
    /// Looks for the names of the files that a table has.
    pub(super) fn look(source: &EventSource, table: &BlockTable, find: bool) -> KnownNames {
        let has_host = source.perf_count() > 0 && super::is_of_this_machine(source);
        if !has_host || table.read.machine.owners.has_forgotten_freed() {
            return KnownNames::default();
        }
        let machine = SystemRoot::machine();
        let slowest = table.slowest.iter().filter_map(|r| r.owner.file());
        let files = slowest.chain(table.files.iter().filter_map(|f| f.owner.file()));
        let wanted: HashSet<InodeNumber> = files.take(MOST_NAMED).map(number).collect();
        if wanted.is_empty() {
            return KnownNames::default();
        }
        let mounts = machine.mounted_devices();
        let mut paths = machine.open_inodes(&wanted);
        let mut is_cut = false;
        for mount in &mounts {
            find_known_inodes(mount, &wanted, &mut paths);
        }
        if find {
            let until = Instant::now() + FIND_TIME;
            for mount in &mounts {
                is_cut |= !find_inodes(mount, &wanted, until, &mut paths);
            }
        }
        // ext4 reports freed inodes; of others the number may have been that of an older file when
        // the recording began.
        let (first, last) = table.read.span.unwrap_or_default();
        let end = end_of(source, last);
        let span = Duration::from_nanos(last.saturating_sub(first)).saturating_add(CLOCK_DRIFT);
        let begin = end.checked_sub(span).unwrap_or(SystemTime::UNIX_EPOCH);
        let is_told =
            |n: &InodeNumber| mounts.iter().any(|m| m.device == (n.0, n.1) && m.kind == "ext4");
        paths
            .retain(|n, path| path.born.is_some_and(|b| b <= if is_told(n) { end } else { begin }));
        KnownNames { paths, mounts, is_cut }
    }

    /// Returns the name of a file.
    pub(super) fn name(&self, table: &BlockTable, file: BlockFile) -> FileName {
        let (major, minor, _) = number(file);
        let mount = self.mounts.iter().find(|m| m.device == (major, minor));
        let mount = mount.map(|m| m.path.to_string_lossy().into_owned());
        // A file before the one that has the number now.
        if !table.read.machine.owners.is_last(file) {
            return FileName { path: None, is_deleted: true, mount };
        }
        match self.paths.get(&number(file)) {
            Some(known) => FileName {
                path: Some(known.path.to_string_lossy().into_owned()),
                is_deleted: known.is_deleted,
                mount,
            },
            None => FileName { mount, ..FileName::default() },
        }
    }
}
