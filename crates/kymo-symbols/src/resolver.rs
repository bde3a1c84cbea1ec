//! The registry of binaries (dso, in perf's word) and the answers. A binary's
//! table is read when its first address is asked for; each symbol gets a
//! number, and its readable name is made once.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kymo_debuginfo::dwarf::Dwarf;
use kymo_debuginfo::{Covering, Coverings, Elf, SymbolTable, demangle};
use kymo_model::{BuildId, IndexVec, Mmap, UntrustedText, counted};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::dso::{DsoId, DsoKind, SymId};
use crate::files::{Binary, FilePart, Finder, KERNEL};
use crate::jitdump::{self, JitDump};
use crate::kernel::{self, KernelTable};
use crate::options::ResolverOptions;
use crate::problem::Problem;
use crate::recent_tables::{PackedTable, RecentTables, UnpackedBlock};
use crate::symbol_cache::{SymbolCache, Table};
use crate::unwind::Binaries;
use crate::variables::VariableTable;
use crate::{perf_map, read_symbols};

/// A binary.
#[derive(Debug)]
pub struct Dso {
    /// Kind of the binary.
    pub kind: DsoKind,
    /// Path or bracketed name, as text.
    pub long_name: String,
    /// Path or bracketed name as bytes, which need not be UTF-8.
    pub path: PathBuf,
    /// Last part of the path; what reports show.
    pub short_name: String,
    /// As recorded.
    pub build_id: Option<BuildId>,
    /// The first process that mapped it.
    pub pid: u32,
    table: Arc<OnceLock<Table>>,
    variables: Arc<OnceLock<Option<VariableTable>>>,
}

impl Dso {
    /// Request for a [`Finder`].
    pub fn binary(&self) -> Binary<'_> {
        let pid = (self.pid != u32::MAX).then_some(self.pid);
        Binary { path: &self.path, build_id: self.build_id, pid }
    }
}

#[derive(Debug)]
struct Symbol {
    dso: DsoId,
    start: u64,
    /// As stored in the file; empty where `readable` is there from the start.
    raw: Vec<u8>,
    /// Made when it is asked for: most symbols are never printed.
    readable: OnceLock<Box<str>>,
}

/// A name that a symbol gets.
enum Name {
    Raw(Vec<u8>),
    Readable(String),
}

/// Facts that a recording states about its binaries and its kernel.
#[derive(Clone, Debug, Default)]
pub struct RecordedFacts {
    build_ids: FxHashMap<PathBuf, BuildId>,
    kallsyms: Option<Arc<String>>,
    release: Option<String>,
    /// They are those of a recording.
    is_recorded: bool,
    /// A symbol of the kernel and its address: kernels move at boot.
    kernel_reference: Option<(String, u64)>,
    /// First addresses of modules.
    module_bases: FxHashMap<DsoId, u64>,
}

/// Finds symbols.
#[derive(Debug, Default)]
pub struct Resolver {
    options: ResolverOptions,
    files: Arc<Finder>,
    dsos: IndexVec<DsoId, Arc<Dso>>,
    by_name: FxHashMap<(PathBuf, Option<BuildId>), DsoId>,
    recorded: Arc<RecordedFacts>,
    pub(crate) symbol_cache: Arc<SymbolCache>,
    symbols: IndexVec<SymId, Symbol>,
    symbol_ids: FxHashMap<(DsoId, u64), SymId>,
    binaries: Arc<Binaries>,
    /// Instead of tables that stay, where memory is limited.
    recent: Option<RecentTables>,
    /// Another resolver numbers the binaries.
    is_fork: bool,
}

impl Resolver {
    /// A resolver that knows no binary yet.
    pub fn new(options: ResolverOptions) -> Resolver {
        let files = Arc::new(Finder::new(&options));
        let binaries = Arc::new(Binaries::new(Arc::clone(&files)));
        Resolver { options, files, binaries, ..Resolver::default() }
    }

