//! Lines of the kernel's half gigabyte of debugging information take little memory:
//! what was read is given back, and nothing of a unit stays but the answers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kymo_debuginfo::dwarf::inlines::Inlines;
use kymo_debuginfo::dwarf::{Pages, Sections};
use kymo_kernel::mapped::MappedFile;
use kymo_testkit::{Need, kernel_debug, require};

struct Mapped(MappedFile);

impl Pages for Mapped {
    fn forget(&self, part: &[u8]) {
        self.0.forget(part);
    }
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn lines_of_the_kernel_take_little_memory() {
    if !require(&[Need::KernelDebug]) {
        return;
    }
    let path = kernel_debug().unwrap().vmlinux;
    let map = Mapped(MappedFile::open(&path).unwrap());
    let mut sections = Sections::load(map.0.bytes(), None).unwrap();
    sections.pages = Some(&map);
    let text = sections.loaded.iter().find(|s| s.name == ".text").unwrap();
    let step = (text.size / 20_000) as usize;
    let addresses: Vec<u64> = (text.addr..text.addr + text.size).step_by(step).collect();
    let answers = Inlines::new(&sections).resolve(&addresses);
    assert_eq!(answers.damage, [""; 0]);
    let known = (0..addresses.len()).filter(|p| !answers.frames(*p).is_empty()).count();
    let inlined = (0..addresses.len()).filter(|p| answers.frames(*p).len() > 1).count();
    assert!(known > addresses.len() / 2 && inlined > addresses.len() / 10, "{known} {inlined}");
    // Measured: 61 MB.
    let peak = peak_kib() >> 10;
    assert!(peak < 150, "{peak} MiB");
}
