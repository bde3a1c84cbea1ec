//! The kernel's modules: which there are, which are built in, and which must be loaded before which.
//! The package carries no `modules.dep` (it is made at installation), so the
//! modules themselves are asked: section `.modinfo`, key `depends`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use object::{Object as _, ObjectSection as _};

use super::fetch::Kernel;

/// Suffix of compressed modules.
pub(super) const COMPRESSED: &str = ".xz";

/// Every module's file by name; a dash in a file's name counts as an underscore.
pub(crate) struct Modules {
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

impl Modules {
    /// All of a kernel.
    pub(crate) fn of(kernel: &Kernel) -> anyhow::Result<Modules> {
        let built_in = kernel.built_in().map(std::fs::read_to_string).transpose();
        let built_in = built_in.context("modules.builtin")?.unwrap_or_default();
        let built_in = built_in.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Ok(Modules { built_in, ..Modules::below(&kernel.modules()?)? })
    }

    /// Those in a directory.
    pub(crate) fn below(directory: &Path) -> anyhow::Result<Modules> {
        let mut modules = Modules { files: BTreeMap::new(), built_in: BTreeSet::new() };
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
            } else if let Some(name) = module_name(&path) {
                self.files.insert(name, path);
            }
        }
        Ok(())
    }

    /// Whether the kernel has it, as a module or built in.
    pub(crate) fn has(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        self.built_in.contains(&name) || self.files.contains_key(&name)
    }

    /// A module's file.
    pub(crate) fn file(&self, name: &str) -> anyhow::Result<&Path> {
        let found = self.files.get(&name.replace('-', "_"));
        found.map(PathBuf::as_path).with_context(|| format!("this kernel has no module {name}"))
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
        if self.built_in.contains(name) {
            return Ok(());
        }
        let path = self.file(name)?;
        if order.iter().any(|known| known == path) || above.iter().any(|n| n == name) {
            return Ok(());
        }
        above.push(name.to_owned());
        let bytes = read(path)?;
        for needed in depends(&bytes).with_context(|| path.display().to_string())? {
            self.visit(&needed.replace('-', "_"), above, order)?;
        }
        above.pop();
        order.push(path.to_owned());
        Ok(())
    }
}

/// Name of the module in a file `NAME.ko`, which may be compressed.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(COMPRESSED).unwrap_or(name);
    Some(name.strip_suffix(".ko")?.replace('-', "_"))
}

/// Bytes of a module as the kernel loads them.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    if !path.to_string_lossy().ends_with(COMPRESSED) {
        return std::fs::read(path).with_context(|| path.display().to_string());
    }
    let output = Command::new("xz").args(["--decompress", "--stdout", "--"]).arg(path).output();
    let output = output.context("cannot run xz; as root: apt-get install xz-utils")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("xz cannot unpack {}: {}", path.display(), said.trim());
    }
    Ok(output.stdout)
}

/// Modules that a module depends on.
fn depends(module: &[u8]) -> anyhow::Result<Vec<String>> {
    let file = object::File::parse(module).context("not an ELF file")?;
    let section = file.section_by_name(".modinfo").context("no section .modinfo")?;
    let info = section.data().context("section .modinfo")?;
    let list = info.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let list = String::from_utf8_lossy(list.unwrap_or_default()).into_owned();
    Ok(list.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect())
}