    /// Resolver for another thread, which shares what is read of files with this one. It
    /// numbers no binaries but [takes them over](Self::take_binaries) from this one, with
    /// their numbers; numbers of symbols are its own.
    pub fn fork_for_thread(&self) -> Resolver {
        let (files, binaries) = (Arc::clone(&self.files), Arc::clone(&self.binaries));
        let (options, symbol_cache) = (self.options.clone(), Arc::clone(&self.symbol_cache));
        let (dsos, by_name) = (self.dsos.clone(), self.by_name.clone());
        let recorded = Arc::clone(&self.recorded);
        let shared = Resolver { options, files, binaries, symbol_cache, ..Resolver::default() };
        Resolver { dsos, by_name, recorded, is_fork: true, ..shared }
    }

    /// Keeps the tables of the binaries that are asked for most often, within this many bytes;
    /// without this each table that was read stays. For [`symbols_of`](Self::symbols_of).
    pub fn limit_tables(&mut self, bytes: usize) {
        self.recent = Some(RecentTables::new(bytes));
    }

    /// Drops all symbols: their numbers are given again.
    pub fn forget_symbols(&mut self) {
        self.symbols = IndexVec::default();
        self.symbol_ids = FxHashMap::default();
    }

    #[cfg(test)]
    pub(crate) fn recent_tables(&self) -> Option<&RecentTables> {
        self.recent.as_ref()
    }

    /// Binaries from the number `first` on.
    pub fn binaries_from(&self, first: usize) -> &[Arc<Dso>] {
        self.dsos.as_slice().get(first..).unwrap_or_default()
    }

    /// Facts that the recording has stated so far.
    pub fn recorded_facts(&self) -> &Arc<RecordedFacts> {
        &self.recorded
    }

    /// Takes over binaries that the resolver it was forked from has numbered since, given
    /// all of them, and the facts that it knows.
    pub fn take_binaries(&mut self, all: &[Arc<Dso>], recorded: &Arc<RecordedFacts>) {
        self.dsos.extend(all.get(self.dsos.len()..).unwrap_or_default().iter().cloned());
        self.recorded = Arc::clone(recorded);
    }

    fn recorded_mut(&mut self) -> &mut RecordedFacts {
        Arc::make_mut(&mut self.recorded)
    }

    /// The files behind the binaries.
    pub fn files(&self) -> &Arc<Finder> {
        &self.files
    }

    /// Options of the search and the output.
    pub(crate) fn options(&self) -> &ResolverOptions {
        &self.options
    }

    /// Sets the build-id that a recording states for a path.
    pub fn set_build_id(&mut self, path: &Path, id: BuildId) {
        self.recorded_mut().build_ids.insert(path.to_owned(), id);
    }

    /// Offers kernel symbols that came with the recording.
    pub fn set_embedded_kallsyms(&mut self, text: Arc<String>) {
        if !text.is_empty() {
            self.recorded_mut().kallsyms = Some(text);
        }
    }

    /// Marks the binaries as those of a recording, which may be of another machine.
    pub fn set_recorded(&mut self) {
        if !self.recorded.is_recorded {
            self.recorded_mut().is_recorded = true;
        }
    }

    /// Sets the release of the recorded kernel.
    pub fn set_kernel_release(&mut self, release: String) {
        self.recorded_mut().release = Some(release);
    }

    /// Sets the address of a symbol of the recorded kernel: kernels move at boot.
    pub fn set_kernel_reference(&mut self, symbol: &str, address: u64) {
        if !symbol.is_empty() && address != 0 {
            self.recorded_mut().kernel_reference = Some((symbol.to_owned(), address));
        }
    }

    /// Sets the base address of a module of the recorded kernel.
    pub fn set_module_base(&mut self, module: DsoId, address: u64) {
        self.recorded_mut().module_bases.insert(module, address);
    }

    /// Base address of a module.
    pub(crate) fn module_base(&self, module: DsoId) -> Option<u64> {
        self.recorded.module_bases.get(&module).copied()
    }

