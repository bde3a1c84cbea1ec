//! The index of a binary's debugging information, kept in the user's cache.
//!
//! One search is faster without making one, so the first search of a binary only
//! leaves a mark. The second one makes the index, once its answer is given; from
//! then on it is used. Nothing happens in the background.

use kymo_debuginfo::dwarf::index::{Index, VERSION};
use kymo_debuginfo::dwarf::{Dwarf, DwarfError, Sections};
use kymo_model::{BuildId, Note, NoteKind};

use kymo_symbols::cache::{CacheKind, Payload, SymbolCache};
use kymo_symbols::debug_files::BinaryFiles;

const INDEX: CacheKind = CacheKind { name: "probe-index", version: VERSION };
/// An empty file that says that a binary was searched before.
const SEEN: CacheKind = CacheKind { name: "probe-seen", version: 1 };

/// Size below which searching is as fast as reading an index.
const WORTH_IT: u64 = 8 << 20;

/// The index of a binary, or the place for one.
pub(crate) struct CachedIndex {
    place: Option<(SymbolCache, BuildId)>,
    payload: Option<Payload>,
    /// Reason why it is not used.
    problem: Option<String>,
}

impl CachedIndex {
    /// Loads the cached index of these files, if any.
    pub(crate) fn load(files: &BinaryFiles, sections: &Sections<'_>) -> CachedIndex {
        let cache = SymbolCache::of_user().filter(|_| sections.info_size() >= WORTH_IT);
        let mut cached =
            CachedIndex { place: cache.zip(files.build_id), payload: None, problem: None };
        let Some((cache, id)) = &cached.place else { return cached };
        match cache.load(INDEX, *id) {
            Ok(Some(payload)) => match Index::open(&payload, sections) {
                Ok(_) => cached.payload = Some(payload),
                Err(e) => cached.problem = Some(e.to_string()),
            },
            Ok(None) => {}
            Err(e) => cached.problem = Some(e.to_string()),
        }
        cached
    }

    /// Debugging information, by the index if there is one.
    pub(crate) fn dwarf<'s>(&'s self, sections: &'s Sections<'s>) -> Result<Dwarf<'s>, DwarfError> {
        match self.payload.as_ref().and_then(|p| Index::open(p, sections).ok()) {
            Some(index) => Ok(Dwarf::with_index(sections, index)),
            None => Dwarf::new(sections),
        }
    }

    /// Makes the index if the binary was searched before, or immediately.
    pub(crate) fn learn(
        &self,
        files: &BinaryFiles,
        sections: &Sections<'_>,
        immediately: bool,
    ) -> Vec<Note> {
        let problem = self.problem.iter().map(|why| not_used(why)).collect();
        let Some((cache, id)) = self.place.as_ref().filter(|_| self.payload.is_none()) else {
            return problem;
        };
        let label = files.path.display().to_string();
        let stored = match cache.load(SEEN, *id) {
            Ok(None) if !immediately && self.problem.is_none() => {
                cache.store(SEEN, *id, &label, &[])
            }
            _ => match Dwarf::new(sections) {
                Ok(dwarf) => cache.store(INDEX, *id, &label, &dwarf.build_index()),
                // Defects were reported by the search.
                Err(_) => Ok(()),
            },
        };
        problem.into_iter().chain(stored.err().map(|e| not_used(&e.to_string()))).collect()
    }
}

/// Note about an unused index: a defect of the cache costs only time.
fn not_used(why: &str) -> Note {
    let advice = "it is rebuilt; set KYMO_CACHE to another directory, or to `off`";
    Note::choice(NoteKind::Cache, format!("an index was ignored: {why}"), Some(advice.to_owned()))
}
