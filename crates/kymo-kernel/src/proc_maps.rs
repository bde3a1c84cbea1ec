//! Names and mappings of processes, from `/proc`, and the kernel's own text and modules. Used to
//! describe what existed before a recording started.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::system_root::system_path;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcMapping {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC` as bits 1, 2, 4.
    pub prot: u32,
    /// `MAP_SHARED` 1 or `MAP_PRIVATE` 2.
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Device.
    pub major: u32,
    /// Device.
    pub minor: u32,
    /// Inode.
    pub inode: u64,
    /// File name, `[vdso]` and the like, or empty.
    pub path: Vec<u8>,
}

impl ProcMapping {
    /// Whether code can run there.
    pub fn executable(&self) -> bool {
        self.prot & 4 != 0
    }

    /// Parses one line; `None` for what is not one.
    pub fn parse(line: &[u8]) -> Option<ProcMapping> {
        let mut rest = line;
        let mut word = || {
            let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
            let (w, r) = rest.split_at(end);
            rest = r.strip_prefix(b" ").unwrap_or(r);
            std::str::from_utf8(w).ok()
        };
        let hex = |s: &str| u64::from_str_radix(s, 16).ok();
        let (start, end) = word()?.split_once('-')?;
        let perms = word()?.as_bytes();
        let offset = hex(word()?)?;
        let (major, minor) = word()?.split_once(':')?;
        let inode = word()?.parse().ok()?;
        let bit = |i: usize, c: u8, v: u32| if perms.get(i) == Some(&c) { v } else { 0 };
        Some(ProcMapping {
            start: hex(start)?,
            end: hex(end)?,
            prot: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4),
            flags: if perms.get(3) == Some(&b's') { 1 } else { 2 },
            offset,
            major: hex(major)? as u32,
            minor: hex(minor)? as u32,
            inode,
            path: rest.trim_ascii_start().to_vec(),
        })
    }
}

/// The mappings of a process.
#[derive(Clone, Debug, Default)]
pub struct ProcMaps {
    /// In address order.
    pub mappings: Vec<ProcMapping>,
    /// Time ran out before all were read.
    pub cut_short: bool,
}

/// Reads `/proc/PID/maps`, giving up after `timeout`.
pub fn maps(pid: u32, timeout: Duration) -> io::Result<ProcMaps> {
    let began = Instant::now();
    let mut file = fs::File::open(system_path(format!("/proc/{pid}/maps")))?;
    let mut maps = ProcMaps::default();
    let mut buffer = vec![0; 1 << 16];
    let mut filled = 0;
    loop {
        let n = file.read(&mut buffer[filled..])?;
        filled += n;
        let end = if n == 0 {
            filled
        } else {
            buffer[..filled].iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1)
        };
        let lines = buffer[..end].split(|&b| b == b'\n');
        maps.mappings.extend(lines.filter_map(ProcMapping::parse));
        buffer.copy_within(end..filled, 0);
        filled -= end;
        if n == 0 || filled == buffer.len() {
            return Ok(maps);
        }
        if began.elapsed() > timeout {
            maps.cut_short = true;
            return Ok(maps);
        }
    }
}

/// Longest time for the mappings of one process, where many are read.
const QUICK: Duration = Duration::from_millis(100);
/// Processes that a text names at most.
const MOST_NAMED: usize = 8;

/// Fact about processes that run code of a file that was at `path` and is there no longer, since
/// it was replaced or removed while they had it mapped: probes of the file at the path are not in
/// their code. `among`: the processes to check; all of this mount namespace if there are none.
pub fn replaced_binary(path: &Path, among: &[u32]) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let removed = [path.as_os_str().as_encoded_bytes(), b" (deleted)"].concat();
    let space = |pid: &str| fs::read_link(system_path(format!("/proc/{pid}/ns/mnt"))).ok();
    let own = space("self");
    let all = if among.is_empty() { processes().ok()? } else { among.to_vec() };
    let runs_removed = |pid: &u32| {
        let is_removed = |m: &ProcMapping| m.executable() && m.path == removed;
        maps(*pid, QUICK).is_ok_and(|maps| maps.mappings.iter().any(is_removed))
    };
    let is_here = |pid: &u32| space(&pid.to_string()) == own;
    let found: Vec<u32> = all.into_iter().filter(|pid| is_here(pid) && runs_removed(pid)).collect();
    let mut shown: Vec<String> = found.iter().take(MOST_NAMED).map(u32::to_string).collect();
    if found.len() > MOST_NAMED {
        shown.push(format!("{} more", found.len() - MOST_NAMED));
    }
    let (noun, verb) = if found.len() == 1 { ("process", "runs") } else { ("processes", "run") };
    (!found.is_empty()).then(|| {
        format!(
            "{} was replaced: {noun} {} {verb} the code of the old file, which has no probe",
            path.display(),
            shown.join(", ")
        )
    })
}

/// When a process started, in ticks since boot: field 22 of its `stat`. A
/// process that is dead and only waits to be reaped has none.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(system_path(format!("/proc/{pid}/stat"))).ok()?;
    // The name in parentheses may hold anything.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Identity of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub comm: Vec<u8>,
    /// Its process.
    pub tgid: u32,
    /// The parent process.
    pub ppid: u32,
    /// The effective user.
    pub uid: u32,
    /// The real user and group.
    pub owner: (u32, u32),
    /// Whether it has memory of its own (kernel threads have not).
    pub has_memory: bool,
}

