//! A description → probe points in a binary → definitions.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use kymo_debuginfo::dwarf::{DwarfError, Sections};
use kymo_debuginfo::{CodeSymbols, NamedSymbol, demangle};
use kymo_model::glob::{glob_match, is_glob};
use kymo_model::probe::{
    FetchArg, FetchBase, FetchExpr, FetchType, ProbeDefinition, ProbeKind, ProbeTarget,
};
use kymo_model::{Note, NoteKind, near_names};
use kymo_symbols::debug_files::{BinaryError, BinaryFiles, BinaryKind, SourceDirectories};

use crate::finder_options::{DataNaming, FinderOptions};
use crate::grammar::{ArgDescription, ArgValue, ProbeDescription};
use crate::index_cache::CachedIndex;
use crate::naming;
use crate::point_finder::{PointError, PointFinder, ProbePoint, SourceReader};

/// Options of resolving.
#[derive(Clone, Debug)]
pub struct ResolveOptions {
    /// Leave out inlined copies.
    pub no_inlines: bool,
    /// Most probe points of one description.
    pub max_probes: usize,
    /// Directories of sources.
    pub sources: SourceDirectories,
}

/// A binary that is probed: symbols and debugging information, read once for all
/// descriptions.
pub struct ProbedBinary<'a> {
    /// The files.
    pub files: &'a BinaryFiles,
    /// Its symbols.
    pub symbols: CodeSymbols<'a>,
    /// Its debugging information, if it has any.
    pub sections: Option<Sections<'a>>,
    index: OnceCell<CachedIndex>,
}

/// Definitions and probe points of one description.
#[derive(Clone, Debug, Default)]
pub struct ResolvedProbe {
    /// Definitions: of one event, or of several where arguments differ.
    pub definitions: Vec<ProbeDefinition>,
    /// Their probe points, in the same order.
    pub points: Vec<ProbePoint>,
    /// Things worth knowing.
    pub notes: Vec<Note>,
}

