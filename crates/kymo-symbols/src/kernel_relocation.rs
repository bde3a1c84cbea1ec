//! Relocation between the recorded kernel with its modules and their files. A kernel is moved at
//! boot, as a whole; a module is put wherever there is room, section by section. An address of the
//! recording is converted to one of the file here.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use kymo_debuginfo::{Binding, CodeSymbols, RawSymbol, SymbolTable, SymbolType};
use kymo_kernel::mapped::MappedFile;
use kymo_kernel::proc_maps::kernel_text;
use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;
use rustc_hash::FxHashMap;

use crate::compressed_modules;
use crate::dso::{DsoId, DsoKind};
use crate::files::{FilePart, Module, Named, running_build_id, running_release};
use crate::kernel::slide;
use crate::kernel_file::{KernelFile, Span};
use crate::problem::Problem;
use crate::resolver::Resolver;

impl Resolver {
    /// The file with a part of the kernel's or a module's code, and where that code
    /// was. `None` for other binaries, and where no file of the recorded build is found.
    pub fn kernel_file(&self, id: DsoId, part: FilePart) -> Option<Arc<KernelFile>> {
        let placed = || self.symbol_cache.placed.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = placed().get(&(id, part)) {
            return known.clone();
        }
        let found = match self.get(id)?.kind {
            DsoKind::Kernel => self.place_kernel(part),
            DsoKind::Module => self.place_module(id, part),
            _ => None,
        };
        let found = found.map(Arc::new);
        placed().insert((id, part), found.clone());
        found
    }

    fn place_kernel(&self, part: FilePart) -> Option<KernelFile> {
        let (recorded, release, reference) = self.recorded_kernel();
        let other = self.is_other_kernel();
        let build_id = recorded.or_else(|| running_build_id().filter(|_| !other));
        let (path, build_id) = self.image_of(release, build_id, part)?;
        let map = self.map(&path)?;
        let own = || {
            let text = kernel_text().ok().flatten().filter(|_| !other)?;
            Some((text.reference.to_owned(), text.start))
        };
        let reference = reference.cloned().or_else(own);
        let moved = match slide(map.bytes(), reference.as_ref()) {
            Some(moved) => moved,
            // The relocation is unknown; a named one is assumed to be at its stated address.
            None if self.options().vmlinux.is_some() => 0,
            None => return None,
        };
        let symbols = self.symbols_in(&path, &map)?;
        let code = symbols.sections.iter().filter(|s| s.code && s.size > 0);
        let spans = code.map(|s| {
            let start = s.addr.wrapping_add(moved);
            Span { start, end: start.saturating_add(s.size), stated: s.addr }
        });
        KernelFile::new(path, build_id, spans.collect())
    }

    /// The kernel's image: the one that the user names, or one that is found.
    fn image_of(
        &self,
        release: Option<&str>,
        build_id: Option<BuildId>,
        part: FilePart,
    ) -> Option<(PathBuf, Option<BuildId>)> {
        let mut build_id = build_id;
        if let Some(named) = &self.options().vmlinux {
            let stated = stated_id(named);
            match self.files().named(named, build_id, part) {
                Named::Fits => return Some((named.clone(), stated.or(build_id))),
                Named::Refused => return None,
                // Its debug file may be elsewhere.
                Named::Lacks => build_id = build_id.or(stated),
            }
        }
        let running = running_release().filter(|_| !self.is_other_kernel());
        let release = release.or(running.as_deref());
        Some((self.files().vmlinux(release, build_id?, part)?, build_id))
    }

    fn place_module(&self, id: DsoId, part: FilePart) -> Option<KernelFile> {
        let dso = self.get(id)?;
        let name = dso.short_name.trim_matches(['[', ']']).to_owned();
        let (_, release, _) = self.recorded_kernel();
        let here = !self.is_other_kernel();
        let running = running_release().filter(|_| here);
        let loaded = || SystemRoot::machine().module_build_id(&name).filter(|_| here);
        let module = Module {
            name: &name,
            path: dso.long_name.starts_with('/').then(|| Path::new(&*dso.long_name)),
            release: release.or(running.as_deref()),
            build_id: dso.build_id.or_else(loaded),
        };
        let path = self.files().module(&module, part)?;
        let map = self.map(&path)?;
        let symbols = self.symbols_in(&path, &map)?;
        let stated = stated_id(&path);
        let spans = match by_names(&symbols, self.names_of(&name)) {
            spans if spans.is_empty() => by_layout(&symbols, self.module_base(id)?),
            spans => spans,
        };
        KernelFile::new(path, stated.or(module.build_id), spans)
    }

