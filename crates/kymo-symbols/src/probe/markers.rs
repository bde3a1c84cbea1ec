//! Static markers of a binary → what the kernel is to be told.

use kymo_debuginfo::dwarf::{FindError, Located};
use kymo_debuginfo::probe::{
    ArgValue, Definition, Description, FetchArg, Place, event_name, glob_match,
};
use kymo_debuginfo::sdt::{Marker, fetch_arg, markers};
use kymo_model::{Note, NoteKind};

use super::plan::{Facts, Plan, PlanError, raw_arg};

/// Names of markers shown when the wanted one is not there.
const SHOWN: usize = 8;

impl Facts<'_> {
    /// Places of `%PROVIDER:NAME`. Without arguments given, all of the marker's
    /// own are recorded; given ones are `argN`, or in the kernel's syntax.
    pub(super) fn plan_marker(
        &self,
        d: &Description,
        provider: Option<&str>,
        name: &str,
    ) -> Result<Plan, PlanError> {
        let all = markers(self.files.binary())?;
        let hits = |m: &&Marker| {
            glob_match(name, &m.name) && provider.is_none_or(|p| glob_match(p, &m.provider))
        };
        let mut plan = Plan { definitions: Vec::new(), places: Vec::new(), notes: Vec::new() };
        for marker in all.iter().filter(hits) {
            let args = self.marker_args(d, marker, &mut plan.notes)?;
            let not_code = || PlanError::NotCode { addr: marker.addr, path: self.path() };
            let offset = self.symbols.file_offset(marker.addr).ok_or_else(not_code)?;
            let semaphore = marker.semaphore.and_then(|s| self.symbols.file_offset(s));
            plan.definitions.push(Definition {
                ret: false,
                group: d
                    .group
                    .clone()
                    .unwrap_or_else(|| format!("sdt_{}", event_name(&marker.provider, false))),
                event: d.event.clone().unwrap_or_else(|| event_name(&marker.name, false)),
                place: Place::File { path: self.path(), offset, semaphore },
                args: args.clone(),
            });
            plan.places.push(Located {
                addr: marker.addr,
                entry: None,
                owner: None,
                function: marker.name.clone(),
                args,
                line: None,
            });
        }
        if plan.definitions.is_empty() {
            let mut known: Vec<String> =
                all.iter().map(|m| format!("%{}:{}", m.provider, m.name)).collect();
            known.sort_unstable();
            known.dedup();
            let known = match known.len() {
                0 => "; it has no markers at all".to_owned(),
                n if n > SHOWN => {
                    format!("; it has {} and {} more", known[..SHOWN].join(", "), n - SHOWN)
                }
                _ => format!("; it has {}", known.join(", ")),
            };
            return Err(PlanError::NoMarker {
                name: d.point.to_string(),
                path: self.path(),
                known,
            });
        }
        super::plan::split_by_signature(&mut plan.definitions);
        Ok(plan)
    }

    fn marker_args(
        &self,
        d: &Description,
        m: &Marker,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<FetchArg>, PlanError> {
        let mut args = Vec::new();
        if d.args.is_empty() {
            for (i, text) in m.args.iter().enumerate() {
                match fetch_arg(i + 1, text, None) {
                    Ok(arg) => args.push(arg),
                    Err(why) => notes.push(Note::doubt(
                        NoteKind::Missing,
                        format!("{}:{} at {:#x}: {why}", m.provider, m.name, m.addr),
                        None,
                    )),
                }
            }
            return Ok(args);
        }
        for wanted in &d.args {
            if let Some(raw) = raw_arg(wanted) {
                args.push(raw);
                continue;
            }
            let refuse = |why: String| FindError::Argument { arg: wanted.to_string(), why };
            let ArgValue::Variable { name, steps, .. } = &wanted.value else {
                return Err(refuse("a marker has no variables, only arg1, arg2, …".into()).into());
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
            let mut arg = fetch_arg(number, text, wanted.name.as_deref()).map_err(refuse)?;
            match wanted.cast.as_deref() {
                // The marker's argument is the address of the text.
                Some(cast @ ("string" | "ustring")) => {
                    arg.fetch.derefs.push(kymo_debuginfo::probe::Deref { offset: 0, user: false });
                    arg.kind = Some(cast.to_owned());
                }
                Some(cast) => arg.kind = Some(cast.to_owned()),
                None => {}
            }
            args.push(arg);
        }
        Ok(args)
    }
}
