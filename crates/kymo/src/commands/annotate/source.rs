//! Lines of source files. A file that is missing, or changed since the binary was built, is
//! reported.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kymo_kernel::regular_file;
use rustc_hash::FxHashMap;

/// Larger files are no sources.
const LIMIT: u64 = 16 << 20;

/// Finds a source file by its path at compile time.
pub(super) type Find = Box<dyn Fn(&str) -> Option<PathBuf>>;

/// Source files that were read.
pub(super) struct SourceTexts {
    /// Finds a file: on this machine, under another root, on a server.
    find: Find,
    files: FxHashMap<String, Option<Vec<String>>>,
    /// Modification time of the binary, from its file.
    made: Option<SystemTime>,
    /// Files that are not there.
    pub(super) missing: Vec<String>,
    /// Files that are younger than the binary.
    pub(super) younger: Vec<String>,
}

impl SourceTexts {
    /// Sources of a binary that was made then.
    pub(super) fn of(made: Option<SystemTime>, find: Find) -> SourceTexts {
        let (files, missing, younger) = (FxHashMap::default(), Vec::new(), Vec::new());
        SourceTexts { find, files, made, missing, younger }
    }

    /// A line, if its file is there.
    pub(super) fn line(&mut self, path: &str, line: u32) -> Option<&str> {
        if !self.files.contains_key(path) {
            let lines = self.read(path);
            self.files.insert(path.to_string(), lines);
        }
        let lines = self.files.get(path)?.as_ref()?;
        lines.get((line as usize).checked_sub(1)?).map(String::as_str)
    }

    fn read(&mut self, path: &str) -> Option<Vec<String>> {
        if path.is_empty() {
            return None;
        }
        let place = (self.find)(path).unwrap_or_else(|| PathBuf::from(path));
        let opened = regular_file::open_with_metadata(&place);
        let read = opened
            .and_then(|(file, meta)| Ok((regular_file::read_open(file, &meta, LIMIT)?, meta)));
        let Ok((text, meta)) = read else {
            self.missing.push(path.to_string());
            return None;
        };
        // What a server sent is as old as the binary.
        if place == Path::new(path)
            && let (Some(made), Ok(changed)) = (self.made, meta.modified())
            && changed > made
        {
            self.younger.push(path.to_string());
        }
        let text = String::from_utf8_lossy(&text);
        let plain = |line: &str| {
            line.replace('\t', "    ")
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect()
        };
        Some(text.lines().map(plain).collect())
    }
}