    /// Names and addresses of a loaded module's functions.
    fn names_of<'a>(&'a self, module: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let all = self.kernel().symbols().iter();
        all.filter(move |s| s.3 == Some(module)).map(|(addr, _, name, _)| (name, addr))
    }

    fn symbols_in<'m>(&self, path: &Path, map: &'m MappedFile) -> Option<CodeSymbols<'m>> {
        let told = |why: String| {
            let path = path.display().to_string();
            self.files().note(Problem::Unusable { path, why });
        };
        let symbols = CodeSymbols::load(map.bytes(), None).map_err(|e| told(e.to_string())).ok();
        if map.was_cut() {
            told("it was cut short while it was read".into());
        }
        symbols
    }

    fn map(&self, path: &Path) -> Option<MappedFile> {
        compressed_modules::map(path)
            .map_err(|e| {
                let path = path.display().to_string();
                self.files().note(Problem::Unusable { path, why: e.to_string() });
            })
            .ok()
    }

    /// The functions of a module by its file, where they were.
    pub(crate) fn module_table(&self, id: DsoId) -> Option<SymbolTable> {
        let file = self.kernel_file(id, FilePart::Symbols)?;
        let map = self.map(&file.path)?;
        let symbols = CodeSymbols::load(map.bytes(), None).ok()?;
        let [code, _] = symbols.tables();
        let raw = code.iter().filter_map(|(stated, end, name)| {
            let (start, size) = (file.running(stated)?, end - stated);
            let (binding, kind) = (Binding::Global, SymbolType::Typed);
            Some(RawSymbol { start, size, limit: u64::MAX, name, binding, kind })
        });
        Some(SymbolTable::build(raw.collect()))
    }
}

impl Resolver {
    /// The address of a symbol of the recorded kernel.
    pub fn kernel_address(&self, name: &str) -> Option<u64> {
        let table = self.kernel().symbols();
        let own = table.own().find(|s| s.2 == name.as_bytes()).map(|s| s.0);
        own.or_else(|| table.iter().find(|s| s.2 == name).map(|s| s.0))
    }
}

fn stated_id(path: &Path) -> Option<BuildId> {
    let pages = crate::files::open(path)?;
    kymo_debuginfo::LazyElf::parse(&pages).ok()?.build_id
}

/// Addresses of sections by their functions' names, of which each must be unique in the file, and
/// all of a section must agree.
fn by_names<'a>(
    symbols: &CodeSymbols<'_>,
    running: impl Iterator<Item = (&'a str, u64)>,
) -> Vec<Span> {
    let mut named: FxHashMap<&str, Option<u64>> = FxHashMap::default();
    for s in symbols.all().filter(|s| s.code) {
        named.entry(s.name).and_modify(|a| *a = None).or_insert(Some(s.addr));
    }
    let mut found: FxHashMap<u64, Option<Span>> = FxHashMap::default();
    for (name, addr) in running {
        let Some(Some(stated)) = named.get(name) else { continue };
        let Some(section) = symbols.section_at(*stated).filter(|s| s.code) else { continue };
        let start = addr.wrapping_sub(stated - section.addr);
        let span = Span { start, end: start.saturating_add(section.size), stated: section.addr };
        let known = found.entry(section.addr).or_insert(Some(span));
        if *known != Some(span) {
            *known = None;
        }
    }
    found.into_values().flatten().collect()
}

/// Addresses of sections in the kernel's layout from a module's base on: those with code that stays
/// after the module was started, in the file's order.
fn by_layout(symbols: &CodeSymbols<'_>, base: u64) -> Vec<Span> {
    let mut next = base;
    let kept = symbols.sections.iter().filter(|s| s.code && !s.name.starts_with(".init"));
    let lay = |s: &kymo_debuginfo::dwarf::LoadedSection| {
        let start = next.checked_next_multiple_of(s.align.max(1)).unwrap_or(next);
        next = start.saturating_add(s.size);
        Span { start, end: next, stated: s.addr }
    };
    kept.map(lay).filter(|s| s.start < s.end).collect()
}
