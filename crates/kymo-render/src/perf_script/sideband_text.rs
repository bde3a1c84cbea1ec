//! Records that are no samples, as `--show-*-events` print them, and the raw
//! dump of `-D`.

use std::io::Write as _;

use kymo_files::perfdata::Entry;
use kymo_model::{
    Misc, Mmap, RawRecord, RecordKind, SampleId, Sideband, TextPoke, Truncated, UntrustedText,
};

use super::sample_text::{PrintedSample, SampleRenderer};

/// Kinds of records that are printed beside samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShownSideband {
    /// COMM, FORK and EXIT.
    pub tasks: bool,
    /// MMAP and MMAP2.
    pub mmaps: bool,
    /// LOST and LOST_SAMPLES.
    pub lost: bool,
    /// SWITCH and SWITCH_CPU_WIDE.
    pub switches: bool,
    /// NAMESPACES.
    pub namespaces: bool,
    /// CGROUP.
    pub cgroups: bool,
    /// KSYMBOL and BPF_EVENT.
    pub bpf: bool,
    /// FINISHED_ROUND.
    pub rounds: bool,
    /// CALLCHAIN_DEFERRED.
    pub deferred_chains: bool,
    /// TEXT_POKE, and KSYMBOL, which reports code of the kernel that comes and goes.
    pub text_pokes: bool,
}

impl ShownSideband {
    pub(super) fn wants(&self, kind: RecordKind) -> bool {
        match kind {
            RecordKind::COMM | RecordKind::FORK | RecordKind::EXIT => self.tasks,
            RecordKind::MMAP | RecordKind::MMAP2 => self.mmaps,
            RecordKind::LOST | RecordKind::LOST_SAMPLES => self.lost,
            RecordKind::SWITCH | RecordKind::SWITCH_CPU_WIDE => self.switches,
            RecordKind::NAMESPACES => self.namespaces,
            RecordKind::CGROUP => self.cgroups,
            RecordKind::KSYMBOL => self.bpf || self.text_pokes,
            RecordKind::BPF_EVENT => self.bpf,
            RecordKind::TEXT_POKE => self.text_pokes,
            RecordKind::FINISHED_ROUND => self.rounds,
            RecordKind::CALLCHAIN_DEFERRED => self.deferred_chains,
            _ => false,
        }
    }

    pub(super) fn print(&self, entry: &Entry<'_>, text: &mut SampleRenderer, out: &mut Vec<u8>) {
        if entry.raw.kind == RecordKind::FINISHED_ROUND {
            return out.extend_from_slice(b"PERF_RECORD_FINISHED_ROUND\n");
        }
        let id = match entry.desc() {
            Some(e) => entry.raw.sample_id(&e.attr).unwrap_or_default(),
            None => SampleId::default(),
        };
        let record = match Sideband::parse(&entry.raw) {
            Ok(Some(record)) => record,
            Ok(None) => return print_other(entry, &id, text, out),
            Err(_) => return,
        };
        // Records made up for tasks that were there before carry no id: the task itself identifies
        // them.
        let own = match &record {
            Sideband::Comm(c) => Some((c.pid, c.tid)),
            Sideband::Mmap(m) => Some((m.pid, m.tid)),
            Sideband::Fork(t) | Sideband::Exit(t) => Some((t.pid, t.tid)),
            _ => None,
        };
        let (pid, tid) = id.tid.or(own).unwrap_or((0, 0));
        let own = own.filter(|_| matches!(record, Sideband::Comm(_) | Sideband::Mmap(_)));
        let seen = PrintedSample::record(entry.raw.kind, entry.raw.misc);
        let seen = PrintedSample { pid, tid, time: id.time, cpu: id.cpu, ..seen };
        text.start_of(entry, own.map_or(tid, |o| o.1), &seen, out);
        describe(entry, &record, out);
        if let Sideband::TextPoke(poke) = &record {
            text_poke(poke, text, out);
        }
        out.push(b'\n');
    }
}

