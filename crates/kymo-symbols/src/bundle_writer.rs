//! Making a bundle: for each binary that the recording has addresses of, what
//! the resolver answered and where it took that from.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kymo_debuginfo::LazyElf;
use kymo_kernel::mapped::MappedFile;
use kymo_kernel::output_file::{self, Existing, PRIVATE};
use kymo_model::BuildId;
use rustc_hash::FxHashMap;

use crate::bundle::manifest::{self, Entry, Manifest, Recording, word_of};
use crate::bundle::slim::{Function, slim};
use crate::bundle::source_files::{Owners, PackedSource, SourcePacker};
use crate::bundle::{self, tar};
use crate::dso::{DsoId, DsoKind, SymId};
use crate::files::open;
use crate::problem::Problem;
use crate::read_symbols;
use crate::resolver::Resolver;

/// Contents of a bundle to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Symbols and lines of the addresses in the recording, and what unwinding needs.
    Seen,
    /// Whole binaries and debug files, too.
    Binaries,
    /// And the source files of the functions in the recording.
    Sources {
        /// The user that the recording belongs to.
        recorded_by: u32,
    },
}

/// Summary of a written bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleSummary {
    /// Binaries of which something was found.
    pub binaries: usize,
    /// Binaries of which nothing was found.
    pub missing: usize,
    /// Functions.
    pub symbols: usize,
    /// Source files that were packed, by their paths on this machine.
    pub sources: Vec<PathBuf>,
    /// Source files that are not here, or may not be packed.
    pub sources_missing: usize,
    /// Size of the bundle.
    pub bytes: u64,
}

type Archive = tar::Writer<BufWriter<File>>;

struct Making {
    archive: Archive,
    manifest: Manifest,
    contents: Contents,
    summary: BundleSummary,
    source_packer: SourcePacker,
}

/// Addresses of a recording that a bundle has to answer for.
#[derive(Clone, Debug, Default)]
pub struct RecordedAddresses {
    /// Addresses of each binary, as for [`Resolver::symbols_of`], in any order.
    pub of: FxHashMap<DsoId, Vec<u64>>,
    /// Addresses of the kernel.
    pub kernel: Vec<u64>,
    /// Enumerators of the kernel that print formats name.
    pub constants: BTreeMap<String, i64>,
}

/// Writes the bundle of a recording. Like a recording it is its maker's alone to read.
pub fn write(
    resolver: &mut Resolver,
    places: RecordedAddresses,
    recording: Recording,
    contents: Contents,
    out: &Path,
) -> io::Result<BundleSummary> {
    output_file::write_whole(out, PRIVATE, Existing::Replace, |file| {
        make(resolver, places, recording, contents, file)
    })
}

fn make(
    resolver: &mut Resolver,
    places: RecordedAddresses,
    recording: Recording,
    contents: Contents,
    file: &mut File,
) -> io::Result<BundleSummary> {
    let manifest = Manifest { recording, entries: Vec::new(), members: Vec::new() };
    let mut making = Making {
        archive: tar::Writer::new(BufWriter::new(file.try_clone()?)),
        manifest,
        contents,
        summary: BundleSummary::default(),
        source_packer: SourcePacker::default(),
    };
    let RecordedAddresses { of, mut kernel, constants } = places;
    let mut asked: Vec<(DsoId, Vec<u64>)> = of.into_iter().collect();
    for (_, addresses) in &mut asked {
        addresses.sort_unstable();
        addresses.dedup();
    }
    let answers = resolver.symbols_of(&asked);
    let mut of_kernel = !kernel.is_empty() || !constants.is_empty();
    let mut code: Vec<(DsoId, Vec<u64>)> = Vec::new();
    let mut order: Vec<usize> = (0..asked.len()).collect();
    // The same recording gives the same bundle.
    order.sort_by_key(|n| {
        let dso = asked.get(*n).and_then(|a| resolver.get(a.0));
        dso.map(|d| (d.long_name.clone(), d.build_id.map(|id| id.to_string())))
    });
    for n in order {
        let (Some((id, offsets)), Some(symbols)) = (asked.get(n), answers.get(n)) else { continue };
        let Some(kind) = resolver.get(*id).map(|d| d.kind) else { continue };
        match kind {
            DsoKind::Kernel | DsoKind::Module => {
                of_kernel = true;
                kernel.extend(offsets);
                code.push((*id, offsets.clone()));
            }
            DsoKind::File | DsoKind::Vdso => making.binary(resolver, *id, offsets, symbols)?,
            DsoKind::PerfMap => making.perf_map(resolver, *id, offsets, symbols)?,
            DsoKind::Bpf | DsoKind::Other => {}
        }
    }
    if of_kernel {
        making.kernel(resolver, kernel, &code, &constants)?;
    }
    making.finish()
}