/// Reads `/proc/TID/status`.
pub fn status(tid: u32) -> io::Result<Status> {
    Ok(parse_status(&fs::read(system_path(format!("/proc/{tid}/status")))?))
}

fn parse_status(text: &[u8]) -> Status {
    let mut s = Status::default();
    let number = |v: &[u8], nth: usize| -> u32 {
        let text = std::str::from_utf8(v).unwrap_or("");
        text.split_ascii_whitespace().nth(nth).and_then(|w| w.parse().ok()).unwrap_or(0)
    };
    for line in text.split(|&b| b == b'\n') {
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        match &line[..colon] {
            b"Name" => s.comm = value.to_vec(),
            b"Tgid" => s.tgid = number(value, 0),
            b"PPid" => s.ppid = number(value, 0),
            b"Uid" => (s.uid, s.owner.0) = (number(value, 1), number(value, 0)),
            b"Gid" => s.owner.1 = number(value, 0),
            b"VmPeak" => s.has_memory = true,
            _ => {}
        }
    }
    s
}

/// All processes, as their numbers.
pub fn processes() -> io::Result<Vec<u32>> {
    numbers(&system_path("/proc"))
}

/// All threads of a process.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    numbers(&system_path(format!("/proc/{pid}/task")))
}

fn numbers(directory: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(directory)?.filter_map(Result::ok);
    let mut found: Vec<u32> =
        names.filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok())).collect();
    found.sort_unstable();
    Ok(found)
}

/// Address range of the kernel's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelText {
    /// The symbol the addresses are relative to: `_text` or `_stext`.
    pub reference: &'static str,
    /// Its address.
    pub start: u64,
    /// `_etext`.
    pub end: u64,
}

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedModule {
    /// Its name.
    pub name: String,
    /// Start address.
    pub start: u64,
    /// Its size.
    pub size: u64,
}

/// Finds the kernel's text in `/proc/kallsyms`; `None` where addresses are hidden.
pub fn kernel_text() -> io::Result<Option<KernelText>> {
    Ok(parse_kallsyms(io::BufReader::new(fs::File::open(system_path("/proc/kallsyms"))?)))
}

fn parse_kallsyms(reader: impl io::BufRead) -> Option<KernelText> {
    let (mut text, mut stext, mut etext) = (0, 0, 0);
    for line in reader.lines() {
        let Ok(line) = line else { break };
        let mut words = line.split_ascii_whitespace();
        let (Some(addr), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let slot = match name {
            "_text" => &mut text,
            "_stext" => &mut stext,
            "_etext" => &mut etext,
            _ => continue,
        };
        *slot = u64::from_str_radix(addr, 16).unwrap_or(0);
        if etext != 0 && (text != 0 || stext != 0) {
            break;
        }
    }
    let (reference, start) = if text != 0 { ("_text", text) } else { ("_stext", stext) };
    (start != 0 && etext > start).then_some(KernelText { reference, start, end: etext })
}

/// The loaded modules, from `/proc/modules`; none where addresses are hidden.
pub fn modules() -> Vec<LoadedModule> {
    let text = fs::read_to_string(system_path("/proc/modules")).unwrap_or_default();
    text.lines().filter_map(parse_module).collect()
}

fn parse_module(line: &str) -> Option<LoadedModule> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let start = u64::from_str_radix(words.get(5)?.trim_start_matches("0x"), 16).ok()?;
    let (name, size) = (words.first()?, words.get(1)?.parse().ok()?);
    (start != 0).then(|| LoadedModule { name: (*name).to_owned(), start, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let m = ProcMapping::parse(
            b"7f5ba7175000-7f5ba719b000 r-xp 00001000 fe:0a 325843     /lib/a b.so (deleted)",
        )
        .unwrap();
        assert_eq!((m.start, m.end, m.prot, m.flags), (0x7f5ba7175000, 0x7f5ba719b000, 5, 2));
        assert_eq!((m.offset, m.major, m.minor, m.inode), (0x1000, 0xfe, 10, 325843));
        assert_eq!(m.path, b"/lib/a b.so (deleted)");
        assert!(m.executable());
        assert_eq!(ProcMapping::parse(b"00-10 rw-s 00 00:00 0").unwrap().path, b"");
        assert_eq!(ProcMapping::parse(b"nonsense"), None);
    }

    #[test]
    fn own_maps_have_own_code() {
        let maps = maps(std::process::id(), Duration::from_secs(5)).unwrap();
        let here = own_maps_have_own_code as *const () as u64;
        assert!(maps.mappings.iter().any(|m| m.executable() && m.start <= here && here < m.end));
        let me = status(std::process::id()).unwrap();
        assert_eq!(me.tgid, std::process::id());
        assert!(me.has_memory && threads(me.tgid).unwrap().contains(&me.tgid));
    }

    #[test]
    fn hidden_kernel_addresses_are_no_addresses() {
        let hidden = &b"0000000000000000 T _text\n0000000000000000 T _etext\n"[..];
        assert_eq!(parse_kallsyms(hidden), None);
        let shown =
            &b"ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff82209988 T _etext\n"[..];
        let text = parse_kallsyms(shown).unwrap();
        assert_eq!((text.reference, text.end - text.start), ("_text", 0x1209988));
        assert_eq!(parse_module("ext4 1024 2 jbd2,crc, Live 0x0000000000000000"), None);
        let m = parse_module("ext4 1024 2 - Live 0xffffffffc0000000 (E)").unwrap();
        assert_eq!((m.name.as_str(), m.start, m.size), ("ext4", 0xffff_ffff_c000_0000, 1024));
    }
}
