//! The call frame information of binaries: read once, when a frame in one of
//! them is first left, by whichever thread meets it. Which file is the right one
//! is for [`Finder`]; what the information says is for `kymo-unwind`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Entry point of the program.
    entry: u64,
    table: Option<CfiTable>,
    /// Bytes of its sections.
    size: usize,
    /// A section that the table is made of cannot be read.
    damaged: bool,
    /// Tables of JIT functions: first address, first address after the function.
    made: Option<Vec<(u64, u64, CfiTable)>>,
    /// Table of a separate debug file, used where the binary itself has none.
    separate: OnceLock<Option<CfiTable>>,
    whose: Option<Whose>,
}

/// The binary's bytes.
#[derive(Debug)]
enum Bytes {
    /// Read anew for each question, of which there is one for each address: pieces that stay in
    /// memory would soon be all code of large programs.
    File(File),
    Memory(Vec<u8>),
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Memory(Vec::new())
    }
}

/// Request for a separate debug file.
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
    code: Mutex<Option<Result<Arc<UnwindCode>, CfiError>>>,
}

/// Identity of a binary; memory is identified by its process.
type EntryKey = (DsoKind, PathBuf, Option<BuildId>);

/// The binaries of a recording, by the numbers that the resolver gives them.
#[derive(Debug, Default)]
pub struct Binaries {
    files: Arc<Finder>,
    entries: RwLock<IndexVec<DsoId, Arc<Entry>>>,
    /// Entries by identity.
    by_key: Mutex<FxHashMap<EntryKey, Arc<Entry>>>,
    /// Dumps of processes with just-in-time compilers.
    jit: RwLock<FxHashMap<u32, PathBuf>>,
    /// Bytes of tables that were read.
    held: AtomicUsize,
}

impl Binaries {
    pub(crate) fn new(files: Arc<Finder>) -> Binaries {
        Binaries { files, ..Binaries::default() }
    }

