//! Cache of parsed files, for all resolvers of one recording: the tables of symbols, the kernel's,
//! and the relocation of the kernel's code in its files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kymo_debuginfo::{Elf, SymbolTable};
use kymo_model::BuildId;
use rustc_hash::FxHashMap;

use crate::dso::DsoKind;
use crate::kernel::KernelTable;
use crate::kernel_file::PlacedFiles;

/// The symbols of a binary.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) symbols: SymbolTable,
    /// For ELF: file offset → stated virtual address.
    pub(crate) elf: Option<Box<Elf>>,
}

/// Identity of a binary; memory has a name of its process.
type BinaryKey = (DsoKind, PathBuf, Option<BuildId>);

/// Parsed files.
#[derive(Debug, Default)]
pub(crate) struct SymbolCache {
    tables: Mutex<FxHashMap<BinaryKey, Arc<OnceLock<Table>>>>,
    pub(crate) kernel: OnceLock<Arc<KernelTable>>,
    pub(crate) placed: PlacedFiles,
}

impl SymbolCache {
    /// The slot of a binary's table.
    pub(crate) fn table(
        &self,
        kind: DsoKind,
        path: &Path,
        build_id: Option<BuildId>,
    ) -> Arc<OnceLock<Table>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tables.entry((kind, path.to_owned(), build_id)).or_default())
    }
}