/// Address of patched code, and its bytes before and after.
fn text_poke(poke: &TextPoke<'_>, text: &mut SampleRenderer, out: &mut Vec<u8>) {
    let _ = write!(out, " {:x} ", poke.addr);
    let at = text.names.locate(u32::MAX, poke.addr, Misc::KERNEL);
    if let Some(name) = text.names.symbol(&at) {
        UntrustedText::new(name).write_escaped(out);
        let _ = write!(out, "+{:#x}", at.offset);
    }
    let _ = write!(out, " old len {} new len {}", poke.old.len(), poke.new.len());
    for (which, bytes) in [("Old", poke.old), ("New", poke.new)] {
        for line in bytes.chunks(16) {
            let _ = write!(out, "\n            {which} bytes:");
            line.iter().for_each(|byte| _ = write!(out, " {byte:02x}"));
        }
    }
}

/// Records that nothing but this page needs decoded.
fn print_other(entry: &Entry<'_>, id: &SampleId, text: &mut SampleRenderer, out: &mut Vec<u8>) {
    let mut content = Vec::new();
    let of = match entry.raw.kind {
        RecordKind::NAMESPACES => namespaces(&entry.raw, &mut content),
        RecordKind::CGROUP => cgroup(&entry.raw, &mut content),
        RecordKind::BPF_EVENT => bpf_event(&entry.raw, &mut content),
        RecordKind::CALLCHAIN_DEFERRED => Ok(None),
        _ => return,
    };
    let Ok(of) = of else { return };
    let (pid, tid) = id.tid.unwrap_or((0, 0));
    let seen = PrintedSample::record(entry.raw.kind, entry.raw.misc);
    let seen = PrintedSample { pid, tid, time: id.time, cpu: id.cpu, ..seen };
    // As in perf, the task's name is that of the record's task.
    text.start_of(entry, of.unwrap_or(tid), &seen, out);
    if entry.raw.kind == RecordKind::CALLCHAIN_DEFERRED {
        text.deferred_chain(entry, pid, out);
    }
    out.extend_from_slice(&content);
    out.push(b'\n');
}

/// Writes the namespaces of a task, and answers which task it is.
fn namespaces(record: &RawRecord<'_>, out: &mut Vec<u8>) -> Result<Option<u32>, Truncated> {
    const NAMES: [&str; 7] = ["net", "uts", "ipc", "pid", "user", "mnt", "cgroup"];
    let mut c = record.cursor();
    let (pid, tid, count) = (c.u32()?, c.u32()?, c.u64()?);
    let _ = write!(out, "PERF_RECORD_NAMESPACES {pid}/{tid} - nr_namespaces: {count}\n\t\t[");
    for n in 0..count {
        let (device, inode) = (c.u64()?, c.u64()?);
        if n > 0 {
            let _ = write!(out, ", {}", if n % 4 == 0 { "\n\t\t " } else { "" });
        }
        let name = usize::try_from(n).ok().and_then(|n| NAMES.get(n)).unwrap_or(&"unknown");
        let _ = write!(out, "{n}/{name}: {device}/{}", AlternateHex(inode));
    }
    out.push(b']');
    Ok(Some(tid))
}

/// Writes the number and the path of a cgroup.
fn cgroup(record: &RawRecord<'_>, out: &mut Vec<u8>) -> Result<Option<u32>, Truncated> {
    let mut c = record.cursor();
    let _ = write!(out, "PERF_RECORD_CGROUP cgroup: {} ", c.u64()?);
    UntrustedText::new(c.cstr()).write_escaped(out);
    Ok(None)
}

/// Writes what was done with which BPF program.
fn bpf_event(record: &RawRecord<'_>, out: &mut Vec<u8>) -> Result<Option<u32>, Truncated> {
    let mut c = record.cursor();
    let (what, flags, id) = (c.u16()?, c.u16()?, c.u32()?);
    let _ = write!(out, "PERF_RECORD_BPF_EVENT type {what}, flags {flags}, id {id}");
    Ok(None)
}

