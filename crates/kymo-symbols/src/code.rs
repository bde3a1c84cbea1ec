//! The code of a binary, for those who show it: the file that ran, with the
//! symbols and the debugging information that belong to it. What cannot be the
//! code that was recorded is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_debuginfo::CodeSymbols;
use kymo_debuginfo::Elf;
use kymo_debuginfo::dwarf::{DwarfError, Sections};
use kymo_kernel::mapped::MappedFile;
use kymo_kernel::{kcore, vdso};
use kymo_unwind::Arch;

use crate::compressed_modules;
use crate::debug_files::DebugCompanions;
use crate::dso::{DsoId, DsoKind};
use crate::files::{FilePart, Finder, WithCode, same};
use crate::jitdump::{self, JitDump};
use crate::kernel_file::KernelFile;
use crate::problem::Problem;
use crate::resolver::{Dso, Resolver};

/// Why there is no code to show.
#[derive(Debug, thiserror::Error)]
pub enum NoCode {
    /// No file has it.
    #[error("{name}: {why}")]
    Gone {
        /// Name of the binary.
        name: String,
        /// Why not.
        why: String,
    },
    /// A file's contents are damaged.
    #[error("{path}: {error}")]
    Damaged {
        /// Which file.
        path: String,
        /// Error of the reader.
        error: DwarfError,
    },
    /// Only x86-64 can be disassembled.
    #[error("{path} is code for another processor than x86-64, which kymo cannot disassemble")]
    Processor {
        /// Which file.
        path: String,
    },
}

/// A JIT function.
#[derive(Debug)]
pub struct JitCode {
    /// The file that kept it.
    pub path: PathBuf,
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub code: Vec<u8>,
    /// From which address on it is of which file and line, ascending.
    pub lines: Vec<(u64, String, u32)>,
}

/// A binary whose code can be shown.
pub struct CodeFile {
    /// Path of the file.
    pub path: PathBuf,
    bytes: Bytes,
    /// A debug file with the full symbol table.
    symbols: Option<MappedFile>,
    /// A debug file with DWARF.
    dwarf: Option<MappedFile>,
    beside: DebugCompanions<'static>,
}

enum Bytes {
    Mapped(MappedFile),
    Memory(Vec<u8>),
}

impl CodeFile {
    /// One that has no debug file of its own.
    fn whole(path: PathBuf, bytes: Bytes) -> CodeFile {
        let beside = DebugCompanions::new(&path, None);
        CodeFile { path, bytes, symbols: None, dwarf: None, beside }
    }

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

