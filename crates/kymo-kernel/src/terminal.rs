//! The terminal: its size, keys as they are pressed, and its state, which is put back when the
//! program ends, also by a panic.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::process::Signal;

/// The other screen, without a cursor and without what was on it.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// Plain characters, the cursor, the screen that was there before.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// Terminal mode that a panic restores.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A terminal that hands over keys as they are pressed, and is drawn on as a whole.
#[derive(Debug)]
pub struct RawTerminal {
    keys: File,
    out: File,
}

impl RawTerminal {
    /// Takes over the terminal that standard input and output are.
    ///
    /// # Errors
    /// If they are none.
    pub fn enter() -> io::Result<RawTerminal> {
        let keys = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut terminal = RawTerminal { keys, out };
        terminal.resume()?;
        restore_on_panic();
        Ok(terminal)
    }

    /// Takes it over again.
    ///
    /// # Errors
    /// If it is gone.
    pub fn resume(&mut self) -> io::Result<()> {
        let mut modes = tcgetattr(&self.keys)?;
        let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        before.get_or_insert_with(|| modes.clone());
        drop(before);
        // Signals of keys stay: Ctrl-C and Ctrl-Z are handled where signals are.
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
        // Reading never waits.
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&self.keys, OptionalActions::Now, &modes)?;
        self.out.write_all(ENTER)?;
        self.out.flush()
    }

    /// Gives it back for a while.
    pub fn suspend(&mut self) {
        restore();
    }

    /// Gives the terminal back and stops this program, as Ctrl-Z asks; returns when it continues.
    ///
    /// # Errors
    /// If the terminal is gone by then.
    pub fn stop_program(&mut self) -> io::Result<()> {
        self.suspend();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        self.resume()
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// If it is gone.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        let size = tcgetwinsize(&self.out)?;
        // Terminals whose size was never set report none; most started with this one.
        Ok(match (size.ws_col, size.ws_row) {
            (0, _) | (_, 0) => (80, 24),
            size => size,
        })
    }

    /// Bytes of the keys that were pressed, as far as they came; none at its end, too.
    ///
    /// # Errors
    /// If it is gone.
    pub fn read_keys(&self, into: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.keys, into) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }

    /// Writes what is drawn.
    ///
    /// # Errors
    /// If it is gone.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }
}

impl AsFd for RawTerminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.keys.as_fd()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Signals that a program on a terminal minds: another size, stop, go on.
pub const TERMINAL_SIGNALS: [Signal; 3] = [Signal::Winch, Signal::Stop, Signal::Continue];

/// Puts the terminal back into the state it had, once.
fn restore() {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(modes) = before.take() {
        // Who is not there any more needs no restoring.
        let _ = io::stdout().write_all(LEAVE);
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &modes);
    }
}

/// Has a panic of this thread give the terminal back before it says anything.
fn restore_on_panic() {
    let owner = std::thread::current().id();
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == owner {
            restore();
        }
        told(info);
    }));
}

/// Columns and rows of the terminal that standard output is.
pub fn terminal_size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
