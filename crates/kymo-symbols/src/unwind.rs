//! The call frame information of binaries: read once, when a frame in one of
//! them is first left, by whichever thread meets it. Which file is the right one
//! is for [`Finder`]; what the information says is for `kymo-unwind`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use kymo_debuginfo::{Load, ReadRef, loads, vaddr};
use kymo_model::{BuildId, IndexVec};
use kymo_unwind::{
    Arch, BEFORE, BEHIND, CfiContext, CfiSections, CfiTable, Rule, RuleError, Section, epilogue,
    outermost,
};
use object::Architecture;
use object::read::{Object, ObjectSection};
use rustc_hash::FxHashMap;

use crate::bundle;
use crate::dso::{DsoId, DsoKind};
use crate::files::{Binary, Finder, open, same};
use crate::jitdump::{self, JitDump};
use crate::pages::Pages;
use crate::problem::Problem;

/// A binary as far as unwinding needs it.
#[derive(Debug, Default)]
pub struct UnwindCode {
    bytes: Bytes,
    /// Instead of them in a bundle's binary.
    pieces: Option<Vec<u8>>,
    loads: Vec<Load>,
    build_id: Option<BuildId>,
    /// Where the program begins.
    entry: u64,
    table: Option<CfiTable>,
    /// A section that the table is made of cannot be read.
    damaged: bool,
    /// Of JIT functions: first address, first address behind.
    made: Option<Vec<(u64, u64, CfiTable)>>,
    /// Of a separate debug file, asked where the binary itself says nothing.
    separate: OnceLock<Option<CfiTable>>,
    whose: Option<Whose>,
}

/// The binary's bytes; of a file those that were looked at.
#[derive(Debug)]
enum Bytes {
    File(Pages),
    Memory(Vec<u8>),
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Memory(Vec::new())
    }
}

/// What to ask for a separate debug file.
#[derive(Debug)]
struct Whose {
    files: Arc<Finder>,
    path: PathBuf,
    build_id: Option<BuildId>,
    pid: Option<u32>,
}

/// Why there is nothing to unwind a binary with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CfiError {
    /// It is memory, not a file: JIT code.
    Memory,
    /// The file is not there.
    Missing,
    /// The file is not the one that was recorded.
    Changed,
    /// The file is no ELF file that can be read.
    Unusable,
    /// It is read, and says nothing about the address.
    Silent,
    /// It is read, and what it says about the address is damaged.
    Damaged,
}

#[derive(Debug)]
struct Entry {
    kind: DsoKind,
    path: PathBuf,
    build_id: Option<BuildId>,
    pid: u32,
    code: OnceLock<Result<Arc<UnwindCode>, CfiError>>,
}

/// What tells binaries apart; memory is told apart by its process.
type EntryKey = (DsoKind, PathBuf, Option<BuildId>);

/// The binaries of a recording, by the numbers that the resolver gives them.
#[derive(Debug, Default)]
pub struct Binaries {
    files: Arc<Finder>,
    entries: RwLock<IndexVec<DsoId, Arc<Entry>>>,
    /// The same by what tells them apart.
    by_key: Mutex<FxHashMap<EntryKey, Arc<Entry>>>,
    /// What just-in-time compilers of processes wrote.
    jit: RwLock<FxHashMap<u32, PathBuf>>,
}

impl Binaries {
    pub(crate) fn new(files: Arc<Finder>) -> Binaries {
        Binaries { files, ..Binaries::default() }
    }

    pub(crate) fn add(&self, kind: DsoKind, path: &Path, build_id: Option<BuildId>, pid: u32) {
        let path = path.to_owned();
        let new = || Entry { kind, path: path.clone(), build_id, pid, code: OnceLock::new() };
        let key = (kind, path.clone(), build_id);
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Arc::clone(by_key.entry(key).or_insert_with(|| Arc::new(new())));
        drop(by_key);
        self.entries.write().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    pub(crate) fn add_jit(&self, pid: u32, path: &Path) {
        self.jit.write().unwrap_or_else(PoisonError::into_inner).insert(pid, path.into());
    }

    pub(crate) fn jit_of(&self, pid: u32) -> Option<PathBuf> {
        self.jit.read().unwrap_or_else(PoisonError::into_inner).get(&pid).cloned()
    }

    /// The binary, read now if nobody asked before.
    pub fn get(&self, id: DsoId) -> Result<Arc<UnwindCode>, CfiError> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(id).map(Arc::clone).ok_or(CfiError::Memory)?;
        drop(entries);
        entry.code.get_or_init(|| self.load(&entry).map(Arc::new)).clone()
    }

