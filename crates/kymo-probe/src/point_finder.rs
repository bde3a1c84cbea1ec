//! From a description to probe points: functions and their inlined copies, lines,
//! patterns; and the fetch arguments at each.

use std::collections::BTreeSet;
use std::rc::Rc;

use kymo_debuginfo::dwarf::{
    Die, Dwarf, DwarfError, DwarfUnit, LineRow, LocationContext, Result, is_tail, unsigned,
};
use kymo_model::glob::lazy_match;
use kymo_model::probe::{FetchArg, FetchBase, FetchExpr};
use kymo_model::{Note, NoteKind};

use crate::fetch_arg::{ArgFetcher, FetchedArg};
use crate::finder_options::{DataNaming, FinderOptions};
use crate::grammar::{ArgValue, ProbeDescription};
use crate::value_steps::ValueSteps;

/// Gives source files that are asked for.
pub trait SourceReader {
    /// The text of a source file, whose path may count from `comp_dir`.
    fn read(&mut self, path: &str, comp_dir: &str) -> Option<Vec<u8>>;
}

/// An address that is probed, with its fetch arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePoint {
    /// Address.
    pub addr: u64,
    /// Entry of the function it is in.
    pub entry: Option<u64>,
    /// Name of the function whose code it is, as the linker knows it.
    pub owner: Option<String>,
    /// Name of the function that the description meant there: of an inlined copy
    /// the inlined function.
    pub function: String,
    /// Fetch arguments.
    pub args: Vec<FetchArg>,
    /// Source file and line there.
    pub line: Option<(String, u32)>,
}

/// Reason why no probe points are found.
#[derive(Debug, thiserror::Error)]
pub enum PointError {
    /// Nothing matches.
    #[error("{what}")]
    NotFound {
        /// Description of what was searched for.
        what: String,
    },
    /// An argument cannot be had.
    #[error("argument {arg}: {why}")]
    Argument {
        /// The argument as written.
        arg: String,
        /// Cause.
        why: String,
    },
    /// More places than wanted.
    #[error("more than {limit} probe points; --max-probes raises the limit")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The place cannot be probed in the way asked for.
    #[error("{0}")]
    Refused(String),
    /// The debugging information cannot be used.
    #[error(transparent)]
    Dwarf(#[from] DwarfError),
}

/// A place before its arguments are known.
pub(crate) struct CodeSite<'s> {
    pub(crate) addr: u64,
    /// Scope in which variables are searched.
    pub(crate) scope: Die<'s>,
    /// The function whose code it is.
    pub(crate) function: Die<'s>,
}

/// Searches one binary.
pub struct PointFinder<'d, 's> {
    pub(crate) dwarf: &'d Dwarf<'s>,
    pub(crate) options: &'d FinderOptions<'d>,
    pub(crate) sources: &'d mut dyn SourceReader,
    /// Places that cannot be used, in words, for the error if none is left.
    pub(crate) notes: Vec<Note>,
    missed_source: Option<String>,
}

/// Attributes of an entry.
type Entry<'s> = gimli::DebuggingInformationEntry<gimli::EndianSlice<'s, gimli::RunTimeEndian>>;

type PointResult<T> = std::result::Result<T, PointError>;

impl<'d, 's> PointFinder<'d, 's> {
    /// A search of `dwarf`.
    pub fn new(
        dwarf: &'d Dwarf<'s>,
        options: &'d FinderOptions<'d>,
        sources: &'d mut dyn SourceReader,
    ) -> Self {
        PointFinder { dwarf, options, sources, notes: Vec::new(), missed_source: None }
    }

