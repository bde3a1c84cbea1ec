//! Output as bpftrace has it: text, or a JSON object a line.

mod format;
mod histogram;
mod json;
mod tests;
mod text;

pub(crate) use format::format_values;
pub(crate) use tests::{BenchmarkResult, TestResult};

use std::io::{self, Write};

use kymo_bpf::{ProgramPosition, ValueType};

use crate::value::ProgramValue;
use kymo_model::counted;

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputForm {
    /// Text.
    #[default]
    Text,
    /// Text as bpftrace 0.17 has it.
    OldText,
    /// A JSON object a line.
    Json,
    /// JSON as bpftrace 0.17 prints it.
    OldJson,
}

/// Form and receiver of the output.
pub(crate) struct ProgramOutput<'w> {
    pub form: OutputForm,
    pub sink: &'w mut dyn Write,
}

/// A map to print: entries in the order they are printed, the largest last.
pub struct PrintedMap<'m> {
    /// Its name in the program, with `@`.
    pub name: &'m str,
    /// Type of its values.
    pub value_type: &'m ValueType,
    /// Key, where the map has one, and value.
    pub entries: Vec<(Option<ProgramValue>, ProgramValue)>,
    /// Values of the entries that `print()` leaves out.
    pub left_out: Vec<ProgramValue>,
}

impl OutputForm {
    /// The form of a program's output: text of the release that the program asks for.
    pub(crate) fn of_program(self, config: &[(String, String)]) -> OutputForm {
        match (self, config.iter().any(|(key, _)| key == "release")) {
            (OutputForm::Text, true) => OutputForm::OldText,
            (OutputForm::Json, true) => OutputForm::OldJson,
            (form, _) => form,
        }
    }
}

impl ProgramOutput<'_> {
    /// A map.
    pub(crate) fn map(&mut self, map: &PrintedMap<'_>) -> io::Result<()> {
        let mut out = Vec::new();
        match self.form {
            OutputForm::Json => json::write_map(&mut out, map, false),
            OutputForm::OldJson => json::write_map(&mut out, map, true),
            form => text::write_map(&mut out, map, form == OutputForm::OldText),
        }
        self.sink.write_all(&out)
    }

    /// Text of `printf` and its like; `kind` names the call in JSON.
    pub(crate) fn message(&mut self, kind: &str, text: &[u8]) -> io::Result<()> {
        match self.form {
            OutputForm::Text | OutputForm::OldText => self.sink.write_all(text),
            OutputForm::Json | OutputForm::OldJson => {
                let mut out = Vec::with_capacity(text.len() + 40);
                json::write_message(&mut out, kind, text);
                self.sink.write_all(&out)
            }
        }
    }

    /// Output of `system()`; a line's end follows it, as bpftrace has it.
    pub(crate) fn command_output(&mut self, text: &[u8]) -> io::Result<()> {
        self.message("syscall", text)?;
        match self.form {
            OutputForm::Json | OutputForm::OldJson => Ok(()),
            _ => self.sink.write_all(b"\n"),
        }
    }

    /// `print(value)`.
    pub(crate) fn value(&mut self, value: &ProgramValue) -> io::Result<()> {
        let mut out = Vec::new();
        match self.form {
            OutputForm::Json => json::write_printed_value(&mut out, value, false),
            OutputForm::OldJson => json::write_printed_value(&mut out, value, true),
            form => {
                text::write_map_value(&mut out, value, form == OutputForm::OldText);
                out.push(b'\n');
            }
        }
        self.sink.write_all(&out)
    }

    /// Writes the separator between the events and the maps that are printed at the end.
    pub(crate) fn before_last_maps(&mut self) -> io::Result<()> {
        match self.form {
            OutputForm::Json | OutputForm::OldJson => Ok(()),
            _ => self.sink.write_all(b"\n\n"),
        }
    }

    /// The number of probes, when they are attached. Text of it is for standard error, but once
    /// was not.
    pub(crate) fn attached(&mut self, probes: usize) -> io::Result<()> {
        match self.form {
            OutputForm::Text => Ok(()),
            OutputForm::OldText => {
                let probes = counted(probes as u64, "probe", "probes");
                writeln!(self.sink, "Attaching {probes}...")?;
                self.sink.flush()
            }
            OutputForm::Json | OutputForm::OldJson => writeln!(
                self.sink,
                "{{\"type\": \"attached_probes\", \"count\": {probes}, \"data\": {{\"probes\": {probes}}}}}"
            ),
        }
    }

    /// An error of the program while it runs, where that is part of the output.
    pub(crate) fn runtime_error(
        &mut self,
        text: &str,
        file: &str,
        at: ProgramPosition,
    ) -> io::Result<bool> {
        if self.form != OutputForm::Json {
            return Ok(false);
        }
        let mut out = Vec::new();
        json::write_runtime_error(&mut out, text, file, at);
        self.sink.write_all(&out).map(|()| true)
    }

    /// Records that did not fit the ring.
    pub(crate) fn lost(&mut self, events: u64) -> io::Result<()> {
        match self.form {
            OutputForm::Text | OutputForm::OldText => Ok(()),
            OutputForm::Json | OutputForm::OldJson => writeln!(
                self.sink,
                "{{\"type\": \"lost_events\", \"data\": {{\"events\": {events}}}}}"
            ),
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
