//! Names of addresses, times, users and cgroups, asked for when they are printed and kept.

use std::cell::OnceCell;
use std::time::Duration;

use kymo_bpf::BpfClock;
use kymo_kernel::clock::KernelClock;
use kymo_kernel::proc_maps::{self, ProcMapping};
use kymo_kernel::process::format_local_time;
use kymo_kernel::target;
use kymo_symbols::{Kallsyms, NameChoice, Resolver, ResolverOptions, running_symbols};
use rustc_hash::FxHashMap;

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
    users: FxHashMap<u32, String>,
    cgroups: FxHashMap<u64, Option<String>>,
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

    /// Reads the mappings of a process now: it may be gone when its addresses are printed.
    fn remember_process(&mut self, pid: u32) {
        if self.mappings.len() >= PROCESSES {
            self.mappings.clear();
        }
        self.mappings
            .entry(pid)
            .or_insert_with(|| proc_maps::maps(pid, MAPS_TIMEOUT).unwrap_or_default().mappings);
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

    fn user_symbol(&mut self, pid: u32, address: u64) -> Option<(String, u64, String)> {
        self.remember_process(pid);
        let mappings = self.mappings.get(&pid)?;
        let after = mappings.partition_point(|m| m.start <= address);
        let mapping = mappings.get(after.checked_sub(1)?).filter(|m| address < m.end)?;
        let path = String::from_utf8_lossy(&mapping.path).into_owned();
        let dso = self.resolver.dso(&path, None, pid);
        let place = address - mapping.start + mapping.offset;
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
