//! Exit status of a command that shows a recording: one rule for all of them. What could not
//! be read of it makes the status 1, though what could be read was shown; with
//! `--strict` any doubt in the ledger makes it 3.

use std::fmt::Display;
use std::process::ExitCode;

use kymo_view::Ledger;

/// Exit status; damage is said last, where it is not overlooked. `damage`: what is
/// damaged, and what became of the rest.
pub(crate) fn status(
    recording: impl Display,
    damage: Option<&str>,
    ledger: &Ledger,
    strict: bool,
) -> ExitCode {
    if let Some(damage) = damage {
        sayln!("kymo: {recording}: {damage}");
        return ExitCode::FAILURE;
    }
    of_command(None, ledger, strict)
}

/// Exit status of the command that was traced, unless doubts weigh more.
pub(crate) fn of_command(command: Option<u8>, ledger: &Ledger, strict: bool) -> ExitCode {
    match strict && ledger.has_doubts() {
        true => ExitCode::from(Ledger::STRICT_STATUS),
        false => ExitCode::from(command.unwrap_or(0)),
    }
}