    /// Things worth knowing that happened during the search.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// All places of a description, with its arguments there.
    pub fn find(&mut self, d: &ProbeDescription) -> PointResult<Vec<ProbePoint>> {
        let sites = self.sites(d)?;
        if let Some(absent) = self.dwarf.absent_text() {
            let advice =
                "it may contain more probe points; rebuild them, or put them next to the binary";
            self.notes.push(Note::doubt(NoteKind::Missing, absent, Some(advice.to_owned())));
        }
        let mut fetched: Vec<Vec<FetchedArg>> = Vec::new();
        let mut located = Vec::new();
        for site in &sites {
            located.push(self.describe_point(site, d)?);
            let values = self.values(site)?;
            fetched.push(d.args.iter().map(|a| values.fetch(a)).collect::<Result<Vec<_>>>()?);
        }
        for arg in &d.args {
            let mut column: Vec<FetchedArg> = fetched.iter_mut().map(|f| f.remove(0)).collect();
            if let Some(FetchedArg::Refused(why)) =
                column.iter().find(|f| matches!(f, FetchedArg::Refused(_)))
            {
                return Err(PointError::Argument { arg: arg.to_string(), why: why.clone() });
            }
            let template = column.iter().find_map(|f| match f {
                FetchedArg::Args(args) => Some(args.clone()),
                _ => None,
            });
            let Some(template) = template else {
                let why = column.iter().find_map(|f| match f {
                    FetchedArg::Missing(why) => Some(why.clone()),
                    _ => None,
                });
                let site = sites.first().ok_or(PointError::TooMany { limit: 0 })?;
                let why = self.why_missing(site, arg, why.unwrap_or_default())?;
                return Err(PointError::Argument { arg: arg.to_string(), why });
            };
            for (at, one) in column.drain(..).enumerate() {
                let Some(place) = located.get_mut(at) else { continue };
                match one {
                    FetchedArg::Args(args) => place.args.extend(args),
                    FetchedArg::Missing(why) | FetchedArg::Refused(why) => {
                        self.notes.push(Note::doubt(
                            NoteKind::Missing,
                            format!("at {:#x}: {why}", place.addr),
                            Some("the recorded value is the marker 0xdeade12d".to_owned()),
                        ));
                        place.args.extend(template.iter().map(|t| FetchArg {
                            name: t.name.clone(),
                            expr: FetchExpr::from_base(FetchBase::Missing),
                            fetch_type: t.fetch_type.clone(),
                        }));
                    }
                }
            }
        }
        for place in &mut located {
            number_names(&mut place.args);
        }
        Ok(located)
    }

    pub(crate) fn values(&self, site: &CodeSite<'s>) -> Result<ArgFetcher<'d, 's>> {
        let entry = self.dwarf.entry(&site.function)?;
        let entry_pc = self.dwarf.entry_pc(&site.function.unit, &entry)?;
        let context = LocationContext {
            dwarf: self.dwarf,
            function: site.function.clone(),
            entry: entry_pc,
            pc: site.addr,
        };
        Ok(ArgFetcher {
            dwarf: self.dwarf,
            steps: ValueSteps { dwarf: self.dwarf },
            context,
            scope: site.scope.clone(),
            options: self.options,
        })
    }

    pub(crate) fn describe_point(
        &self,
        site: &CodeSite<'s>,
        d: &ProbeDescription,
    ) -> PointResult<ProbePoint> {
        let unit = &site.function.unit;
        let entry = self.dwarf.entry(&site.function)?;
        if !self.dwarf.covers(unit, &entry, site.addr)? {
            let name = self.dwarf.name(&site.function)?.unwrap_or_default();
            return Err(PointError::Refused(format!(
                "offset {} is outside of {name}",
                d.point.offset
            )));
        }
        let entry_pc = self.dwarf.entry_pc(unit, &entry)?;
        if d.point.ret && entry_pc != Some(site.addr) {
            let name = d.point.function.as_deref().unwrap_or_default();
            return Err(PointError::Refused(format!(
                "{name} is inlined there and has no return point"
            )));
        }
        let lines = self.dwarf.lines(unit)?;
        let line = lines
            .at(site.addr)
            .and_then(|r| Some((lines.file(u64::from(r.file))?.to_owned(), r.line)));
        let function = self.dwarf.readable_name(&site.scope)?;
        let owner = self.linker_name(&site.function)?;
        Ok(ProbePoint { addr: site.addr, entry: entry_pc, owner, function, args: Vec::new(), line })
    }

