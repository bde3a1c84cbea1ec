//! The files behind a binary: the binary itself and the separate debug files it
//! may have. Every command asks here, so that all of them use the same files
//! and refuse the same ones: a file whose build-id or checksum is not the
//! expected one is never handed out, it is named ([`Finder::problems`]).
//!
//! What the files hold is for `kymo-debuginfo`.

mod candidates;
mod kernel;
mod match_build_id;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kymo_debuginfo::LazyElf;
use kymo_debuginfod::{Artifact, Client, Report};
use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;
use rustc_hash::FxHashMap;

use crate::bundle::{Bundle, Known as InBundle};
use crate::options::ResolverOptions;
use crate::problem::{BundleError, Problem};
use candidates::SearchRoots;
pub(crate) use kernel::{find_module, running_build_id, running_release, vmlinux_places};
pub use match_build_id::FilePart;
use match_build_id::{Verdict, judge};
pub(crate) use match_build_id::{build_id_of, open, same};

/// A binary as a recording names it.
#[derive(Clone, Copy, Debug)]
pub struct Binary<'a> {
    /// Its path on the recorded machine.
    pub path: &'a Path,
    /// Its build-id, where recorded.
    pub build_id: Option<BuildId>,
    /// A process that mapped it: the path is as that process sees it.
    pub pid: Option<u32>,
}

/// A module of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module<'a> {
    pub(crate) name: &'a str,
    /// Path of its file, if recorded.
    pub(crate) path: Option<&'a Path>,
    /// The kernel's release.
    pub(crate) release: Option<&'a str>,
    pub(crate) build_id: Option<BuildId>,
}

/// Finds files. Answers are remembered.
#[derive(Debug, Default)]
pub struct Finder {
    roots: SearchRoots,
    debuginfod: Option<Arc<Client>>,
    bundle: Option<Arc<Bundle>>,
    /// The recorded machine's name and this one's, if they differ.
    foreign: OnceLock<(String, String)>,
    known: Mutex<FxHashMap<Key, Arc<Known>>>,
    problems: Mutex<Vec<Problem>>,
}

/// Name of the kernel among the binaries.
pub(crate) const KERNEL: &str = "[kernel.kallsyms]";

/// Result of checking a file that the user named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Fits,
    /// It is the right one, without the part that is wanted.
    Lacks,
    Refused,
}

/// Reason why a kernel's image of another build is unusable.
pub(crate) fn other_kernel(found: BuildId, recorded: BuildId) -> String {
    format!("is of another kernel: build-id {found}, recorded {recorded}")
}

type Key = (PathBuf, Option<BuildId>);

/// The files that a binary's code is shown with.
pub(crate) struct WithCode {
    pub(crate) binary: PathBuf,
    /// With the full symbol table.
    pub(crate) symbols: Option<PathBuf>,
    /// With DWARF.
    pub(crate) dwarf: Option<PathBuf>,
}

/// The answers for one binary.
#[derive(Debug, Default)]
struct Known {
    binary: OnceLock<Option<PathBuf>>,
    symbols: OnceLock<Option<PathBuf>>,
    dwarf: OnceLock<Option<PathBuf>>,
}

impl Finder {
    /// Looks where the options say.
    pub fn new(options: &ResolverOptions) -> Finder {
        let problems = options.no_bundle.clone().map(Problem::Bundle);
        Finder {
            roots: SearchRoots::new(options.symfs.clone()),
            debuginfod: options.debuginfod.clone(),
            bundle: options.bundle.clone(),
            problems: Mutex::new(problems.into_iter().collect()),
            ..Finder::default()
        }
    }

