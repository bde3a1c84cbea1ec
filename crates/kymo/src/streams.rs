//! Standard output and standard error of the commands. All text passes a guard that lets kymo's own
//! colors through and escapes every other control character, regardless of its origin: names that
//! are not escaped where they are printed do not reach the terminal.
//!
//! `cargo xtask tidy` keeps the streams of the standard library and of `anstream` here.

mod guard;

use std::io::{self, IsTerminal as _, Write};
use std::os::fd::{AsFd as _, OwnedFd};

use anstream::{AutoStream, ColorChoice};
pub(crate) use guard::TextGuard;

/// Standard output, guarded.
pub(crate) type StdoutText = TextGuard<io::Stdout>;
/// Standard output, guarded and locked.
pub(crate) type StdoutTextLock = TextGuard<io::StdoutLock<'static>>;

/// Standard output for text.
pub(crate) fn stdout() -> StdoutText {
    TextGuard::new(io::stdout(), is_colored())
}

/// Standard output for text whose colors are removed where it is not a terminal.
pub(crate) fn styled_stdout() -> TextGuard<AutoStream<io::Stdout>> {
    TextGuard::new(anstream::stdout(), true)
}

/// Standard error for messages, which have no colors: any in them is of a name.
pub(crate) fn stderr() -> TextGuard<io::Stderr> {
    TextGuard::new(io::stderr(), false)
}

/// Standard output for bytes of a file format, and for text of which the user wrote the controls.
pub(crate) fn raw_stdout() -> io::Stdout {
    io::stdout()
}

/// Standard output for text of which the user wrote the controls: as it is in files and pipes,
/// guarded on a terminal.
pub(crate) fn users_stdout() -> Box<dyn io::Write> {
    if stdout().is_terminal() { Box::new(stdout()) } else { Box::new(raw_stdout()) }
}

/// Sequence that clears the screen.
pub(crate) const CLEAR: &str = "\x1b[H\x1b[2J";

/// Whether standard error is a terminal.
pub(crate) fn error_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Another descriptor of standard error.
pub(crate) fn error_descriptor() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}

/// Whether standard output is shown in colors.
pub(crate) fn is_colored() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Writes control sequences of kymo's own to standard output.
pub(crate) fn control_stdout(sequence: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(sequence.as_bytes())
}

/// Writes control sequences and the text between them, whose names are escaped, to standard
/// error.
pub(crate) fn control_stderr(text: &str) -> io::Result<()> {
    let mut out = io::stderr().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl StdoutText {
    /// Locks the stream.
    pub(crate) fn lock(self) -> StdoutTextLock {
        TextGuard::new(io::stdout().lock(), is_colored())
    }

    /// Locks the stream for text in colors where `has_colors`.
    pub(crate) fn lock_colored(self, has_colors: bool) -> StdoutTextLock {
        TextGuard::new(io::stdout().lock(), has_colors)
    }

    /// Whether the stream is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }
}

impl StdoutTextLock {
    /// Whether the stream is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }
}
