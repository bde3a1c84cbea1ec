//! Dead functions: a public name that is said once in the workspace, where it is defined.
//! The compiler finds what is private; of a library it believes that others call it.

use std::collections::HashMap;

use super::{Checkout, code};

/// Functions that nothing here calls, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("from_lines", "kymo-ring: the safe way to give a ring memory, for programs that link it"),
    ("forever", "kymo-tracepoint: callbacks that are never taken back, for traced programs"),
];

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let sources: Vec<_> = checkout.sources().map(|file| (file, &file.split.code)).collect();
    let mut said: HashMap<&str, usize> = HashMap::new();
    for (_, text) in &sources {
        for word in code::words(text) {
            *said.entry(word).or_default() += 1;
        }
    }
    let mut defined: HashMap<&str, Vec<String>> = HashMap::new();
    for (file, text) in &sources {
        if file.name.starts_with("crates/") && file.name.contains("/src/") {
            for (line, name) in public_functions(text) {
                defined.entry(name).or_default().push(format!("{}:{line}", file.name));
            }
        }
    }
    let mut found: Vec<String> = defined
        .into_iter()
        .filter(|(name, places)| said.get(name).copied().unwrap_or(0) <= places.len())
        .filter(|(name, _)| !ALLOWED.iter().any(|(allowed, _)| allowed == name))
        .flat_map(|(name, places)| {
            places.into_iter().map(move |at| format!("{at}: nothing calls `{name}`"))
        })
        .collect();
    found.sort();
    found
}

/// Lines and names of the functions that are visible outside of their module. What C calls
/// is called by others.
fn public_functions(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut exported = false;
    for (i, line) in code.lines().enumerate() {
        let text = line.trim_start();
        if text.starts_with("#[") {
            exported |= text.contains("no_mangle") || text.contains("proc_macro");
            continue;
        }
        let head = text.split('(').next().unwrap_or_default();
        let is_pub = text.starts_with("pub ") || text.starts_with("pub(");
        let signature = text.split_once("fn ").filter(|(before, _)| {
            is_pub && !before.contains(['=', '{', ';', '|']) && !before.contains("type ")
        });
        if let (Some((_, behind)), false) = (signature, exported) {
            let name = behind.split(|c| !code::is_word(c)).next().unwrap_or_default();
            if !name.is_empty() && !head.is_empty() {
                found.push((i + 1, name));
            }
        }
        if !text.is_empty() {
            exported = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::findings;
    use crate::tidy::{Checkout, TextFile};

    #[test]
    fn a_function_that_only_its_definition_names_is_dead() {
        let text = "//! X.\npub fn alive() { private() }\npub(crate) const fn dead() {}\n\
                    fn private() { alive() }\n// dead() is named here\n\
                    #[unsafe(no_mangle)]\npub extern \"C\" fn of_c() {}\n";
        let checkout = Checkout {
            root: PathBuf::new(),
            names: Vec::new(),
            texts: vec![TextFile::new("crates/x/src/lib.rs", text.into())],
        };
        assert_eq!(findings(&checkout), ["crates/x/src/lib.rs:3: nothing calls `dead`"]);
    }
}
