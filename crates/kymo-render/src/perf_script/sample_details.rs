//! Optional parts of a sample beyond task, time and address: registers, branches, memory access,
//! page sizes. Laid out as perf script does.

use std::io::Write as _;

use kymo_files::perfdata::{Entry, Features};
use kymo_model::{Endian, Misc, RecordKind, RegisterNames, Sample, SampleType, SampledRegisters};

use super::fields::FieldSet;
use super::recorded_names::RecordedNames;
use crate::number;

/// Printed before the address of the code.
const BEFORE: FieldSet = FieldSet(FieldSet::DATA_SRC.0 | FieldSet::WEIGHT.0 | FieldSet::INS_LAT.0);
/// Printed behind it.
const BEHIND: FieldSet = FieldSet(
    FieldSet::IREGS.0
        | FieldSet::UREGS.0
        | FieldSet::BRSTACK.0
        | FieldSet::BRSTACKSYM.0
        | FieldSet::PHYS_ADDR.0
        | FieldSet::DATA_PAGE_SIZE.0
        | FieldSet::CODE_PAGE_SIZE.0
        | FieldSet::CGROUP.0,
);

/// The sample in full, when something printed needs that.
pub(super) fn parse<'a>(entry: &Entry<'a>, fields: FieldSet) -> Option<Sample<'a>> {
    if !fields.any(BEFORE) && !fields.any(BEHIND) {
        return None;
    }
    Sample::parse(&entry.raw, &entry.desc()?.attr).ok()
}

/// Data source, weight and latency.
pub(super) fn before(entry: &Entry<'_>, s: &Sample<'_>, fields: FieldSet, out: &mut Vec<u8>) {
    if fields.has(FieldSet::DATA_SRC) {
        data_source(out, s.data_src.unwrap_or(0));
    }
    let weight = s.weight.unwrap_or(0);
    let has = entry.desc().map_or(SampleType::empty(), |e| e.attr.sample_type);
    let structured = has.contains(SampleType::WEIGHT_STRUCT);
    if fields.has(FieldSet::WEIGHT) {
        number::decimal(out, if structured { weight & 0xffff_ffff } else { weight }, 16);
    }
    if fields.has(FieldSet::INS_LAT) {
        number::decimal(out, if structured { weight >> 32 & 0xffff } else { 0 }, 16);
    }
}

/// Registers, branches, physical address, page sizes.
pub(super) fn behind(
    entry: &Entry<'_>,
    s: &Sample<'_>,
    fields: FieldSet,
    symbols: &mut RecordedNames,
    out: &mut Vec<u8>,
) {
    for (field, regs) in [(FieldSet::IREGS, &s.regs_intr), (FieldSet::UREGS, &s.regs_user)] {
        if fields.has(field)
            && let Some(regs) = regs
        {
            registers(out, regs, entry.features);
        }
    }
    let pid = s.tid.map_or(0, |t| t.0);
    for (field, named) in [(FieldSet::BRSTACK, false), (FieldSet::BRSTACKSYM, true)] {
        if fields.has(field) {
            for branch in s.branches.chunks_exact(24) {
                let b = BranchEntry::of(branch, entry.raw.endian);
                b.write(entry, pid, named, fields, symbols, out);
            }
        }
    }
    if fields.has(FieldSet::PHYS_ADDR) {
        number::hex(out, s.phys_addr.unwrap_or(0), 16);
    }
    let pages = [
        (FieldSet::DATA_PAGE_SIZE, s.data_page_size),
        (FieldSet::CODE_PAGE_SIZE, s.code_page_size),
    ];
    for (field, size) in pages {
        if fields.has(field) {
            out.push(b' ');
            page_size(out, size.unwrap_or(0));
        }
    }
    if fields.has(FieldSet::CGROUP) {
        out.push(b' ');
        symbols.write_cgroup(s.cgroup.unwrap_or(0), out);
    }
}

