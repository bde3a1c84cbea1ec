//! Against the running kernel: every format compiles, and payloads of real
//! events render byte for byte as the kernel's own `trace` file shows them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod instance;
mod ring;
mod work;

use std::collections::BTreeMap;

use kymo_format::{EventFormat, FormatIndex, KernelSymbol, RenderContext, Symbols};
use kymo_model::Endian;
use kymo_testkit::{Need, require};

const EVENTS: &str = "/sys/kernel/tracing/events";

fn formats() -> Vec<EventFormat> {
    let mut all = Vec::new();
    for system in std::fs::read_dir(EVENTS).unwrap().flatten() {
        let Ok(events) = std::fs::read_dir(system.path()) else { continue };
        for event in events.flatten() {
            let Ok(text) = std::fs::read_to_string(event.path().join("format")) else { continue };
            let format = EventFormat::parse(&text)
                .unwrap_or_else(|e| panic!("{}: {e}", event.path().display()));
            all.push(format.with_system(system.file_name().to_string_lossy()));
        }
    }
    all
}

/// Events whose text only the kernel can compute.
const BY_FIELDS: &[&str] =
    &["kvm_mmu_get_page", "kvm_mmu_sync_page", "kvm_mmu_unsync_page", "kvm_mmu_prepare_zap_page"];

/// Functions in print formats that no one outside the kernel has: a disk's name, the
/// words for a page request, Xen's tables.
const KERNEL_ALONE: &[&str] = &[
    "nvme_trace_disk_name",
    "decode_prq_descriptor",
    "xen_hypercall_name",
    "native_make_pte",
    "native_make_pmd",
    "native_make_pud",
    "native_make_pgd",
    "pte_val",
    "pmd_val",
    "pud_val",
    "pgd_val",
];

#[test]
fn every_format_of_this_kernel_compiles() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let all = formats();
    assert!(all.len() > 500, "only {} formats", all.len());
    for f in &all {
        assert!(!f.fields.is_empty() && !f.print_fmt.is_empty(), "{}", f.name);
        for note in f.fallbacks() {
            let named = note.starts_with("values not known: ");
            let address = note.starts_with("text at a kernel address");
            let listed = BY_FIELDS.contains(&f.name.as_str());
            let alone = note.strip_suffix("() is known to the kernel alone");
            let alone = alone.is_some_and(|function| KERNEL_ALONE.contains(&function));
            assert!(named || address || listed || alone, "{}:{}: {note}", f.system, f.name);
        }
    }
}

/// kallsyms as the kernel searches it: the first of several names at an
/// address, and the size up to the next address.
struct Kallsyms {
    symbols: Vec<(u64, String)>,
    strings: BTreeMap<u64, String>,
}

impl Kallsyms {
    fn read() -> Kallsyms {
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let mut all: Vec<(u64, String)> = text
            .lines()
            .filter_map(|l| {
                let mut w = l.split_whitespace();
                let at = u64::from_str_radix(w.next()?, 16).ok()?;
                let name = w.nth(1)?.to_owned();
                w.next().is_none().then_some((at, name))
            })
            .collect();
        all.sort_by_key(|s| s.0);
        all.dedup_by_key(|s| s.0);
        let text = std::fs::read_to_string("/sys/kernel/tracing/printk_formats").unwrap();
        let strings = text
            .lines()
            .filter_map(|l| {
                let (address, text) = l.split_once(" : ")?;
                let at = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
                Some((at, text.trim_matches('"').to_owned()))
            })
            .collect();
        Kallsyms { symbols: all, strings }
    }
}

impl Symbols for Kallsyms {
    fn kernel(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let i = self.symbols.partition_point(|s| s.0 <= address).checked_sub(1)?;
        let (start, name) = &self.symbols[i];
        let next = self.symbols.get(i + 1)?.0;
        // Below the kernel's text lie only the offsets of per-CPU data.
        if *start < 0xffff_8000_0000_0000 {
            return None;
        }
        let (offset, size) = (address - start, next - start);
        Some(KernelSymbol { name, offset, size, module: None })
    }

