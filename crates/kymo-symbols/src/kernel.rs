//! Selection of the kernel's symbols: a file that the user names, those stored with the recording,
//! perf's cache, or the running kernel when it is the one that was recorded. Symbols of another
//! kernel are never used silently.

mod interrupts;
mod kept;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kymo_debuginfo::Elf;
use kymo_kernel::kallsyms::NameChoice;
use kymo_kernel::mapped::MappedFile;
use kymo_kernel::regular_file;
use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;

use crate::Kallsyms;
use crate::build_id_directory::BuildIdDirectory;
use crate::files::{self, FilePart, Finder, running_build_id, running_release, same};
use crate::problem::Problem;
use interrupts::Interrupts;
pub use kept::running_symbols;

/// A kernel's list of symbols has some ten megabytes.
const LARGEST_LIST: u64 = 256 << 20;

/// The kernel's symbols, read on first use.
#[derive(Debug)]
pub struct KernelTable {
    source: KernelChoice,
    read: OnceLock<(Kallsyms, Option<Problem>, Interrupts)>,
}

impl KernelTable {
    pub(crate) fn new(source: KernelChoice) -> KernelTable {
        KernelTable { source, read: OnceLock::new() }
    }

    fn read(&self) -> &(Kallsyms, Option<Problem>, Interrupts) {
        self.read.get_or_init(|| {
            let (table, problem) = self.source.read();
            let interrupts = Interrupts::of(&table);
            (table, problem, interrupts)
        })
    }

    /// Reads them now, and those of modules where there are any.
    pub(crate) fn prepare(&self) {
        let table = self.symbols();
        if SystemRoot::machine().has_modules() {
            table.prepare();
        }
    }

    /// The symbols.
    pub(crate) fn symbols(&self) -> &Kallsyms {
        &self.read().0
    }

    /// Problem of reading them, once they were read.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.read.get()?.1.as_ref()
    }

    /// Whether the code at `addr` was entered by an interrupt or exception: the
    /// frame beneath was interrupted where it stands, and did not call.
    pub fn is_entry(&self, addr: u64) -> bool {
        self.read().2.cover(addr)
    }

    /// Whether `addr` lies in the padding before a function, which has a name of its own.
    pub fn is_padding(&self, addr: u64) -> bool {
        self.symbols().lookup(addr).is_some_and(|(_, _, name, _)| name.starts_with("__pfx_"))
    }
}

/// Start addresses of kernels that are not relocated at boot, which many kernels share: x86-64, and
/// AArch64 over time.
const UNMOVED: [u64; 4] =
    [0xffff_ffff_8100_0000, 0xffff_8000_8000_0000, 0xffff_8000_1000_0000, 0xffff_8000_0800_0000];
/// Their first symbols are that near.
const NEAR_BASE: u64 = 1 << 20;

/// All that the choice depends on.
#[derive(Debug)]
pub(crate) struct KernelChoice {
    pub(crate) files: Arc<Finder>,
    pub(crate) kallsyms: Option<PathBuf>,
    pub(crate) vmlinux: Option<PathBuf>,
    pub(crate) build_id: Option<BuildId>,
    pub(crate) release: Option<String>,
    /// It is for a recording, and not for what runs now.
    pub(crate) is_recorded: bool,
    /// A symbol of the recorded kernel and its address.
    pub(crate) reference: Option<(String, u64)>,
    pub(crate) embedded: Option<Arc<String>>,
}

impl KernelChoice {
    /// Reads the symbols; takes some 50 ms where nothing was kept of them.
    fn read(&self) -> (Kallsyms, Option<Problem>) {
        if self.kallsyms.is_some() || self.vmlinux.is_some() {
            return self.named();
        }
        if let Some((text, problem)) = self.files.bundled_kernel(self.build_id) {
            return (Kallsyms::parse(text), problem);
        }
        if self.is_other() {
            if let Some(table) = self.cached() {
                return (table, None);
            }
            let table =
                Kallsyms::parse(self.embedded.as_deref().cloned().unwrap_or_default().into_bytes());
            if !table.is_empty() {
                return (table, None);
            }
            let release = self.release.as_deref();
            let image =
                self.build_id.and_then(|id| self.files.vmlinux(release, id, FilePart::Symbols));
            // Without a reference the address of that kernel is unknown.
            let image = image.filter(|_| self.reference.is_some());
            let read = |path: PathBuf| symbols_of(&path, None, self.reference.as_ref()).ok();
            let table = image.and_then(read).unwrap_or_default();
            let problem = table.is_empty().then_some(Problem::OtherKernel {
                recorded: self.release.clone(),
                running: running_release(),
            });
            return (table, problem);
        }
        let (table, error) = kept::running(NameChoice::Last);
        if let Some(error) = error {
            self.files.note(Problem::Cache { why: error.to_string() });
        }
        if (table.hidden() || table.is_empty())
            && let Some(table) = self.cached()
        {
            return (table, None);
        }
        if self.is_unidentified(&table) {
            return (Kallsyms::default(), Some(Problem::UnknownKernel));
        }
        let table = self.where_recorded(table);
        let problem = if table.hidden() {
            Some(Problem::KernelHidden {
                kptr_restrict: SystemRoot::machine().kernel_setting("kptr_restrict"),
                paranoid: SystemRoot::machine().kernel_setting("perf_event_paranoid"),
            })
        } else {
            table.is_empty().then_some(Problem::NoKernelSymbols)
        };
        (table, problem)
    }