impl Making {
    fn finish(mut self) -> io::Result<BundleSummary> {
        let text = self.manifest.to_text();
        self.archive.file(manifest::NAME, text.as_bytes())?;
        let out = self.archive.finish()?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_data()?;
        Ok(BundleSummary { bytes: file.metadata()?.len(), ..self.summary })
    }

    /// Adds an entry for a binary; gives its directory among the members.
    fn entry(
        &mut self,
        kind: DsoKind,
        path: &str,
        id: Option<BuildId>,
        own: Option<BuildId>,
    ) -> String {
        let number = self.manifest.entries.len();
        let inside = path.trim_start_matches('/');
        // perf looks for files by build-id, under a directory named after the path.
        let directory = match own.or(id).filter(|_| fits(inside)) {
            Some(id) => format!("{inside}/{id}"),
            None => format!("kymo/{number}"),
        };
        self.manifest.entries.push(Entry {
            kind: word_of(kind).to_owned(),
            path: path.to_owned(),
            build_id: id,
            directory: None,
            problems: Vec::new(),
        });
        directory
    }

    /// Adds a file to the binary that was entered last.
    fn member(&mut self, directory: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = format!("{directory}/{name}");
        let mut sum = flate2::Crc::new();
        sum.update(bytes);
        self.archive.file(&path, bytes)?;
        self.enter(directory, sum.sum(), path)
    }

    fn enter(&mut self, directory: &str, sum: u32, path: String) -> io::Result<()> {
        self.manifest.members.push((sum, path));
        let Some(entry) = self.manifest.entries.last_mut() else { return Ok(()) };
        if entry.directory.is_some() {
            return Ok(());
        }
        entry.directory = Some(directory.to_owned());
        self.summary.binaries += 1;
        // By build-id, as perf looks for it.
        match directory.rsplit_once('/').filter(|_| !directory.starts_with("kymo/")) {
            Some((_, id)) if id.len() > 2 => {
                let (head, tail) = id.split_at(2);
                self.archive
                    .link(&format!(".build-id/{head}/{tail}"), &format!("../../{directory}"))
            }
            _ => Ok(()),
        }
    }

    fn problems(&mut self, resolver: &Resolver, wanted: impl Fn(&Problem) -> bool) {
        if let Some(entry) = self.manifest.entries.last_mut() {
            entry.problems = resolver.problems().into_iter().filter(wanted).collect();
            self.summary.missing += usize::from(entry.directory.is_none());
        }
    }

