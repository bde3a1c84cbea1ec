//! Directories of programs: `/dev/shm` (or `$KYMO_UST_DIR`) of this mount namespace, and of others
//! through `/proc/PID/root`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use kymo_kernel::shared::{SharedDir, SharedError};
use kymo_kernel::system::SystemRoot;

use super::error::UstError;

/// Default parent of the users' directories.
const SHARED_MEMORY: &str = "/dev/shm";
/// Most users looked at in one mount namespace.
const MAX_USERS: usize = 1024;
/// Most mount namespaces looked at.
const MAX_SPACES: usize = 256;

/// A mount namespace, by a root that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountNamespace {
    /// `/`, or `/proc/PID/root`.
    root: PathBuf,
    /// The directory of the users' directories, seen from there.
    base: PathBuf,
    /// Another user namespace that shows a directory which is shown elsewhere, too: of interest
    /// are users whose names are of that namespace alone.
    is_again: bool,
}

/// The directory of one user.
#[derive(Debug)]
pub struct UserDirectory {
    /// It.
    pub dir: SharedDir,
    /// The user as the programs in there know it.
    pub uid: u32,
}

impl MountNamespace {
    /// Returns the mount namespace of this process.
    pub fn here() -> MountNamespace {
        let base = std::env::var_os("KYMO_UST_DIR").filter(|d| !d.is_empty());
        let base = base.map_or_else(|| SHARED_MEMORY.into(), PathBuf::from);
        let base = if base.is_absolute() {
            base
        } else {
            std::env::current_dir().unwrap_or_else(|_| "/".into()).join(base)
        };
        MountNamespace { root: "/".into(), base, is_again: false }
    }

    /// With the users' directories in this directory.
    pub fn at(base: impl Into<PathBuf>) -> MountNamespace {
        MountNamespace { root: "/".into(), base: base.into(), is_again: false }
    }

    /// This one and those of other mount namespaces that can be looked into.
    pub fn all() -> Vec<MountNamespace> {
        let mut namespaces = vec![MountNamespace::here()];
        let system = SystemRoot::machine();
        let mut seen = BTreeSet::from([system.mount_namespace(std::process::id())]);
        // Services have namespaces of their own, and most of them the machine's directory.
        let base = Path::new(SHARED_MEMORY);
        let mut directories = BTreeSet::from([identity(base)]);
        let own = system.user_namespace(std::process::id());
        let mut views = BTreeSet::from([(identity(base), own)]);
        for pid in system.pids() {
            if namespaces.len() >= MAX_SPACES {
                break;
            }
            let Some(id) = system.mount_namespace(pid) else { continue };
            if !seen.insert(Some(id)) {
                continue;
            }
            let root = system.root_of(pid);
            let mut namespace = MountNamespace { root, base: base.to_owned(), is_again: false };
            let directory = identity(&namespace.outer());
            if directory.is_some() && !views.insert((directory, system.user_namespace(pid))) {
                continue;
            }
            namespace.is_again = directory.is_some() && !directories.insert(directory);
            namespaces.push(namespace);
        }
        namespaces
    }

    /// Whether it is that of this process.
    pub fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The directories of its users that may be trusted to be theirs, and why others are not.
    pub fn users(&self) -> (Vec<UserDirectory>, Vec<UstError>) {
        let (mut users, mut refused) = (Vec::new(), Vec::new());
        let names = std::fs::read_dir(self.outer()).into_iter().flatten().flatten();
        let mut names: Vec<OsString> = names
            .map(|e| e.file_name())
            .filter(|name| uid_of(name).is_some())
            .take(MAX_USERS)
            .collect();
        names.sort();
        for name in names {
            match self.user(&name) {
                Ok(Some(directory)) => users.push(directory),
                Ok(None) => {}
                Err(e) => refused.push(e.into()),
            }
        }
        (users, refused)
    }

    /// The directory of the user of this process, if it is there.
    ///
    /// # Errors If it belongs to another user.
    pub(super) fn mine(&self) -> Result<Option<UserDirectory>, UstError> {
        match self.user(&OsString::from(format!("kymo-{}", me()))) {
            Ok(directory) => Ok(directory),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Parent of the users' directories, as seen from here.
    fn outer(&self) -> PathBuf {
        self.root.join(self.base.strip_prefix("/").unwrap_or(&self.base))
    }

    /// Parent of the users' directories.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The directory of the user of this process; made if it is not there.
    ///
    /// # Errors If it cannot be, or belongs to another user.
    pub fn own(&self) -> Result<UserDirectory, UstError> {
        let name = OsString::from(format!("kymo-{}", me()));
        let path = self.outer().join(&name);
        if let Err(error) =
            std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
                .create(&path)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(UstError::Write { path, error });
        }
        match self.user(&name)? {
            Some(directory) => Ok(directory),
            None => Err(SharedError::Suspicious { path, what: "another user's".into() }.into()),
        }
    }

    /// A user's directory. In this namespace its name has its owner; elsewhere users may have other
    /// numbers, and it is enough that all in it is of one user. Directories that this process may
    /// not read are passed over.
    fn user(&self, name: &OsStr) -> Result<Option<UserDirectory>, SharedError> {
        let Some(uid) = uid_of(name) else { return Ok(None) };
        let me = me();
        if self.is_here() && me != 0 && me != uid {
            return Ok(None);
        }
        let dir = SharedDir::open(&self.root, &self.base, name)?;
        if self.is_again && dir.owner() == uid {
            return Ok(None);
        }
        if self.is_here() && dir.owner() != uid {
            let what = format!("of user {}", dir.owner());
            return Err(SharedError::Suspicious { path: dir.path().to_owned(), what });
        }
        Ok(Some(UserDirectory { dir, uid }))
    }
}

/// Device and inode of a directory; nothing of a link, which leads elsewhere from here.
fn identity(directory: &Path) -> Option<(u64, u64)> {
    let facts = std::fs::symlink_metadata(directory).ok().filter(|facts| facts.is_dir())?;
    Some((facts.dev(), facts.ino()))
}

/// The user that this process acts as.
pub(super) fn me() -> u32 {
    kymo_kernel::system::effective_user()
}

/// User in a directory's name.
fn uid_of(name: &OsStr) -> Option<u32> {
    let digits = name.to_str()?.strip_prefix("kymo-")?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with("00");
    digits.parse().ok().filter(|_| plain)
}