    /// Sets the name of the recorded machine.
    pub fn set_hostname(&self, name: &str) {
        self.files.set_hostname(name);
    }

    /// The number of the binary of a mapping; `pid` is the process that mapped it. A name is
    /// bytes, which need not be text.
    pub fn dso(&mut self, name: impl AsRef<[u8]>, build_id: Option<BuildId>, pid: u32) -> DsoId {
        self.dso_of(name.as_ref(), build_id, pid)
    }

    fn dso_of(&mut self, raw: &[u8], build_id: Option<BuildId>, pid: u32) -> DsoId {
        let kind = kind_of(raw, pid);
        let path = match kind {
            DsoKind::PerfMap => PathBuf::from(format!("/tmp/perf-{pid}.map")),
            DsoKind::Kernel => PathBuf::from(KERNEL),
            _ => PathBuf::from(OsStr::from_bytes(raw)),
        };
        let long_name = path.to_string_lossy().into_owned();
        // A just-in-time compiler maps its file to say where it is.
        if kind == DsoKind::File && jitdump::process_of(&long_name).is_some() {
            self.binaries.add_jit(pid, &path);
        }
        let build_id = build_id.or_else(|| self.recorded.build_ids.get(&path).copied());
        let key = (path, build_id);
        if let Some(id) = self.by_name.get(&key) {
            return *id;
        }
        debug_assert!(!self.is_fork, "a forked resolver takes binaries over");
        let id = self.dsos.next_index();
        let path = key.0.clone();
        self.by_name.insert(key, id);
        let short_name = short_name(&long_name, kind);
        self.binaries.add(kind, &path, build_id, pid);
        let table = self.symbol_cache.table(kind, &path, build_id);
        let variables = Arc::default();
        let dso = Dso { kind, long_name, path, short_name, build_id, pid, table, variables };
        self.dsos.push(Arc::new(dso));
        id
    }

    /// The call frame information of the same binaries, for any thread.
    pub fn binaries(&self) -> Arc<Binaries> {
        Arc::clone(&self.binaries)
    }

    /// A binary by its number.
    pub fn get(&self, id: DsoId) -> Option<&Dso> {
        self.dsos.get(id).map(|dso| &**dso)
    }

    /// Name of a binary in reports.
    pub fn dso_name(&self, id: Option<DsoId>) -> &str {
        id.and_then(|id| self.get(id)).map_or("[unknown]", |d| &d.short_name)
    }

    /// Readable name of a symbol, of which control characters are escaped: a name is one line.
    pub fn name(&self, id: SymId) -> &str {
        let Some(symbol) = self.symbols.get(id) else { return "" };
        symbol.readable.get_or_init(|| {
            let raw = UntrustedText::new(&symbol.raw).to_text();
            if self.options.no_demangle { raw.into() } else { demangle(&raw).into() }
        })
    }

    /// The name of a symbol as its file has it; empty where it comes from elsewhere.
    pub fn stored(&self, id: SymId) -> &[u8] {
        self.symbols.get(id).map_or(&[], |s| &s.raw)
    }

    /// Binary and first address (in the binary's own terms) of a symbol.
    pub fn start(&self, id: SymId) -> (DsoId, u64) {
        self.symbols.get(id).map_or((DsoId(u32::MAX), 0), |s| (s.dso, s.start))
    }

    /// Prepares the readable names of these symbols, in one pass.
    pub fn prepare_names(&self, ids: &[SymId]) {
        ids.par_iter().with_min_len(256).for_each(|id| {
            self.name(*id);
        });
    }

    /// Number of symbols; the highest id is one less.
    pub fn count(&self) -> usize {
        self.symbols.len()
    }

    /// Problems so far.
    pub fn problems(&self) -> Vec<Problem> {
        let mut all = self.files.problems();
        let of_kernel = self.symbol_cache.kernel.get().and_then(|k| k.problem());
        if let Some(problem) = of_kernel.filter(|p| !all.contains(p)) {
            all.insert(0, problem.clone());
        }
        all
    }

