//! Mappings and names over time, from records made by hand.

use kymo_model::{Endian, RawRecord, RecordKind};
use kymo_symbols::ResolverOptions;

use super::*;

fn machine() -> MachineState {
    MachineState::new(Resolver::new(ResolverOptions::default()))
}

fn apply(m: &mut MachineState, kind: RecordKind, misc: u16, words: &[u32], text: &str) {
    let mut body: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    body.extend(text.as_bytes());
    body.push(0);
    m.apply(&RawRecord { kind, misc: Misc(misc), body: &body, endian: Endian::Little });
}

fn mmap(m: &mut MachineState, pid: u32, start: u32, len: u32, pgoff: u32, name: &str) {
    let words = [pid, pid, start, 0, len, 0, pgoff, 0];
    apply(m, RecordKind::MMAP, Misc::USER, &words, name);
}

fn comm(m: &mut MachineState, pid: u32, tid: u32, exec: bool, name: &str) {
    let misc = if exec { Misc::COMM_EXEC } else { 0 };
    apply(m, RecordKind::COMM, misc, &[pid, tid], name);
}

fn fork(m: &mut MachineState, ppid: u32, pid: u32, ptid: u32, tid: u32) {
    apply(m, RecordKind::FORK, 0, &[pid, ppid, tid, ptid, 0, 0], "");
}

fn at(m: &MachineState, pid: u32, ip: u64) -> Option<(String, u64)> {
    let at = CodeAddress::exact(ip);
    let found = m.lookup(pid, at, Misc::USER)?;
    Some((m.symbols.dso_name(Some(found.dso)).to_string(), found.to_dso(at).get()))
}

fn named(name: &str, addr: u64) -> Option<(String, u64)> {
    Some((name.to_string(), addr))
}

#[test]
fn a_mapping_covers_what_it_overlaps() {
    let mut m = machine();
    mmap(&mut m, 1, 0x1000, 0x3000, 0, "/a");
    mmap(&mut m, 1, 0x2000, 0x1000, 0x500, "/b");
    assert_eq!(at(&m, 1, 0x1fff), named("a", 0xfff));
    assert_eq!(at(&m, 1, 0x2000), named("b", 0x500));
    assert_eq!(at(&m, 1, 0x3001), named("a", 0x2001));
    assert_eq!(at(&m, 1, 0x4000), None);
    mmap(&mut m, 1, 0x0800, 0x8000, 0, "/c");
    assert_eq!(at(&m, 1, 0x2000), named("c", 0x1800));
    mmap(&mut m, 1, 0x8000, 0, 0, "/empty");
    assert_eq!(at(&m, 1, 0x8000), named("c", 0x7800));
}

#[test]
fn a_fork_has_its_parents_mappings_until_it_maps_itself() {
    let mut m = machine();
    mmap(&mut m, 1, 0x1000, 0x1000, 0, "/a");
    fork(&mut m, 1, 2, 1, 2);
    assert!(Arc::ptr_eq(&m.space(1), &m.space(2)));
    mmap(&mut m, 2, 0x1000, 0x1000, 0, "/b");
    assert_ne!(m.space(1).generation, m.space(2).generation);
    assert_eq!((at(&m, 1, 0x1000), at(&m, 2, 0x1000)), (named("a", 0), named("b", 0)));
}

#[test]
fn an_exec_clears_and_renames() {
    let mut m = machine();
    comm(&mut m, 1, 1, false, "sh");
    mmap(&mut m, 1, 0x1000, 0x1000, 0, "/sh");
    fork(&mut m, 1, 2, 1, 2);
    let name = |m: &mut MachineState, tid| {
        let id = m.comm_of(2, tid);
        m.comm(id).to_string()
    };
    assert_eq!(name(&mut m, 2), "sh");
    comm(&mut m, 2, 2, true, "ls");
    assert_eq!(name(&mut m, 2), "ls");
    assert_eq!(at(&m, 2, 0x1000), None);
    assert_eq!(at(&m, 1, 0x1000), named("sh", 0));
    fork(&mut m, 2, 2, 2, 3);
    assert_eq!((name(&mut m, 3), m.pid_of(3)), ("ls".to_string(), Some(2)));
    comm(&mut m, 2, 3, false, "worker");
    assert_eq!((name(&mut m, 3), name(&mut m, 2)), ("worker".to_string(), "ls".to_string()));
    assert_eq!(name(&mut m, 77), ":77");
}

#[test]
fn kernel_and_user_do_not_mix() {
    let mut m = machine();
    let words = [u32::MAX, 0, 0x8100_0000, 0xffff_ffff, 0x0100_0000, 0, 0x8100_0000, 0xffff_ffff];
    apply(&mut m, RecordKind::MMAP, Misc::KERNEL, &words, "[kernel.kallsyms]_text");
    let ip = 0xffff_ffff_8100_0010;
    let at = CodeAddress::exact(ip);
    let found = m.lookup(5, at, Misc::KERNEL).unwrap();
    assert_eq!(found.to_dso(at).get(), ip);
    assert_eq!(m.symbols.dso_name(Some(found.dso)), "[kernel.kallsyms]");
    assert_eq!(m.lookup(5, at, Misc::USER), None);
    assert_eq!(m.lookup(5, CodeAddress::exact(0x10), Misc::KERNEL), None);
}

#[test]
fn a_module_without_an_address_holds_nothing() {
    let mut m = machine();
    let kernel = |m: &mut MachineState, start: u64, len: u64, name: &str| {
        let halves = |n: u64| [n as u32, (n >> 32) as u32];
        let [s, l, p] = [halves(start), halves(len), halves(start)];
        let words = [u32::MAX, 0, s[0], s[1], l[0], l[1], p[0], p[1]];
        apply(m, RecordKind::MMAP, Misc::KERNEL, &words, name);
    };
    let text = 0xffff_ffff_8100_0000;
    kernel(&mut m, text, 0x0100_0000, "[kernel.kallsyms]_text");
    kernel(&mut m, 0xffff_ffff_c000_0000, 0x2000, "[nvme_common]");
    // A module that is being loaded, or all of them for users who may not see addresses.
    kernel(&mut m, 0, 0x2000, "[nls_ucs2_utils]");
    kernel(&mut m, 0, 0x2000, "/lib/modules/6.1.0/kernel/drivers/ata/pata_acpi.ko");
    let of = |m: &MachineState, ip: u64| {
        let found = m.lookup(0, CodeAddress::exact(ip), Misc::KERNEL);
        found.map(|f| m.symbols.dso_name(Some(f.dso)).to_owned())
    };
    assert_eq!(of(&m, text + 0x81_981c).as_deref(), Some("[kernel.kallsyms]"));
    assert_eq!(of(&m, 0xffff_ffff_c000_0010).as_deref(), Some("[nvme_common]"));
    assert_eq!(of(&m, 0x1000), None);
}
