//! Provenance of fixtures: each is named in a README.md with the command that made it.

use std::path::Path;

use super::{Checkout, is_fixture};

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let fixtures = checkout.names.iter().filter(|name| is_fixture(name));
    fixtures.filter_map(|name| provenance(&checkout.root.join(name), name)).collect()
}

/// A fixture is named, with the command that made it, in a README.md of its directory
/// or of one above it inside `fixtures/`.
fn provenance(path: &Path, name: &str) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    if file == "README.md" {
        return None;
    }
    let mut dir = path.parent()?;
    loop {
        let readme = std::fs::read_to_string(dir.join("README.md")).unwrap_or_default();
        if readme.contains(file) {
            return None;
        }
        if dir.file_name().is_some_and(|n| n == "fixtures") {
            return Some(format!("{name}: no README.md says where it comes from"));
        }
        dir = dir.parent()?;
    }
}
