//! Where the kernel's symbols come from: a file that the user names, what came
//! with the recording, perf's cache, or the running kernel when it is the one
//! that was recorded. Symbols of another kernel are never used silently.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_debuginfo::Elf;
use kymo_model::BuildId;

use crate::Kallsyms;
use crate::files::{Finder, running_build_id, running_release, same};
use crate::resolver::Problem;

/// All that the choice depends on.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) files: Arc<Finder>,
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
            if !table.is_empty() {
                return (table, None);
            }
            let image =
                self.build_id.and_then(|id| self.files.vmlinux(self.release.as_deref(), id));
            let table = image.and_then(|path| symbols_of(&path, None).ok()).unwrap_or_default();
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
        match (self.build_id, &self.release) {
            (Some(recorded), _) => running_build_id().is_some_and(|r| r != recorded),
            (None, Some(release)) => running_release().is_some_and(|r| r != *release),
            (None, None) => false,
        }
    }

    fn named(self) -> (Kallsyms, Option<Problem>) {
        let vmlinux = self.kallsyms.is_none();
        let Some(path) = self.kallsyms.or(self.vmlinux) else { return Default::default() };
        let unusable = |why: String| Problem::Unusable { path: path.display().to_string(), why };
        if vmlinux {
            return match symbols_of(&path, self.build_id) {
                Ok(table) => (table, None),
                Err(why) => (Kallsyms::default(), Some(unusable(why))),
            };
        }
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) => return (Kallsyms::default(), Some(unusable(e.to_string()))),
        };
        let table = Kallsyms::parse(bytes);
        let problem = table.is_empty().then(|| unusable("holds no kernel symbols".into()));
        (table, problem)
    }
}

/// The symbols of a kernel's image, which must be of this build if that is known.
fn symbols_of(path: &Path, build_id: Option<BuildId>) -> Result<Kallsyms, String> {
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    let elf = Elf::parse(&bytes).map_err(|e| e.to_string())?;
    if let (Some(recorded), Some(have)) = (build_id, elf.build_id)
        && !same(Some(have), Some(recorded))
    {
        return Err(format!("is of another kernel: build-id {have}, recorded {recorded}"));
    }
    let table = Kallsyms::of_symbols(elf.symbols.iter().map(|(addr, _, name)| (addr, name)));
    if table.is_empty() { Err("has no symbols".into()) } else { Ok(table) }
}

fn cached(id: BuildId) -> Option<Vec<u8>> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    std::fs::read(home.join(format!(".debug/[kernel.kallsyms]/{id}/kallsyms"))).ok()
}

fn sysctl(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    Some(text.trim().to_string())
}
