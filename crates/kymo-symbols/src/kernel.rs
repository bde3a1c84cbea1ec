//! Where the kernel's symbols come from: a file that the user names, what came
//! with the recording, perf's cache, or the running kernel when it is the one
//! that was recorded. Symbols of another kernel are never used silently.

use std::path::PathBuf;

use kymo_debuginfo::{Elf, build_id_of_notes};
use kymo_model::{BuildId, Endian};

use crate::Kallsyms;
use crate::resolver::Problem;

/// All that the choice depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    pub(crate) kallsyms: Option<PathBuf>,
    pub(crate) vmlinux: Option<PathBuf>,
    pub(crate) build_id: Option<BuildId>,
    pub(crate) release: Option<String>,
    pub(crate) embedded: Option<String>,
}

impl Source {
    /// Reads the symbols; takes some 50 ms.
    pub(crate) fn read(self) -> (Kallsyms, Option<Problem>) {
        if self.kallsyms.is_some() || self.vmlinux.is_some() {
            return self.named();
        }
        if self.is_other() {
            if let Some(text) = self.build_id.and_then(cached) {
                return (Kallsyms::parse(text), None);
            }
            let table = Kallsyms::parse(self.embedded.unwrap_or_default().into_bytes());
            let problem = table.is_empty().then_some(Problem::OtherKernel {
                recorded: self.release,
                running: running_release(),
            });
            return (table, problem);
        }
        let table = Kallsyms::parse(std::fs::read("/proc/kallsyms").unwrap_or_default());
        let problem = if table.hidden() {
            Some(Problem::KernelHidden {
                kptr_restrict: sysctl("kptr_restrict"),
                paranoid: sysctl("perf_event_paranoid"),
            })
        } else {
            table.is_empty().then_some(Problem::NoKernelSymbols)
        };
        (table, problem)
    }

    fn is_other(&self) -> bool {
        let notes = || std::fs::read("/sys/kernel/notes").ok();
        let running = || notes().and_then(|n| build_id_of_notes(&n, Endian::NATIVE));
        match (self.build_id, &self.release) {
            (Some(recorded), _) => running().is_some_and(|r| r != recorded),
            (None, Some(release)) => running_release().is_some_and(|r| r != *release),
            (None, None) => false,
        }
    }

    fn named(self) -> (Kallsyms, Option<Problem>) {
        let vmlinux = self.kallsyms.is_none();
        let Some(path) = self.kallsyms.or(self.vmlinux) else { return Default::default() };
        let unusable = |why: String| Problem::Unusable { path: path.display().to_string(), why };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) => return (Kallsyms::default(), Some(unusable(e.to_string()))),
        };
        if !vmlinux {
            let table = Kallsyms::parse(bytes);
            let problem = table.is_empty().then(|| unusable("holds no kernel symbols".into()));
            return (table, problem);
        }
        let elf = match Elf::parse(&bytes) {
            Ok(elf) => elf,
            Err(e) => return (Kallsyms::default(), Some(unusable(e.to_string()))),
        };
        if let (Some(recorded), Some(have)) = (self.build_id, elf.build_id)
            && recorded != have
        {
            let why = format!("is of another kernel: build-id {have}, recorded {recorded}");
            return (Kallsyms::default(), Some(unusable(why)));
        }
        let table = Kallsyms::of_symbols(elf.symbols.iter().map(|(addr, _, name)| (addr, name)));
        let problem = table.is_empty().then(|| unusable("has no symbols".into()));
        (table, problem)
    }
}

fn running_release() -> Option<String> {
    sysctl("osrelease")
}

fn cached(id: BuildId) -> Option<Vec<u8>> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    std::fs::read(home.join(format!(".debug/[kernel.kallsyms]/{id}/kallsyms"))).ok()
}

fn sysctl(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    Some(text.trim().to_string())
}