    /// Files that its debugging information refers to.
    pub fn companions<'f>(&self, files: &'f Finder) -> DebugCompanions<'f> {
        self.beside.clone().asking(files)
    }

    /// The debugging information, if there is any, with what [`CodeFile::companions`] find.
    pub fn sections<'a>(
        &'a self,
        companions: &'a DebugCompanions<'_>,
    ) -> Result<Option<Sections<'a>>, NoCode> {
        let (bytes, binary) = match &self.dwarf {
            Some(debug) => (debug.bytes(), Some(self.binary())),
            None => (self.binary(), None),
        };
        let sections = Sections::load(bytes, binary);
        match sections.and_then(|s| s.with_companions(bytes, companions)) {
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
            return gone("[unknown]", "no mapping is known there");
        };
        let name = &*dso.long_name;
        match dso.kind {
            DsoKind::File => self.file(dso),
            DsoKind::Vdso => {
                let Some(bytes) = vdso::own() else { return gone(name, "this process has none") };
                let found = Elf::parse(&bytes).ok().and_then(|e| e.build_id);
                if !same(found, dso.build_id) {
                    return gone(name, "it belongs to another kernel than the running one");
                }
                Ok(CodeFile::whole(name.into(), Bytes::Memory(bytes)))
            }
            DsoKind::PerfMap => gone(name, "JIT code is asked for by function"),
            DsoKind::Bpf => gone(name, "the code of BPF programs is not kept"),
            DsoKind::Other => gone(name, "memory without a file behind it"),
            DsoKind::Kernel | DsoKind::Module => gone(name, "it is asked for function by function"),
        }
    }

    /// A function that a just-in-time compiler made, out of its jitdump file.
    pub fn jit_code(&self, id: DsoId, addr: u64) -> Result<JitCode, NoCode> {
        let name = self.get(id).map_or("[unknown]", |d| &d.long_name).to_string();
        let pid = self.get(id).map_or(0, |d| d.pid);
        let Some(path) = self.binaries().jit_of(pid) else {
            let why = "it has names of JIT code, and no code: only a jitdump file \
                       (jit-PID.dump) of the just-in-time compiler keeps that";
            return Err(NoCode::Gone { name, why: why.into() });
        };
        let gone = |why: &str| NoCode::Gone { name: path.display().to_string(), why: why.into() };
        let bytes = jitdump::read(&path).ok_or_else(|| gone("it cannot be read"))?;
        let dump = JitDump::parse(&bytes).ok_or_else(|| gone("it is not a jitdump file"))?;
        match dump.arch {
            None | Some(Arch::X86_64) => {}
            _ => return Err(NoCode::Processor { path: path.display().to_string() }),
        }
        let found = dump.functions.range(..=addr).next_back();
        let found = found.filter(|(start, f)| addr - **start < f.size);
        let (start, function) = found.ok_or_else(|| gone("it has no function there"))?;
        if function.code.is_empty() {
            return Err(gone("it has the function's name only, without its code"));
        }
        let line = |l: &jitdump::Line<'_>| {
            let at = l.addr.wrapping_sub(function.loaded).wrapping_add(*start);
            (at, String::from_utf8_lossy(l.file).into_owned(), l.line)
        };
        let lines = function.lines.iter().map(line).collect();
        Ok(JitCode { start: *start, code: function.code.to_vec(), lines, path })
    }

    /// The bytes of a function of the kernel or a module, out of the running one's memory.
    pub fn kernel_code(&self, start: u64, end: u64) -> Result<Vec<u8>, NoCode> {
        let gone = |why: String| NoCode::Gone { name: kcore::PATH.to_string(), why };
        if self.is_other_kernel() {
            return Err(gone("the running kernel is not the recorded one".into()));
        }
        kcore::read(start, end).map_err(|e| gone(e.to_string()))
    }

    /// A file with a part of the kernel's or a module's code, if there is one of the
    /// recorded build, and where that code was.
    pub fn kernel_image(&self, id: DsoId, part: FilePart) -> Option<(CodeFile, Arc<KernelFile>)> {
        let at = self.kernel_file(id, part)?;
        let bytes = Bytes::Mapped(compressed_modules::map(&at.path).ok()?);
        Some((CodeFile::whole(at.path.clone(), bytes), at))
    }

    fn file(&self, dso: &Dso) -> Result<CodeFile, NoCode> {
        let files = self.files();
        let binary = dso.binary();
        let Some(WithCode { binary: path, symbols, dwarf }) = files.with_code(&binary) else {
            let name = dso.long_name.clone();
            return Err(NoCode::Gone { why: self.refusal(&name), name });
        };
        let map = |path: &Path| compressed_modules::map(path);
        let bytes = map(&path)
            .map_err(|e| NoCode::Gone { name: path.display().to_string(), why: e.to_string() })?;
        let separate =
            |found: Option<PathBuf>| found.filter(|p| *p != path).and_then(|p| map(&p).ok());
        Ok(CodeFile {
            beside: DebugCompanions::new(&path, dwarf.as_deref()),
            bytes: Bytes::Mapped(bytes),
            symbols: separate(symbols),
            dwarf: separate(dwarf),
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
        told.unwrap_or_else(|| match self.options().bundle {
            Some(_) => "the bundle has no code; make it with `kymo bundle --binaries`".into(),
            None => "no such file; name its directory with --symfs".into(),
        })
    }
}
