//! Mini-debuginfo: a small ELF file with the names of functions, packed with xz
//! into the section `.gnu_debugdata` of a stripped binary. Fedora ships all of
//! its binaries so.

use std::io::Read;

use object::{Object as _, ObjectSection as _};

use crate::elf::{Elf, ElfError};
use crate::symtab::SymbolTable;

/// An unpacked one is at most this large; real ones are a few hundred kilobytes.
const LARGEST: u64 = 256 << 20;
/// Memory for unpacking, in KiB: what `xz -9` needs.
const MEMORY_KIB: u32 = 80 << 10;

/// The packed file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MiniError {
    /// It is not what xz packed.
    #[error(".gnu_debugdata of {size} bytes: {error}")]
    Packed {
        /// Bytes of the section.
        size: usize,
        /// Error of the decompressor.
        error: std::io::Error,
    },
    /// It is larger than anything real.
    #[error(".gnu_debugdata of {size} bytes unpacks to more than {LARGEST} bytes")]
    Huge {
        /// Bytes of the section.
        size: usize,
    },
    /// There is no ELF file in it.
    #[error(".gnu_debugdata: {0}")]
    Elf(#[from] ElfError),
}

impl Elf {
    /// The symbols packed into a stripped binary, if there are any.
    pub fn mini(bytes: &[u8]) -> Result<Option<SymbolTable>, MiniError> {
        let file = object::File::parse(bytes);
        let section = file.as_ref().ok().and_then(|f| f.section_by_name(".gnu_debugdata"));
        let Some(packed) = section.and_then(|s| s.data().ok()) else { return Ok(None) };
        let inner = Elf::parse(&unpack(packed)?)?;
        Ok(inner.has_symtab.then_some(inner.symbols))
    }
}

/// Unpacks the contents of `.gnu_debugdata`.
fn unpack(packed: &[u8]) -> Result<Vec<u8>, MiniError> {
    let size = packed.len();
    let mut bytes = Vec::new();
    let mut reader = lzma_rust2::XzReader::new_mem_limit(packed, true, MEMORY_KIB);
    reader
        .by_ref()
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| MiniError::Packed { size, error })?;
    if bytes.len() as u64 > LARGEST {
        return Err(MiniError::Huge { size });
    }
    Ok(bytes)
}