    /// The kernel's symbols, for any thread. Facts about the kernel that are set after the first
    /// call are ignored.
    pub fn kernel(&self) -> &Arc<KernelTable> {
        self.symbol_cache.kernel.get_or_init(|| Arc::new(KernelTable::new(self.kernel_source())))
    }

    /// Begins to read the kernel's symbols, which takes a while, in the background.
    pub fn prefetch_kernel(&self) {
        if self.symbol_cache.kernel.get().is_none() {
            let table = Arc::clone(self.kernel());
            let reader = std::thread::Builder::new().name("kallsyms".into());
            // Who asks for them reads them where no thread could be had.
            drop(reader.spawn(move || table.prepare()));
        }
    }

    /// Resolves many addresses in one call: the files in parallel, each in one pass that reads no
    /// more than it needs. Addresses are as for [`symbol`](Self::symbol), ascending; results have
    /// the same order.
    pub fn symbols_of(&mut self, wanted: &[(DsoId, Vec<u64>)]) -> Vec<Vec<Option<SymId>>> {
        let mut recent = self.recent.take();
        let has_table: Vec<bool> = wanted
            .iter()
            .map(|(id, _)| match &mut recent {
                Some(recent) if let Some(dso) = self.file_of(*id) => {
                    recent.wants(*id, || read_symbols::symbol_bytes(&self.files, &dso.binary()))
                }
                _ => self.get(*id).is_some_and(|dso| dso.table.get().is_some()),
            })
            .collect();
        let binaries: Vec<Binary<'_>> =
            wanted.iter().filter_map(|w| self.file_of(w.0)).map(Dso::binary).collect();
        self.files.prepare(&binaries, FilePart::Symbols);
        let found: Vec<Option<Coverings>> = wanted
            .par_iter()
            .zip(&has_table)
            // One at a time: the first in the list are the largest.
            .with_max_len(1)
            .map(|((id, addresses), has_table)| {
                let dso = self.file_of(*id).filter(|_| !has_table)?;
                read_symbols::names(&self.files, &dso.binary(), addresses)
            })
            .collect();
        let mut all = Vec::with_capacity(wanted.len());
        for ((id, addresses), found) in wanted.iter().zip(found) {
            all.push(match (found, &mut recent) {
                (Some(Coverings { symbols, places }), _) => {
                    let intern = |c: Covering| self.intern(*id, c.start, || Name::Raw(c.name));
                    let ids: Vec<SymId> = symbols.into_iter().map(intern).collect();
                    places.into_iter().map(|p| ids.get(p? as usize).copied()).collect()
                }
                (None, Some(recent)) if self.file_of(*id).is_some() => {
                    self.recent_symbols(recent, *id, addresses)
                }
                _ => addresses.iter().map(|a| self.symbol(*id, *a).map(|s| s.0)).collect(),
            });
        }
        self.recent = recent;
        all
    }

    /// A binary that is a file.
    fn file_of(&self, id: DsoId) -> Option<&Dso> {
        self.get(id).filter(|dso| dso.kind == DsoKind::File)
    }

    /// The symbols at places of a binary, out of a table that may be dropped.
    fn recent_symbols(
        &mut self,
        recent: &mut RecentTables,
        id: DsoId,
        addresses: &[u64],
    ) -> Vec<Option<SymId>> {
        let Some(dso) = self.dsos.get(id).map(Arc::clone) else {
            return vec![None; addresses.len()];
        };
        let (files, binaries) = (Arc::clone(&self.files), Arc::clone(&self.binaries));
        let answer = |table: &PackedTable| -> Vec<Option<SymId>> {
            let mut last = UnpackedBlock::default();
            let mut symbol = |address: &u64| {
                let (place, _) = table.place(*address)?;
                Some(self.intern(id, place.start, || Name::Raw(table.name(&place, &mut last))))
            };
            addresses.iter().map(&mut symbol).collect()
        };
        match recent.with(id, || load(&dso, &files, &binaries), answer) {
            Ok(found) => found,
            Err(e) => {
                self.files
                    .note(Problem::Unusable { path: dso.long_name.clone(), why: e.to_string() });
                vec![None; addresses.len()]
            }
        }
    }

