//! Probes that the user allows: probes by name, functions of the kernel by a list.

use std::collections::HashSet;
use std::path::Path;

use kymo_kernel::regular_file;
use regex_automata::meta::Regex;

/// Probes by a regular expression.
#[derive(Clone, Debug)]
pub struct ProbeFilter(Regex);

impl ProbeFilter {
    /// Compiles the expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(expression: &str) -> Result<ProbeFilter, String> {
        Regex::new(expression).map(ProbeFilter).map_err(|e| match e.syntax_error() {
            Some(error) => error.to_string(),
            None => e.to_string(),
        })
    }

    /// Whether it is found in a probe's name.
    pub fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// Functions of the kernel, a line each, as `available_filter_functions` of tracefs has them.
#[derive(Clone, Debug)]
pub struct FunctionList {
    /// Whether functions that are named, and not by a pattern, have to be in it, too.
    pub is_binding: bool,
    text: String,
    names: HashSet<String>,
}

/// The largest list that is read: some ten times what kernels have.
const LARGEST: u64 = 64 << 20;

impl FunctionList {
    /// Reads a list.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> std::io::Result<FunctionList> {
        // `/dev/null` stands for an empty list.
        let bytes = if path == Path::new("/dev/null") {
            Vec::new()
        } else {
            regular_file::read(path, LARGEST)?
        };
        Ok(FunctionList::of(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn of(text: String) -> FunctionList {
        let names = text.lines().filter_map(|line| line.split_ascii_whitespace().next());
        let names = names.map(str::to_owned).collect();
        FunctionList { is_binding: true, text, names }
    }

    /// Whether a function is in it, of the kernel or of any module.
    pub(crate) fn has(&self, function: &str) -> bool {
        self.names.contains(function)
    }

    /// The list.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_chosen_by_a_part_of_their_names() {
        let filter = ProbeFilter::new("interval:ms:(200|300)").unwrap();
        assert!(filter.is_match("interval:ms:200") && !filter.is_match("interval:ms:100"));
        assert!(ProbeFilter::new("vfs_").unwrap().is_match("kprobe:vfs_read"));
        assert!(ProbeFilter::new("[invalid").unwrap_err().contains("unclosed"));
    }

    #[test]
    fn a_list_has_functions_of_modules_too() {
        let list = FunctionList::of("vfs_read\nxfs_open [xfs]\n\n".to_owned());
        assert!(list.has("vfs_read") && list.has("xfs_open"));
        assert!(!list.has("[xfs]") && !list.has("vfs") && !list.has(""));
    }
}
