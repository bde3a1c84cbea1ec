//! Whom to count or sample: the threads of processes, the processes of a user,
//! the directory of a cgroup. Tasks come and go while this looks; what left in
//! between is left out.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::system_root::system_path;

/// Processes other than this one that have perf events open, with their names. The kernel does not
/// report which events they have.
pub fn with_perf_events() -> Vec<(u32, String)> {
    let own = std::process::id();
    let opens = |pid: &u32| {
        let files =
            fs::read_dir(system_path(format!("/proc/{pid}/fd"))).into_iter().flatten().flatten();
        let mut links = files.filter_map(|f| fs::read_link(f.path()).ok());
        links.any(|l| l.as_os_str() == "anon_inode:[perf_event]")
    };
    let all = crate::proc_maps::processes().unwrap_or_default().into_iter();
    all.filter(|pid| *pid != own)
        .filter(opens)
        .map(|pid| (pid, comm(pid).unwrap_or_else(|| "?".into())))
        .collect()
}

/// Whether processes have the numbers here that the kernel's trace events give them: in a
/// pid namespace, as containers have one, they have others.
pub fn has_kernel_pids() -> bool {
    /// The first namespace's, as include/uapi/linux/nsfs.h has it.
    const FIRST: u64 = 0xEFFF_FFFC;
    fs::metadata("/proc/self/ns/pid").map_or(true, |m| m.ino() == FIRST)
}

/// A target that cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Nothing runs under this process id.
    #[error("no such process: {0}")]
    NoProcess(u32),
    /// Nothing runs under this thread id.
    #[error("no such thread: {0}")]
    NoThread(u32),
    /// It has ended, and is there only until its parent waits for it.
    #[error("{0} has ended; it is there until its parent waits for it")]
    Ended(u32),
    /// A list of ids holds something else.
    #[error(
        "{0:?} is not a list of process or thread IDs; `pgrep -d, NAME` prints those of a program"
    )]
    BadIds(String),
    /// No such user.
    #[error("no such user: {0:?}")]
    NoUser(String),
    /// No cgroup file system that perf events know is mounted.
    #[error("no cgroup v2 and no perf_event controller of cgroup v1 is mounted")]
    NoCgroupMount,
    /// No such cgroup.
    #[error("no cgroup {name:?} under {}", mount.display())]
    NoCgroup {
        /// As it was asked for.
        name: String,
        /// Mount point of the searched hierarchy.
        mount: PathBuf,
    },
    /// /proc cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// File that was read.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
}

/// Parses `12,34`.
pub fn parse_ids(list: &str) -> Result<Vec<u32>, TargetError> {
    let bad = || TargetError::BadIds(list.to_owned());
    let ids: Vec<u32> = list
        .split(',')
        .map(|id| id.trim().parse::<u32>().ok().filter(|&id| id > 0 && id <= i32::MAX as u32))
        .collect::<Option<_>>()
        .ok_or_else(bad)?;
    Ok(ids)
}

/// The threads of a process, sorted.
pub fn threads_of(pid: u32) -> Result<Vec<u32>, TargetError> {
    let path = system_path(format!("/proc/{pid}/task"));
    let mut tids = match numbers_in(&path) {
        Ok(tids) => tids,
        Err(e) if gone(&e) => return Err(TargetError::NoProcess(pid)),
        Err(error) => return Err(TargetError::Io { path, error }),
    };
    if tids.is_empty() {
        return Err(TargetError::NoProcess(pid));
    }
    tids.sort_unstable();
    Ok(tids)
}

/// The threads of several processes, sorted.
pub fn threads_of_all(pids: &[u32]) -> Result<Vec<u32>, TargetError> {
    let mut tids = Vec::new();
    for &pid in pids {
        tids.extend(threads_of(pid)?);
        check_alive(pid)?;
    }
    tids.sort_unstable();
    tids.dedup();
    Ok(tids)
}

/// The threads of those processes that are still there, sorted.
pub fn threads_of_living(pids: &[u32]) -> Result<Vec<u32>, TargetError> {
    let mut tids = Vec::new();
    for &pid in pids {
        match threads_of(pid) {
            Ok(threads) if is_alive(pid) => tids.extend(threads),
            Ok(_) | Err(TargetError::NoProcess(_)) => {}
            Err(e) => return Err(e),
        }
    }
    match pids.first() {
        Some(&pid) if tids.is_empty() => {
            check_alive(pid)?;
            return Err(TargetError::NoProcess(pid));
        }
        _ => {}
    }
    tids.sort_unstable();
    tids.dedup();
    Ok(tids)
}