    fn binary(
        &mut self,
        resolver: &Resolver,
        id: DsoId,
        offsets: &[u64],
        symbols: &[Option<SymId>],
    ) -> io::Result<()> {
        let Some(dso) = resolver.get(id) else { return Ok(()) };
        let files = resolver.files();
        let place = files.binary(&dso.binary());
        let vdso = (dso.kind == DsoKind::Vdso).then(kymo_kernel::vdso::own).flatten();
        let path = place.clone().or_else(|| files.symbols(&dso.binary()));
        let pages = path.as_deref().filter(|_| vdso.is_none()).and_then(open);
        let own = match (&vdso, &pages) {
            (Some(bytes), _) => LazyElf::parse(bytes.as_slice()).ok().and_then(|e| e.build_id),
            (None, Some(pages)) => LazyElf::parse(pages).ok().and_then(|e| e.build_id),
            _ => None,
        };
        let directory = self.entry(dso.kind, &dso.long_name, dso.build_id, own);
        let name = if dso.kind == DsoKind::Vdso { "vdso" } else { "elf" };
        let made = match (&vdso, &pages) {
            (Some(bytes), _) => {
                let functions = functions(resolver, bytes.as_slice(), offsets, symbols);
                self.summary.symbols += functions.len();
                slim(bytes.as_slice(), &functions, offsets)
            }
            (None, Some(pages)) => {
                let functions = functions(resolver, pages, offsets, symbols);
                self.summary.symbols += functions.len();
                slim(pages, &functions, offsets)
            }
            _ => None,
        };
        match (self.contents, &path) {
            (Contents::Binaries | Contents::Sources { .. }, Some(path)) if vdso.is_none() => {
                self.whole(&directory, name, path)?;
                let separate = [files.symbols(&dso.binary()), files.dwarf(&dso.binary())];
                if let Some(debug) = separate.iter().flatten().find(|p| *p != path) {
                    self.whole(&directory, "debug", debug)?;
                }
            }
            _ => {
                if let Some(bytes) = made {
                    self.member(&directory, name, &bytes)?;
                }
            }
        }
        if let Some(lines) = resolver.lines_of(id, offsets) {
            self.member(&directory, "lines", &lines)?;
        }
        if let (Contents::Sources { recorded_by }, Some(binary)) = (self.contents, &place) {
            let owners = Owners { binary: fs::metadata(binary)?.uid(), recording: recorded_by };
            self.sources(resolver, id, (&directory, owners), symbols)?;
        }
        let dwarf = files.dwarf(&dso.binary());
        let path = dso.long_name.clone();
        let ends = |other: &str| other == path || other.ends_with(&path);
        self.problems(resolver, |p| match p {
            Problem::Changed { path, .. } | Problem::Unusable { path, .. } => ends(path),
            Problem::Refused { of, .. } => ends(of),
            Problem::DebugInfo { path, .. } => dwarf.as_deref() == Some(Path::new(path)),
            _ => false,
        });
        Ok(())
    }

    /// Adds the source files that the functions which were answers are made of. The
    /// binary is in `directory` of the bundle.
    fn sources(
        &mut self,
        resolver: &Resolver,
        id: DsoId,
        (directory, owners): (&str, Owners),
        symbols: &[Option<SymId>],
    ) -> io::Result<()> {
        let Some(dso) = resolver.get(id) else { return Ok(()) };
        let binary = dso.binary();
        let Some(elf) = read_symbols::table(resolver.files(), &binary) else { return Ok(()) };
        let mut starts: Vec<u64> = symbols.iter().flatten().map(|s| resolver.start(*s).1).collect();
        starts.sort_unstable();
        starts.dedup();
        let span = |start| elf.symbols.lookup(start).map(|(_, end, _)| (start, end));
        let spans: Vec<(u64, u64)> = starts.into_iter().filter_map(span).collect();
        let (mut names, mut number) = (Vec::new(), 0);
        for name in resolver.source_files(id, &spans) {
            let place = resolver.files().source_place(&binary, &name);
            let place = place.filter(|_| !name.contains('\n'));
            let packed = place
                .and_then(|(place, here)| self.source_packer.take(&place, here.then_some(owners)));
            let Some(PackedSource { path, text }) = packed else {
                self.summary.sources_missing += 1;
                continue;
            };
            self.member(directory, &bundle::source_member(number), &text)?;
            names.extend(name.bytes().chain([b'\n']));
            number += 1;
            self.summary.sources.push(path);
        }
        self.member(directory, bundle::SOURCES, &names)
    }