    fn linker_name(&self, die: &Die<'s>) -> Result<Option<String>> {
        for at in [gimli::DW_AT_linkage_name, gimli::DW_AT_name] {
            if let Some((unit, value)) = self.dwarf.inherited(die, at)? {
                let name = self.dwarf.string(&unit, value);
                return Ok(name.map(|b| String::from_utf8_lossy(b).into_owned()));
            }
        }
        Ok(None)
    }

    /// All places of the point, each address once.
    pub(crate) fn sites(&mut self, d: &ProbeDescription) -> PointResult<Vec<CodeSite<'s>>> {
        let mut sites = Vec::new();
        let point = &d.point;
        if let Some(address) = point.address {
            for index in self.dwarf.units_of(address) {
                let unit = self.dwarf.unit(index)?;
                if let Some(function) = self.dwarf.function_at(&unit, address)? {
                    let scope = function.clone();
                    sites.push(CodeSite { addr: address, scope, function });
                    break;
                }
            }
        } else if let Some(function) = &point.function {
            let units = self.dwarf.units_for(function, self.options.entry)?;
            for index in units {
                let unit = self.dwarf.unit(index)?;
                self.in_unit_by_function(&unit, d, function, &mut sites)?;
            }
            if sites.is_empty()
                && let Some((unit, own)) = self.alias(function)?
            {
                self.in_unit_by_function(&unit, d, &own, &mut sites)?;
            }
        } else if let Some(file) = &point.file {
            for index in self.dwarf.units_with_file(file) {
                let unit = self.dwarf.unit(index)?;
                let files = self.dwarf.files(&unit)?;
                let Some(path) = files.iter().find(|f| is_tail(file, f)).cloned() else {
                    continue;
                };
                let wanted = self.wanted_lines(&unit, d, &path, None)?;
                self.at_lines(d, &unit, None, &path, &wanted, None, &mut sites)?;
            }
        }
        if sites.is_empty() {
            return Err(self.nothing(d));
        }
        Ok(sites)
    }

    /// Returns the source name of a function that has `name` in the symbol table alone, and its
    /// unit: of several names of one function (`malloc`, `__libc_malloc`) the debugging information
    /// has only one.
    pub(crate) fn alias(&self, name: &str) -> Result<Option<(Rc<DwarfUnit<'s>>, String)>> {
        let Some(addr) = (self.options.entry)(name) else { return Ok(None) };
        for index in self.dwarf.units_of(addr) {
            let unit = self.dwarf.unit(index)?;
            let Some(die) = self.dwarf.function_at(&unit, addr)? else { continue };
            if self.dwarf.entry_pc(&unit, &self.dwarf.entry(&die)?)? != Some(addr) {
                return Ok(None);
            }
            let own = self.linker_name(&die)?.filter(|own| own != name);
            return Ok(own.map(|own| (unit, own)));
        }
        Ok(None)
    }

    fn nothing(&self, d: &ProbeDescription) -> PointError {
        if let Some(path) = &self.missed_source {
            return PointError::NotFound {
                what: format!(
                    "source file {path}, which the pattern needs, was not found; -s sets the \
                     source directory"
                ),
            };
        }
        let mut what = format!("nothing found for {}", d.point);
        if let Some(absent) = self.dwarf.absent_text() {
            what.push_str(&format!("; {absent}"));
        } else if d.point.line.is_some() {
            let of = d.point.function.as_ref().or(d.point.file.as_ref());
            what.push_str(&format!("; --line {} shows the lines", of.map_or("", String::as_str)));
        }
        PointError::NotFound { what }
    }

    fn push(&self, sites: &mut Vec<CodeSite<'s>>, site: CodeSite<'s>) -> PointResult<()> {
        if sites.iter().any(|s| s.addr == site.addr) {
            return Ok(());
        }
        if sites.len() >= self.options.max_probes {
            return Err(PointError::TooMany { limit: self.options.max_probes });
        }
        sites.push(site);
        Ok(())
    }

    fn in_unit_by_function(
        &mut self,
        unit: &Rc<DwarfUnit<'s>>,
        d: &ProbeDescription,
        pattern: &str,
        sites: &mut Vec<CodeSite<'s>>,
    ) -> PointResult<()> {
        if let Some(file) = &d.point.file
            && !self.dwarf.files(unit)?.iter().any(|f| is_tail(file, f))
        {
            return Ok(());
        }
        let functions = self.dwarf.functions(unit)?;
        let mut done: BTreeSet<usize> = BTreeSet::new();
        for f in functions.all.iter().filter(|f| !f.declared_only && f.matches(pattern)) {
            let mut die = unit.die(f.offset);
            let mut entry = self.dwarf.entry(&die)?;
            // A copy out of line: its origin knows all copies.
            if let Some(origin) =
                self.dwarf.reference(&die, &entry, gimli::DW_AT_abstract_origin)?
                && origin.unit.index == unit.index
            {
                entry = self.dwarf.entry(&origin)?;
                die = origin;
            }
            if !done.insert(die.offset.0) {
                continue;
            }
            let declared = self.decl_file(&die)?;
            if let (Some(file), Some(declared)) = (&d.point.file, &declared)
                && !is_tail(file, declared)
            {
                continue;
            }
            self.in_function(unit, d, pattern, &die, &entry, declared, sites)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one function's facts, used once")]
    fn in_function(
        &mut self,
        unit: &Rc<DwarfUnit<'s>>,
        d: &ProbeDescription,
        pattern: &str,
        die: &Die<'s>,
        entry: &Entry<'s>,
        declared: Option<String>,
        sites: &mut Vec<CodeSite<'s>>,
    ) -> PointResult<()> {
        let point = &d.point;
        if point.line.unwrap_or(0) > 0 || point.next {
            let Some(path) = declared else { return Ok(()) };
            let wanted = self.wanted_lines(unit, d, &path, Some(die))?;
            return self.at_lines(d, unit, None, &path, &wanted, Some(pattern), sites);
        }
        let instance = entry.has_attr(gimli::DW_AT_low_pc) || entry.has_attr(gimli::DW_AT_ranges);
        if instance {
            let Some(mut addr) = self.dwarf.entry_pc(unit, entry)?.filter(|a| *a != 0) else {
                return Ok(());
            };
            if point.lazy.is_some() {
                return self.lazily(unit, d, die, pattern, sites);
            }
            if point.offset == 0 && self.skips_prologue(d) {
                addr = self.entered(unit, d, die, entry, addr)?;
            }
            let addr = addr.wrapping_add(point.offset);
            return self.push(sites, CodeSite { addr, scope: die.clone(), function: die.clone() });
        }
        for copy in self.dwarf.copies(die)? {
            let copy_entry = self.dwarf.entry(&copy)?;
            if self.options.no_inlines && copy_entry.tag() == gimli::DW_TAG_inlined_subroutine {
                continue;
            }
            if point.lazy.is_some() {
                self.lazily(&copy.unit.clone(), d, &copy, pattern, sites)?;
                continue;
            }
            let Some(addr) = self.dwarf.entry_pc(&copy.unit, &copy_entry)?.filter(|a| *a != 0)
            else {
                continue;
            };
            let addr = addr.wrapping_add(point.offset);
            if let Some(site) = self.site(&copy, addr)? {
                self.push(sites, site)?;
            }
        }
        Ok(())
    }

    /// Returns the point at which the variables of a function are in place: its entry, or after its
    /// prologue if it first stores its parameters in its frame.
    fn entered(
        &mut self,
        unit: &Rc<DwarfUnit<'s>>,
        d: &ProbeDescription,
        die: &Die<'s>,
        entry: &Entry<'s>,
        addr: u64,
    ) -> PointResult<u64> {
        let behind = if !self.dwarf.is_optimised(unit)? {
            self.dwarf.behind_prologue(unit, entry, addr)?
        } else if self.dwarf.uses_frame(die, addr, &|name| names_variable(d, name))? {
            self.dwarf.prologue_end(unit, entry, addr)?
        } else {
            addr
        };
        if behind != addr {
            let name = self.dwarf.readable_name(die)?;
            self.notes.push(Note::choice(
                NoteKind::Prologue,
                format!(
                    "{name} stores its parameters first: the probe is at {behind:#x}, where \
                         its variables are valid"
                ),
                Some(format!("to probe the entry instead, without variables: {addr:#x}")),
            ));
        }
        Ok(behind)
    }

    /// A line whose code begins with the function itself is probed where the
    /// function's variables are in place, too.
    fn behind_entry(
        &mut self,
        owner: &Die<'s>,
        d: &ProbeDescription,
        addr: u64,
    ) -> PointResult<u64> {
        let unit = owner.unit.clone();
        let entry = self.dwarf.entry(owner)?;
        if !self.skips_prologue(d) || self.dwarf.entry_pc(&unit, &entry)? != Some(addr) {
            return Ok(addr);
        }
        self.entered(&unit, d, owner, &entry, addr)
    }

    /// A site in `scope`, with the function whose code it is.
    fn site(&self, scope: &Die<'s>, addr: u64) -> Result<Option<CodeSite<'s>>> {
        if self.dwarf.tag(scope)? == gimli::DW_TAG_subprogram {
            return Ok(Some(CodeSite { addr, scope: scope.clone(), function: scope.clone() }));
        }
        let function = self.dwarf.function_at(&scope.unit, addr)?;
        Ok(function.map(|function| CodeSite { addr, scope: scope.clone(), function }))
    }

    fn skips_prologue(&self, d: &ProbeDescription) -> bool {
        let user = matches!(self.options.data, DataNaming::File { .. });
        user && d.has_variables() && !d.point.ret
    }

    pub(crate) fn decl_file(&self, die: &Die<'s>) -> Result<Option<String>> {
        let Some((unit, value)) = self.dwarf.inherited(die, gimli::DW_AT_decl_file)? else {
            return Ok(None);
        };
        let Some(index) = unsigned(&value) else { return Ok(None) };
        Ok(self.dwarf.lines(&unit)?.file(index).map(str::to_owned))
    }

    /// The lines that a line, `%next` or a pattern means.
    fn wanted_lines(
        &mut self,
        unit: &Rc<DwarfUnit<'s>>,
        d: &ProbeDescription,
        path: &str,
        function: Option<&Die<'s>>,
    ) -> PointResult<BTreeSet<u32>> {
        if let Some(pattern) = &d.point.lazy {
            return Ok(self.matching_lines(unit, path, pattern));
        }
        let mut line = d.point.line.unwrap_or(0);
        if let Some(function) = function {
            let first = self.dwarf.number(function, gimli::DW_AT_decl_line)?.unwrap_or(0);
            line = line.saturating_add(u32::try_from(first).unwrap_or(u32::MAX));
        }
        if d.point.next {
            let lines = self.dwarf.lines(unit)?;
            let at =
                |r: &&LineRow| r.is_stmt && !r.end && lines.file(u64::from(r.file)) == Some(path);
            let next = lines.rows.iter().filter(at).map(|r| r.line).filter(|l| *l > line).min();
            return Ok(next.into_iter().collect());
        }
        Ok(BTreeSet::from([line]))
    }

    fn matching_lines(
        &mut self,
        unit: &Rc<DwarfUnit<'s>>,
        path: &str,
        pattern: &str,
    ) -> BTreeSet<u32> {
        let Some(text) = self.sources.read(path, &unit.comp_dir()) else {
            self.missed_source = Some(path.to_owned());
            return BTreeSet::new();
        };
        let lines = text.split(|b| *b == b'\n').zip(1u32..);
        lines
            .filter(|(l, _)| lazy_match(pattern, &String::from_utf8_lossy(l)))
            .map(|(_, n)| n)
            .collect()
    }

    fn lazily(
        &mut self,
        unit: &Rc<DwarfUnit<'s>>,
        d: &ProbeDescription,
        die: &Die<'s>,
        function: &str,
        sites: &mut Vec<CodeSite<'s>>,
    ) -> PointResult<()> {
        let Some(path) = self.decl_file(die)? else { return Ok(()) };
        let wanted = self.wanted_lines(unit, d, &path, None)?;
        self.at_lines(d, unit, Some(die), &path, &wanted, Some(function), sites)
    }

    /// Places of lines, in the whole unit or in one function or copy.
    #[allow(clippy::too_many_arguments, reason = "what lines are wanted where")]
    fn at_lines(
        &mut self,
        d: &ProbeDescription,
        unit: &Rc<DwarfUnit<'s>>,
        within: Option<&Die<'s>>,
        path: &str,
        wanted: &BTreeSet<u32>,
        function: Option<&str>,
        sites: &mut Vec<CodeSite<'s>>,
    ) -> PointResult<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        for (addr, line) in self.dwarf.line_places(unit, within, path, wanted)? {
            let Some((scope, owner)) = self.best_scope(unit, addr, path, line, function)? else {
                continue;
            };
            let addr = self.behind_entry(&owner, d, addr)?;
            self.push(sites, CodeSite { addr, scope, function: owner })?;
        }
        Ok(())
    }

    /// Returns the function or inlined copy at `addr` that is meant: the one named, else the one
    /// declared nearest before the line.
    fn best_scope(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        addr: u64,
        path: &str,
        line: u32,
        function: Option<&str>,
    ) -> Result<Option<(Die<'s>, Die<'s>)>> {
        let Some(owner) = self.dwarf.function_at(unit, addr)? else { return Ok(None) };
        let mut best: Option<(u32, Die<'s>)> = None;
        for die in self.dwarf.chain_at(&owner, addr)? {
            if self.decl_file(&die)?.as_deref() != Some(path) {
                continue;
            }
            if let Some(pattern) = function {
                if self.means(&die, pattern)? {
                    return Ok(Some((die, owner)));
                }
                continue;
            }
            let declared = self.dwarf.number(&die, gimli::DW_AT_decl_line)?.unwrap_or(0);
            let distance =
                u64::from(line).checked_sub(declared).and_then(|d| u32::try_from(d).ok());
            if let Some(distance) = distance
                && best.as_ref().is_none_or(|b| distance < b.0)
            {
                best = Some((distance, die));
            }
        }
        Ok(best.map(|b| (b.1, owner)))
    }

    /// Whether `die` is, or is a copy of, the function that `pattern` means.
    fn means(&self, die: &Die<'s>, pattern: &str) -> Result<bool> {
        let mut current = die.clone();
        for _ in 0..8 {
            let functions = self.dwarf.functions(&current.unit)?;
            if let Some(f) = functions.all.iter().find(|f| f.offset == current.offset) {
                return Ok(f.matches(pattern));
            }
            let entry = self.dwarf.entry(&current)?;
            match self.dwarf.origin(&current, &entry)? {
                Some(next) => current = next,
                None => break,
            }
        }
        Ok(false)
    }
}

/// Makes the names of arguments distinct, as the kernel wants them: `m`, `m_2`.
pub(crate) fn number_names(args: &mut [FetchArg]) {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for arg in args {
        let Some(name) = &mut arg.name else { continue };
        let mut number = 2_u32;
        let first = name.clone();
        while !known.insert(name.clone()) {
            *name = format!("{first}_{number}");
            number += 1;
        }
    }
}

/// Whether a description asks for a variable: by its name, or for all of them.
fn names_variable(d: &ProbeDescription, name: Option<&str>) -> bool {
    d.args.iter().any(|a| match &a.value {
        ArgValue::Variable { name: wanted, .. } => name == Some(wanted),
        ArgValue::Vars | ArgValue::Params => true,
        ArgValue::Raw(_) => false,
    })
}
