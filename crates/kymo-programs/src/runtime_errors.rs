//! Errors of programs while they run, as warnings at their lines; and probes that are missing.

use std::io;

use kymo_bpf::{CompiledProgram, ErrorKind};
use kymo_model::{Note, NoteKind, counted};

use crate::actions::{ActionRunner, ProgramSinks};
use crate::losses::{describe, site_counts};
use crate::output::ProgramOutput;

/// Warnings that are printed while a program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarningLevel {
    /// None, of `--no-warnings`.
    None,
    /// Those on results that are not what the program computes.
    #[default]
    Usual,
    /// Failed reads and updates of maps, too, of `-k`.
    All,
}

/// Errors that were printed.
pub(crate) struct RuntimeErrors {
    level: WarningLevel,
    is_watched: bool,
    printed: Vec<u64>,
}

impl RuntimeErrors {
    pub(crate) fn new(level: WarningLevel) -> RuntimeErrors {
        RuntimeErrors { level, is_watched: false, printed: Vec::new() }
    }

    /// Counters are read only if some are of errors that are printed.
    pub(crate) fn watch(&mut self, program: &CompiledProgram) {
        self.is_watched = program.error_sites.iter().any(|site| self.is_printed(&site.kind));
    }

    fn is_printed(&self, kind: &ErrorKind) -> bool {
        match self.level {
            WarningLevel::None => false,
            WarningLevel::Usual => is_usual(kind),
            // Lost records have a message of their own.
            WarningLevel::All => !matches!(kind, ErrorKind::RingFull | ErrorKind::PacketRingFull),
        }
    }

    /// Prints a warning for each place with errors since the last time.
    pub(crate) fn print(
        &mut self,
        actions: &ActionRunner,
        sinks: &mut ProgramSinks<'_>,
    ) -> io::Result<()> {
        if !self.is_watched {
            return Ok(());
        }
        let program = &actions.program;
        let counts = site_counts(program, &actions.maps);
        self.printed.resize(counts.len(), 0);
        for (n, (site, count)) in program.error_sites.iter().zip(&counts).enumerate() {
            let Some(printed) = self.printed.get(n).copied() else { continue };
            if *count <= printed || !self.is_printed(&site.kind) {
                continue;
            }
            let text = match &site.kind {
                ErrorKind::DivisionByZero => "Divide or modulo by 0 detected. This can lead to \
                                              unexpected results. 1 is being used as the result."
                    .to_owned(),
                ErrorKind::MapFull { .. } => "Map full; can't update element. Try increasing \
                                              max_map_keys config or manually setting the max \
                                              entries in a map declaration e.g. \
                                              `let @a = hash(5000)`"
                    .to_owned(),
                ErrorKind::IndexOutOfBounds => {
                    "Array access out of bounds. This can lead to unexpected results. 0 is being \
                     used as the result."
                        .to_owned()
                }
                kind => describe(program, kind, count - printed).1,
            };
            let mut output = ProgramOutput { form: actions.form, sink: &mut *sinks.output };
            let at = site.position;
            if !output.runtime_error(&text, actions.name(), at)? {
                writeln!(sinks.diagnostics, "{}: WARNING: {text}", actions.place(at))?;
            }
        }
        self.printed = counts;
        Ok(())
    }
}

/// Errors whose result is a number like any other, or missing.
fn is_usual(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DivisionByZero | ErrorKind::MapFull { .. } | ErrorKind::IndexOutOfBounds
    )
}

/// Note on probes that `missing_probes = ignore` left out.
pub(crate) fn missing_note(missing: &[String]) -> Option<Note> {
    let first = missing.first()?;
    let fact = counted(missing.len() as u64, "probe was not found", "probes were not found");
    let fact = format!("{fact} and left out by missing_probes = ignore: {first}");
    let more = if missing.len() > 1 { format!("{fact}, …") } else { fact };
    Some(Note::choice(NoteKind::Scope, more, None))
}
