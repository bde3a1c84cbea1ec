//! A description → what the kernel is to be told.

use std::cell::OnceCell;

use kymo_debuginfo::dwarf::{DwarfError, FindError, Finder, Located, Options, Sections, SymbolOf};
use kymo_debuginfo::probe::{
    ArgValue, Base, Definition, Description, Fetch, FetchArg, Place, event_name, glob_match,
    group_of_binary, is_glob,
};
use kymo_debuginfo::{CodeSymbols, demangle};
use kymo_model::{Note, NoteKind};

use super::files::{Kind, OpenError, ProbeFiles};
use super::index::Kept;
use super::sources::SourceFolders;

/// How to plan.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Leave out inlined copies.
    pub no_inlines: bool,
    /// The most places one description may give.
    pub max_probes: usize,
    /// Where sources are.
    pub sources: SourceFolders,
}

/// What a binary says, read once for all descriptions.
pub struct Facts<'a> {
    /// The files.
    pub files: &'a ProbeFiles,
    /// Its symbols.
    pub symbols: CodeSymbols<'a>,
    /// Its debugging information, if it has any.
    pub sections: Option<Sections<'a>>,
    kept: OnceCell<Kept>,
}

/// What came of one description.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Definitions: of one event, or of several where arguments differ.
    pub definitions: Vec<Definition>,
    /// Where they are, in words, in the same order.
    pub places: Vec<Located>,
    /// Things worth knowing.
    pub notes: Vec<kymo_model::Note>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The files cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The search failed.
    #[error(transparent)]
    Find(#[from] FindError),
    /// There is nothing that knows lines and variables.
    #[error("{path} has no debugging information, which {what} needs; {advice}")]
    NoDebuginfo {
        /// The binary.
        path: String,
        /// What asks for it.
        what: String,
        /// What to do.
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
    /// The binary has no such marker.
    #[error("{path} has no marker {name}{known}")]
    NoMarker {
        /// As asked for.
        name: String,
        /// The binary.
        path: String,
        /// What it has.
        known: String,
    },
    /// The place is not in code.
    #[error("{addr:#x} is not in the code of {path}")]
    NotCode {
        /// The address.
        addr: u64,
        /// The binary.
        path: String,
    },
}

impl From<DwarfError> for PlanError {
    fn from(e: DwarfError) -> PlanError {
        PlanError::Find(FindError::Dwarf(e))
    }
}

impl<'a> Facts<'a> {
    /// Reads symbols and the outline of the debugging information.
    pub fn load(files: &'a ProbeFiles) -> Result<Facts<'a>, PlanError> {
        let symbols = CodeSymbols::load(files.binary(), files.debug())?;
        let sections = files.sections()?;
        let sections = Some(sections).filter(Sections::has_debuginfo);
        Ok(Facts { files, symbols, sections, kept: OnceCell::new() })
    }

    fn kept(&self, sections: &Sections<'_>) -> &Kept {
        self.kept.get_or_init(|| Kept::load(self.files, sections))
    }

    /// To be called once the answers are given: an index of the debugging
    /// information is made for the next time, if the binary was searched before,
    /// or at once. What there is to say of indices is given.
    pub fn learn(&self, at_once: bool) -> Vec<Note> {
        match (&self.sections, self.kept.get()) {
            (Some(sections), Some(kept)) => kept.learn(self.files, sections, at_once),
            _ => Vec::new(),
        }
    }

    pub(super) fn path(&self) -> String {
        self.files.path.display().to_string()
    }

    /// Searches with `visit`, which is given a finder over this binary.
    pub fn with_finder<R, E: From<PlanError>>(
        &self,
        settings: &Settings,
        what: &str,
        visit: impl FnOnce(&mut Finder<'_, '_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let Some(sections) = &self.sections else { return Err(self.no_debuginfo(what).into()) };
        let dwarf = self.kept(sections).dwarf(sections).map_err(PlanError::from)?;
        let data = |addr: u64| {
            let (name, start) = self.symbols.data_at(addr)?;
            Some((name.to_owned(), addr - start))
        };
        let options = Options {
            data: match self.files.kind {
                Kind::User => SymbolOf::File { bias: self.symbols.code_bias() },
                _ => SymbolOf::Kernel(&data),
            },
            no_inlines: settings.no_inlines,
            max_probes: settings.max_probes,
            entry: &|name| self.symbols.named(name, true).map(|s| s.addr),
        };
        let mut sources = settings.sources.clone();
        visit(&mut Finder::new(&dwarf, &options, &mut sources))
    }

    fn no_debuginfo(&self, what: &str) -> PlanError {
        let id = self.files.build_id.map(|id| format!(" (build-id {id})")).unwrap_or_default();
        let advice = match &self.files.kind {
            Kind::User => format!("compile it with -g, or install its debug package{id}"),
            _ => format!(
                "install the kernel's debug package{id} (Debian: linux-image-…-dbg), or name its vmlinux with -k"
            ),
        };
        PlanError::NoDebuginfo { path: self.path(), what: what.to_owned(), advice }
    }

    /// What the kernel is to be told for `d`.
    pub fn plan(&self, d: &Description, settings: &Settings) -> Result<Plan, PlanError> {
        if let Some((provider, name)) = &d.point.marker {
            return self.plan_marker(d, provider.as_deref(), name);
        }
        let plain_address = d.point.address.is_some() && !d.has_variables();
        let (located, notes) = if self.sections.is_some() && !plain_address {
            let found = self.with_finder(settings, &d.text, |finder| -> Result<_, PlanError> {
                let found = finder.find(d);
                Ok((found, finder.notes().to_vec()))
            })?;
            match found {
                // Functions of assembly are in the symbol table alone.
                (Err(e @ FindError::NotFound { .. }), _) if !d.needs_debuginfo() => {
                    let absent = self.sections.as_ref().and_then(Sections::absent_text);
                    let found = self.by_symbol(d, settings).map_err(|of_symbols| {
                        if absent.is_some() { PlanError::Find(e) } else { of_symbols }
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
            (self.by_symbol(d, settings)?, Vec::new())
        };
        let mut definitions = Vec::new();
        for place in &located {
            definitions.push(self.definition(d, place)?);
        }
        split_by_signature(&mut definitions);
        Ok(Plan { definitions, places: located, notes })
    }

    /// Places by the symbol table alone.
    fn by_symbol(&self, d: &Description, settings: &Settings) -> Result<Vec<Located>, PlanError> {
        let args: Vec<FetchArg> = d.args.iter().filter_map(raw_arg).collect();
        if let Some(addr) = d.point.address {
            let function = format!("abs_{addr:x}");
            return Ok(vec![Located {
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
        let mut found: Vec<Located> = Vec::new();
        for symbol in self.symbols.all().filter(|s| s.code) {
            let readable = demangle(symbol.name);
            let plain = readable.split('@').next().unwrap_or(&readable);
            let hit = symbol.name == wanted
                || readable == wanted
                || plain == wanted
                || (glob && glob_match(wanted, &readable));
            if !hit || found.iter().any(|f| f.entry == Some(symbol.addr)) {
                continue;
            }
            if found.len() >= settings.max_probes {
                return Err(FindError::TooMany { limit: settings.max_probes }.into());
            }
            if symbol.size > 0 && d.point.offset >= symbol.size {
                return Err(FindError::Refused(format!(
                    "offset {} is outside of {wanted}",
                    d.point.offset
                ))
                .into());
            }
            let addr = symbol.addr.wrapping_add(d.point.offset);
            found.push(Located {
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

    fn no_symbol(&self, wanted: &str) -> PlanError {
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
        let near = if near.is_empty() {
            String::new()
        } else {
            format!("; there are {}", near.join(", "))
        };
        PlanError::NoSymbol { name: wanted.into(), path: self.path(), near }
    }

    fn definition(&self, d: &Description, place: &Located) -> Result<Definition, PlanError> {
        let not_code = || PlanError::NotCode { addr: place.addr, path: self.path() };
        let at = match &self.files.kind {
            Kind::User => Place::File {
                path: self.path(),
                offset: self.symbols.file_offset(place.addr).ok_or_else(not_code)?,
                semaphore: None,
            },
            kind => {
                let module = if let Kind::Module(name) = kind { Some(name.clone()) } else { None };
                let (symbol, start) = match self.kernel_symbol(kind, place) {
                    Some(found) => found,
                    None => return Err(not_code()),
                };
                Place::Kernel { module, symbol, offset: place.addr.wrapping_sub(start) }
            }
        };
        let default_group = match self.files.kind {
            Kind::User => group_of_binary(&self.path()),
            _ => "probe".to_owned(),
        };
        Ok(Definition {
            ret: d.point.ret,
            group: d.group.clone().unwrap_or(default_group),
            event: name_of(d, place),
            place: at,
            args: place.args.clone(),
        })
    }

    /// The symbol that a place of the kernel counts from. Names are not unique
    /// in the running kernel, so there all places count from its first one.
    fn kernel_symbol(&self, kind: &Kind, place: &Located) -> Option<(String, u64)> {
        if *kind == Kind::RunningKernel
            && let Some(text) = self.symbols.all().find(|s| s.name == "_text" || s.name == "_stext")
        {
            return Some((text.name.to_owned(), text.addr));
        }
        let known = self.symbols.function_at(place.addr).map(|(n, s)| (n.to_owned(), s));
        // Of several names for one function the source's own is meant.
        if let (Some(owner), Some((_, start))) = (&place.owner, &known)
            && known.as_ref().is_some_and(|k| k.0 != *owner)
            && self.symbols.is_named(*start, owner)
        {
            return Some((owner.clone(), *start));
        }
        known.or_else(|| Some((place.function.clone(), place.entry?)))
    }
}

/// Places of one event must record the same names and types. Where they do not
/// (instances of a generic function), they become events with a number.
pub(super) fn split_by_signature(definitions: &mut [Definition]) {
    type Signature = (String, Vec<(Option<String>, Option<String>)>);
    let mut seen: Vec<Signature> = Vec::new();
    for d in definitions {
        let args = d.args.iter().map(|a| (a.name.clone(), a.kind.clone())).collect();
        let signature = (d.event.clone(), args);
        let number = seen.iter().filter(|s| s.0 == d.event).position(|s| *s == signature);
        let number = number.unwrap_or_else(|| {
            let n = seen.iter().filter(|s| s.0 == d.event).count();
            seen.push(signature);
            n
        });
        if number > 0 {
            d.event = format!("{}_{number}", d.event);
        }
    }
}

/// The event's name: given, or of the function that the description means.
pub(super) fn name_of(d: &Description, place: &Located) -> String {
    if let Some(event) = &d.event {
        return if d.point.ret { format!("{event}__return") } else { event.clone() };
    }
    let function = d.point.function.as_deref().filter(|f| d.point.address.is_none() && !is_glob(f));
    let base = event_name(function.unwrap_or(&place.function), d.point.ret);
    match d.point.line {
        Some(line) if line > 0 && function.is_some() => format!("{base}_L{line}"),
        _ => base,
    }
}

pub(super) fn raw_arg(arg: &kymo_debuginfo::probe::Arg) -> Option<FetchArg> {
    let ArgValue::Raw(text) = &arg.value else { return None };
    Some(FetchArg {
        name: arg.name.clone(),
        fetch: Fetch::of(Base::Raw(text.clone())),
        kind: arg.cast.clone(),
    })
}

/// A place of a binary in the words of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineAt {
    /// The function, or the inlined copy that the line is of.
    pub function: String,
    /// Whether it is the entry of the function.
    pub is_entry: bool,
    /// Source file.
    pub file: String,
    /// The folder it was compiled in.
    pub folder: String,
    /// Line in the file.
    pub line: u32,
    /// Line counted from the function's own.
    pub relative: Option<u32>,
}

impl Facts<'_> {
    /// What the source calls the place at `addr`.
    pub fn line_at(&self, addr: u64) -> Option<LineAt> {
        let sections = self.sections.as_ref()?;
        let dwarf = self.kept(sections).dwarf(sections).ok()?;
        let found = dwarf.source_of(addr).ok()??;
        Some(LineAt {
            function: found.function,
            is_entry: found.entry == Some(addr),
            folder: found.folder,
            relative: found.line.checked_sub(found.declared).filter(|_| found.declared > 0),
            file: found.file,
            line: found.line,
        })
    }
}