    /// Finds the files of many binaries, several at a time where servers are
    /// asked; afterwards the answers are there.
    pub fn prepare(&self, binaries: &[Binary<'_>], part: FilePart) {
        /// Fetching waits for servers more than it works.
        const AT_ONCE: usize = 4;
        if self.debuginfod.is_none() {
            return;
        }
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(binaries.len()) {
                scope.spawn(|| {
                    while let Some(b) = binaries.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match part {
                            FilePart::Any | FilePart::Code => self.binary(b),
                            FilePart::Symbols => self.symbols(b),
                            FilePart::Dwarf => self.dwarf(b),
                        };
                    }
                });
            }
        });
    }

    /// Sets the name of the recorded machine.
    pub(crate) fn set_hostname(&self, recorded: &str) {
        let here = SystemRoot::machine().hostname().unwrap_or_default();
        if !here.is_empty() && here != recorded {
            // A recording has one name; reading it twice gives the same.
            let _ = self.foreign.set((recorded.to_owned(), here));
        }
    }

    /// Files fetched from servers, and the errors; `None` if no servers are used.
    pub fn fetched(&self) -> Option<Report> {
        self.debuginfod.as_ref().map(|client| client.report())
    }

    /// A file from a server; it must be of this build.
    fn fetch(&self, id: Option<BuildId>, what: Artifact<'_>) -> Option<PathBuf> {
        let (client, id) = (self.debuginfod.as_ref()?, id?);
        let check = |path: &Path| match judge(path, Some(id), None, FilePart::Any) {
            Verdict::Fits => Ok(()),
            Verdict::Other { found, .. } => Err(found.map_or_else(
                || "it has no build-id".to_owned(),
                |found| format!("its build-id is {found}"),
            )),
            Verdict::Unusable { why } => Err(why),
            other => Err(format!("{other:?}")),
        };
        let hex = id.to_string();
        let path = client.find(&hex, what, &check)?;
        // What was in the cache before may be of any origin.
        match check(&path) {
            Ok(()) => Some(path),
            Err(why) => {
                let (path, of) = (path.display().to_string(), format!("build-id {hex}"));
                self.note(Problem::Refused { path, of, why });
                None
            }
        }
    }

    /// The file that was run, with its code, its segments and its tables for unwinding.
    pub fn binary(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let known = self.known(binary);
        known.binary.get_or_init(|| self.find_binary(binary)).clone()
    }

    /// A file with the full symbol table: the binary, or its debug file.
    pub fn symbols(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let known = self.known(binary);
        known.symbols.get_or_init(|| self.find_part(binary, FilePart::Symbols)).clone()
    }

    /// A file with DWARF: the binary, or its debug file.
    pub fn dwarf(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let known = self.known(binary);
        known.dwarf.get_or_init(|| self.find_part(binary, FilePart::Dwarf)).clone()
    }

    /// The file that a debug file shares with others (`.gnu_debugaltlink`, made
    /// by dwz): its name as stated in the debug file `of`, and its build-id.
    pub fn supplement(&self, of: &Path, name: &Path, build_id: BuildId) -> Option<PathBuf> {
        let candidates = self.roots.supplement(of, name, build_id);
        let found = self.first_that_fits(candidates, None, Some(build_id), None, FilePart::Any, of);
        found.or_else(|| self.fetch(Some(build_id), Artifact::Debuginfo))
    }

    /// The text of a source file, by its absolute path when it was compiled.
    pub fn source(&self, binary: &Binary<'_>, path: &str) -> Option<PathBuf> {
        let known = self.bundle.as_ref().and_then(|b| b.of(binary.path, binary.build_id));
        match known.map(|known| known.source(path)) {
            Some(Ok(Some(bundled))) => return bundled,
            // What this machine has may still do.
            Some(Err(e)) => self.note(Problem::Bundle(e)),
            _ => {}
        }
        self.source_place(binary, path).map(|found| found.0)
    }

    /// Path of a source file's text, and whether it is this machine's own.
    pub(crate) fn source_place(&self, binary: &Binary<'_>, path: &str) -> Option<(PathBuf, bool)> {
        let here = self.roots.under(Path::new(path));
        if here.is_file() {
            return Some((here, true));
        }
        let own = self.binary(binary).and_then(|own| match_build_id::BinaryFacts::of(&own));
        let id = own.and_then(|f| f.build_id).or(binary.build_id)?;
        let client = self.debuginfod.as_ref()?;
        client.find(&id.to_string(), Artifact::Source(path), &|_| Ok(())).map(|path| (path, false))
    }

    /// The uncompressed image of a kernel, of this build.
    pub(crate) fn vmlinux(
        &self,
        release: Option<&str>,
        build_id: BuildId,
        part: FilePart,
    ) -> Option<PathBuf> {
        let name = Path::new(KERNEL);
        let candidates = self.roots.vmlinux(release, build_id);
        let found = self.first_that_fits(candidates, None, Some(build_id), None, part, name);
        found.or_else(|| self.fetch_part(build_id, part))
    }

    /// The file of a kernel module, of its build where that is known.
    pub(crate) fn module(&self, module: &Module<'_>, part: FilePart) -> Option<PathBuf> {
        let candidates = self.roots.module(module);
        let (id, name) = (module.build_id, Path::new(module.name));
        let found = self.first_that_fits(candidates, None, id, None, part, name);
        found.or_else(|| self.fetch_part(id?, part))
    }

    fn fetch_part(&self, id: BuildId, part: FilePart) -> Option<PathBuf> {
        let what = match part {
            FilePart::Any | FilePart::Code => Artifact::Executable,
            FilePart::Symbols | FilePart::Dwarf => Artifact::Debuginfo,
        };
        let path = self.fetch(Some(id), what)?;
        matches!(judge(&path, Some(id), None, part), Verdict::Fits).then_some(path)
    }

    /// A file that the user named, if it is of this build and holds the requested part; one of
    /// another build is reported.
    pub(crate) fn named(&self, path: &Path, id: Option<BuildId>, part: FilePart) -> Named {
        match judge(path, id, None, part) {
            Verdict::Fits => Named::Fits,
            Verdict::Lacks => Named::Lacks,
            Verdict::Other { found: Some(found), wanted } => {
                let path = path.display().to_string();
                self.note(Problem::Unusable { path, why: other_kernel(found, wanted) });
                Named::Refused
            }
            Verdict::Unusable { why } => {
                self.note(Problem::Unusable { path: path.display().to_string(), why });
                Named::Refused
            }
            _ => {
                if let Err(e) = std::fs::metadata(path) {
                    let (path, why) = (path.display().to_string(), e.to_string());
                    self.note(Problem::Unusable { path, why });
                }
                Named::Refused
            }
        }
    }

    /// Problems so far.
    pub fn problems(&self) -> Vec<Problem> {
        let mut all = self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Whichever thread was first.
        all.sort_by_cached_key(|p| format!("{p:?}"));
        all
    }

    /// Takes note of a problem, once.
    pub(crate) fn note(&self, problem: Problem) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    fn known(&self, binary: &Binary<'_>) -> Arc<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry((binary.path.to_owned(), binary.build_id)).or_default())
    }

    /// Bytes that the bundle holds of a binary under this name: `None` if it does not contain the
    /// binary, `Some(None)` if the binary has no such bytes.
    pub(crate) fn bundled(&self, binary: &Binary<'_>, name: &str) -> Option<Option<Vec<u8>>> {
        self.in_bundle(binary, |known| known.bytes(name))
    }

    /// The kernel's symbols as the bundle has them, and what was wrong with them.
    pub(crate) fn bundled_kernel(&self, id: Option<BuildId>) -> Option<(Vec<u8>, Option<Problem>)> {
        let known = self.bundle.as_ref()?.of(Path::new(KERNEL), id)?;
        match known.bytes("kallsyms") {
            Ok(text) => Some((text.unwrap_or_default(), known.problems().first().cloned())),
            Err(e) => {
                self.note(Problem::Bundle(e));
                None
            }
        }
    }

    /// The copy that the build-id cache has of a file that is no binary.
    pub(crate) fn kept(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        self.roots.cached(binary.build_id?, "elf").filter(|path| path.is_file())
    }

    fn in_bundle<T>(
        &self,
        binary: &Binary<'_>,
        ask: impl Fn(&InBundle<'_>) -> Result<Option<T>, BundleError>,
    ) -> Option<Option<T>> {
        let known = self.bundle.as_ref()?.of(binary.path, binary.build_id)?;
        known.problems().iter().for_each(|p| self.note(p.clone()));
        match ask(&known) {
            Ok(found) => Some(found),
            Err(e) => {
                // What this machine has may still do.
                self.note(Problem::Bundle(e));
                None
            }
        }
    }

    fn find_binary(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let name = if binary.path == Path::new("[vdso]") { "vdso" } else { "elf" };
        if let Some(found) = self.in_bundle(binary, |known| known.file(name)) {
            return found;
        }
        self.find_here(binary)
    }

    /// The file that was run, with its code. A bundle may have it without; its symbols
    /// then are those of what was seen alone, and no part of it counts.
    pub(crate) fn with_code(&self, binary: &Binary<'_>) -> Option<WithCode> {
        let found = self.binary(binary)?;
        let slim = open(&found).is_some_and(|pages| {
            LazyElf::parse(&pages).is_ok_and(|elf| elf.has(crate::bundle::CODE))
        });
        if !slim {
            let (symbols, dwarf) = (self.symbols(binary), self.dwarf(binary));
            return Some(WithCode { binary: found, symbols, dwarf });
        }
        let own = self.find_here(binary)?;
        let part = |part| self.part_of(binary, Some(&own), part);
        let (symbols, dwarf) = (part(FilePart::Symbols), part(FilePart::Dwarf));
        Some(WithCode { binary: own, symbols, dwarf })
    }

    fn find_here(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let mut problem = None;
        for place in self.roots.binary(binary) {
            match judge(&place.path, binary.build_id, None, FilePart::Any) {
                // A path alone says nothing about a file in another root.
                Verdict::Fits if place.certain || binary.build_id.is_some() => {
                    self.doubt(binary);
                    return Some(place.path);
                }
                Verdict::Other { found, wanted } if place.certain => {
                    let path = place.path.display().to_string();
                    problem.get_or_insert(Problem::Changed { path, found, recorded: wanted });
                }
                Verdict::Unusable { why } if place.certain => {
                    let path = place.path.display().to_string();
                    problem.get_or_insert(Problem::Unusable { path, why });
                }
                _ => {}
            }
        }
        let fetched = self.fetch(binary.build_id, Artifact::Executable);
        if let Some(problem) = problem.filter(|_| fetched.is_none()) {
            self.note(problem);
        }
        fetched
    }

    /// A path alone says little on another machine.
    fn doubt(&self, binary: &Binary<'_>) {
        let named = binary.build_id.is_some() || self.roots.is_elsewhere();
        if let (false, Some((recorded, here))) = (named, self.foreign.get()) {
            let (recorded, here) = (recorded.clone(), here.clone());
            self.note(Problem::OtherMachine { recorded, here });
        }
    }

    fn find_part(&self, binary: &Binary<'_>, part: FilePart) -> Option<PathBuf> {
        let bundled = self.in_bundle(binary, |known| {
            let files = [known.file("elf")?, known.file("vdso")?, known.file("debug")?];
            let fits = |p: &PathBuf| matches!(judge(p, None, None, part), Verdict::Fits);
            Ok(files.into_iter().flatten().find(fits))
        });
        bundled.unwrap_or_else(|| self.part_of(binary, self.binary(binary).as_deref(), part))
    }

    /// The file with a part of a binary: its own, or a debug file, on this machine or a
    /// server.
    fn part_of(&self, binary: &Binary<'_>, own: Option<&Path>, part: FilePart) -> Option<PathBuf> {
        let facts = own.and_then(match_build_id::BinaryFacts::of);
        if let (Some(own), Some(facts)) = (own, &facts)
            && facts.has(part)
        {
            return Some(own.to_owned());
        }
        let id = facts.as_ref().map_or(binary.build_id, |f| f.build_id.or(binary.build_id));
        let link = facts.as_ref().and_then(|f| f.debuglink.as_ref());
        let candidates = self.roots.debug(own.unwrap_or(binary.path), id, link);
        let of = binary.path;
        if let Some(path) = self.first_that_fits(candidates, own, id, link, part, of) {
            return Some(path);
        }
        // Packed names are as good as fetched ones.
        if part == FilePart::Symbols && facts.as_ref().is_some_and(|f| f.mini) {
            return None;
        }
        let path = self.fetch(id, Artifact::Debuginfo)?;
        matches!(judge(&path, id, None, part), Verdict::Fits).then_some(path)
    }

    /// The first file that holds the requested part; if there is none, the refused ones are
    /// reported.
    fn first_that_fits(
        &self,
        candidates: Vec<PathBuf>,
        not: Option<&Path>,
        id: Option<BuildId>,
        link: Option<&kymo_debuginfo::DebugLink>,
        part: FilePart,
        of: &Path,
    ) -> Option<PathBuf> {
        let mut refused = Vec::new();
        for path in candidates.into_iter().filter(|p| Some(p.as_path()) != not) {
            let why = match judge(&path, id, link, part) {
                Verdict::Fits => return Some(path),
                Verdict::Absent | Verdict::Lacks => continue,
                Verdict::Other { found: Some(found), wanted } => {
                    format!("its build-id is {found}, wanted is {wanted}")
                }
                Verdict::Other { found: None, wanted } => {
                    format!("it has no build-id, wanted is {wanted}")
                }
                Verdict::Checksum { found, wanted } => {
                    format!("its checksum is {found:08x}, the debug link says {wanted:08x}")
                }
                Verdict::Unusable { why } => why,
            };
            let (path, of) = (path.display().to_string(), of.display().to_string());
            refused.push(Problem::Refused { path, of, why });
        }
        refused.into_iter().for_each(|p| self.note(p));
        None
    }
}
