//! Variables at probes of programs, and probes on source lines and inlined copies, by
//! debugging information.

use std::path::PathBuf;

use kymo_bpf::{ArgumentPlace, AttachTarget, CType, FunctionArgument, UserVariable};
use kymo_debuginfo::CodeSymbols;
use kymo_debuginfo::dwarf::{LocationBase, LocationExpr, VariableLocation};
use kymo_model::probe::{FetchType, IntegerFormat};
use kymo_model::{counted, shell_word};
use kymo_probe::grammar::ProbeDescription;
use kymo_probe::{LocatedPoint, PointError, ProbedBinary, ResolveError, ResolveOptions};
use kymo_symbols::debug_files::SourceDirectories;

use super::binaries::open;
use super::user_types::UserTypes;

/// The most places of one probe.
const MOST_PLACES: usize = 10_000;

fn options() -> ResolveOptions {
    let sources = SourceDirectories { directory: None };
    ResolveOptions { no_inlines: false, max_probes: MOST_PLACES, sources }
}

/// With all parameters: where they are in place is the point.
fn description(function: &str) -> Result<ProbeDescription, String> {
    ProbeDescription::parse(&format!("{function} $params")).map_err(|e| e.to_string())
}

/// Whether a name is a source line: `file.rs:12`.
pub(super) fn is_source_line(function: &str) -> bool {
    function.rsplit_once(':').is_some_and(|(file, line)| {
        file.contains('.') && !file.ends_with(':') && line.parse::<u32>().is_ok_and(|n| n > 0)
    })
}

/// Places of a probe in a binary.
pub(super) struct FoundPlaces {
    /// The binary.
    pub(super) path: PathBuf,
    /// Addresses.
    pub(super) addresses: Vec<u64>,
    /// Number of further places of a line, which are not probed.
    pub(super) others: usize,
}

/// Addresses of a source line, one in each function and copy, or of the inlined copies of a
/// function.
pub(super) fn places(path: &str, function: &str, pid: Option<u32>) -> Result<FoundPlaces, String> {
    let files = open(path, pid)?;
    let binary = ProbedBinary::load(&files).map_err(|e| e.to_string())?;
    let d = description(function)?;
    let found = binary.with_finder(&options(), function, |finder| -> Result<_, ResolveError> {
        Ok(match is_source_line(function) {
            true => finder.first_points(&d)?,
            false => (finder.located_points(&d)?, 0),
        })
    });
    let (points, others) = found.map_err(|e| e.to_string())?;
    let addresses = points.iter().map(|point| point.addr).collect();
    Ok(FoundPlaces { path: files.path.clone(), addresses, others })
}

/// Warning if a function has inlined copies: a probe at its entry does not see these.
pub(super) fn inlined_copies(path: &str, function: &str, pid: Option<u32>) -> Option<String> {
    let files = open(path, pid).ok()?;
    let binary = ProbedBinary::load(&files).ok()?;
    let d = ProbeDescription::parse(function).ok()?;
    let found = binary.with_finder(&options(), function, |finder| -> Result<_, ResolveError> {
        Ok(finder.located_points(&d)?)
    });
    let copies = found.ok()?.iter().filter(|point| point.is_inlined).count() as u64;
    (copies > 0).then(|| {
        let what = counted(copies, "place", "places");
        format!(
            "{function} is also inlined at {what}, where this probe does not fire: probe their \
             source lines instead (`kymo probe -x {} -D {}` lists them)",
            shell_word(path),
            shell_word(function)
        )
    })
}

/// Parameters of a function as the debugging information has them: types and names.
pub(super) fn parameters(
    path: &str,
    function: &str,
    pid: Option<u32>,
) -> Result<Vec<(String, String)>, String> {
    let files = open(path, pid)?;
    let binary = ProbedBinary::load(&files).map_err(|e| e.to_string())?;
    let d = description(function)?;
    let found = binary.with_finder(&options(), function, |finder| -> Result<_, ResolveError> {
        Ok((finder.find(&d)?, finder.parameters(&d)?))
    });
    let (points, mut parameters) = found.map_err(|e| e.to_string())?;
    let args = points.into_iter().next().map(|point| point.args).unwrap_or_default();
    let names: Vec<String> = args.into_iter().filter_map(|arg| arg.name).collect();
    // The kernel's probes fetch no numbers of these types, programs read them.
    let is_number = |kind: &str| kind.contains("__int128") || matches!(kind, "float" | "double");
    parameters.retain(|(kind, name)| names.contains(name) || is_number(kind));
    Ok(parameters)
}

/// Type of the number that a function returns.
pub(super) fn returned(path: &str, function: &str, pid: Option<u32>) -> Result<CType, String> {
    let files = open(path, pid)?;
    let binary = ProbedBinary::load(&files).map_err(|e| e.to_string())?;
    let d = ProbeDescription::parse(&format!("{function}%return $retval"));
    let d = d.map_err(|e| e.to_string())?;
    let found = binary.with_finder(&options(), function, |finder| -> Result<_, ResolveError> {
        Ok(finder.find(&d)?)
    });
    let points = found.map_err(|e| e.to_string())?;
    let mut args = points.into_iter().flat_map(|point| point.args);
    match args.next().and_then(|arg| arg.fetch_type) {
        Some(FetchType::Integer { format, bits }) => Ok(CType::Integer {
            size: u8::try_from(bits / 8).unwrap_or(8),
            signed: format == IntegerFormat::Signed,
            is_char: false,
        }),
        _ => Err("it returns no integer".into()),
    }
}

