//! Names of addresses, times, users and cgroups, asked for when they are printed and kept.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kymo_bpf::BpfClock;
use kymo_format::print_argument::FlagNames;
use kymo_kernel::calendar::format_local_time;
use kymo_kernel::clock::KernelClock;
use kymo_kernel::proc_maps::{self, ProcMapping};
use kymo_kernel::target;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::{BuildId, Mmap};
use kymo_symbols::debug_files::BinaryFiles;
use kymo_symbols::{Kallsyms, NameChoice, Resolver, ResolverOptions, running_symbols};
use rustc_hash::FxHashMap;

use crate::mapping_watch::{MappingWatch, apply};

/// Processes whose mappings are kept.
const PROCESSES: usize = 1024;

/// Time for reading the mappings of a process.
pub(crate) const MAPS_TIMEOUT: Duration = Duration::from_millis(500);

/// Names, with what was read for them.
#[derive(Default)]
pub(crate) struct AddressNames {
    kernel: OnceCell<Kallsyms>,
    resolver: Resolver,
    mappings: FxHashMap<u32, Vec<ProcMapping>>,
    build_ids: FxHashMap<String, Option<BuildId>>,
    users: FxHashMap<u32, String>,
    cgroups: FxHashMap<u64, Option<String>>,
    allocation_flags: OnceCell<FlagNames>,
    /// Places of probes, where all addresses of user space are of such a place, or of a stack
    /// that begins with one: path and offset in the file.
    pub probed: Vec<(PathBuf, u64)>,
    /// Addresses without a name.
    pub unresolved: u64,
}

impl AddressNames {
    pub(crate) fn new() -> AddressNames {
        AddressNames { resolver: Resolver::new(ResolverOptions::default()), ..Self::default() }
    }

    /// The kernel's symbols.
    pub(crate) fn kernel(&self) -> &Kallsyms {
        self.kernel.get_or_init(|| running_symbols(NameChoice::First))
    }

    /// Names of `gfp_t` flags as this kernel's events print them, in hexadecimal without those.
    pub(crate) fn allocation_flags(&self, flags: u64) -> String {
        let names = self.allocation_flags.get_or_init(|| {
            let text = Tracefs::open().ok().and_then(|t| t.event_format("kmem", "kmalloc").ok());
            let format = text.as_deref().and_then(|text| text.split_once("print fmt:"));
            format.map_or_else(FlagNames::default, |(_, format)| {
                FlagNames::from_print_format(format, "gfp_flags=", "gfp_flags")
            })
        });
        names.text(flags)
    }

    /// Reads the mappings of a process now: it may be gone when its addresses are printed.
    fn remember_process(&mut self, pid: u32) {
        if self.mappings.len() >= PROCESSES {
            self.mappings.clear();
        }
        self.mappings
            .entry(pid)
            .or_insert_with(|| proc_maps::maps(pid, MAPS_TIMEOUT).unwrap_or_default().mappings);
    }

    /// Takes the mappings of processes that were watched.
    pub(crate) fn take_mappings(&mut self, watch: &mut MappingWatch) {
        watch.read(&mut |record| apply(record, &mut self.mappings));
    }

    /// Reads the mappings of a process again; those of one that is gone stay.
    pub(crate) fn renew_process(&mut self, pid: u32) {
        let read = proc_maps::maps(pid, MAPS_TIMEOUT).unwrap_or_default().mappings;
        if !read.is_empty() {
            self.mappings.insert(pid, read);
        }
    }

    /// Name of a kernel function, or the address.
    pub(crate) fn kernel_function(&mut self, address: u64) -> String {
        match self.kernel().lookup(address) {
            Some((_, _, name, _)) => name.to_owned(),
            None => self.unnamed(address),
        }
    }

    /// `name+offset`.
    pub(crate) fn kernel_frame(&mut self, address: u64) -> String {
        match self.kernel().lookup(address) {
            Some((start, _, name, _)) => format!("{name}+{}", address - start),
            None => self.unnamed(address),
        }
    }

    /// A line as `perf script` has it.
    pub(crate) fn kernel_frame_of_perf(&mut self, address: u64) -> String {
        let found = self.kernel().lookup(address);
        let name = found.map(|(start, _, name, module)| {
            (
                format!("{name}+{}", address - start),
                module.unwrap_or("[kernel.kallsyms]").to_owned(),
            )
        });
        let (name, module) = name.unwrap_or_else(|| (self.unnamed(address), "[unknown]".into()));
        format!("{address:16x} {name} ({module})")
    }

    /// Name of a function of a process, or the address.
    pub(crate) fn user_function(&mut self, pid: u32, address: u64) -> String {
        match self.user_symbol(pid, address) {
            Some((name, _, _)) => name,
            None => self.unnamed(address),
        }
    }

    /// `name+offset` of a process.
    pub(crate) fn user_frame(&mut self, pid: u32, address: u64) -> String {
        match self.user_symbol(pid, address) {
            Some((name, offset, _)) => format!("{name}+{offset}"),
            None => self.unnamed(address),
        }
    }

    /// A line as `perf script` has it.
    pub(crate) fn user_frame_of_perf(&mut self, pid: u32, address: u64) -> String {
        match self.user_symbol(pid, address) {
            Some((name, offset, file)) => format!("{address:16x} {name}+{offset} ({file})"),
            None => {
                self.unresolved += 1;
                format!("{address:16x} 0x{address:x} ([unknown])")
            }
        }
    }