    pub(crate) fn add(&self, kind: DsoKind, path: &Path, build_id: Option<BuildId>, pid: u32) {
        let path = path.to_owned();
        let new = || Entry { kind, path: path.clone(), build_id, pid, code: Mutex::default() };
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

    /// The binary, read on first use.
    pub fn get(&self, id: DsoId) -> Result<Arc<UnwindCode>, CfiError> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(id).map(Arc::clone).ok_or(CfiError::Memory)?;
        drop(entries);
        let mut code = entry.code.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let read = self.load(&entry).map(Arc::new);
            let size = read.as_ref().map_or(0, |code| code.size);
            self.held.fetch_add(size, Ordering::Relaxed);
            read
        };
        code.get_or_insert_with(read).clone()
    }

    /// Forgets all tables if they have more than this many bytes: they are read again when they
    /// are asked for. Returns whether it did.
    pub fn forget_beyond(&self, bytes: usize) -> bool {
        if self.held.load(Ordering::Relaxed) <= bytes {
            return false;
        }
        for entry in self.entries.read().unwrap_or_else(PoisonError::into_inner).iter() {
            *entry.code.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.held.store(0, Ordering::Relaxed);
        true
    }

    fn load(&self, entry: &Entry) -> Result<UnwindCode, CfiError> {
        match entry.kind {
            DsoKind::File => self.load_file(entry),
            DsoKind::Vdso => {
                let own = kymo_kernel::vdso::own().ok_or(CfiError::Missing)?;
                let code = UnwindCode::of_memory(own)?;
                match same(code.build_id, entry.build_id) {
                    true => Ok(code),
                    // A stored copy.
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
        let mut code = UnwindCode::of_file(pages)?;
        let (path, build_id) = (entry.path.clone(), entry.build_id);
        code.whose = Some(Whose { files: Arc::clone(&self.files), path, build_id, pid });
        Ok(code)
    }
}

/// Functions of a binary that keep frame pointers, and those that have a frame, as far as its call
/// frame information says: a sample of large binaries.
pub fn frame_pointers(binary: &Path) -> Option<(usize, usize)> {
    let code = UnwindCode::of_file(open(binary)?).ok()?;
    Some(code.table?.frame_pointers())
}

/// Names of the libraries that a 64-bit binary is linked with.
pub fn needed_libraries(binary: &Path) -> Vec<OsString> {
    const NEEDED: u64 = 1;
    dynamic_texts(binary, &[NEEDED])
}

/// Directories in which a 64-bit binary has its libraries looked for (`DT_RPATH`, `DT_RUNPATH`).
pub fn library_directories(binary: &Path) -> Vec<PathBuf> {
    const RPATH: u64 = 15;
    const RUNPATH: u64 = 29;
    let origin = binary.canonicalize().ok();
    let origin = origin.as_deref().and_then(Path::parent).unwrap_or(Path::new("/"));
    let origin = origin.to_string_lossy();
    let place = |text: &str| text.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    let texts = dynamic_texts(binary, &[RPATH, RUNPATH]);
    let all = texts.iter().map(|text| text.to_string_lossy().into_owned());
    all.flat_map(|text| text.split(':').map(|one| PathBuf::from(place(one))).collect::<Vec<_>>())
        .collect()
}

/// Texts of a binary's dynamic section with these tags.
fn dynamic_texts(binary: &Path, tags: &[u64]) -> Vec<OsString> {
    let names = || -> Option<Vec<OsString>> {
        let pages = open(binary)?;
        let file = object::File::parse(&pages).ok()?;
        let entries = section(&file, ".dynamic")?.bytes;
        let strings = section(&file, ".dynstr")?.bytes;
        let entries: &[[u8; 16]] = entries.as_chunks().0;
        let number = |bytes: &[u8]| {
            let number = bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
            if file.is_little_endian() { number } else { number.swap_bytes() }
        };
        let name = |entry: &[u8; 16]| {
            let at = usize::try_from(number(&entry[8..])).ok()?;
            let name = strings.get(at..)?.split(|byte| *byte == 0).next()?;
            tags.contains(&number(entry)).then(|| OsStr::from_bytes(name).to_owned())
        };
        Some(entries.iter().filter_map(name).collect())
    };
    names().unwrap_or_default()
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
    fn of_file(pages: Pages) -> Result<UnwindCode, CfiError> {
        let mut code = UnwindCode::facts(&pages)?;
        if code.pieces.is_none() {
            code.bytes = Bytes::File(pages.into_file());
        }
        Ok(code)
    }

    fn of_memory(bytes: Vec<u8>) -> Result<UnwindCode, CfiError> {
        let mut code = UnwindCode::facts(bytes.as_slice())?;
        code.bytes = Bytes::Memory(bytes);
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
        let of_tables = [&sections.eh_frame, &sections.eh_frame_hdr, &sections.debug_frame];
        Ok(UnwindCode {
            size: of_tables.iter().map(|s| s.bytes.len()).sum(),
            pieces: file.section_by_name(bundle::CODE).and_then(|s| Some(s.data().ok()?.to_vec())),
            loads: loads(&file),
            entry: file.entry(),
            build_id: file.build_id().ok().flatten().map(BuildId::new),
            table: Some(CfiTable::new(arch(&file)?, sections)),
            damaged,
            ..UnwindCode::default()
        })
    }

    /// Unwind rule of the function at an offset of the file, which may be about to return if it was
    /// `interrupted` there.
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
        let mut code = [0; BEFORE + BEHIND];
        match &self.bytes {
            Bytes::File(file) => file.read_exact_at(&mut code, start).ok()?,
            Bytes::Memory(bytes) => {
                let found = bytes.get(usize::try_from(start).ok()?..)?.first_chunk()?;
                code = *found;
            }
        }
        let (before, behind) = code.split_at_checked(BEFORE)?;
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