/// Makes sure a thread is there.
pub fn check_thread(tid: u32) -> Result<(), TargetError> {
    // Threads have no entry in the listing of /proc, but can be opened by name.
    if is_there(tid) { check_alive(tid) } else { Err(TargetError::NoThread(tid)) }
}

/// Makes sure that what is there has not ended.
///
/// # Errors
/// [`TargetError::Ended`].
pub fn check_alive(tid: u32) -> Result<(), TargetError> {
    if is_there(tid) && !is_alive(tid) { Err(TargetError::Ended(tid)) } else { Ok(()) }
}

/// The processes that run now, sorted.
pub fn processes() -> Result<Vec<u32>, TargetError> {
    let path = system_path("/proc");
    let mut pids = numbers_in(&path).map_err(|error| TargetError::Io { path, error })?;
    pids.sort_unstable();
    Ok(pids)
}

/// Every thread of the machine, sorted.
pub fn all_threads() -> Result<Vec<u32>, TargetError> {
    let mut tids: Vec<u32> =
        processes()?.into_iter().filter_map(|pid| threads_of(pid).ok()).flatten().collect();
    tids.sort_unstable();
    Ok(tids)
}

/// The processes whose owner is `uid`, sorted.
pub fn processes_of_user(uid: u32) -> Result<Vec<u32>, TargetError> {
    let owned =
        |pid: &u32| fs::metadata(system_path(format!("/proc/{pid}"))).is_ok_and(|m| m.uid() == uid);
    Ok(processes()?.into_iter().filter(owned).collect())
}

/// A user's id by number or by name.
pub fn user_id(user: &str) -> Result<u32, TargetError> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    fs::read_to_string(system_path("/etc/passwd"))
        .ok()
        .and_then(|text| {
            text.lines().find_map(|line| {
                let mut fields = line.split(':');
                (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok())?
            })
        })
        .ok_or_else(|| TargetError::NoUser(user.to_owned()))
}

/// Whether a task is there, dead or alive.
pub fn is_there(tid: u32) -> bool {
    system_path(format!("/proc/{tid}/stat")).exists()
}

/// Whether a task is there and has not ended: one that has not been reaped is dead. A process whose
/// first thread has ended lives on in its other threads.
pub fn is_alive(tid: u32) -> bool {
    match state(tid) {
        Some(b'Z' | b'X' | b'x') => {
            process_of(tid) == Some(tid) && threads_of(tid).is_ok_and(|tids| tids.len() > 1)
        }
        state => state.is_some(),
    }
}

/// State of a task, as the letter of /proc/PID/stat.
fn state(tid: u32) -> Option<u8> {
    let stat = fs::read(system_path(format!("/proc/{tid}/stat"))).ok()?;
    // The name in parentheses may hold anything.
    let end = stat.iter().rposition(|b| *b == b')')?;
    stat.get(end + 1..)?.iter().copied().find(|b| *b != b' ')
}

/// The name of a task.
pub fn comm(tid: u32) -> Option<String> {
    let bytes = fs::read(system_path(format!("/proc/{tid}/comm"))).ok()?;
    Some(String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned())
}

/// Process (thread group) of a task.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(system_path(format!("/proc/{tid}/status"))).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Path, or `socket:[…]` and its like, that a descriptor of a task stands for.
pub fn descriptor_path(tid: u32, fd: u32) -> Option<String> {
    let path = fs::read_link(system_path(format!("/proc/{tid}/fd/{fd}"))).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// [`descriptor_path`] as bytes, which need not be UTF-8.
pub fn descriptor_bytes(tid: u32, fd: u32) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt as _;
    let path = fs::read_link(system_path(format!("/proc/{tid}/fd/{fd}"))).ok()?;
    Some(path.into_os_string().into_vec())
}

/// Working directory of a task.
pub fn directory(tid: u32) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt as _;
    let path = fs::read_link(system_path(format!("/proc/{tid}/cwd"))).ok()?;
    Some(path.into_os_string().into_vec())
}