    /// The symbol at `addr` of a binary: a file offset for files, the vdso and
    /// anonymous memory's address, an absolute address for the kernel.
    /// The second value is the distance from the symbol's start.
    pub fn symbol(&mut self, id: DsoId, addr: u64) -> Option<(SymId, u64)> {
        let kind = self.get(id)?.kind;
        match kind {
            DsoKind::Kernel | DsoKind::Module => self.symbol_of_kernel(id, kind, addr),
            DsoKind::Bpf => {
                let name = self.get(id)?.long_name.clone();
                Some((self.intern(id, 0, || Name::Readable(name)), addr))
            }
            DsoKind::Other => None,
            DsoKind::Vdso | DsoKind::PerfMap | DsoKind::File => {
                let dso = self.dsos.get(id)?;
                let table = dso.table.get_or_init(|| load(dso, &self.files, &self.binaries));
                let vaddr = match &table.elf {
                    Some(elf) => elf.vaddr(addr)?,
                    None => addr,
                };
                let (start, _, name) = table.symbols.lookup(vaddr)?;
                let raw = name.to_vec();
                let make = || match kind {
                    DsoKind::PerfMap => Name::Readable(String::from_utf8_lossy(&raw).into_owned()),
                    _ => Name::Raw(raw),
                };
                Some((self.intern(id, start, make), vaddr - start))
            }
        }
    }

    /// The variable at an address of a process, and its member where that is known; the process has a file from `pgoff` on mapped at
    /// `start` as code.
    pub fn variable(&self, id: DsoId, start: u64, pgoff: u64, addr: u64) -> Option<String> {
        let dso = self.get(id).filter(|dso| dso.kind == DsoKind::File)?;
        let read = || VariableTable::read(&self.files, &dso.binary());
        let table = dso.variables.get_or_init(read).as_ref()?;
        table.name_at((start, pgoff), addr, |name, first, distance| {
            self.member_path(id, (name, first), distance)
        })
    }

    /// Path from a static variable to one of its members, by debugging information.
    fn member_path(
        &self,
        id: DsoId,
        (name, addr): (&str, u64),
        distance: u64,
    ) -> Option<(String, u64)> {
        let file = self.code(id).ok()?;
        let companions = file.companions(&self.files);
        let sections = file.sections(&companions).ok()??;
        Dwarf::new(&sections).ok()?.member_path(name, addr, distance).ok()?
    }

    fn symbol_of_kernel(&mut self, id: DsoId, kind: DsoKind, addr: u64) -> Option<(SymId, u64)> {
        let known = self.kernel().symbols().lookup(addr);
        let known = known.map(|(start, _, name, _)| (start, name.as_bytes().to_vec()));
        // Where only the kernel's own symbols are known its modules' files may tell.
        let (start, name) = match (known, kind) {
            (None, DsoKind::Module) => self.symbol_of_module(id, addr)?,
            (known, _) => known?,
        };
        let name = String::from_utf8_lossy(&name).into_owned();
        Some((self.intern(id, start, || Name::Readable(name)), addr - start))
    }

    fn symbol_of_module(&self, id: DsoId, addr: u64) -> Option<(u64, Vec<u8>)> {
        let make = || Table { symbols: self.module_table(id).unwrap_or_default(), elf: None };
        let table = self.get(id)?.table.get_or_init(make);
        let (start, _, name) = table.symbols.lookup(addr)?;
        Some((start, name.to_vec()))
    }