    /// Symbols of the recorded build in perf's cache.
    fn cached(&self) -> Option<Kallsyms> {
        let table = Kallsyms::parse(self.build_id.and_then(cached)?);
        (!table.hidden()).then(|| self.where_recorded(table))
    }

    /// The symbols of a list at the addresses that they had in the recording: a kernel may be
    /// moved at every boot.
    fn where_recorded(&self, table: Kallsyms) -> Kallsyms {
        let Some((symbol, recorded)) = &self.reference else { return table };
        match table.text_start(symbol) {
            // Who recorded it may not have seen where it was.
            Some(listed) if listed != *recorded && *recorded != 0 => {
                table.moved(recorded.wrapping_sub(listed))
            }
            _ => table,
        }
    }

    /// Whether a recording names no kernel, and nothing else in it shows that it is the running
    /// one: a kernel is moved at boot, so that a symbol at the same address is of the same boot.
    fn is_unidentified(&self, running: &Kallsyms) -> bool {
        if !self.is_recorded || self.build_id.is_some() || self.release.is_some() {
            return false;
        }
        let is_moved = |at: u64| UNMOVED.iter().all(|base| at.wrapping_sub(*base) >= NEAR_BASE);
        let reference = self.reference.as_ref().filter(|(_, at)| is_moved(*at));
        reference.is_none_or(|(symbol, at)| running.text_start(symbol) != Some(*at))
    }

    pub(crate) fn is_other(&self) -> bool {
        match (self.build_id, &self.release) {
            (Some(recorded), _) => running_build_id().is_some_and(|r| r != recorded),
            (None, Some(release)) => running_release().is_some_and(|r| r != *release),
            (None, None) => false,
        }
    }

    fn named(&self) -> (Kallsyms, Option<Problem>) {
        let vmlinux = self.kallsyms.is_none();
        let path = self.kallsyms.as_ref().or(self.vmlinux.as_ref());
        let Some(path) = path else { return Default::default() };
        let unusable = |why: String| Problem::Unusable { path: path.display().to_string(), why };
        if vmlinux {
            return match symbols_of(path, self.build_id, self.reference.as_ref()) {
                Ok(table) => (table, None),
                Err(why) => (Kallsyms::default(), Some(unusable(why))),
            };
        }
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) => return (Kallsyms::default(), Some(unusable(e.to_string()))),
        };
        let table = Kallsyms::parse(bytes);
        let problem = table.is_empty().then(|| unusable("holds no kernel symbols".into()));
        (table, problem)
    }
}

/// The symbols of a kernel's image, which must be of this build if that is known,
/// where they were when it was recorded.
fn symbols_of(
    path: &Path,
    build_id: Option<BuildId>,
    reference: Option<&(String, u64)>,
) -> Result<Kallsyms, String> {
    // With debugging information it is larger than many a machine's memory.
    let file = MappedFile::open(path).map_err(|e| e.to_string())?;
    let bytes = file.bytes();
    let elf = Elf::parse(bytes).map_err(|e| e.to_string())?;
    if let (Some(recorded), Some(have)) = (build_id, elf.build_id)
        && !same(Some(have), Some(recorded))
    {
        return Err(files::other_kernel(have, recorded));
    }
    let moved = slide(bytes, reference).unwrap_or(0);
    let symbols = elf.symbols.iter().map(|(addr, _, name)| (addr.wrapping_add(moved), name));
    let table = Kallsyms::of_symbols(symbols);
    if table.is_empty() { Err("has no symbols".into()) } else { Ok(table) }
}

/// Relocation of the kernel in a file when it was recorded.
pub(crate) fn slide(image: &[u8], reference: Option<&(String, u64)>) -> Option<u64> {
    let (name, recorded) = reference?;
    Some(recorded.wrapping_sub(Elf::address_of(image, name)?))
}

fn cached(id: BuildId) -> Option<Vec<u8>> {
    let files = BuildIdDirectory::of_user()?.files_of(Path::new(files::KERNEL), id);
    regular_file::read(&files.join("kallsyms"), LARGEST_LIST).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel moves at boot; the address of one symbol determines all.
    #[test]
    fn an_image_is_moved_to_where_it_was_recorded() {
        let image = std::env::current_exe().unwrap();
        let at = Elf::address_of(&std::fs::read(&image).unwrap(), "main").unwrap();
        let table = |reference: Option<(String, u64)>| {
            symbols_of(&image, None, reference.as_ref()).unwrap()
        };
        let name = |table: &Kallsyms, addr| table.lookup(addr).map(|s| (s.0, s.2.to_owned()));
        let here = name(&table(None), at);
        assert_eq!(here, Some((at, "main".to_owned())));
        let moved = table(Some(("main".into(), at + 0x4000_0000)));
        assert_eq!(name(&moved, at + 0x4000_0000), Some((at + 0x4000_0000, "main".to_owned())));
        let other = table(Some(("no_such_symbol".into(), 1)));
        assert_eq!(name(&other, at), here);
        let wrong = Some(BuildId::new(&[9; 20]));
        assert!(symbols_of(&image, wrong, None).unwrap_err().contains("of another kernel"));
    }
}
