//! Target binary, and the resolution of descriptions in it.

use std::path::{Path, PathBuf};

use kymo_kernel::system::SystemRoot;
use kymo_model::Note;
use kymo_symbols::debug_files::{BinaryError, BinaryFiles, path_as_typed};

use crate::grammar::ProbeDescription;
use crate::plan_error::PlanError;
use crate::resolve::{ProbedBinary, ResolveOptions, ResolvedProbe};
use crate::resolve_by_kallsyms::{kallsyms_functions, resolve_by_kallsyms};

/// Target of probes; the default is the running kernel.
#[derive(Clone, Debug, Default)]
pub struct ProbedTarget {
    /// A program or library: a path, or a name on the search path.
    pub exec: Option<PathBuf>,
    /// Process that sees the program at that path.
    pub target_ns: Option<u32>,
    /// Directory below which the program's debugging information is at the program's path.
    pub symfs: Option<PathBuf>,
    /// A kernel module, by name or path.
    pub module: Option<String>,
    /// The kernel's binary with debugging information.
    pub vmlinux: Option<PathBuf>,
}

impl ProbedTarget {
    /// Its files. With `offline` a kernel that is named need not be the running one.
    ///
    /// # Errors
    /// If they are not there or cannot be used.
    pub fn files(&self, offline: bool) -> Result<BinaryFiles, BinaryError> {
        if let Some(path) = &self.exec {
            let mut files = match self.target_ns {
                Some(pid) => BinaryFiles::user_of(pid, path),
                None => BinaryFiles::user(&path_as_typed(path)),
            }?;
            if let Some(root) = &self.symfs {
                files.take_debug_below(root)?;
            }
            return Ok(files);
        }
        if let Some(module) = &self.module {
            return BinaryFiles::module(module);
        }
        match &self.vmlinux {
            Some(path) if offline => BinaryFiles::vmlinux(path),
            path => BinaryFiles::running_kernel(path.as_deref()),
        }
    }
}

/// Resolver of descriptions.
pub enum ProbeResolver<'a> {
    /// A binary.
    Binary(Box<ProbedBinary<'a>>),
    /// The running kernel's list of symbols, where its binary is missing. The error describes what
    /// is missing for more.
    Symbols(String, BinaryError),
}

impl<'a> ProbeResolver<'a> {
    /// A resolver with `files`, or for the running kernel without them.
    ///
    /// # Errors
    /// If there are neither files nor the kernel's list.
    pub fn new(
        files: &'a Result<BinaryFiles, BinaryError>,
    ) -> Result<ProbeResolver<'a>, PlanError> {
        match files {
            Ok(files) => Ok(ProbeResolver::Binary(Box::new(ProbedBinary::load(files)?))),
            Err(BinaryError::NoVmlinux { release }) => {
                ProbeResolver::by_symbols(BinaryError::NoVmlinux { release: release.clone() })
            }
            Err(BinaryError::NoModule { name, release }) => {
                let missing =
                    BinaryError::NoModule { name: name.clone(), release: release.clone() };
                ProbeResolver::by_symbols(missing)
            }
            Err(e) => Err(PlanError::NoFiles(e.to_string())),
        }
    }

    fn by_symbols(missing: BinaryError) -> Result<ProbeResolver<'a>, PlanError> {
        let text = SystemRoot::machine().kallsyms_text().map_err(PlanError::Kallsyms)?;
        Ok(ProbeResolver::Symbols(text, missing))
    }

    /// After the answers: what makes the next ones faster. `immediately`: now, and not only
    /// when it pays.
    pub fn learn(&self, immediately: bool) -> Vec<Note> {
        match self {
            ProbeResolver::Binary(binary) => binary.learn(immediately),
            ProbeResolver::Symbols(..) => Vec::new(),
        }
    }

    /// Definitions of a description; `module`: whose symbols are meant.
    ///
    /// # Errors
    /// If there is no such point or variable.
    pub fn resolve(
        &self,
        d: &ProbeDescription,
        options: &ResolveOptions,
        module: Option<&str>,
    ) -> Result<ResolvedProbe, PlanError> {
        match self {
            ProbeResolver::Binary(binary) => Ok(binary.resolve(d, options)?),
            ProbeResolver::Symbols(text, missing) if d.needs_debuginfo() => {
                let (point, missing) = (d.point.to_string(), missing.to_string());
                let name = d.point.function.as_deref().unwrap_or_default();
                let is_file = name.contains('.') || Path::new(name).is_file();
                if is_file && !kallsyms_functions(text, None).any(|known| known == name) {
                    return Err(PlanError::NoFiles(format!(
                        "{name} is not a function of the kernel; a program or library is a path \
                         with a slash: ./{name}"
                    )));
                }
                Err(PlanError::NeedsDebuginfo { point, missing })
            }
            ProbeResolver::Symbols(text, _) => Ok(resolve_by_kallsyms(d, options, text, module)?),
        }
    }
}
