//! Attach points of the probes of a program: those that patterns stand for, and missing ones.

use super::{ExpandedProbes, Lowered, Lowering, MAX_PROBES, is_special, kernel_only};
use crate::lexer::error_at;
use crate::object::{AttachPoint, AttachTarget, ProgramPosition};

impl Lowering<'_> {
    /// Finds the attach points of all probes: warns of those that are missing, or refuses them.
    pub(super) fn expand(&mut self) -> Lowered<ExpandedProbes> {
        let most = self.setting("max_probes", MAX_PROBES as u64) as usize;
        let missing = self.config.get("missing_probes").map_or("error", String::as_str).to_owned();
        let mut expanded = Vec::new();
        let (mut total, mut unwanted) = (0, 0);
        for probe in &self.tree.probes {
            let mut points = Vec::new();
            let before_probe = unwanted;
            for (point, position) in &probe.points {
                let found = if crate::is_watchpoint_setup(point) {
                    Ok(vec![point.clone()])
                } else {
                    self.facts.expand(point)
                };
                let found =
                    found.map_err(|what| error_at(*position, format!("{}: {what}", point.name)))?;
                // Without the kernel's lists nothing matches.
                if found.is_empty() && self.needs_kernel(point) {
                    return Err(kernel_only::refused_point(point, *position));
                }
                if found.is_empty() {
                    // Without a module, a raw tracepoint is one of any.
                    let is_of_any = matches!(&point.target, AttachTarget::RawTracepoint { module, .. } if module.is_empty());
                    let wild = point.name.contains(['*', '?', '[']) || is_of_any;
                    let what = match &point.target {
                        AttachTarget::Kprobe { module, .. }
                            if !module.is_empty() && !wild && !self.facts.is_loaded(module) =>
                        {
                            let name = &point.name;
                            format!("specified module {module} in probe {name} is not loaded.")
                        }
                        _ => format!("No matches for {}.", point.name.replacen(':', " ", 1)),
                    };
                    let hint = self.facts.instead_of(point).unwrap_or_else(|| {
                        "`config = { missing_probes = \"warn\" }` continues without it".into()
                    });
                    if let AttachTarget::Kprobe { function, .. } = &point.target
                        && !wild
                        && missing != "ignore"
                    {
                        let what = format!(
                            "{function} is not traceable (either non-existing, inlined, or \
                             marked as \"notrace\"); attaching to it will likely fail"
                        );
                        self.warnings.push(error_at(*position, what));
                    }
                    match missing.as_str() {
                        "error" if !wild => {
                            let mut message = error_at(*position, what);
                            message.hint = Some(hint);
                            return Err(message);
                        }
                        "ignore" => self.missing_probes.push(point.name.clone()),
                        _ => self.warnings.push(error_at(*position, format!("{what} Skipping."))),
                    }
                }
                if let Some(what) = self.facts.caution(&found) {
                    self.warnings.push(error_at(*position, what));
                }
                let is_wanted =
                    |point: &AttachPoint| is_special(point) || self.facts.is_wanted(point);
                let before = found.len();
                let found: Vec<_> = found.into_iter().filter(is_wanted).collect();
                unwanted += before - found.len();
                if let Some(refused) = found.iter().find(|point| self.needs_kernel(point)) {
                    return Err(kernel_only::refused_point(refused, *position));
                }
                total += found.len();
                if total > most {
                    let what = format!("{total} probes match; the limit is {most}");
                    let mut message = error_at(*position, what);
                    message.hint = Some("`config = { max_probes = … }` raises the limit".into());
                    return Err(message);
                }
                points.extend(found);
            }
            if points.is_empty() && unwanted == before_probe {
                let what = "Probe has no valid attach points.";
                match missing.as_str() {
                    "ignore" => {}
                    "warn" => {
                        let what = format!(
                            "{what} It is being removed which may cause issues with \
                                            program behavior."
                        );
                        self.warnings.push(error_at(probe.position, what));
                    }
                    _ => return Err(error_at(probe.position, what)),
                }
            }
            expanded.push(points);
        }
        let position = ProgramPosition { line: 1, column: 1 };
        if expanded.iter().all(Vec::is_empty) {
            return Err(error_at(position, "No probes to attach"));
        }
        let is_empty = expanded.iter().flatten().all(is_special);
        if unwanted > 0 && is_empty {
            return Err(error_at(position, "No probes to attach: no name matches --probe-filter"));
        }
        Ok(expanded)
    }
}
