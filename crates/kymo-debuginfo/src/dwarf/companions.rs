//! Other files that a binary's debugging information is in: what several
//! binaries share (dwz, `.gnu_debugaltlink`, `.debug_sup`), and units split off
//! (`.dwo` files, or a `.dwp` package of them). They are asked for when they are
//! needed, and kept.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use gimli::{DwarfPackageSections, DwarfSections, EndianSlice, SectionId};
use object::read::{Object, ObjectSection};

use super::sections::{Sections, UNPACKED_LIMIT, section};
use super::{DwarfError, Reader, Result};

/// A file's bytes, kept by whom they were given to.
pub trait FileBytes: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// Opens files that debugging information names. Whether a file is the right
/// one is checked here only as far as its bytes say it.
pub trait Companions: Sync {
    /// The file that several binaries share, of this build-id.
    fn shared(&self, name: &str, build_id: &[u8]) -> Option<Box<dyn FileBytes>>;
    /// The package of split units beside the binary.
    fn package(&self) -> Option<Box<dyn FileBytes>>;
    /// The file of one split unit, whose path may count from `comp_dir`.
    fn split(&self, name: &str, comp_dir: &str) -> Option<Box<dyn FileBytes>>;
}

/// A section of an owned file.
enum Part {
    /// As it stands in the file.
    Stored(Range<usize>),
    Unpacked(Vec<u8>),
}

impl Part {
    fn of<'f>(&'f self, file: &'f dyn FileBytes) -> &'f [u8] {
        match self {
            Part::Stored(range) => file.bytes().get(range.clone()).unwrap_or_default(),
            Part::Unpacked(bytes) => bytes,
        }
    }

    fn load(bytes: &[u8], file: &object::File<'_>, name: Option<&str>) -> Result<Part> {
        let Some(name) = name else { return Ok(Part::Stored(0..0)) };
        let range = |slice: &[u8]| {
            let start = (slice.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
            if slice.is_empty() { 0..0 } else { start..start + slice.len() }
        };
        let mut all = file.sections().filter(|s| s.name() == Ok(name));
        if all.by_ref().take(2).count() == 2 {
            return joined(file, name).map(Part::Unpacked);
        }
        Ok(match section(file, name)? {
            Cow::Borrowed(stored) => Part::Stored(range(stored)),
            Cow::Owned(unpacked) => Part::Unpacked(unpacked),
        })
    }
}

/// Sections of one name behind each other: a compiler puts each type into a section of
/// its own, so that linkers can drop copies. Units refer to nothing by offset in them.
fn joined(file: &object::File<'_>, name: &str) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for part in file.sections().filter(|s| s.name() == Ok(name)) {
        let data = part.compressed_data()?;
        let size = data.uncompressed_size.saturating_add(all.len() as u64);
        if size > UNPACKED_LIMIT {
            return Err(DwarfError::TooLarge { section: name.to_owned(), size });
        }
        all.extend_from_slice(&data.decompress()?);
    }
    Ok(all)
}

/// An owned file and where its sections are.
struct Owned<S> {
    file: Box<dyn FileBytes>,
    sections: S,
}

impl Owned<DwarfSections<Part>> {
    fn load(file: Box<dyn FileBytes>, name: fn(SectionId) -> Option<&'static str>) -> Result<Self> {
        let object = object::File::parse(file.bytes())?;
        let sections = DwarfSections::load(|id| Part::load(file.bytes(), &object, name(id)))?;
        Ok(Owned { file, sections })
    }

    fn borrow(&self, endian: gimli::RunTimeEndian) -> gimli::Dwarf<Reader<'_>> {
        self.sections.borrow(|part| EndianSlice::new(part.of(&*self.file), endian))
    }
}

type Shared = Owned<DwarfSections<Part>>;
type Package = Owned<DwarfPackageSections<Part>>;

/// Files that were opened.
#[derive(Default)]
pub(super) struct Opened {
    shared: Option<Shared>,
    package: OnceLock<Option<Package>>,
    /// For each unit of the binary the file split off it.
    split: OnceLock<Vec<OnceLock<Option<Shared>>>>,
    /// Companions that are named but missing.
    absent: Mutex<Vec<String>>,
}

impl Opened {
    fn miss(&self, what: String) {
        if let Ok(mut absent) = self.absent.lock()
            && !absent.contains(&what)
        {
            absent.push(what);
        }
    }

    pub(super) fn shared(&self, endian: gimli::RunTimeEndian) -> Option<gimli::Dwarf<Reader<'_>>> {
        self.shared.as_ref().map(|s| s.borrow(endian))
    }
}

/// A split unit, with the debugging information that it is read in.
pub(super) struct SplitUnit<'s> {
    pub(super) dwarf: Arc<gimli::Dwarf<Reader<'s>>>,
    pub(super) unit: gimli::Unit<Reader<'s>>,
}

