//! Names of functions, which may stand in other units than their code, and
//! paths of files. Each is read once for a unit.

use gimli::UnitOffset;
use rustc_hash::FxHashMap;

use super::super::lines::join;
use super::super::{DwarfError, Reader, Result, Value};
use super::answers::{TextId, Texts};
use super::{File, Inlines};

/// Copies of copies end after these; longer chains are loops.
const CHAIN: usize = 16;

/// Names that a unit uses.
pub(super) struct Names<'u, 's> {
    all: &'u Inlines<'s>,
    unit: &'u gimli::Unit<Reader<'s>>,
    /// Split unit of the skeleton.
    split: Option<Split<'u, 's>>,
    functions: FxHashMap<usize, TextId>,
    files: FxHashMap<u64, TextId>,
    /// Why a name could not be read, of the first one.
    pub(super) unread: Option<DwarfError>,
}

/// Placeholder for an inlined function whose name cannot be read.
const NAMELESS: &str = "[unknown]";
/// And a file.
const NO_FILE: &str = "??";

/// A unit that was split off another one, and what it is read in.
type Split<'u, 's> = (&'u gimli::Dwarf<Reader<'s>>, &'u gimli::Unit<Reader<'s>>);

/// Name attributes of an entry.
struct Named<'s> {
    /// Linkage name, else the source name.
    name: Option<&'s [u8]>,
    is_linkage: bool,
    /// Entry that it is a copy or the definition of.
    origin: Option<Value<'s>>,
}

impl<'u, 's> Names<'u, 's> {
    pub(super) fn new(
        all: &'u Inlines<'s>,
        unit: &'u gimli::Unit<Reader<'s>>,
        split: Option<Split<'u, 's>>,
    ) -> Names<'u, 's> {
        let (functions, files) = (FxHashMap::default(), FxHashMap::default());
        Names { all, unit, split, functions, files, unread: None }
    }

    /// The name of the function whose entry it is, or a copy of which. One that is not
    /// inlined may have none here: the symbol table knows it.
    pub(super) fn function(
        &mut self,
        entry: UnitOffset,
        inlined: bool,
        texts: &mut Texts,
    ) -> TextId {
        if let Some(known) = self.functions.get(&entry.0) {
            return *known;
        }
        // Lines are worth something without it.
        let name = self.name(entry).unwrap_or_else(|error| {
            self.unread.get_or_insert(error);
            None
        });
        let id = match name {
            Some(name) => texts.intern(&String::from_utf8_lossy(name)),
            None if inlined => texts.intern(NAMELESS),
            None => TextId(0),
        };
        self.functions.insert(entry.0, id);
        id
    }

    fn name(&self, entry: UnitOffset) -> Result<Option<&'s [u8]>> {
        let (mut dwarf, mut unit) = self.split.unwrap_or((&self.all.dwarf, self.unit));
        let mut file = File::Own;
        let mut named = read(dwarf, unit, entry)?;
        let mut kept;
        let mut name = named.name;
        for _ in 0..CHAIN {
            if named.is_linkage {
                return Ok(named.name);
            }
            let elsewhere = match named.origin {
                Some(Value::UnitRef(offset)) => {
                    named = read(dwarf, unit, offset)?;
                    name = name.or(named.name);
                    continue;
                }
                Some(Value::DebugInfoRef(offset)) => offset.0,
                // Without the shared file, which is reported elsewhere, it has no names.
                Some(Value::DebugInfoRefSup(_)) if self.all.dwarf.sup().is_none() => {
                    return Ok(name);
                }
                Some(Value::DebugInfoRefSup(offset)) => {
                    file = File::Shared;
                    offset.0
                }
                _ => break,
            };
            let (start, other) = self.all.unit_at(file, elsewhere)?;
            kept = other;
            (dwarf, unit) = (self.all.dwarf(file), &kept);
            named = read(dwarf, unit, UnitOffset(elsewhere - start))?;
            name = name.or(named.name);
        }
        match (name, named.origin) {
            // Copies of copies without an end.
            (None, Some(_)) => Err(DwarfError::Endless),
            _ => Ok(name),
        }
    }

    /// The path of a file of the unit's line table.
    pub(super) fn file(&mut self, number: u64, texts: &mut Texts) -> TextId {
        if let Some(known) = self.files.get(&number) {
            return *known;
        }
        let path = self.path(number).unwrap_or_else(|error| {
            self.unread.get_or_insert(error);
            Some(NO_FILE.to_owned())
        });
        let id = path.map_or(TextId(0), |p| texts.intern(&p));
        self.files.insert(number, id);
        id
    }

    fn path(&self, number: u64) -> Result<Option<String>> {
        let unit = self.unit;
        let header = unit.line_program.as_ref().map(|p| p.header());
        let Some((header, file)) = header.and_then(|h| Some((h, h.file(number)?))) else {
            return Ok(None);
        };
        let text = |v| -> Result<String> {
            let found = self.all.dwarf.attr_string(unit, v)?;
            Ok(String::from_utf8_lossy(found.slice()).into_owned())
        };
        let name = text(file.path_name())?;
        if name.starts_with('/') {
            return Ok(Some(name));
        }
        let dir = file.directory(header).map_or(Ok(String::new()), text)?;
        let comp_dir = unit.comp_dir.map(|d| d.to_string_lossy().into_owned());
        Ok(Some(join(&comp_dir.unwrap_or_default(), &dir, &name)))
    }
}

/// Reads the name attributes of an entry.
fn read<'s>(
    dwarf: &gimli::Dwarf<Reader<'s>>,
    unit: &gimli::Unit<Reader<'s>>,
    at: UnitOffset,
) -> Result<Named<'s>> {
    let mut named = Named { name: None, is_linkage: false, origin: None };
    let mut raw = unit.entries_raw(Some(at))?;
    let Some(abbreviation) = raw.read_abbreviation()? else { return Ok(named) };
    let text = |v| -> Result<&'s [u8]> { Ok(dwarf.attr_string(unit, v)?.slice()) };
    for spec in abbreviation.attributes() {
        match spec.name() {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                named.name = Some(text(raw.read_attribute(*spec)?.value())?);
                named.is_linkage = true;
            }
            gimli::DW_AT_name if !named.is_linkage => {
                named.name = Some(text(raw.read_attribute(*spec)?.value())?);
            }
            gimli::DW_AT_abstract_origin => {
                named.origin = Some(raw.read_attribute(*spec)?.value());
            }
            gimli::DW_AT_specification if named.origin.is_none() => {
                named.origin = Some(raw.read_attribute(*spec)?.value());
            }
            _ => raw.skip_attributes(std::slice::from_ref(spec))?,
        }
    }
    Ok(named)
}
