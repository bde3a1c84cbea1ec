//! Companion files of debugging information: shared debug files of dwz, packages and files of split
//! units.

use std::path::{Path, PathBuf};

use kymo_debuginfo::dwarf::{Companions, FileBytes};
use kymo_kernel::mapped::MappedFile;
use kymo_model::BuildId;
use object::read::{Object as _, ObjectSection as _};

use crate::{Finder, compressed_modules};

/// Looks beside a binary and its debug file, and where distributions install.
#[derive(Clone, Debug)]
pub struct DebugCompanions<'f> {
    /// The binary, and its separate debug file if it has one.
    files: Vec<PathBuf>,
    /// Finder for other directories and servers.
    finder: Option<&'f Finder>,
}

struct Mapped(MappedFile);

impl FileBytes for Mapped {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl<'f> DebugCompanions<'f> {
    /// For a binary and its separate debug file.
    pub fn new(binary: &Path, debug: Option<&Path>) -> DebugCompanions<'f> {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let files = debug.into_iter().chain([binary]).map(real).collect();
        DebugCompanions { files, finder: None }
    }

    /// Asks there, too.
    pub fn asking(self, finder: &'f Finder) -> DebugCompanions<'f> {
        DebugCompanions { finder: Some(finder), ..self }
    }

    fn directories(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter_map(|f| f.parent())
    }
}

fn map(path: &Path) -> Option<MappedFile> {
    compressed_modules::map(path).ok()
}

fn kept(map: MappedFile) -> Box<dyn FileBytes> {
    Box::new(Mapped(map))
}

impl Companions for DebugCompanions<'_> {
    fn shared(&self, name: &str, build_id: &[u8]) -> Option<Box<dyn FileBytes>> {
        // An absolute name replaces the directory.
        let mut places: Vec<PathBuf> = self.directories().map(|f| f.join(name)).collect();
        if let Some(base) = Path::new(name).file_name() {
            places.extend(self.directories().map(|f| f.join(".dwz").join(base)));
            places.push(Path::new("/usr/lib/debug/.dwz").join(base));
        }
        let hex: String = build_id.iter().map(|b| format!("{b:02x}")).collect();
        if let Some((first, rest)) = hex.split_at_checked(2) {
            places.push(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug").into());
        }
        let found = places.iter().find_map(|place| {
            let map = map(place)?;
            let file = object::File::parse(map.bytes()).ok()?;
            let own = file.build_id().ok().flatten().map(<[u8]>::to_vec);
            let fits = own.as_deref() == Some(build_id) || shared_id(&file) == Some(build_id);
            drop(file);
            fits.then(|| kept(map))
        });
        found.or_else(|| {
            let (finder, of) = (self.finder?, self.files.first()?);
            let place = finder.supplement(of, Path::new(name), BuildId::new(build_id))?;
            map(&place).map(kept)
        })
    }

    fn package(&self) -> Option<Box<dyn FileBytes>> {
        self.files.iter().find_map(|file| {
            let mut name = file.clone().into_os_string();
            name.push(".dwp");
            map(Path::new(&name)).or_else(|| map(&file.with_extension("dwp"))).map(kept)
        })
    }

    fn split(&self, name: &str, comp_dir: &str) -> Option<Box<dyn FileBytes>> {
        let recorded = Path::new(comp_dir).join(name);
        let moved = Path::new(name).file_name();
        let beside =
            self.directories().flat_map(|f| [Some(f.join(name)), moved.map(|m| f.join(m))]);
        std::iter::once(recorded).chain(beside.flatten()).find_map(|p| map(&p)).map(kept)
    }
}

/// The id in `.debug_sup` of a file that others share.
fn shared_id<'f>(file: &object::File<'f>) -> Option<&'f [u8]> {
    let data = file.section_by_name(".debug_sup")?.data().ok()?;
    let (head, rest) = data.split_at_checked(3)?;
    let name_end = rest.iter().position(|b| *b == 0)?;
    let rest = rest.get(name_end + 1..)?;
    let size = usize::from(*rest.first()?);
    (head.get(2) == Some(&1)).then(|| rest.get(1..1 + size)).flatten()
}
