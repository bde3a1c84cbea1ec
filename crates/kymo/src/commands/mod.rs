//! The commands, and what they share: how an error ends the program.

pub(crate) mod list;
pub(crate) mod profile;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod script;
pub(crate) mod stat;

use std::process::ExitCode;

/// Prints an error with its causes and gives the exit status for it.
/// A reader that went away (`kymo … | head`) is not an error.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let gone = error.chain().any(|e| {
        e.downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    });
    if gone {
        return ExitCode::SUCCESS;
    }
    anstream::eprintln!("kymo: {error:#}");
    ExitCode::FAILURE
}
