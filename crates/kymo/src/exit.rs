//! End of a command that shows a result: output of its ledger, and one rule for the exit status. An
//! unreadable part of a recording makes the status 1, although the rest was shown; with `--strict`
//! any warning in the ledger makes it 3.
//!
//! The ledger of a result for people is text below it. That of a result for programs (`--json`,
//! `report -t`) is one JSON object on standard error, so that the result's own stream holds
//! nothing else; `--ledger FILE` writes the object into a file in any case.

use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use kymo_events::note_unfinished;
use kymo_files::perfdata::PerfData;
use kymo_kernel::output_file::{self, SHARED};
use kymo_model::NoteKind;
use kymo_view::Ledger;

/// Version of the schema of results for programs (docs/json.md).
const SCHEMA_VERSION: u32 = 2;

/// Output of the ledger, from the command line.
#[derive(Debug, Default)]
pub(crate) struct LedgerOutput {
    /// The file of `--ledger`.
    pub(crate) file: Option<PathBuf>,
    /// The result is for programs.
    pub(crate) is_machine_readable: bool,
    /// Only errors are printed.
    pub(crate) is_quiet: bool,
}

static OUTPUT: OnceLock<LedgerOutput> = OnceLock::new();

impl LedgerOutput {
    /// Settles it for this run.
    pub(crate) fn choose(self) {
        let _ = OUTPUT.set(self);
    }

    fn get() -> &'static LedgerOutput {
        OUTPUT.get_or_init(LedgerOutput::default)
    }
}

/// Prints the ledger on standard error, in words; for machine-readable results the end of the
/// command prints it.
pub(crate) fn tell(ledger: &Ledger) {
    if !LedgerOutput::get().is_machine_readable {
        say!("{}", ledger.to_text(""));
    }
}

/// The ledger as the object that programs read, on a line.
pub(crate) fn object(ledger: &Ledger) -> String {
    let object = serde_json::json!({"version": SCHEMA_VERSION, "ledger": ledger.to_json()});
    format!("{object}\n")
}

/// Notes of the [`object`] among the lines that a command of kymo has said, and the other lines.
pub(crate) fn parse_said(said: &[u8]) -> (Vec<serde_json::Value>, Vec<String>) {
    let (mut notes, mut others) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(said).lines().filter(|line| !line.is_empty()) {
        let object = serde_json::from_str::<serde_json::Value>(line).ok();
        match object.and_then(|mut object| object.get_mut("ledger").map(serde_json::Value::take)) {
            Some(serde_json::Value::Array(more)) => notes.extend(more),
            _ => others.push(line.trim_start_matches("kymo: ").to_owned()),
        }
    }
    (notes, others)
}

/// Writes the ledger into the file of `--ledger`, if there is one. Whether that could be done.
pub(crate) fn save(ledger: &Ledger) -> bool {
    let Some(path) = &LedgerOutput::get().file else { return true };
    let written = output_file::open(path, SHARED)
        .and_then(|mut file| file.write_all(object(ledger).as_bytes()));
    if let Err(e) = &written {
        sayln!("kymo: cannot write {}: {e}", path.display());
    }
    written.is_ok()
}

/// Writes the ledger where programs expect it. Whether that could be done.
fn close(ledger: &Ledger) -> bool {
    let output = LedgerOutput::get();
    let is_told = output.is_machine_readable && output.file.is_none() && !output.is_quiet;
    if is_told && !ledger.is_empty() {
        say!("{}", object(ledger));
    }
    save(ledger)
}

/// Exit status; damage is said last, where it is not overlooked. `damage`: what is
/// damaged, and what became of the rest.
pub(crate) fn status(
    recording: impl Display,
    damage: Option<&str>,
    ledger: &Ledger,
    strict: bool,
) -> ExitCode {
    if let Some(damage) = damage.or(noted_damage(ledger)) {
        close(ledger);
        sayln!("kymo: {recording}: {damage}");
        return ExitCode::FAILURE;
    }
    of_command(None, ledger, strict)
}

/// Exit status where the ledger is a part of the result, on the stream that it would go to.
pub(crate) fn status_of_whole(
    recording: impl Display,
    damage: Option<&str>,
    ledger: &Ledger,
    strict: bool,
) -> ExitCode {
    let is_saved = save(ledger);
    let damage = damage.or(noted_damage(ledger));
    if let Some(damage) = damage {
        sayln!("kymo: {recording}: {damage}");
    }
    match is_saved && damage.is_none() {
        true if strict && ledger.has_doubts() => ExitCode::from(Ledger::STRICT_STATUS),
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Damage that only the ledger states, of a section of the header for example.
fn noted_damage(ledger: &Ledger) -> Option<&'static str> {
    let is_noted = ledger.notes().iter().any(|note| note.kind == NoteKind::Damaged);
    is_noted.then_some("damaged; what can be read is shown")
}

/// Exit status of a command that shows what a recording says of itself: damage of that is reported
/// and makes the status 1.
pub(crate) fn of_description(data: &PerfData) -> ExitCode {
    let mut ledger = Ledger::default();
    note_description(data, &mut ledger);
    tell(&ledger);
    status(data.name(), None, &ledger, false)
}

/// Notes damage outside of the records.
pub(crate) fn note_description(data: &PerfData, ledger: &mut Ledger) {
    for damage in data.description_damage() {
        ledger.note(NoteKind::Damaged, damage, None);
    }
    if data.is_unfinished() {
        ledger.push(note_unfinished());
    }
}

/// Exit status of the command that was traced, unless doubts weigh more.
pub(crate) fn of_command(command: Option<u8>, ledger: &Ledger, strict: bool) -> ExitCode {
    if !close(ledger) {
        return ExitCode::FAILURE;
    }
    if strict && ledger.has_doubts() {
        ExitCode::from(Ledger::STRICT_STATUS)
    } else {
        ExitCode::from(command.unwrap_or(0))
    }
}
