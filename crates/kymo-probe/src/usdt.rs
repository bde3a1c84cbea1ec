//! USDT probes of a binary → definitions.

use kymo_debuginfo::sdt::{UsdtNote, usdt_notes};
use kymo_model::glob::{glob_match, is_glob};
use kymo_model::probe::{
    Dereference, FetchArg, FetchType, ProbeDefinition, ProbeKind, ProbeTarget,
};
use kymo_model::{Note, NoteKind};
use kymo_symbols::debug_files::BinaryFiles;

use crate::grammar::{ArgValue, ProbeDescription, UsdtName};
use crate::naming;
use crate::point_finder::{PointError, ProbePoint};
use crate::resolve::{ProbedBinary, ResolveError, ResolvedProbe, verbatim_arg};
use crate::usdt_args::usdt_fetch_arg;

/// Names of USDT probes shown when the wanted one is not there.
const SHOWN: usize = 8;

/// All USDT probes of a binary as the file `probes` of perf's build-id cache has them:
/// `%GROUP:EVENT=EVENT`, and below it the definitions, in which the binary's path is `path`.
///
/// # Errors
/// If the binary's notes or symbols cannot be read.
pub fn usdt_probe_lines(files: &BinaryFiles, path: &str) -> Result<String, ResolveError> {
    let mut lines = String::new();
    let notes = usdt_notes(files.binary())?;
    if notes.is_empty() {
        return Ok(lines);
    }
    let binary = ProbedBinary::load(files)?;
    let mut names: Vec<(&str, &str)> = Vec::new();
    for note in &notes {
        let name = (note.provider.as_str(), note.name.as_str());
        // What would be a glob is no name that anybody can ask for.
        let plain = !is_glob(name.0) && !is_glob(name.1);
        if plain && !names.contains(&name) {
            names.push(name);
        }
    }
    let all = ProbeDescription::default();
    for (provider, name) in names {
        let wanted = UsdtName { provider: Some(provider.to_owned()), name: name.to_owned() };
        // A probe whose arguments no fetch argument can express is left out, the others are not.
        let Ok(resolved) = binary.resolve_usdt(&all, &wanted) else { continue };
        let (group, event) = naming::usdt_event(&all, provider, name);
        lines.push_str(&format!("%{group}:{name}={event}\n"));
        for mut definition in resolved.definitions {
            if let ProbeTarget::File { path: own, .. } = &mut definition.target {
                path.clone_into(own);
            }
            lines.push_str(&format!("{definition}\n"));
        }
    }
    Ok(lines)
}

impl ProbedBinary<'_> {
    /// Definitions for `%PROVIDER:NAME`. Without arguments given, all of the probe's
    /// own are recorded; given ones are `argN`, or in the kernel's syntax.
    pub(crate) fn resolve_usdt(
        &self,
        d: &ProbeDescription,
        wanted: &UsdtName,
    ) -> Result<ResolvedProbe, ResolveError> {
        let all = usdt_notes(self.files.binary())?;
        let hits = |note: &&UsdtNote| {
            glob_match(&wanted.name, &note.name)
                && wanted.provider.as_ref().is_none_or(|p| glob_match(p, &note.provider))
        };
        let mut resolved = ResolvedProbe::default();
        for note in all.iter().filter(hits) {
            let args = self.usdt_args(d, note, &mut resolved.notes)?;
            let not_code = || ResolveError::NotCode { addr: note.addr, path: self.path() };
            let offset = self.symbols.file_offset(note.addr).ok_or_else(not_code)?;
            let ref_ctr_offset = note.semaphore.and_then(|s| self.symbols.file_offset(s));
            let (group, event) = naming::usdt_event(d, &note.provider, &note.name);
            resolved.definitions.push(ProbeDefinition {
                kind: ProbeKind::Probe,
                group,
                event: Some(event),
                target: ProbeTarget::File { path: self.path(), offset, ref_ctr_offset },
                args: args.clone(),
            });
            resolved.points.push(ProbePoint {
                addr: note.addr,
                entry: None,
                owner: None,
                function: note.name.clone(),
                args,
                line: None,
            });
        }
        if resolved.definitions.is_empty() {
            let mut known: Vec<String> =
                all.iter().map(|m| format!("%{}:{}", m.provider, m.name)).collect();
            known.sort_unstable();
            known.dedup();
            let known = match known.len() {
                0 => "; it has no USDT probes at all".to_owned(),
                n if n > SHOWN => {
                    format!("; it has {} and {} more", known[..SHOWN].join(", "), n - SHOWN)
                }
                _ => format!("; it has {}", known.join(", ")),
            };
            return Err(ResolveError::NoUsdt {
                name: d.point.to_string(),
                path: self.path(),
                known,
            });
        }
        naming::split_by_signature(&mut resolved.definitions);
        Ok(resolved)
    }

    fn usdt_args(
        &self,
        d: &ProbeDescription,
        m: &UsdtNote,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<FetchArg>, ResolveError> {
        let mut args = Vec::new();
        let distance = |name: &str| {
            self.symbols.address_of_data(name).map(|at| at.wrapping_sub(m.addr).cast_signed())
        };
        if d.args.is_empty() {
            for (i, text) in m.args.iter().enumerate() {
                match usdt_fetch_arg(&format!("arg{}", i + 1), text, &distance) {
                    Ok(arg) => args.push(arg),
                    Err(why) => notes.push(Note::doubt(
                        NoteKind::Missing,
                        format!(
                            "{}:{} at {:#x}: argument {} {why}",
                            m.provider,
                            m.name,
                            m.addr,
                            i + 1
                        ),
                        None,
                    )),
                }
            }
            return Ok(args);
        }
        for wanted in &d.args {
            if let Some(raw) = verbatim_arg(wanted) {
                args.push(raw);
                continue;
            }
            let refuse = |why: String| PointError::Argument { arg: wanted.to_string(), why };
            let ArgValue::Variable { name, steps, .. } = &wanted.value else {
                return Err(
                    refuse("a USDT probe has no variables, only arg1, arg2, …".into()).into()
                );
            };
            let number =
                name.strip_prefix("arg").and_then(|n| n.parse::<usize>().ok()).filter(|n| *n > 0);
            let text = number.and_then(|n| m.args.get(n - 1)).filter(|_| steps.is_empty());
            let (Some(number), Some(text)) = (number, text) else {
                return Err(refuse(format!(
                    "{} has arguments arg1 to arg{}",
                    m.name,
                    m.args.len()
                ))
                .into());
            };
            let own = format!("arg{number}");
            let arg_name = wanted.name.as_deref().unwrap_or(&own);
            let mut arg = usdt_fetch_arg(arg_name, text, &distance)
                .map_err(|why| refuse(format!("argument {number} {why}")))?;
            match wanted.cast.as_deref() {
                // The probe's argument is the address of the text.
                Some(cast @ ("string" | "ustring")) => {
                    arg.expr.dereferences.push(Dereference { offset: 0, user: false });
                    arg.fetch_type = Some(FetchType::parse(cast));
                }
                Some(cast) => arg.fetch_type = Some(FetchType::parse(cast)),
                None => {}
            }
            args.push(arg);
        }
        Ok(args)
    }
}