/// The letters of `misc`, six columns wide.
pub(super) fn misc(kind: RecordKind, misc: Misc, out: &mut Vec<u8>) {
    let from = out.len();
    // Each letter stands for bits, not for a mode: a hypervisor's 3 is K, U and H.
    for (bits, letter) in [
        (Misc::KERNEL, b'K'),
        (Misc::USER, b'U'),
        (Misc::HYPERVISOR, b'H'),
        (Misc::GUEST_KERNEL, b'G'),
        (Misc::GUEST_USER, b'g'),
    ] {
        if misc.0 & bits == bits {
            out.push(letter);
        }
    }
    let has = |bit: u16| misc.0 & bit == bit;
    match kind {
        RecordKind::MMAP | RecordKind::MMAP2 if has(Misc::MMAP_DATA) => out.push(b'M'),
        RecordKind::COMM if has(Misc::COMM_EXEC) => out.push(b'E'),
        RecordKind::SWITCH | RecordKind::SWITCH_CPU_WIDE if has(Misc::SWITCH_OUT) => {
            out.push(b'S');
            if has(Misc::SWITCH_OUT_PREEMPT) {
                out.push(b'p');
            }
        }
        _ => {}
    }
    let written = out.len() - from;
    number::pad(out, 6usize.saturating_sub(written).max(1));
}

fn registers(out: &mut Vec<u8>, regs: &SampledRegisters<'_>, features: &Features) {
    let names = RegisterNames::of_machine(features.arch.as_deref());
    let _ = write!(out, " ABI:{} ", regs.abi);
    for n in 0..64 {
        let Some(value) = regs.get(n) else { continue };
        let _ = write!(out, "{:>5}:{value:#x} ", names.name(n));
    }
}

/// One entry of a branch stack.
struct BranchEntry {
    from: u64,
    to: u64,
    flags: u64,
}

const TYPES: [&str; 15] = [
    "",
    "COND",
    "UNCOND",
    "IND",
    "CALL",
    "IND_CALL",
    "RET",
    "SYSCALL",
    "SYSRET",
    "COND_CALL",
    "COND_RET",
    "ERET",
    "IRQ",
    "SERROR",
    "NO_TX",
];

const NEW_TYPES: [&str; 8] =
    ["FAULT_ALGN", "FAULT_DATA", "FAULT_INST", "ARCH_1", "ARCH_2", "ARCH_3", "ARCH_4", "ARCH_5"];

impl BranchEntry {
    fn of(bytes: &[u8], endian: Endian) -> BranchEntry {
        let word = |n: usize| {
            bytes.get(n * 8..).and_then(|b| b.first_chunk()).map_or(0, |b| endian.u64(*b))
        };
        BranchEntry { from: word(0), to: word(1), flags: word(2) }
    }

    fn write(
        &self,
        entry: &Entry<'_>,
        pid: u32,
        named: bool,
        fields: FieldSet,
        symbols: &mut RecordedNames,
        out: &mut Vec<u8>,
    ) {
        let mode = entry.raw.misc.cpumode();
        if !named {
            out.push(b' ');
        }
        for (n, address) in [self.from, self.to].into_iter().enumerate() {
            if n > 0 {
                out.push(b'/');
            }
            // Branches cross into the kernel and back: an address shows its side.
            let mode = match (mode, address >> 63) {
                (Misc::KERNEL | Misc::USER, 1) => Misc::KERNEL,
                (Misc::KERNEL | Misc::USER, _) => Misc::USER,
                (other, _) => other,
            };
            let at = symbols.locate(pid, address, mode);
            match (named, symbols.symbol(&at)) {
                (true, Some(name)) => {
                    let _ = write!(out, "{name}+{:#x}", at.offset);
                }
                (true, None) => out.extend_from_slice(b"[unknown]"),
                (false, _) => {
                    let _ = write!(out, "{address:#x}");
                }
            }
            if fields.has(FieldSet::DSO) {
                let _ = write!(out, "({})", symbols.dso(&at));
            }
        }
        let bit = |n: u32| self.flags >> n & 1 == 1;
        let predicted = match (bit(0), bit(1)) {
            (_, true) => 'P',
            (true, false) => 'M',
            (false, false) => '-',
        };
        let transaction = if bit(2) { 'X' } else { '-' };
        let abort = if bit(3) { 'A' } else { '-' };
        let cycles = self.flags >> 4 & 0xffff;
        // The last of the types says that another field holds it.
        let kind = match TYPES.get((self.flags >> 20 & 15) as usize) {
            Some(kind) => kind,
            None => NEW_TYPES.get((self.flags >> 26 & 15) as usize).unwrap_or(&""),
        };
        let _ = write!(out, "/{predicted}/{transaction}/{abort}/{cycles}/{kind} ");
    }
}