    /// Copies a file.
    fn whole(&mut self, directory: &str, name: &str, from: &Path) -> io::Result<()> {
        let map = MappedFile::open(from)?;
        self.member(directory, name, map.bytes())
    }

    fn perf_map(
        &mut self,
        resolver: &Resolver,
        id: DsoId,
        addresses: &[u64],
        symbols: &[Option<SymId>],
    ) -> io::Result<()> {
        let Some(dso) = resolver.get(id) else { return Ok(()) };
        let directory = self.entry(dso.kind, &dso.long_name, dso.build_id, None);
        let mut text = String::new();
        let functions = spans(resolver, addresses.iter().copied().zip(symbols));
        self.summary.symbols += functions.len();
        for (start, (end, symbol)) in functions {
            text.push_str(&format!("{start:x} {:x} {}\n", end - start, resolver.name(symbol)));
        }
        if !text.is_empty() {
            self.member(&directory, "map", text.as_bytes())?;
        }
        self.problems(resolver, |_| false);
        Ok(())
    }

    fn kernel(
        &mut self,
        resolver: &Resolver,
        mut addresses: Vec<u64>,
        code: &[(DsoId, Vec<u64>)],
        constants: &BTreeMap<String, i64>,
    ) -> io::Result<()> {
        addresses.sort_unstable();
        addresses.dedup();
        let (text, id) = resolver.kernel_excerpt(&addresses);
        let directory = self.entry(DsoKind::Kernel, bundle::KERNEL, id, None);
        if !text.is_empty() {
            self.summary.symbols += text.lines().filter(|l| !l.contains(" ?")).count();
            self.member(&directory, "kallsyms", text.as_bytes())?;
        }
        if let Some(lines) = resolver.lines_of_kernel(code) {
            self.member(&directory, "lines", &lines)?;
        }
        if !constants.is_empty() {
            let lines: String = constants.iter().map(|(n, v)| format!("{n} {v}\n")).collect();
            self.member(&directory, "constants", lines.as_bytes())?;
        }
        self.problems(resolver, |p| {
            matches!(
                p,
                Problem::KernelHidden { .. }
                    | Problem::OtherKernel { .. }
                    | Problem::UnknownKernel
                    | Problem::NoKernelSymbols
            )
        });
        Ok(())
    }
}

/// Whether a path can name a directory of the archive.
fn fits(inside: &str) -> bool {
    !inside.is_empty() && !inside.split('/').any(|part| matches!(part, "" | "." | ".."))
}

/// Functions that were results, each up to the last address that it was the result for: other
/// addresses remain unknown.
fn spans<'a>(
    resolver: &Resolver,
    answers: impl Iterator<Item = (u64, &'a Option<SymId>)>,
) -> BTreeMap<u64, (u64, SymId)> {
    let mut spans: BTreeMap<u64, (u64, SymId)> = BTreeMap::new();
    for (address, symbol) in answers {
        let Some(symbol) = *symbol else { continue };
        let span = spans.entry(resolver.start(symbol).1).or_insert((0, symbol));
        span.0 = span.0.max(address.saturating_add(1));
    }
    spans
}

fn functions<'d, R: kymo_debuginfo::ReadRef<'d>>(
    resolver: &Resolver,
    original: R,
    offsets: &[u64],
    symbols: &[Option<SymId>],
) -> Vec<Function> {
    let Ok(elf) = LazyElf::parse(original) else { return Vec::new() };
    let answers = offsets.iter().zip(symbols).filter_map(|(o, s)| Some((elf.vaddr(*o)?, s)));
    let spans = spans(resolver, answers);
    let named = |(start, (end, id))| (start, end, resolver.raw_name(id).to_vec());
    spans.into_iter().map(named).collect()
}