/// Whether the program that a task executes is one of 32 bits, if it can be read.
pub fn runs_32_bit(tid: u32) -> Option<bool> {
    let mut ident = [0; 5];
    let mut program = fs::File::open(system_path(format!("/proc/{tid}/exe"))).ok()?;
    program.read_exact(&mut ident).ok()?;
    // EI_CLASS is ELFCLASS32.
    ident.starts_with(b"\x7fELF").then_some(ident[4] == 1)
}

/// The process that started a process, if that still runs.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(system_path(format!("/proc/{pid}/stat"))).ok()?;
    // The name in parentheses may hold anything.
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(1)?.parse().ok()
}

/// State of a thread, as the letter of /proc/PID/stat, and the functions of the kernel that it is
/// in, innermost first; none where that may not be read.
pub fn kernel_stack(tid: u32) -> Option<(u8, Vec<String>)> {
    let stat = fs::read_to_string(system_path(format!("/proc/{tid}/stat"))).ok()?;
    let state = stat.get(stat.rfind(')')? + 1..)?.trim_start().bytes().next()?;
    let text = fs::read_to_string(system_path(format!("/proc/{tid}/stack"))).ok()?;
    // `[<0>] do_nanosleep+0x5e/0x160`, a module behind it.
    let name = |line: &str| Some(line.split("] ").nth(1)?.split('+').next()?.to_owned());
    Some((state, text.lines().filter_map(name).collect()))
}

/// Processes and all that descend from them now, each once.
///
/// # Errors
/// If /proc cannot be read.
pub fn with_descendants(pids: &[u32]) -> Result<Vec<u32>, TargetError> {
    let all: Vec<(u32, Option<u32>)> =
        processes()?.into_iter().map(|pid| (pid, parent(pid))).collect();
    let mut found = pids.to_vec();
    let mut at = 0;
    while let Some(&above) = found.get(at) {
        at += 1;
        let below = all.iter().filter(|(_, parent)| *parent == Some(above)).map(|(pid, _)| *pid);
        for pid in below {
            if !found.contains(&pid) {
                found.push(pid);
            }
        }
    }
    Ok(found)
}

/// The directory of the cgroup called `name`: an absolute path below a cgroup
/// mount, or a path relative to the root of the perf_event hierarchy (v1) or
/// of the unified one (v2).
pub fn cgroup_dir(name: &str) -> Result<PathBuf, TargetError> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = cgroup_mount(&mounts).ok_or(TargetError::NoCgroupMount)?;
    let path = Path::new(name);
    if path.starts_with(&mount) && path.is_dir() {
        return Ok(path.to_owned());
    }
    let dir = mount.join(name.trim_start_matches('/'));
    if dir.is_dir() { Ok(dir) } else { Err(TargetError::NoCgroup { name: name.to_owned(), mount }) }
}