    fn intern(&mut self, dso: DsoId, start: u64, name: impl FnOnce() -> Name) -> SymId {
        if let Some(id) = self.symbol_ids.get(&(dso, start)) {
            return *id;
        }
        let id = self.symbols.next_index();
        let (raw, readable) = match name() {
            Name::Raw(raw) => (raw, OnceLock::new()),
            Name::Readable(text) => {
                let text = UntrustedText::new(&text).to_text().into_owned();
                (Vec::new(), OnceLock::from(text.into_boxed_str()))
            }
        };
        self.symbols.push(Symbol { dso, start, raw, readable });
        self.symbol_ids.insert((dso, start), id);
        id
    }

    /// The kernel function at an absolute address: first address, the one behind it,
    /// name, module.
    pub fn kernel_span(&self, addr: u64) -> Option<(u64, u64, &str, Option<&str>)> {
        self.kernel().symbols().lookup(addr)
    }

    /// Whether the recording is of another kernel than the running one.
    pub(crate) fn is_other_kernel(&self) -> bool {
        self.kernel_source().is_other()
    }

    /// The build-id and the release of the recorded kernel, and where one of its
    /// symbols was.
    pub(crate) fn recorded_kernel(
        &self,
    ) -> (Option<BuildId>, Option<&str>, Option<&(String, u64)>) {
        let recorded = &self.recorded;
        let id = recorded.build_ids.get(Path::new(KERNEL)).copied();
        (id, recorded.release.as_deref(), recorded.kernel_reference.as_ref())
    }

    /// The lines of `/proc/kallsyms` that answer for these addresses, and the
    /// build-id of the recorded kernel.
    pub(crate) fn kernel_excerpt(&self, addresses: &[u64]) -> (String, Option<BuildId>) {
        (self.kernel().symbols().excerpt(addresses), self.recorded_kernel().0)
    }

    /// A symbol's name as its file stores it.
    pub(crate) fn raw_name(&self, id: SymId) -> &[u8] {
        self.symbols.get(id).map_or(&[], |s| &s.raw)
    }

    fn kernel_source(&self) -> kernel::KernelChoice {
        kernel::KernelChoice {
            files: Arc::clone(&self.files),
            kallsyms: self.options.kallsyms.clone(),
            vmlinux: self.options.vmlinux.clone(),
            build_id: self.recorded.build_ids.get(Path::new(KERNEL)).copied(),
            release: self.recorded.release.clone(),
            is_recorded: self.recorded.is_recorded,
            reference: self.recorded.kernel_reference.clone(),
            embedded: self.recorded.kallsyms.clone(),
        }
    }
}

/// Kind of the binary that a mapping names; `pid` is all ones for the kernel.
fn kind_of(name: &[u8], pid: u32) -> DsoKind {
    let is_kernel = pid == u32::MAX;
    match name {
        _ if Mmap::names_anonymous(name) => DsoKind::PerfMap,
        _ if name.starts_with(b"[kernel.") || name.starts_with(b"[guest.kernel.") => {
            DsoKind::Kernel
        }
        b"[vdso]" => DsoKind::Vdso,
        [b'[', ..] if is_kernel => DsoKind::Module,
        [b'[', ..] => DsoKind::Other,
        [b'/', ..] if is_kernel => DsoKind::Module,
        _ if is_kernel => DsoKind::Bpf,
        _ => DsoKind::File,
    }
}

fn short_name(long: &str, kind: DsoKind) -> String {
    let base = Path::new(long).file_name().map_or(long.into(), |n| n.to_string_lossy());
    match kind {
        DsoKind::Module if !long.starts_with('[') => {
            let stem = base.split(".ko").next().unwrap_or(&base);
            format!("[{}]", stem.replace('-', "_"))
        }
        DsoKind::File | DsoKind::PerfMap => base.into_owned(),
        _ => long.to_string(),
    }
}

