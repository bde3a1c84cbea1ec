//! The code of a binary, for those who show it: the file that ran, with the
//! symbols and the debugging information that belong to it. What cannot be the
//! code that was recorded is refused.

use std::path::{Path, PathBuf};

use kymo_debuginfo::CodeSymbols;
use kymo_debuginfo::Elf;
use kymo_debuginfo::dwarf::{DwarfError, Sections};
use kymo_kernel::mapped::MappedFile;

use crate::files::same;
use crate::kcore;
use crate::resolver::{Dso, DsoId, DsoKind, Problem, Resolver};
use crate::vdso;

/// Why there is no code to show.
#[derive(Debug, thiserror::Error)]
pub enum NoCode {
    /// No file has it.
    #[error("{name}: {why}")]
    Gone {
        /// Of what.
        name: String,
        /// Why not.
        why: String,
    },
    /// A file's contents are damaged.
    #[error("{path}: {error}")]
    Damaged {
        /// Which file.
        path: String,
        /// What is wrong.
        error: DwarfError,
    },
    /// Only x86-64 can be disassembled.
    #[error("{path} is code for another processor than x86-64, which kymo cannot disassemble")]
    Processor {
        /// Which file.
        path: String,
    },
}

/// A binary whose code can be shown.
pub struct CodeFile {
    /// Where it is.
    pub path: PathBuf,
    bytes: Bytes,
    /// A debug file with the full symbol table.
    symbols: Option<MappedFile>,
    /// A debug file with DWARF.
    dwarf: Option<MappedFile>,
}

enum Bytes {
    Mapped(MappedFile),
    Memory(Vec<u8>),
}

impl CodeFile {
    /// The binary's bytes.
    pub fn binary(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map.bytes(),
            Bytes::Memory(bytes) => bytes,
        }
    }

    /// The symbols, and where code is in the file.
    pub fn symbols(&self) -> Result<CodeSymbols<'_>, NoCode> {
        let path = || self.path.display().to_string();
        let debug = self.symbols.as_ref().map(MappedFile::bytes);
        let symbols = CodeSymbols::load(self.binary(), debug)
            .map_err(|error| NoCode::Damaged { path: path(), error })?;
        match symbols.machine_is_x86_64() {
            Some(false) => Err(NoCode::Processor { path: path() }),
            _ => Ok(symbols),
        }
    }

    /// The debugging information, if there is any.
    pub fn sections(&self) -> Result<Option<Sections<'_>>, NoCode> {
        let sections = match &self.dwarf {
            Some(debug) => Sections::load(debug.bytes(), Some(self.binary())),
            None => Sections::load(self.binary(), None),
        };
        match sections {
            Ok(sections) => Ok(Some(sections).filter(Sections::has_debuginfo)),
            Err(error) => Err(NoCode::Damaged { path: self.path.display().to_string(), error }),
        }
    }
}

impl Resolver {
    /// The file with the code of a binary.
    pub fn code(&self, id: DsoId) -> Result<CodeFile, NoCode> {
        let gone = |name: &str, why: &str| {
            Err(NoCode::Gone { name: name.to_string(), why: why.to_string() })
        };
        let Some(dso) = self.get(id) else {
            return gone("[unknown]", "nothing is known to be mapped there");
        };
        let name = &*dso.long_name;
        match dso.kind {
            DsoKind::File => self.file(dso),
            DsoKind::Vdso => {
                let Some(bytes) = vdso::own() else { return gone(name, "this process has none") };
                let found = Elf::parse(&bytes).ok().and_then(|e| e.build_id);
                if !same(found, dso.build_id) {
                    return gone(name, "it is of another kernel than the running one");
                }
                let bytes = Bytes::Memory(bytes);
                Ok(CodeFile { path: name.into(), bytes, symbols: None, dwarf: None })
            }
            DsoKind::PerfMap => {
                gone(name, "it names code made at run time, of which no copy was kept")
            }
            DsoKind::Bpf => gone(name, "the code of BPF programs is not kept"),
            DsoKind::Other => gone(name, "memory without a file behind it"),
            DsoKind::Kernel | DsoKind::Module => gone(name, "it is asked for function by function"),
        }
    }

    /// The bytes of a function of the kernel or a module, out of the running one's memory.
    pub fn kernel_code(&self, start: u64, end: u64) -> Result<Vec<u8>, NoCode> {
        const KCORE: &str = "/proc/kcore";
        let gone = |why: String| NoCode::Gone { name: KCORE.to_string(), why };
        if self.is_other_kernel() {
            return Err(gone("another kernel runs than the one that was recorded".into()));
        }
        kcore::read(Path::new(KCORE), start, end).map_err(|e| gone(e.to_string()))
    }

    /// The kernel's image, if it is there: named by the user, or found by the build-id.
    pub fn kernel_image(&self) -> Option<CodeFile> {
        let path = self.vmlinux()?;
        let bytes = MappedFile::open(&path).ok()?;
        Some(CodeFile { path, bytes: Bytes::Mapped(bytes), symbols: None, dwarf: None })
    }

    fn file(&self, dso: &Dso) -> Result<CodeFile, NoCode> {
        let files = self.files();
        let binary = dso.binary();
        let Some(path) = files.with_code(&binary) else {
            let name = dso.long_name.clone();
            return Err(NoCode::Gone { why: self.refusal(&name), name });
        };
        let map = |path: &Path| MappedFile::open(path);
        let bytes = map(&path)
            .map_err(|e| NoCode::Gone { name: path.display().to_string(), why: e.to_string() })?;
        let separate =
            |found: Option<PathBuf>| found.filter(|p| *p != path).and_then(|p| map(&p).ok());
        Ok(CodeFile {
            bytes: Bytes::Mapped(bytes),
            symbols: separate(files.symbols(&binary)),
            dwarf: separate(files.dwarf(&binary)),
            path,
        })
    }

    /// Why no file is the binary's.
    fn refusal(&self, name: &str) -> String {
        let about = |p: &Problem| match p {
            Problem::Changed { path, found, recorded } if path.ends_with(name) => {
                let found = found.map_or("none".to_string(), |id| id.to_string());
                Some(format!(
                    "the file there is not the one that was recorded (build-id {found}, recorded {recorded})"
                ))
            }
            Problem::Unusable { path, why } if path.ends_with(name) => Some(why.clone()),
            _ => None,
        };
        let told = self.problems().iter().find_map(about);
        told.unwrap_or_else(|| {
            "the file is not there; name a folder that has it with --symfs".into()
        })
    }
}