    /// Build-id of a process's binary and the offset in its file, or the address.
    pub(crate) fn build_id_frame(&mut self, pid: u32, address: u64) -> String {
        self.remember_process(pid);
        let place = self.mappings.get(&pid).and_then(|mappings| mapping_of(mappings, address));
        let Some((mapping, offset)) = place else { return self.unnamed(address) };
        let path = String::from_utf8_lossy(&mapping.path).into_owned();
        let find = || BinaryFiles::user(Path::new(&path)).ok()?.build_id;
        match self.build_ids.entry(path.clone()).or_insert_with(find) {
            Some(id) => format!("{id} 0x{offset:x}"),
            None => self.unnamed(address),
        }
    }

    fn user_symbol(&mut self, pid: u32, address: u64) -> Option<(String, u64, String)> {
        self.remember_process(pid);
        let found = self.mapped_symbol(pid, address);
        if found.is_some() || !self.place_probed_file(pid, address) {
            return found;
        }
        self.mapped_symbol(pid, address)
    }

    /// The process is gone, or its files cannot be opened: puts the probed file where a probe in it
    /// has this address. Whether there is one, and no other that it may be.
    fn place_probed_file(&mut self, pid: u32, address: u64) -> bool {
        const PAGE: u64 = 4095;
        let is_it = |(_, offset): &&(PathBuf, u64)| offset & PAGE == address & PAGE;
        let mut candidates = self.probed.iter().filter(is_it);
        let Some(place) = candidates.next() else { return false };
        if candidates.any(|other| other != place) {
            return false;
        }
        let Some(start) = address.checked_sub(place.1) else { return false };
        let length = std::fs::metadata(&place.0).map_or(0, |file| file.len());
        let path = place.0.as_os_str().as_encoded_bytes().to_vec();
        let end = start.saturating_add(length);
        let mapping = ProcMapping { start, end, path, ..ProcMapping::default() };
        let own = self.mappings.entry(pid).or_default();
        own.retain(|old| old.end <= start || old.start >= end);
        own.insert(own.partition_point(|old| old.start < start), mapping);
        true
    }

    fn mapped_symbol(&mut self, pid: u32, address: u64) -> Option<(String, u64, String)> {
        let mappings = self.mappings.get(&pid)?;
        let (mapping, place) = mapping_of(mappings, address)?;
        // JIT code, as the kernel's records of mappings name its memory: its
        // map has addresses.
        let is_anonymous = mapping.path.is_empty() || Mmap::names_anonymous(&mapping.path);
        let (path, place) = if is_anonymous && mapping.executable() {
            ("//anon".to_owned(), address)
        } else {
            (String::from_utf8_lossy(&mapping.path).into_owned(), place)
        };
        let dso = self.resolver.dso(&path, None, pid);
        let (symbol, offset) = self.resolver.symbol(dso, place)?;
        Some((self.resolver.name(symbol).to_owned(), offset, path))
    }

    fn unnamed(&mut self, address: u64) -> String {
        self.unresolved += 1;
        format!("0x{address:x}")
    }

    /// A time of one of the kernel's clocks, where the machine is.
    pub(crate) fn time(&self, format: &str, nanoseconds: u64, clock: BpfClock) -> String {
        let clock = match clock {
            BpfClock::Monotonic => KernelClock::Monotonic,
            BpfClock::BootTime => KernelClock::Boottime,
            BpfClock::Tai => KernelClock::Tai,
        };
        let real = KernelClock::Realtime.now().unwrap_or(0);
        let since = real.wrapping_sub(clock.now().unwrap_or(0));
        local_time(format, nanoseconds.wrapping_add(since))
    }

    /// Name of a user, or the number.
    pub(crate) fn user(&mut self, uid: u32) -> String {
        let find = || target::user_name(uid).unwrap_or_else(|| uid.to_string());
        self.users.entry(uid).or_insert_with(find).clone()
    }

    /// Path of a cgroup below its mount, `HIERARCHY:PATH`.
    pub(crate) fn cgroup(&mut self, id: u64, _hierarchy: &str) -> String {
        let find = || target::cgroup_path(id);
        match self.cgroups.entry(id).or_insert_with(find) {
            Some(path) => format!("unified:{path}"),
            None => id.to_string(),
        }
    }
}

/// The mapping of an address, and the address's offset in its file.
fn mapping_of(mappings: &[ProcMapping], address: u64) -> Option<(&ProcMapping, u64)> {
    let after = mappings.partition_point(|m| m.start <= address);
    let mapping = mappings.get(after.checked_sub(1)?).filter(|m| address < m.end)?;
    Some((mapping, (address - mapping.start).wrapping_add(mapping.offset)))
}

/// A time of the real clock by a format of strftime(3), with `%f` for microseconds.
pub(crate) fn local_time(format: &str, nanoseconds: u64) -> String {
    let micros = format!("{:06}", nanoseconds % 1_000_000_000 / 1000);
    format_local_time(&format.replace("%f", &micros), (nanoseconds / 1_000_000_000) as i64)
}

/// The real clock's time now.
pub(crate) fn local_time_now(format: &str) -> String {
    local_time(format, KernelClock::Realtime.now().unwrap_or(0))
}

/// Text of an error number, without the number.
pub(crate) fn error_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno.wrapping_abs()).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