fn page_size(out: &mut Vec<u8>, size: u64) {
    let _ = match size {
        0 => write!(out, "N/A"),
        s if s.is_multiple_of(1 << 30) => write!(out, "{}G", s >> 30),
        s if s.is_multiple_of(1 << 20) => write!(out, "{}M", s >> 20),
        s if s.is_multiple_of(1 << 10) => write!(out, "{}K", s >> 10),
        s => write!(out, "{s}"),
    };
}

/// `PERF_MEM_*`: the bits of `data_src` in words.
fn data_source(out: &mut Vec<u8>, v: u64) {
    number::hex(out, v, 16);
    out.push(b' ');
    let bits = |shift: u32, width: u32| v >> shift & ((1 << width) - 1);
    let op = OPERATIONS.iter().enumerate().find(|(n, _)| v >> n & 1 == 1);
    let _ = write!(out, "|OP {}", op.map_or("No", |(_, name)| name));
    let _ = write!(out, "|LVL {}", level(bits(5, 14), bits(33, 4), bits(37, 1) == 1, bits(43, 3)));
    let snoop = listed(bits(19, 5) | bits(38, 2) << 5, &SNOOP);
    let _ = write!(out, "|SNP {}", or_none(snoop));
    let tlb = bits(26, 7);
    let _ = write!(out, "|TLB {}{}", or_none(listed(tlb, &TLB)), outcome(tlb));
    let lock = match bits(24, 2) {
        0 => "No",
        2 => "Yes",
        _ => "N/A",
    };
    let _ = write!(out, "|LCK {lock}");
    let blocked = bits(40, 3);
    let text = match (blocked & 1, blocked >> 1) {
        (1, _) | (_, 0) => " N/A",
        (_, 1) => " Data",
        (_, 2) => " Addr",
        _ => " Data Addr",
    };
    let _ = write!(out, "|BLK {text}");
}

const OPERATIONS: [&str; 5] = ["N/A", "LOAD", "STORE", "PFETCH", "EXEC"];
const SNOOP: [&str; 7] = ["N/A", "None", "Hit", "Miss", "HitM", "Fwd", "Peer"];
/// Without a name: hit and miss, which are distinguished.
const TLB: [&str; 7] = ["N/A", "", "", "L1", "L2", "Walker", "Fault"];
const LEVELS: [&str; 14] = [
    "N/A",
    "",
    "",
    "L1",
    "LFB/MAB",
    "L2",
    "L3",
    "Local RAM",
    "Remote RAM (1 hop)",
    "Remote RAM (2 hops)",
    "Remote Cache (1 hop)",
    "Remote Cache (2 hops)",
    "I/O",
    "Uncached",
];
const HOPS: [&str; 5] =
    ["", "core, same node ", "node, same socket ", "socket, same board ", "board "];

/// The names of the bits that are set.
fn listed(set: u64, names: &[&'static str]) -> String {
    let set = names.iter().enumerate().filter(|(n, name)| !name.is_empty() && set >> n & 1 == 1);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(" or ")
}

fn or_none(text: String) -> String {
    if text.is_empty() { "N/A".to_owned() } else { text }
}

/// Hit and miss are the second and third bit of levels and of TLBs.
fn outcome(set: u64) -> &'static str {
    match set >> 1 & 3 {
        0 => "",
        1 => " hit",
        2 => " miss",
        _ => " hit miss",
    }
}

/// Memory level that answered the access: bits of old, a number since, and the distance.
fn level(bits: u64, number: u64, remote: bool, hops: u64) -> String {
    let numbered = match number {
        0 => String::new(),
        9 => "CXL".to_owned(),
        0xa => "I/O".to_owned(),
        0xb => "Any cache".to_owned(),
        0xc => "LFB/MAB".to_owned(),
        0xd => "RAM".to_owned(),
        0xe => "PMEM".to_owned(),
        0xf => "N/A".to_owned(),
        n => format!("L{n}"),
    };
    let far = if remote { "Remote " } else { "" };
    let place = if hops > 0 {
        let hops = HOPS.get(hops as usize).map_or_else(|| format!("{hops} hops "), |h| (*h).into());
        hops + &numbered
    } else {
        let named = [listed(bits, &LEVELS), numbered];
        named.into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(" or ")
    };
    let text = format!("{far}{place}");
    or_none(text) + outcome(bits)
}