    fn load(&self, entry: &Entry) -> Result<UnwindCode, CfiError> {
        match entry.kind {
            DsoKind::File => self.load_file(entry),
            DsoKind::Vdso => {
                let own = kymo_kernel::vdso::own().ok_or(CfiError::Missing)?;
                let code = UnwindCode::of(Bytes::Memory(own))?;
                match same(code.build_id, entry.build_id) {
                    true => Ok(code),
                    // A copy that somebody kept.
                    false => self.load_file(entry).or(Err(CfiError::Changed)),
                }
            }
            DsoKind::PerfMap => {
                let bytes = self.jit_of(entry.pid).and_then(|path| jitdump::read(&path));
                let dump = bytes.as_deref().and_then(JitDump::parse).ok_or(CfiError::Memory)?;
                Ok(UnwindCode { made: Some(dump.tables()), ..UnwindCode::default() })
            }
            _ => Err(CfiError::Memory),
        }
    }

    fn load_file(&self, entry: &Entry) -> Result<UnwindCode, CfiError> {
        let pid = (entry.pid != u32::MAX).then_some(entry.pid);
        let binary = Binary { path: &entry.path, build_id: entry.build_id, pid };
        let Some(place) = self.files.binary(&binary) else {
            let refused = self.files.problems().into_iter().any(|p| match p {
                Problem::Changed { path, .. } => Path::new(&path) == entry.path,
                _ => false,
            });
            return Err(if refused { CfiError::Changed } else { CfiError::Missing });
        };
        let pages = open(&place).ok_or(CfiError::Missing)?;
        let mut code = UnwindCode::of(Bytes::File(pages))?;
        let (path, build_id) = (entry.path.clone(), entry.build_id);
        code.whose = Some(Whose { files: Arc::clone(&self.files), path, build_id, pid });
        Ok(code)
    }
}

/// Whether most functions of a binary keep frame pointers, as far as its call frame information
/// says; `None`: it says nothing.
pub fn keeps_frame_pointers(binary: &Path) -> Option<bool> {
    let code = UnwindCode::of(Bytes::File(open(binary)?)).ok()?;
    let (with, all) = code.table?.frame_pointers();
    (all > 0).then_some(with * 2 > all)
}

/// Sections larger than this are not believed.
const LARGEST: u64 = 1 << 30;

/// Bytes of the function that a program begins in, where nothing describes it:
/// the dynamic linker's and those of other C libraries have some thirty.
const FIRST_FUNCTION: u64 = 64;

/// A section; `None` if it cannot be read, an empty one where there is none.
fn section<'d, R: ReadRef<'d>>(file: &object::File<'d, R>, name: &str) -> Option<Section> {
    let Some(section) = file.section_by_name(name) else { return Some(Section::default()) };
    let packed = section.compressed_data().ok().filter(|d| d.uncompressed_size <= LARGEST)?;
    let bytes = packed.decompress().ok()?;
    Some(Section { address: section.address(), bytes: bytes.into_owned().into() })
}

fn arch<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> Result<Arch, CfiError> {
    match file.architecture() {
        Architecture::X86_64 => Ok(Arch::X86_64),
        Architecture::Aarch64 => Ok(Arch::Aarch64),
        _ => Err(CfiError::Unusable),
    }
}

impl UnwindCode {
    fn of(bytes: Bytes) -> Result<UnwindCode, CfiError> {
        let mut code = match &bytes {
            Bytes::File(pages) => UnwindCode::facts(pages),
            Bytes::Memory(bytes) => UnwindCode::facts(bytes.as_slice()),
        }?;
        if code.pieces.is_none() {
            code.bytes = bytes;
        }
        Ok(code)
    }

