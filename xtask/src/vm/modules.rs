//! The kernel's modules: which there are, and which must be loaded before which.
//! The package carries no `modules.dep` (it is made at installation), so the
//! modules themselves are asked: section `.modinfo`, key `depends`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use object::{Object as _, ObjectSection as _};

/// Every module's file by name; a dash in a file's name counts as an underscore.
pub(crate) struct Modules {
    files: BTreeMap<String, PathBuf>,
}

impl Modules {
    pub(crate) fn of(directory: &Path) -> anyhow::Result<Modules> {
        let mut modules = Modules { files: BTreeMap::new() };
        modules.walk(directory)?;
        if modules.files.is_empty() {
            bail!("no modules in {}", directory.display());
        }
        Ok(modules)
    }

    fn walk(&mut self, directory: &Path) -> anyhow::Result<()> {
        for entry in
            std::fs::read_dir(directory).with_context(|| directory.display().to_string())?
        {
            let (path, kind) = entry.and_then(|e| Ok((e.path(), e.file_type()?)))?;
            if kind.is_dir() {
                self.walk(&path)?;
            } else if path.extension().is_some_and(|e| e == "ko") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
                self.files.insert(name, path);
            }
        }
        Ok(())
    }

    /// A module's file.
    pub(crate) fn file(&self, name: &str) -> anyhow::Result<&Path> {
        let found = self.files.get(&name.replace('-', "_"));
        found.map(PathBuf::as_path).with_context(|| {
            format!("this kernel has no module {name} (it may be built in, or not at all)")
        })
    }

    /// A module's file after those of all it needs.
    pub(crate) fn in_order(&self, name: &str) -> anyhow::Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        self.visit(&name.replace('-', "_"), &mut Vec::new(), &mut order)?;
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        above: &mut Vec<String>,
        order: &mut Vec<PathBuf>,
    ) -> anyhow::Result<()> {
        let path = self.file(name)?;
        if order.iter().any(|known| known == path) || above.iter().any(|n| n == name) {
            return Ok(());
        }
        above.push(name.to_owned());
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        for needed in depends(&bytes).with_context(|| path.display().to_string())? {
            self.visit(&needed.replace('-', "_"), above, order)?;
        }
        above.pop();
        order.push(path.to_owned());
        Ok(())
    }
}

/// What a module says it needs.
fn depends(module: &[u8]) -> anyhow::Result<Vec<String>> {
    let file = object::File::parse(module).context("not an ELF file")?;
    let section = file.section_by_name(".modinfo").context("no section .modinfo")?;
    let info = section.data().context("section .modinfo")?;
    let list = info.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let list = String::from_utf8_lossy(list.unwrap_or_default()).into_owned();
    Ok(list.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect())
}
