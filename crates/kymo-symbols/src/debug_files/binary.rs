//! A binary and its debugging information, mapped: the binary, and where its debugging information is:
//! in itself, in a separate file by build-id, or by debug link.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::companions::DebugCompanions;
use kymo_debuginfo::dwarf::{DwarfError, Pages, Sections};
use kymo_kernel::mapped::MappedFile;
use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;
use object::read::{Object as _, ObjectSection as _};

use crate::files::{find_module, running_build_id, running_release, vmlinux_places};
use crate::{Binary, Finder, compressed_modules};

/// Sort of binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// A program or library.
    User,
    /// The running kernel.
    RunningKernel,
    /// A kernel given as a file.
    OfflineKernel,
    /// A module, by its name.
    Module(String),
}

/// A mapped file, as `kymo_debuginfo` sees it.
struct Mapped(MappedFile);

impl Pages for Mapped {
    fn forget(&self, part: &[u8]) {
        self.0.forget(part);
    }
}

/// A mapped binary with its debug file.
pub struct BinaryFiles {
    /// Sort of binary.
    pub kind: BinaryKind,
    /// The binary's path, as the kernel shall open it.
    pub path: PathBuf,
    binary: Mapped,
    debug: Option<(PathBuf, Mapped)>,
    beside: DebugCompanions<'static>,
    /// Its build-id.
    pub build_id: Option<BuildId>,
}

/// Why a binary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// It is no ELF file.
    #[error("{}: {error}", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Error of the reader.
        error: DwarfError,
    },
    /// The kernel's own binary is not there.
    #[error(
        "no vmlinux for kernel {release}\nhint: install the kernel's debug package (Debian: linux-image-{release}-dbg), or name the file with -k"
    )]
    NoVmlinux {
        /// Which kernel.
        release: String,
    },
    /// It is there, but of another kernel.
    #[error("{} is of another kernel: its build-id is {found}, the running kernel's {running}", path.display())]
    WrongVmlinux {
        /// Which file.
        path: PathBuf,
        /// Its build-id.
        found: String,
        /// The kernel's.
        running: String,
    },
    /// The file with its debugging information is of another build.
    #[error("{} is of another build than {}: its build-id is {found}, not {own}", path.display(), binary.display())]
    OtherBuild {
        /// The file with debugging information.
        path: PathBuf,
        /// The binary.
        binary: PathBuf,
        /// Build-id of the former.
        found: String,
        /// Build-id of the latter.
        own: String,
    },
    /// No such module.
    #[error(
        "no module {name} for kernel {release} under /lib/modules or /usr/lib/debug/lib/modules; -m takes a path, too"
    )]
    NoModule {
        /// Its name.
        name: String,
        /// Which kernel.
        release: String,
    },
}

fn open(path: &Path) -> Result<MappedFile, BinaryError> {
    compressed_modules::map(path).map_err(|error| BinaryError::Io { path: path.to_owned(), error })
}

fn build_id(file: &object::File<'_>) -> Option<BuildId> {
    file.build_id().ok().flatten().map(BuildId::new)
}

fn has_debuginfo(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_info").is_some_and(|s| s.size() > 0)
}

/// Whether a path is of a mapping of a process, `map_files/START-END` of it, or its program
/// (`/proc/PID/exe`) of a file that was removed or replaced.
fn is_open_without_name(path: &Path) -> bool {
    let is_program = path.ends_with("exe");
    let leads_to = || std::fs::read_link(path).unwrap_or_default().into_os_string();
    path.parent().is_some_and(|dir| dir.ends_with("map_files"))
        || is_program && leads_to().as_bytes().ends_with(b" (deleted)")
}

impl BinaryFiles {
    /// A program or library.
    pub fn user(path: &Path) -> Result<BinaryFiles, BinaryError> {
        if let Some((pid, below)) = super::process_root::of_process(path) {
            return BinaryFiles::user_of(pid, below);
        }
        // A mapped file may have no name any more.
        if is_open_without_name(path) {
            return BinaryFiles::with_debug(BinaryKind::User, path.to_owned());
        }
        let real = std::fs::canonicalize(path)
            .map_err(|error| BinaryError::Io { path: path.to_owned(), error })?;
        BinaryFiles::with_debug(BinaryKind::User, real)
    }

    /// A program or library as a process sees it that has mounts of its own. The path
    /// is one that works here.
    pub fn user_of(pid: u32, path: &Path) -> Result<BinaryFiles, BinaryError> {
        let root = SystemRoot::machine().root_of(pid);
        let real = super::process_root::resolve(&root, path)
            .map_err(|error| BinaryError::Io { path: root.join(path), error })?;
        BinaryFiles::with_debug(BinaryKind::User, real)
    }

    /// A kernel given as a file.
    pub fn vmlinux(path: &Path) -> Result<BinaryFiles, BinaryError> {
        BinaryFiles::with_debug(BinaryKind::OfflineKernel, path.to_owned())
    }

