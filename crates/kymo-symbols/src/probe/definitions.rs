//! Definitions of probes, kept by the build-id of what they are in (`--cache`): a
//! probe that was found once can be added later, where its debugging information
//! is not. The file is text: a description behind `#`, then its definitions in the
//! kernel's syntax.

use kymo_model::BuildId;

use crate::cache::{Cache, CacheError, Kind};

const DEFINITIONS: Kind = Kind { name: "probe-defs", version: 1 };
/// More descriptions of one binary are not kept.
const MOST: usize = 4096;

/// A description and what it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptProbe {
    /// As it was typed.
    pub description: String,
    /// In the kernel's syntax.
    pub lines: Vec<String>,
}

/// The kept probes of one binary.
#[derive(Clone, Debug)]
pub struct KeptProbes {
    cache: Cache,
    /// The binary's build-id.
    pub key: BuildId,
    /// The path that it had.
    pub path: String,
    /// In the order they were kept.
    pub probes: Vec<KeptProbe>,
}

impl KeptProbe {
    /// `group:event` of its first definition.
    pub fn event(&self) -> Option<String> {
        let word = self.lines.first()?.split(' ').next()?;
        let (_, name) = word.split_once(':')?;
        let (group, event) = name.split_once('/')?;
        Some(format!("{group}:{event}"))
    }
}

impl KeptProbes {
    /// A binary of which nothing is kept.
    pub fn empty(cache: &Cache, key: BuildId, path: &str) -> KeptProbes {
        KeptProbes { cache: cache.clone(), key, path: path.to_owned(), probes: Vec::new() }
    }

    /// What is kept for a binary. A file that is damaged or foreign is an error;
    /// storing renews it.
    pub fn load(cache: &Cache, key: BuildId, path: &str) -> Result<KeptProbes, CacheError> {
        let mut kept = KeptProbes::empty(cache, key, path);
        let Some(payload) = cache.load(DEFINITIONS, key)? else { return Ok(kept) };
        for line in String::from_utf8_lossy(&payload).lines() {
            if let Some(description) = line.strip_prefix('#') {
                let description = description.to_owned();
                kept.probes.push(KeptProbe { description, lines: Vec::new() });
            } else if let Some(last) = kept.probes.last_mut() {
                last.lines.push(line.to_owned());
            }
        }
        Ok(kept)
    }

    /// Those of all binaries, the one used last first, with what cannot be read.
    pub fn all(cache: &Cache) -> Result<(Vec<KeptProbes>, Vec<CacheError>), CacheError> {
        let (mut all, mut problems) = (Vec::new(), Vec::new());
        for file in cache.list()?.into_iter().filter(|f| f.kind == DEFINITIONS.name) {
            let Some(key) = file.key else { continue };
            match KeptProbes::load(cache, key, &file.label) {
                Ok(kept) => all.push(kept),
                Err(e) => problems.push(e),
            }
        }
        Ok((all, problems))
    }

    /// The probe of this description, or whose event is `%GROUP:EVENT`.
    pub fn find(&self, description: &str) -> Option<&KeptProbe> {
        let named = description.strip_prefix('%');
        self.probes.iter().find(|p| {
            p.description == description || (named.is_some() && p.event().as_deref() == named)
        })
    }

    /// Keeps a probe, instead of one of the same description.
    pub fn keep(&mut self, probe: KeptProbe) {
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
            for line in &probe.lines {
                text.push_str(&format!("{line}\n"));
            }
        }
        self.cache.store(DEFINITIONS, self.key, &self.path, text.as_bytes())
    }
}