    fn facts<'d, R: ReadRef<'d>>(bytes: R) -> Result<UnwindCode, CfiError> {
        let file = object::File::parse(bytes).map_err(|_| CfiError::Unusable)?;
        let address = |name| file.section_by_name(name).map_or(0, |s| s.address());
        let mut damaged = false;
        let mut section = |name| {
            let found = section(&file, name);
            damaged |= found.is_none();
            found.unwrap_or_default()
        };
        let sections = CfiSections {
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            debug_frame: section(".debug_frame"),
            text: address(".text"),
            got: address(".got"),
            big_endian: !file.is_little_endian(),
        };
        Ok(UnwindCode {
            pieces: file.section_by_name(bundle::CODE).and_then(|s| Some(s.data().ok()?.to_vec())),
            loads: loads(&file),
            entry: file.entry(),
            build_id: file.build_id().ok().flatten().map(BuildId::new),
            table: Some(CfiTable::new(arch(&file)?, sections)),
            damaged,
            ..UnwindCode::default()
        })
    }

    /// How to leave the function at a place of the file, which may be about to
    /// return if it was `interrupted` there.
    pub fn rule(
        &self,
        context: &mut CfiContext,
        offset: u64,
        interrupted: bool,
    ) -> Result<Rule, CfiError> {
        if let Some(made) = &self.made {
            let after = made.partition_point(|(start, ..)| *start <= offset);
            let found = after.checked_sub(1).and_then(|at| made.get(at));
            let found = found.filter(|(_, end, _)| offset < *end);
            return found.and_then(|f| f.2.rule(context, offset).ok()).ok_or(CfiError::Memory);
        }
        let table = self.table.as_ref().ok_or(CfiError::Unusable)?;
        if interrupted
            && table.arch() == Arch::X86_64
            && let Some(rule) = self.epilogue(offset)
        {
            return Ok(rule);
        }
        let address = vaddr(&self.loads, offset).ok_or(CfiError::Silent)?;
        let why = match table.rule(context, address) {
            Ok(rule) => return Ok(rule),
            Err(why) => why,
        };
        let separate = self.separate.get_or_init(|| self.find_separate(table.arch()));
        let begins = address.checked_sub(self.entry).is_some_and(|d| d < FIRST_FUNCTION);
        match (separate.as_ref().map(|t| t.rule(context, address)), why) {
            (Some(Ok(rule)), _) => Ok(rule),
            _ if self.damaged => Err(CfiError::Damaged),
            (_, RuleError::None(_)) if begins && self.entry > 0 => Ok(outermost(table.arch())),
            (_, RuleError::None(_)) => Err(CfiError::Silent),
            (_, RuleError::Damaged(_)) => Err(CfiError::Damaged),
        }
    }

    fn epilogue(&self, offset: u64) -> Option<Rule> {
        if let Some(pieces) = &self.pieces {
            let pieces: &[[u8; 8 + bundle::PIECE]] = pieces.as_chunks().0;
            let place =
                |p: &[u8; 8 + bundle::PIECE]| p.first_chunk().map_or(0, |o| u64::from_le_bytes(*o));
            let found = pieces.binary_search_by_key(&offset, place).ok()?;
            let (before, behind) = pieces.get(found)?.get(8..)?.split_at_checked(BEFORE)?;
            return epilogue(before, behind);
        }
        let start = offset.checked_sub(BEFORE as u64)?;
        let size = (BEFORE + BEHIND) as u64;
        let code = match &self.bytes {
            Bytes::File(pages) => pages.read_bytes_at(start, size),
            Bytes::Memory(bytes) => bytes.read_bytes_at(start, size),
        };
        let (before, behind) = code.ok()?.split_at_checked(BEFORE)?;
        epilogue(before, behind)
    }

    /// The `.debug_frame` of a separate debug file.
    fn find_separate(&self, arch: Arch) -> Option<CfiTable> {
        let whose = self.whose.as_ref()?;
        let Whose { path, build_id, pid, .. } = whose;
        let place = whose.files.dwarf(&Binary { path, build_id: *build_id, pid: *pid })?;
        let pages = open(&place)?;
        let file = object::File::parse(&pages).ok()?;
        let debug_frame = section(&file, ".debug_frame")?;
        let big_endian = !file.is_little_endian();
        let sections = CfiSections { debug_frame, big_endian, ..CfiSections::default() };
        Some(CfiTable::new(arch, sections))
    }
}