impl<'a> Sections<'a> {
    /// Sets `companions`, which opens files that belong to the binary; `debug` is the file the
    /// sections were loaded from.
    pub fn with_companions(
        mut self,
        debug: &[u8],
        companions: &'a dyn Companions,
    ) -> std::result::Result<Sections<'a>, DwarfError> {
        self.companions = Some(companions);
        let object = object::File::parse(debug)?;
        let Some((name, id)) = shared_file(&object) else { return Ok(self) };
        self.opened.shared = match companions.shared(&name, &id) {
            Some(file) => Some(Owned::load(file, |id| Some(id.name()))?),
            None => {
                self.opened.miss(format!("the shared debug file {name}"));
                None
            }
        };
        Ok(self)
    }

    /// Files that the debugging information names and that were not found, in
    /// words.
    pub fn absent_text(&self) -> Option<String> {
        let absent = self.opened.absent.lock().ok()?;
        let first = absent.first()?;
        let more = match absent.len() - 1 {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Some(format!("a part of the debugging information was not found: {first}{more}"))
    }

    /// The package of split units, if there is one.
    fn package(&self) -> Result<Option<gimli::DwarfPackage<Reader<'_>>>> {
        let Some(companions) = self.companions else { return Ok(None) };
        let package = self.opened.package.get_or_init(|| load_package(companions.package()?));
        let Some(package) = package else { return Ok(None) };
        let empty = EndianSlice::new(&[][..], self.endian);
        let borrow = |part| EndianSlice::new(Part::of(part, &*package.file), self.endian);
        Ok(Some(package.sections.borrow(borrow, empty)?))
    }

    /// Type unit in the package with this signature.
    pub(super) fn packed_type<'s>(
        &'s self,
        parent: &gimli::Dwarf<Reader<'s>>,
        signature: gimli::DebugTypeSignature,
    ) -> Result<Option<gimli::Dwarf<Reader<'s>>>> {
        match self.opened.package.get() {
            // Only where something of it was asked for before.
            Some(Some(_)) => Ok(match self.package()? {
                Some(package) => package.find_tu(signature, parent)?,
                None => None,
            }),
            _ => Ok(None),
        }
    }

    /// The unit that was split off unit number `index`, of `units`.
    pub(super) fn split_off<'s>(
        &'s self,
        parent: &gimli::Dwarf<Reader<'s>>,
        skeleton: &gimli::Unit<Reader<'s>>,
        place: (usize, usize),
    ) -> Result<Option<SplitUnit<'s>>> {
        let (Some(id), Some(companions)) = (skeleton.dwo_id, self.companions) else {
            return Ok(None);
        };
        let name = skeleton.dwo_name()?.and_then(|v| parent.attr_string(skeleton, v).ok());
        let Some(name) = name.map(|n| n.to_string_lossy().into_owned()) else { return Ok(None) };
        if let Some(package) = self.package()?
            && let Some(dwarf) = package.find_cu(id, parent)?
        {
            return split_unit(dwarf, parent, skeleton, id);
        }
        let slots = self
            .opened
            .split
            .get_or_init(|| std::iter::repeat_with(OnceLock::new).take(place.1).collect());
        let comp_dir = skeleton.comp_dir.map(|d| d.to_string_lossy().into_owned());
        let load = || {
            let file = companions.split(&name, &comp_dir.unwrap_or_default())?;
            Owned::load(file, |id| id.dwo_name()).ok()
        };
        let Some(Some(file)) = slots.get(place.0).map(|slot| slot.get_or_init(load)) else {
            self.opened.miss(format!("the split unit {name}"));
            return Ok(None);
        };
        let found = split_unit(file.borrow(self.endian), parent, skeleton, id)?;
        if found.is_none() {
            self.opened.miss(format!("the split unit {name}, which is of another build"));
        }
        Ok(found)
    }
}

/// The unit of this id, with what only the binary knows.
fn split_unit<'s>(
    mut dwarf: gimli::Dwarf<Reader<'s>>,
    parent: &gimli::Dwarf<Reader<'s>>,
    skeleton: &gimli::Unit<Reader<'s>>,
    id: gimli::DwoId,
) -> Result<Option<SplitUnit<'s>>> {
    dwarf.make_dwo(parent);
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let mut unit = dwarf.unit(header)?;
        if unit.dwo_id != Some(id) {
            continue;
        }
        unit.copy_relocated_attributes(skeleton);
        unit.line_program.clone_from(&skeleton.line_program);
        unit.comp_dir = unit.comp_dir.or(skeleton.comp_dir);
        unit.name = unit.name.or(skeleton.name);
        return Ok(Some(SplitUnit { dwarf: Arc::new(dwarf), unit }));
    }
    Ok(None)
}

fn load_package(file: Box<dyn FileBytes>) -> Option<Package> {
    let object = object::File::parse(file.bytes()).ok()?;
    let sections = DwarfPackageSections::load(|id: SectionId| {
        Part::load(file.bytes(), &object, id.dwo_name())
    });
    let sections = sections.ok()?;
    Some(Owned { file, sections })
}

/// Name and build-id of the file that is shared with other binaries.
fn shared_file(file: &object::File<'_>) -> Option<(String, Vec<u8>)> {
    let (name, id) = match file.gnu_debugaltlink().ok().flatten() {
        Some((name, id)) => (name.to_vec(), id.to_vec()),
        // Version, whether this is such a file itself, name, bytes of the id, id.
        None => {
            let data = file.section_by_name(".debug_sup")?.data().ok()?;
            let (head, rest) = data.split_at_checked(3)?;
            if head.get(2) != Some(&0) {
                return None;
            }
            let end = rest.iter().position(|b| *b == 0)?;
            let (name, rest) = rest.split_at_checked(end)?;
            let size = usize::from(*rest.get(1)?);
            (name.to_vec(), rest.get(2..2 + size)?.to_vec())
        }
    };
    Some((String::from_utf8(name).ok()?, id))
}
