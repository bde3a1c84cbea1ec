//! Facts out of ELF files: symbol tables, build-ids, program headers, debug
//! links, demangled names; enumerators out of BTF. Works on bytes it is given and opens no files.
//! Whatever the bytes are, nothing here panics.
#![forbid(unsafe_code)]

mod btf;
mod code_symbols;
mod demangle;
pub mod disasm;
pub mod dwarf;
mod elf;
mod go;
pub mod instruction;
mod lookup;
mod minidebug;
mod plt;
pub mod sdt;
mod symtab;

pub use btf::{BtfError, BtfKind, BtfMember, BtfType, BtfTypes, Enumerators};
pub use code_symbols::{CodeSymbols, NamedSymbol};
pub use demangle::demangle;
pub use elf::{DebugLink, Elf, ElfError, Load, loads, vaddr};
pub use lookup::{Covering, Coverings, LazyElf};
pub use minidebug::MiniError;
pub use object::read::ReadRef;
pub use symtab::{Binding, RawSymbol, SymbolPlace, SymbolTable, SymbolType};
