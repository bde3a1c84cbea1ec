//! Cgroups as a command line names them.

use globset::{GlobBuilder, GlobMatcher};

/// Cgroups by path: one and those below it, or those that match a glob and those below.
#[derive(Clone, Debug)]
pub(crate) enum CgroupPattern {
    /// Without the first slash.
    Path(String),
    Glob(GlobMatcher),
}

impl CgroupPattern {
    /// The patterns of a command line, or why one is none.
    pub(crate) fn parse(paths: &[String]) -> Result<Vec<CgroupPattern>, String> {
        paths.iter().map(|path| CgroupPattern::new(path)).collect()
    }

    fn new(text: &str) -> Result<CgroupPattern, String> {
        let path = text.trim_matches('/');
        if !path.contains(['*', '?', '[', '{']) {
            return Ok(CgroupPattern::Path(path.to_owned()));
        }
        let glob = GlobBuilder::new(path).literal_separator(true).build();
        let glob = glob.map_err(|e| format!("--cgroup {text}: {e}"))?;
        Ok(CgroupPattern::Glob(glob.compile_matcher()))
    }

    /// Whether it has a cgroup.
    pub(crate) fn is_match(&self, path: &[u8]) -> bool {
        let path = String::from_utf8_lossy(path);
        let path = path.trim_start_matches('/');
        match self {
            // The root has all below it.
            CgroupPattern::Path(own) if own.is_empty() => true,
            CgroupPattern::Path(own) => {
                let below = path.strip_prefix(own.as_str());
                below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            CgroupPattern::Glob(glob) => {
                let ends = path.match_indices('/').map(|(at, _)| at);
                ends.chain([path.len()])
                    .any(|end| path.get(..end).is_some_and(|p| glob.is_match(p)))
            }
        }
    }
}
