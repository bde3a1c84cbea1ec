//! The probe cache (`--cache`): definitions by the build-id of the binary they are in, so
//! that a probe that was resolved once can be added later, where the debugging information
//! is not. The file is text: a description behind `#`, then its definitions in the
//! kernel's syntax.

use kymo_model::BuildId;

use kymo_model::probe::{ProbeDefinition, ProbeTarget};
use kymo_symbols::cache::{CacheError, CacheKind, SymbolCache};

const DEFINITIONS: CacheKind = CacheKind { name: "probe-defs", version: 1 };
/// Most descriptions of one binary.
const MOST: usize = 4096;

/// A description and its definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedProbe {
    /// The description as it was typed.
    pub description: String,
    /// Its definitions.
    pub definitions: Vec<ProbeDefinition>,
}

/// The cached probes of one binary.
#[derive(Clone, Debug)]
pub struct CachedProbes {
    cache: SymbolCache,
    /// The binary's build-id.
    pub key: BuildId,
    /// The path that it had.
    pub path: String,
    /// In the order they were stored.
    pub probes: Vec<CachedProbe>,
}

impl CachedProbe {
    /// `group:event` of its first definition.
    pub fn event(&self) -> Option<String> {
        self.definitions.first().map(ProbeDefinition::full_name)
    }

    /// The definitions for the binary where it is today.
    pub fn definitions_at(&self, path: &str) -> Vec<ProbeDefinition> {
        let mut definitions = self.definitions.clone();
        for definition in &mut definitions {
            if let ProbeTarget::File { path: cached, .. } = &mut definition.target {
                path.clone_into(cached);
            }
        }
        definitions
    }
}

impl CachedProbes {
    /// A binary without cached probes.
    pub fn empty(cache: &SymbolCache, key: BuildId, path: &str) -> CachedProbes {
        CachedProbes { cache: cache.clone(), key, path: path.to_owned(), probes: Vec::new() }
    }

    /// The cached probes of a binary. A file that is damaged or foreign is an error;
    /// storing renews it.
    pub fn load(cache: &SymbolCache, key: BuildId, path: &str) -> Result<CachedProbes, CacheError> {
        let mut cached = CachedProbes::empty(cache, key, path);
        let Some(payload) = cache.load(DEFINITIONS, key)? else { return Ok(cached) };
        // A probe of which a definition cannot be read is resolved again.
        let mut whole = true;
        for line in String::from_utf8_lossy(&payload).lines() {
            if let Some(description) = line.strip_prefix('#') {
                if !whole {
                    cached.probes.pop();
                }
                whole = true;
                let description = description.to_owned();
                cached.probes.push(CachedProbe { description, definitions: Vec::new() });
            } else if let Some(last) = cached.probes.last_mut() {
                let definition = ProbeDefinition::parse(line);
                whole &= definition.is_some();
                last.definitions.extend(definition);
            }
        }
        if !whole {
            cached.probes.pop();
        }
        Ok(cached)
    }

    /// Those of all binaries, the one used last first, with what cannot be read.
    pub fn all(cache: &SymbolCache) -> Result<(Vec<CachedProbes>, Vec<CacheError>), CacheError> {
        let (mut all, mut problems) = (Vec::new(), Vec::new());
        for file in cache.list()?.into_iter().filter(|f| f.kind == DEFINITIONS.name) {
            let Some(key) = file.key else { continue };
            match CachedProbes::load(cache, key, &file.label) {
                Ok(cached) => all.push(cached),
                Err(e) => problems.push(e),
            }
        }
        Ok((all, problems))
    }

    /// The probe of this description, or whose event is `%GROUP:EVENT`.
    pub fn find(&self, description: &str) -> Option<&CachedProbe> {
        let named = description.strip_prefix('%');
        self.probes.iter().find(|p| {
            p.description == description || (named.is_some() && p.event().as_deref() == named)
        })
    }

    /// Keeps a probe, instead of one of the same description.
    pub fn keep(&mut self, probe: CachedProbe) {
        self.probes.retain(|p| p.description != probe.description);
        if self.probes.len() < MOST {
            self.probes.push(probe);
        }
    }

    /// Writes what there is; a binary without any is forgotten.
    pub fn store(&self) -> Result<(), CacheError> {
        if self.probes.is_empty() {
            return self.cache.remove(DEFINITIONS, self.key).map(drop);
        }
        let mut text = String::new();
        for probe in &self.probes {
            // One line each: nothing that was typed may begin another.
            text.push_str(&format!("#{}\n", probe.description.replace('\n', " ")));
            for definition in &probe.definitions {
                text.push_str(&format!("{definition}\n"));
            }
        }
        self.cache.store(DEFINITIONS, self.key, &self.path, text.as_bytes())
    }
}