    fn printk_string(&self, address: u64) -> Option<&str> {
        self.strings.get(&address).map(String::as_str)
    }
}

/// `page=` shows where page structures lie: a secret of this boot.
fn without_page(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line).into_owned();
    let Some(at) = text.find("page=") else { return text.into_bytes() };
    let tail = text[at..].split_once(' ').map_or("", |t| t.1);
    format!("{}page=? {tail}", &text[..at]).into_bytes()
}

/// Debian's Linux 6.1 in the guest shows `%s` empty and ends lines early as soon as
/// pointers are not hashed (seen with `kmem_cache_alloc` and `ma_read`; hashed, both
/// are right). So there pointers stay hashed and are left out of the comparison.
fn without_pointers(line: &[u8]) -> Vec<u8> {
    if !kymo_testkit::guest() {
        return line.to_vec();
    }
    let hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    let mut out = Vec::new();
    for run in line.chunk_by(|a, b| hex(a) == hex(b)) {
        out.extend(if run.len() == 16 && hex(&run[0]) { b"POINTER" } else { run });
    }
    out
}

/// Without the line end that some formats of older kernels have; [`Instance::lines`]
/// drops the empty line that comes of it.
///
/// [`Instance::lines`]: instance::Instance::lines
fn comparable(line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    without_pointers(&without_page(line))
}

#[test]
fn real_events_render_as_the_kernel_renders_them() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let mut table = FormatIndex::default();
    for f in formats() {
        table.insert(f);
    }
    let symbols = Kallsyms::read();
    let ctx = RenderContext { endian: Endian::NATIVE, symbols: &symbols, ..Default::default() };

    let instance = instance::Instance::create("format");
    instance.follow_this_thread();
    instance.enable_all();
    work::everything();
    instance.stop();

    // event → (events compared, first difference)
    let mut seen: BTreeMap<String, (usize, Option<String>)> = BTreeMap::new();
    for cpu in instance.cpus() {
        let lines = instance.lines(&cpu);
        let payloads = ring::payloads(&instance.raw(&cpu));
        assert_eq!(lines.len(), payloads.len(), "events on {cpu}");
        for (line, (time, payload)) in lines.iter().zip(&payloads) {
            // The kernel rounds to microseconds.
            let micros = (time + 500) / 1000;
            assert_eq!(line.time, format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000));
            let f = table.of_payload(payload, Endian::NATIVE).unwrap();
            if f.system == "ftrace" || line.event.is_empty() {
                continue;
            }
            assert_eq!(f.name, line.event);
            let mut out = Vec::new();
            f.render(&mut out, payload, &ctx);
            let entry = seen.entry(f.name.clone()).or_default();
            entry.0 += 1;
            // All strings of rcu are listed in printk_formats.
            let exact = f.fallbacks().is_empty() || f.system == "rcu";
            if exact && comparable(&out) != comparable(&line.text) && entry.1.is_none() {
                entry.1 = Some(format!(
                    "{}:{}\n  kernel {:?}\n  kymo   {:?}\n  {}",
                    f.system,
                    f.name,
                    String::from_utf8_lossy(&line.text),
                    String::from_utf8_lossy(&out),
                    f.print_fmt.chars().take(600).collect::<String>()
                ));
            }
        }
    }
    let events: usize = seen.values().map(|v| v.0).sum();
    println!("{events} events of {} kinds compared", seen.len());
    let differ: Vec<_> = seen.values().filter_map(|v| v.1.clone()).collect();
    assert!(differ.is_empty(), "{} kinds differ:\n{}", differ.len(), differ.join("\n"));
    // The guest has one kind of file system and no network driver.
    let kinds = if kymo_testkit::guest() { 80 } else { 100 };
    assert!(events > 10_000 && seen.len() > kinds, "{events} events of {} kinds", seen.len());
}