    /// The running kernel's `vmlinux`: at `path`, or in one of the usual places.
    pub fn running_kernel(path: Option<&Path>) -> Result<BinaryFiles, BinaryError> {
        let release = release();
        let places = match path {
            Some(path) => vec![path.to_owned()],
            None => vmlinux_places(&release),
        };
        let running = running_build_id();
        let mut wrong = None;
        for place in &places {
            if path.is_none() && !place.exists() {
                continue;
            }
            let files = BinaryFiles::with_debug(BinaryKind::RunningKernel, place.clone())?;
            match (files.build_id, running) {
                (Some(found), Some(running)) if found != running => {
                    wrong = Some(BinaryError::WrongVmlinux {
                        path: place.clone(),
                        found: found.to_string(),
                        running: running.to_string(),
                    });
                }
                _ => return Ok(files),
            }
        }
        Err(wrong.unwrap_or(BinaryError::NoVmlinux { release }))
    }

    /// A module: a path, or a name of the running kernel's.
    pub fn module(name: &str) -> Result<BinaryFiles, BinaryError> {
        let release = release();
        let path = if name.contains('/') {
            PathBuf::from(name)
        } else {
            find_module(name, &release)
                .ok_or_else(|| BinaryError::NoModule { name: name.into(), release })?
        };
        let mut files = BinaryFiles::with_debug(BinaryKind::Module(String::new()), path)?;
        let own = module_name(files.binary.0.bytes()).or_else(|| {
            let stem = files.path.file_name()?.to_str()?.split('.').next()?;
            Some(stem.replace('-', "_"))
        });
        files.kind = BinaryKind::Module(own.unwrap_or_else(|| name.to_owned()));
        Ok(files)
    }

    fn with_debug(kind: BinaryKind, path: PathBuf) -> Result<BinaryFiles, BinaryError> {
        let binary = open(&path)?;
        let (id, debug) = {
            let file = object::File::parse(binary.bytes())
                .map_err(|e| BinaryError::Unusable { path: path.clone(), error: e.into() })?;
            let id = build_id(&file);
            let debug = if has_debuginfo(&file) { None } else { separate(&path) };
            (id, debug)
        };
        let beside = DebugCompanions::new(&path, debug.as_ref().map(|d| d.0.as_path()));
        Ok(BinaryFiles {
            kind,
            path,
            beside,
            binary: Mapped(binary),
            debug: debug.map(|(p, m)| (p, Mapped(m))),
            build_id: id,
        })
    }

    /// Takes debugging information from the file at the binary's path below a directory.
    ///
    /// # Errors
    /// If that file is not there, or is of another build.
    pub fn take_debug_below(&mut self, root: &Path) -> Result<(), BinaryError> {
        let path = root.join(self.path.strip_prefix("/").unwrap_or(&self.path));
        let map = open(&path)?;
        let file = object::File::parse(map.bytes())
            .map_err(|e| BinaryError::Unusable { path: path.clone(), error: e.into() })?;
        let found = build_id(&file);
        if found != self.build_id {
            let text = |id: Option<BuildId>| id.map_or("none".into(), |id| id.to_string());
            return Err(BinaryError::OtherBuild {
                path,
                binary: self.path.clone(),
                found: text(found),
                own: text(self.build_id),
            });
        }
        self.beside = DebugCompanions::new(&self.path, Some(&path));
        self.debug = Some((path, Mapped(map)));
        Ok(())
    }

    /// The bytes of the binary.
    pub fn binary(&self) -> &[u8] {
        self.binary.0.bytes()
    }

    /// The bytes of the separate debug file, if there is one.
    pub fn debug(&self) -> Option<&[u8]> {
        self.debug.as_ref().map(|d| d.1.0.bytes())
    }

    /// The sections of the debugging information.
    pub fn sections(&self) -> Result<Sections<'_>, BinaryError> {
        let (path, map, binary) = match &self.debug {
            Some((path, map)) => (path, map, Some(self.binary.0.bytes())),
            None => (&self.path, &self.binary, None),
        };
        let mut sections = Sections::load(map.0.bytes(), binary)
            .and_then(|s| s.with_companions(map.0.bytes(), &self.beside))
            .map_err(|error| BinaryError::Unusable { path: path.clone(), error })?;
        sections.pages = Some(map);
        Ok(sections)
    }
}

/// A separate debug file of the right build-id or checksum.
fn separate(path: &Path) -> Option<(PathBuf, MappedFile)> {
    let place = Finder::default().dwarf(&Binary { path, build_id: None, pid: None })?;
    let map = compressed_modules::map(&place).ok()?;
    Some((place, map))
}

fn release() -> String {
    running_release().unwrap_or_default()
}

/// `name=` of a module's `.modinfo`.
fn module_name(bytes: &[u8]) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let info = file.section_by_name(".modinfo")?.data().ok()?;
    let name = info.split(|b| *b == 0).find_map(|s| s.strip_prefix(b"name="))?;
    std::str::from_utf8(name).ok().map(str::to_owned)
}