/// `PERF_RECORD_…` and the content, as perf words them.
fn describe(entry: &Entry<'_>, record: &Sideband<'_>, out: &mut Vec<u8>) {
    let kind = entry.raw.kind.name().unwrap_or("?");
    let _ = write!(out, "PERF_RECORD_{kind}");
    let _ = match record {
        Sideband::Comm(c) => {
            let exec = if c.exec { " exec" } else { "" };
            let _ = write!(out, "{exec}: ");
            UntrustedText::new(c.comm).write_escaped(out);
            write!(out, ":{}/{}", c.pid as i32, c.tid as i32)
        }
        Sideband::Fork(t) | Sideband::Exit(t) => {
            write!(out, "({}:{}):({}:{})", t.pid as i32, t.tid as i32, t.ppid as i32, t.ptid as i32)
        }
        Sideband::Mmap(m) => mmap(m, out),
        Sideband::Lost(l) => write!(out, " lost {}", l.lost),
        Sideband::LostSamples(l) => write!(out, " lost {}", l.lost),
        Sideband::Ksymbol(k) => {
            let _ = write!(out, " addr {:x} len {} type {}", k.addr, k.len, k.ksym_type);
            let _ = write!(out, " flags {:#x} name ", k.flags);
            UntrustedText::new(k.name).write_escaped(out);
            Ok(())
        }
        Sideband::Switch(s) => {
            let way = match (s.out, s.preempt) {
                (true, true) => " OUT preempt ",
                (true, false) => " OUT         ",
                (false, _) => " IN          ",
            };
            match s.next_prev {
                Some((pid, tid)) => {
                    let other = if s.out { "next" } else { "prev" };
                    let _ = write!(out, "{way} {other} pid/tid: ");
                    write!(out, "{:>5}/{:<5}", pid as i32, tid as i32)
                }
                None => write!(out, "{way}"),
            }
        }
        _ => Ok(()),
    };
}

fn mmap(m: &Mmap<'_>, out: &mut Vec<u8>) -> std::io::Result<()> {
    let (pid, tid) = (m.pid as i32, m.tid as i32);
    write!(out, " {pid}/{tid}: [{:#x}({:#x}) @ {}", m.start, m.len, AlternateHex(m.pgoff))?;
    if let Some((major, minor, inode, generation)) = m.inode {
        write!(out, " {major:02x}:{minor:02x} {inode} {generation}")?;
    }
    if let Some(id) = m.build_id {
        write!(out, " <{id}>")?;
    }
    write!(out, "]: ")?;
    match m.prot {
        Some(prot) => {
            let bit = |b: u32, c: char| if prot & b != 0 { c } else { '-' };
            // MAP_SHARED is 1.
            let shared = if m.flags.is_some_and(|f| f & 1 != 0) { 's' } else { 'p' };
            write!(out, "{}{}{}{shared} ", bit(1, 'r'), bit(2, 'w'), bit(4, 'x'))?;
        }
        None => write!(out, "x ")?,
    }
    UntrustedText::new(m.filename).write_escaped(out);
    Ok(())
}

/// C's `%#x`: no prefix for zero.
struct AlternateHex(u64);

impl std::fmt::Display for AlternateHex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

/// Place, size, kind and bytes of a record.
pub(super) fn dump(entry: &Entry<'_>, file: &str, out: &mut Vec<u8>) {
    let raw = &entry.raw;
    let size = raw.body.len() + 8;
    let _ = write!(out, "\n{:#x}@{file} [{size:#x}]: event: {}\n", entry.offset, raw.kind.0);
    let _ = write!(out, ".\n. ... raw event: size {size} bytes\n");
    // The header as this machine would store it, then the body as it lies.
    let header = kymo_model::RecordHeader { kind: raw.kind, misc: raw.misc, size: size as u16 };
    let bytes: Vec<u8> = header.to_bytes().iter().chain(raw.body).copied().collect();
    for (i, line) in bytes.chunks(16).enumerate() {
        let _ = write!(out, ".  {:04x}: ", i * 16);
        for n in 0..16 {
            let _ = match line.get(n) {
                Some(b) => write!(out, " {b:02x}"),
                None => write!(out, "   "),
            };
        }
        let _ = write!(out, "  ");
        out.extend(line.iter().map(|b| if (32..127).contains(b) { *b } else { b'.' }));
        out.push(b'\n');
    }
    let name = raw.kind.name().unwrap_or("UNKNOWN");
    let time = entry.time.map_or(String::new(), |t| format!("{t} "));
    let _ = write!(out, "\n{time}{:#x} [{size:#x}]: PERF_RECORD_{name}", entry.offset);
    if let Ok(Some(record)) = Sideband::parse(raw) {
        out.truncate(out.len() - 12 - name.len());
        describe(entry, &record, out);
    }
    out.push(b'\n');
}