fn load(dso: &Dso, files: &Finder, binaries: &Binaries) -> Table {
    match dso.kind {
        DsoKind::PerfMap => {
            if let Some(text) = files.bundled(&dso.binary(), "map") {
                return Table { symbols: perf_map::parse(&text.unwrap_or_default()), elf: None };
            }
            let text = match files.kept(&dso.binary()) {
                Some(kept) => perf_map::read(&kept),
                None => perf_map::read_of(dso.pid, &dso.path),
            };
            let text = text.unwrap_or_else(|e| {
                let (path, why) = (dso.long_name.clone(), e.to_string());
                files.note(Problem::Unusable { path, why });
                Vec::new()
            });
            let mut symbols = perf_map::parse(&text);
            if let Some(path) = binaries.jit_of(dso.pid)
                && let Some(bytes) = jitdump::read(&path)
            {
                let dump = JitDump::parse(&bytes);
                let why = match &dump {
                    Some(dump) => dump.damage.clone(),
                    None => Some("it is not a jitdump file".to_owned()),
                };
                if let Some(why) = why {
                    files.note(Problem::Unusable { path: path.display().to_string(), why });
                }
                if let Some(dump) = dump {
                    if let reused @ 1.. = dump.reused() {
                        let functions = counted(reused, "function was", "functions were");
                        let path = path.display().to_string();
                        let why = format!(
                            "{functions} replaced by others at the same addresses, whose names the \
                             earlier samples have, too; `kymo inject -j` distinguishes them by time"
                        );
                        files.note(Problem::DebugInfo { path, why });
                    }
                    symbols.merge(&dump.symbols());
                }
            }
            Table { symbols, elf: None }
        }
        DsoKind::Vdso => {
            if files.bundled(&dso.binary(), "vdso").is_some() {
                return read_symbols::table(files, &dso.binary()).map(with_plt).unwrap_or_default();
            }
            let elf = kymo_kernel::vdso::own().and_then(|bytes| Elf::parse(&bytes).ok());
            let right = |e: &Elf| dso.build_id.is_none_or(|id| e.build_id == Some(id));
            let elf = elf.filter(right).or_else(|| read_symbols::table(files, &dso.binary()));
            elf.map(with_plt).unwrap_or_default()
        }
        _ => read_symbols::table(files, &dso.binary()).map(with_plt).unwrap_or_default(),
    }
}

fn with_plt(mut elf: Elf) -> Table {
    let mut symbols = std::mem::take(&mut elf.symbols);
    symbols.merge(&elf.plt);
    elf.plt = SymbolTable::default();
    Table { symbols, elf: Some(Box::new(elf)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_binary_is_refused_and_told() {
        let mut r = Resolver::new(ResolverOptions::default());
        let exe = std::env::current_exe().unwrap().display().to_string();
        let recorded = BuildId::new(&[1; 20]);
        let wrong = r.dso(&exe, Some(recorded), 5);
        assert_eq!(r.symbol(wrong, 0x1000), None);
        let problems = r.problems();
        let [Problem::Changed { path, found: Some(found), recorded: said }] = &problems[..] else {
            panic!("{problems:?}")
        };
        assert_eq!((path, *said), (&exe, recorded));
        assert_ne!(*found, recorded);
        let right = r.dso(&exe, None, 5);
        let found = (0..0x40_0000u64).step_by(64).filter_map(|o| r.symbol(right, o)).count();
        assert!(found > 1000, "{found}");
    }

    #[test]
    fn anonymous_memory_is_a_jit_map_of_its_process() {
        let mut r = Resolver::new(ResolverOptions::default());
        let pid = std::process::id() | 0x4000_0000;
        let id = r.dso("//anon", None, pid);
        let path = format!("/tmp/perf-{pid}.map");
        std::fs::write(&path, "1000 10 jitted f\n").unwrap();
        let (symbol, offset) = r.symbol(id, 0x1008).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((r.name(symbol), offset), ("jitted f", 8));
        assert_eq!(r.dso_name(Some(id)), format!("perf-{pid}.map"));
        assert_eq!(r.dso_name(None), "[unknown]");
    }
}