/// Error of resolving a description.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The files cannot be used.
    #[error(transparent)]
    Open(#[from] BinaryError),
    /// The search failed.
    #[error(transparent)]
    Find(#[from] PointError),
    /// There is nothing that knows lines and variables.
    #[error("{path} has no debugging information, which {what} needs; {advice}")]
    NoDebuginfo {
        /// The binary.
        path: String,
        /// Feature that needs it.
        what: String,
        /// Advice.
        advice: String,
    },
    /// The symbol table has no such function.
    #[error("no function {name} in {path}{near}")]
    NoSymbol {
        /// As asked for.
        name: String,
        /// The binary.
        path: String,
        /// Names like it.
        near: String,
    },
    /// The binary has no such USDT probe.
    #[error("{path} has no USDT probe {name}{known}")]
    NoUsdt {
        /// As asked for.
        name: String,
        /// The binary.
        path: String,
        /// List of the existing markers.
        known: String,
    },
    /// The probe point is not in code.
    #[error("{addr:#x} is not in the code of {path}")]
    NotCode {
        /// The address.
        addr: u64,
        /// The binary.
        path: String,
    },
}

impl From<DwarfError> for ResolveError {
    fn from(e: DwarfError) -> ResolveError {
        ResolveError::Find(PointError::Dwarf(e))
    }
}

impl<'a> ProbedBinary<'a> {
    /// Reads symbols and the outline of the debugging information.
    pub fn load(files: &'a BinaryFiles) -> Result<ProbedBinary<'a>, ResolveError> {
        let symbols = CodeSymbols::load(files.binary(), files.debug())?;
        let sections = files.sections()?;
        let sections = Some(sections).filter(Sections::has_debuginfo);
        Ok(ProbedBinary { files, symbols, sections, index: OnceCell::new() })
    }

    pub(crate) fn index(&self, sections: &Sections<'_>) -> &CachedIndex {
        self.index.get_or_init(|| CachedIndex::load(self.files, sections))
    }

    /// To be called once the answers are given: an index of the debugging information is made for
    /// the next time, if the binary was searched before, or with `immediately`. Returns notes about
    /// indices.
    pub fn learn(&self, immediately: bool) -> Vec<Note> {
        match (&self.sections, self.index.get()) {
            (Some(sections), Some(index)) => index.learn(self.files, sections, immediately),
            _ => Vec::new(),
        }
    }

    pub(crate) fn path(&self) -> String {
        self.files.path.display().to_string()
    }

    /// Searches with `visit`, which is given a finder over this binary.
    pub fn with_finder<R, E: From<ResolveError>>(
        &self,
        options: &ResolveOptions,
        what: &str,
        visit: impl FnOnce(&mut PointFinder<'_, '_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let Some(sections) = &self.sections else { return Err(self.no_debuginfo(what).into()) };
        let dwarf = self.index(sections).dwarf(sections).map_err(ResolveError::from)?;
        let data = |addr: u64| {
            let (name, start) = self.symbols.data_at(addr)?;
            Some((name.to_owned(), addr - start))
        };
        let finder_options = FinderOptions {
            data: match self.files.kind {
                BinaryKind::User => DataNaming::File { bias: self.symbols.code_bias() },
                _ => DataNaming::Kernel(&data),
            },
            no_inlines: options.no_inlines,
            max_probes: options.max_probes,
            entry: &|name| self.symbols.named(name, true).map(|s| s.addr),
        };
        let mut sources = Directories(&options.sources);
        visit(&mut PointFinder::new(&dwarf, &finder_options, &mut sources))
    }

    /// Names of the functions of a program that have inlined copies, as the linker calls them;
    /// none without debugging information. Of a kernel there are too many to be looked for.
    pub fn inlined_functions(&self) -> Result<BTreeSet<String>, ResolveError> {
        match &self.sections {
            Some(sections) if self.files.kind == BinaryKind::User => {
                let dwarf = self.index(sections).dwarf(sections)?;
                Ok(dwarf.inlined_functions()?)
            }
            _ => Ok(BTreeSet::new()),
        }
    }

    fn no_debuginfo(&self, what: &str) -> ResolveError {
        let id = self.files.build_id.map(|id| format!(" (build-id {id})")).unwrap_or_default();
        let advice = match &self.files.kind {
            BinaryKind::User => format!("compile it with -g, or install its debug package{id}"),
            _ => format!(
                "install the kernel's debug package{id} (Debian: linux-image-…-dbg), or pass its \
                 vmlinux with -k"
            ),
        };
        ResolveError::NoDebuginfo { path: self.path(), what: what.to_owned(), advice }
    }

    /// Definitions for `d`.
    pub fn resolve(
        &self,
        d: &ProbeDescription,
        options: &ResolveOptions,
    ) -> Result<ResolvedProbe, ResolveError> {
        if let Some(usdt) = &d.point.usdt {
            return self.resolve_usdt(d, usdt);
        }
        let plain_address = d.point.address.is_some() && !d.has_variables();
        let (points, mut notes) = if self.sections.is_some() && !plain_address {
            let found =
                self.with_finder(options, &d.text, |finder| -> Result<_, ResolveError> {
                    let found = finder.find(d);
                    Ok((found, finder.notes().to_vec()))
                })?;
            match found {
                // Functions of assembly are in the symbol table alone.
                (Err(e @ PointError::NotFound { .. }), _) if !d.needs_debuginfo() => {
                    let absent = self.sections.as_ref().and_then(Sections::absent_text);
                    let found = self.by_symbol(d, options).map_err(|of_symbols| {
                        if absent.is_some() { ResolveError::Find(e) } else { of_symbols }
                    })?;
                    (
                        found,
                        absent
                            .map(|a| Note::doubt(NoteKind::Missing, a, None))
                            .into_iter()
                            .collect(),
                    )
                }
                (found, notes) => (found?, notes),
            }
        } else if d.needs_debuginfo() {
            return Err(self.no_debuginfo(&format!("'{}'", d.text)));
        } else {
            (self.by_symbol(d, options)?, Vec::new())
        };
        let mut names: BTreeSet<&str> =
            points.iter().map(|point| point.function.as_str()).collect();
        // Debugging information has another name for the resolver.
        names.extend(d.point.function.as_deref());
        let cautions = names.into_iter().filter_map(|name| self.symbols.indirect_caution(name));
        notes.extend(cautions.map(|text| Note::doubt(NoteKind::Program, text, None)));
        let mut definitions = Vec::new();
        for point in &points {
            definitions.push(self.definition(d, point)?);
        }
        naming::split_by_signature(&mut definitions);
        Ok(ResolvedProbe { definitions, points, notes })
    }

    /// Probe points by the symbol table alone.
    fn by_symbol(
        &self,
        d: &ProbeDescription,
        options: &ResolveOptions,
    ) -> Result<Vec<ProbePoint>, ResolveError> {
        let args: Vec<FetchArg> = d.args.iter().filter_map(verbatim_arg).collect();
        if let Some(addr) = d.point.address {
            let function = format!("abs_{addr:x}");
            return Ok(vec![ProbePoint {
                addr,
                entry: None,
                owner: None,
                function,
                args,
                line: None,
            }]);
        }
        let wanted = d.point.function.as_deref().unwrap_or_default();
        let glob = is_glob(wanted);
        let mut found: Vec<ProbePoint> = Vec::new();
        let is_wanted = |symbol: &NamedSymbol<'_>| {
            let readable = demangle(symbol.name);
            let plain = readable.split('@').next().unwrap_or(&readable);
            symbol.name == wanted
                || readable == wanted
                || plain == wanted
                || (glob && glob_match(wanted, &readable))
        };
        for symbol in self.symbols.functions(is_wanted) {
            let readable = demangle(symbol.name);
            if found.len() >= options.max_probes {
                return Err(PointError::TooMany { limit: options.max_probes }.into());
            }
            if symbol.size > 0 && d.point.offset >= symbol.size {
                return Err(PointError::Refused(format!(
                    "offset {} is outside of {wanted}",
                    d.point.offset
                ))
                .into());
            }
            let addr = symbol.addr.wrapping_add(d.point.offset);
            found.push(ProbePoint {
                addr,
                entry: Some(symbol.addr),
                owner: Some(symbol.name.to_owned()),
                function: readable.into_owned(),
                args: args.clone(),
                line: None,
            });
        }
        if found.is_empty() {
            return Err(self.no_symbol(wanted));
        }
        Ok(found)
    }

    /// Whether it is stripped.
    pub fn has_no_functions(&self) -> bool {
        !self.symbols.all().any(|symbol| symbol.code)
    }

    fn no_symbol(&self, wanted: &str) -> ResolveError {
        let lower = wanted.to_lowercase();
        let close = |n: &&str| {
            let n = n.to_lowercase();
            n.contains(&lower)
                || (lower.len() > 3 && lower.contains(&n) && n.len() + 2 >= lower.len())
        };
        let mut near: Vec<&str> =
            self.symbols.all().filter(|s| s.code).map(|s| s.name).filter(close).take(4).collect();
        near.sort_unstable();
        near.dedup();
        let near: Vec<String> = if near.is_empty() {
            near_names(wanted, self.symbols.all().filter(|s| s.code).map(|s| s.name))
        } else {
            near.into_iter().map(str::to_owned).collect()
        };
        let near = match near.as_slice() {
            [] if self.has_no_functions() => {
                "; it has no function symbols: use an address (0x…), or install its debug package"
                    .to_owned()
            }
            [] => String::new(),
            [one] => format!("; there is {one}"),
            several => format!("; there are {}", several.join(", ")),
        };
        ResolveError::NoSymbol { name: wanted.into(), path: self.path(), near }
    }

    fn definition(
        &self,
        d: &ProbeDescription,
        point: &ProbePoint,
    ) -> Result<ProbeDefinition, ResolveError> {
        let not_code = || ResolveError::NotCode { addr: point.addr, path: self.path() };
        let target = match &self.files.kind {
            BinaryKind::User => ProbeTarget::File {
                path: self.path(),
                offset: self.symbols.file_offset(point.addr).ok_or_else(not_code)?,
                ref_ctr_offset: None,
            },
            kind => {
                let module = match kind {
                    BinaryKind::Module(name) => Some(name.clone()),
                    _ => None,
                };
                let (symbol, start) = self.kernel_symbol(kind, point).ok_or_else(not_code)?;
                ProbeTarget::Symbol { module, symbol, offset: Some(point.addr.wrapping_sub(start)) }
            }
        };
        let default_group = match self.files.kind {
            BinaryKind::User => naming::group_of_binary(&self.path()),
            _ => naming::KERNEL_GROUP.to_owned(),
        };
        Ok(ProbeDefinition {
            kind: ProbeKind::from_return(d.point.ret),
            group: d.group.clone().unwrap_or(default_group),
            event: Some(naming::event_of_point(d, point)),
            target,
            args: point.args.clone(),
        })
    }

    /// The symbol that a probe point of the kernel counts from. Names are not unique in
    /// the running kernel, so there all points count from its first one.
    fn kernel_symbol(&self, kind: &BinaryKind, point: &ProbePoint) -> Option<(String, u64)> {
        if *kind == BinaryKind::RunningKernel
            && let Some(text) = self.symbols.all().find(|s| s.name == "_text" || s.name == "_stext")
        {
            return Some((text.name.to_owned(), text.addr));
        }
        let known = self.symbols.function_at(point.addr).map(|(n, s)| (n.to_owned(), s));
        // Of several names for one function the source's own is meant.
        if let (Some(owner), Some((_, start))) = (&point.owner, &known)
            && known.as_ref().is_some_and(|k| k.0 != *owner)
            && self.symbols.is_named(*start, owner)
        {
            return Some((owner.clone(), *start));
        }
        known.or_else(|| Some((point.function.clone(), point.entry?)))
    }
}

/// An argument in the kernel's own syntax.
pub(crate) fn verbatim_arg(arg: &ArgDescription) -> Option<FetchArg> {
    let ArgValue::Raw(text) = &arg.value else { return None };
    Some(FetchArg {
        name: arg.name.clone(),
        expr: FetchExpr::from_base(FetchBase::Verbatim(text.clone())),
        fetch_type: arg.cast.as_deref().map(FetchType::parse),
    })
}

/// Source files as debugging information names them, looked for in directories.
struct Directories<'a>(&'a SourceDirectories);

impl SourceReader for Directories<'_> {
    fn read(&mut self, path: &str, comp_dir: &str) -> Option<Vec<u8>> {
        self.0.read(path, comp_dir)
    }
}
