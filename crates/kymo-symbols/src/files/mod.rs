//! The files behind a binary: the binary itself and the separate debug files it
//! may have. Every command asks here, so that all of them use the same files
//! and refuse the same ones: a file whose build-id or checksum is not the
//! expected one is never handed out, it is named ([`Finder::problems`]).
//!
//! What the files hold is for `kymo-debuginfo`.

mod kernel;
mod places;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kymo_model::BuildId;
use rustc_hash::FxHashMap;

use crate::resolver::Problem;
pub(crate) use kernel::{find_module, running_build_id, running_release, vmlinux_places};
use places::Places;
pub(crate) use verdict::{Part, open, same};
use verdict::{Verdict, judge};

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

/// Finds files. Answers are remembered.
#[derive(Debug, Default)]
pub struct Finder {
    places: Places,
    known: Mutex<FxHashMap<Key, Arc<Known>>>,
    problems: Mutex<Vec<Problem>>,
}

type Key = (PathBuf, Option<BuildId>);

/// The answers for one binary.
#[derive(Debug, Default)]
struct Known {
    binary: OnceLock<Option<PathBuf>>,
    symbols: OnceLock<Option<PathBuf>>,
    dwarf: OnceLock<Option<PathBuf>>,
}

impl Finder {
    /// Looks under `symfs` where that is given.
    pub fn new(symfs: Option<PathBuf>) -> Finder {
        Finder { places: Places::new(symfs), ..Finder::default() }
    }

    /// The file that was run, with its code, its segments and its tables for unwinding.
    pub fn binary(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let known = self.known(binary);
        known.binary.get_or_init(|| self.find_binary(binary)).clone()
    }

    /// A file with the full symbol table: the binary, or its debug file.
    pub fn symbols(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let known = self.known(binary);
        known.symbols.get_or_init(|| self.find_part(binary, Part::Symbols)).clone()
    }

    /// A file with DWARF: the binary, or its debug file.
    pub fn dwarf(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let known = self.known(binary);
        known.dwarf.get_or_init(|| self.find_part(binary, Part::Dwarf)).clone()
    }

    /// The file that a debug file shares with others (`.gnu_debugaltlink`, made
    /// by dwz): its name as stated in the debug file `of`, and its build-id.
    pub fn supplement(&self, of: &Path, name: &Path, build_id: BuildId) -> Option<PathBuf> {
        let candidates = self.places.supplement(of, name, build_id);
        self.first_that_fits(candidates, None, Some(build_id), None, Part::Any, of)
    }

    /// The uncompressed image of a kernel, of this build.
    pub fn vmlinux(&self, release: Option<&str>, build_id: BuildId) -> Option<PathBuf> {
        let name = Path::new("[kernel.kallsyms]");
        let candidates = self.places.vmlinux(release, build_id);
        self.first_that_fits(candidates, None, Some(build_id), None, Part::Symbols, name)
    }

    /// What went wrong so far.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    fn find_binary(&self, binary: &Binary<'_>) -> Option<PathBuf> {
        let mut problem = None;
        for place in self.places.binary(binary) {
            match judge(&place.path, binary.build_id, None, Part::Any) {
                // A path alone says nothing about a file in another root.
                Verdict::Fits if place.certain || binary.build_id.is_some() => {
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
        if let Some(problem) = problem {
            self.note(problem);
        }
        None
    }

    fn find_part(&self, binary: &Binary<'_>, part: Part) -> Option<PathBuf> {
        let own = self.binary(binary);
        let facts = own.as_deref().and_then(verdict::Facts::of);
        if let (Some(own), Some(facts)) = (&own, &facts)
            && facts.has(part)
        {
            return Some(own.clone());
        }
        let id = facts.as_ref().map_or(binary.build_id, |f| f.build_id.or(binary.build_id));
        let link = facts.as_ref().and_then(|f| f.debuglink.as_ref());
        let candidates = self.places.debug(own.as_deref().unwrap_or(binary.path), id, link);
        self.first_that_fits(candidates, own.as_deref(), id, link, part, binary.path)
    }

    /// The first file that holds what is wanted; if there is none, those that
    /// were refused are told.
    fn first_that_fits(
        &self,
        candidates: Vec<PathBuf>,
        not: Option<&Path>,
        id: Option<BuildId>,
        link: Option<&kymo_debuginfo::DebugLink>,
        part: Part,
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