/// The processes in a cgroup and in those below it, sorted.
pub fn processes_of_cgroup(name: &str) -> Result<Vec<u32>, TargetError> {
    let mounts = fs::read_to_string(system_path("/proc/self/mounts")).unwrap_or_default();
    let unified = unified_mount(&mounts).map(|root| root.join(name.trim_start_matches('/')));
    let dir = match unified.filter(|dir| dir.is_dir()) {
        Some(dir) => dir,
        None => cgroup_dir(name)?,
    };
    let mut waiting = vec![dir];
    let mut pids = Vec::new();
    while let Some(dir) = waiting.pop() {
        // One that was removed meanwhile has no processes; some have threads only.
        let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        pids.extend(procs.lines().filter_map(|l| l.parse::<u32>().ok()).filter(|pid| *pid > 0));
        let below = fs::read_dir(&dir).into_iter().flatten().flatten();
        waiting.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Name of a user, by `/etc/passwd`.
pub fn user_name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string(system_path("/etc/passwd")).ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Path of the cgroup with an id (the inode of its directory), below the unified mount.
pub fn cgroup_path(id: u64) -> Option<String> {
    cgroups().find_map(|(own, path)| (own == id).then_some(path))
}

/// All cgroups below the unified mount: their ids and paths.
pub fn cgroups() -> impl Iterator<Item = (u64, String)> {
    let mounts = fs::read_to_string(system_path("/proc/self/mounts")).unwrap_or_default();
    let root = unified_mount(&mounts);
    let mut waiting: Vec<PathBuf> = root.iter().cloned().collect();
    let root = root.unwrap_or_default();
    std::iter::from_fn(move || {
        loop {
            let dir = waiting.pop()?;
            let children = fs::read_dir(&dir).into_iter().flatten().flatten();
            let is_dir = |e: &fs::DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
            waiting.extend(children.filter(is_dir).map(|e| e.path()));
            // One that was removed meanwhile has no processes.
            let (Ok(meta), Ok(below)) = (fs::metadata(&dir), dir.strip_prefix(&root)) else {
                continue;
            };
            return Some((meta.ino(), format!("/{}", below.display())));
        }
    })
}

/// Id of a cgroup by its path: a directory, or one below the unified mount.
pub fn cgroup_id(path: &str) -> Option<u64> {
    let mounts = fs::read_to_string(system_path("/proc/self/mounts")).ok()?;
    let below = unified_mount(&mounts).map(|root| root.join(path.trim_start_matches('/')));
    let own = PathBuf::from(path);
    let dirs = [Some(own).filter(|own| own.is_absolute()), below];
    dirs.into_iter().flatten().find_map(|dir| Some(fs::metadata(dir).ok()?.ino()))
}

/// Id of this process's cgroup in the unified hierarchy.
pub fn own_cgroup_id() -> Option<u64> {
    let mounts = fs::read_to_string(system_path("/proc/self/mounts")).ok()?;
    let own = fs::read_to_string(system_path("/proc/self/cgroup")).ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(fs::metadata(unified_mount(&mounts)?.join(path)).ok()?.ino())
}

fn unified_mount(mounts: &str) -> Option<PathBuf> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut unified = fields.filter(|fields| fields.get(2) == Some(&"cgroup2"));
    unified.find_map(|fields| Some(PathBuf::from(fields.get(1)?)))
}

/// Mount point of the cgroups that perf events can be bound to.
fn cgroup_mount(mounts: &str) -> Option<PathBuf> {
    let mut unified = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(dir), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if kind == "cgroup" && options.split(',').any(|o| o == "perf_event") {
            return Some(PathBuf::from(dir));
        }
        if kind == "cgroup2" && unified.is_none() {
            unified = Some(PathBuf::from(dir));
        }
    }
    unified
}

fn numbers_in(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) if gone(&e) => break,
            Err(e) => return Err(e),
        };
        numbers.extend(entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()));
    }
    Ok(numbers)
}

fn gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_ended_are_left_out_where_nobody_named_them() {
        let own = std::process::id();
        // Past the largest pid_max.
        let gone = 4_194_305;
        assert!(threads_of_all(&[gone, own]).is_err());
        assert!(threads_of_living(&[gone, own]).unwrap().contains(&own));
        assert!(matches!(threads_of_living(&[gone]), Err(TargetError::NoProcess(p)) if p == gone));
    }

    #[test]
    fn finds_its_own_threads() {
        let pid = std::process::id();
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || rx.recv().is_err());
        let tids = threads_of(pid).unwrap();
        assert!(tids.contains(&pid) && tids.len() >= 2, "{tids:?}");
        drop(tx);
        assert!(thread.join().unwrap());
        assert!(all_threads().unwrap().contains(&pid));
        assert!(comm(pid).is_some());
    }

    #[test]
    fn who_is_gone_is_named() {
        assert_eq!(
            threads_of(i32::MAX as u32).unwrap_err().to_string(),
            "no such process: 2147483647"
        );
        assert!(matches!(parse_ids("1,x"), Err(TargetError::BadIds(_))));
        assert!(matches!(parse_ids("0"), Err(TargetError::BadIds(_))));
        assert_eq!(parse_ids("3,4").unwrap(), [3, 4]);
        assert_eq!(user_id("0").unwrap(), 0);
        assert!(user_id("no such user").is_err());
    }

    #[test]
    fn the_perf_event_hierarchy_goes_before_the_unified_one() {
        let v2 = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let v1 = "cgroup /sys/fs/cgroup/perf cgroup rw,perf_event 0 0\n";
        let other = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        let mount = |text: &str| cgroup_mount(text).map(|p| p.display().to_string());
        assert_eq!(mount(&format!("{other}{v2}{v1}")).as_deref(), Some("/sys/fs/cgroup/perf"));
        assert_eq!(mount(&format!("{other}{v2}")).as_deref(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mount(other), None);
    }
}