/// A variable at a probe.
pub(super) fn variable(
    target: &AttachTarget,
    name: &str,
    pid: Option<u32>,
    types: &mut UserTypes,
) -> Result<UserVariable, String> {
    let AttachTarget::Uprobe { path, function, offset, address, .. } = target else {
        return Err("it has no variables".into());
    };
    if *offset != 0 {
        return Err("variables are read at a function's begin or at FILE:LINE".into());
    }
    let files = open(path, pid)?;
    let binary = ProbedBinary::load(&files).map_err(|e| e.to_string())?;
    let symbols = CodeSymbols::load(files.binary(), files.debug()).map_err(|e| e.to_string())?;
    let entry = match address {
        Some(_) => None,
        None => symbols.named(function, true).map(|s| s.addr),
    };
    let by_address = address.filter(|_| function.is_empty()).map(|a| format!("{a:#x}"));
    let d = description(by_address.as_deref().unwrap_or(function))?;
    let is_it = |point: &LocatedPoint| match address {
        Some(address) => point.addr == *address,
        None => point.entry == entry && !point.is_inlined,
    };
    let found = binary.with_finder(&options(), function, |finder| -> Result<_, ResolveError> {
        let variables = finder.located_variables(&d, name)?;
        let Some(variable) = variables.into_iter().find(|v| is_it(&v.point)) else {
            return Ok(Err(format!("no variable {name} at this place")));
        };
        let location = match variable.location {
            Ok(location) => location,
            Err(why) => return Ok(Err(why)),
        };
        let register = |number| finder.register_name(number);
        let place = match place(&location, &register) {
            Ok(place) => place,
            Err(why) => return Ok(Err(format!("{name}: {why}"))),
        };
        let Some(kind) = variable.kind else { return Ok(Err(format!("{name} has no type"))) };
        let ctype = types.ctype(finder.dwarf(), &kind, &files.path).map_err(PointError::from)?;
        let Some(ctype) = ctype else {
            let of = finder.dwarf().name(&kind).map_err(PointError::from)?;
            let of = of.unwrap_or_default();
            return Ok(Err(format!("{name} is {of}, which programs in the kernel cannot read")));
        };
        let argument = FunctionArgument { name: name.to_owned(), ctype, place };
        Ok(Ok(UserVariable { argument, address: variable.point.addr }))
    });
    match found {
        Ok(found) => found,
        Err(e) => Err(e.to_string()),
    }
}

/// A structure, union or enumeration of a program, as C names it.
pub(super) fn program_type(
    path: &str,
    name: &str,
    pid: Option<u32>,
    types: &mut UserTypes,
) -> Option<CType> {
    let (keyword, name) = name.split_once(' ')?;
    let tag = match keyword {
        "struct" => gimli::DW_TAG_structure_type,
        "union" => gimli::DW_TAG_union_type,
        "enum" => gimli::DW_TAG_enumeration_type,
        _ => return None,
    };
    let files = open(path, pid).ok()?;
    let binary = ProbedBinary::load(&files).ok()?;
    let found = binary.with_finder(&options(), name, |finder| -> Result<_, ResolveError> {
        let dwarf = finder.dwarf();
        let kind = dwarf.named_type(name, tag).map_err(PointError::from)?;
        let read = kind.map(|kind| types.ctype(dwarf, &kind, &files.path)).transpose();
        Ok(read.map_err(PointError::from)?.flatten())
    });
    found.ok()?
}

fn place(
    location: &VariableLocation,
    register: &dyn Fn(u16) -> Option<String>,
) -> Result<ArgumentPlace, String> {
    let computed = |e: &LocationExpr, is_address: bool| match e.base {
        LocationBase::Register(number) => {
            let register = register(number).ok_or("it is in a register that probes do not see")?;
            let register = register.trim_start_matches('%').to_owned();
            Ok(ArgumentPlace::Computed {
                register,
                reads: e.derefs.clone(),
                add: e.add,
                is_address,
            })
        }
        LocationBase::Number(n) if e.derefs.is_empty() && !is_address => {
            Ok(ArgumentPlace::Constant(n.wrapping_add(e.add)))
        }
        _ => Err("it has a fixed address, which the program's place in memory shifts".to_owned()),
    };
    match location {
        VariableLocation::Value(e) => computed(e, false),
        VariableLocation::Memory(e) => computed(e, true),
        VariableLocation::Pieces(pieces) => {
            let piece = |(bytes, location): &(u64, VariableLocation)| {
                Ok((u32::try_from(*bytes).unwrap_or(u32::MAX), place(location, register)?))
            };
            Ok(ArgumentPlace::Pieces(pieces.iter().map(piece).collect::<Result<_, String>>()?))
        }
        VariableLocation::Extern(name) => Err(format!("{name} is defined in another file")),
        VariableLocation::Gone(why) => Err(why.clone()),
    }
}
