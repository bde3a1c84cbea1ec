//! Standard output on a terminal, led through a filter of lines and a pager. Where standard
//! error is the terminal too, it goes the same way, so that what is said last is read last.

use std::fs::File;
use std::io::{self, IsTerminal as _, PipeReader, Read as _, Write};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;

/// Columns of the terminal that standard output was before it was led elsewhere.
static BEFORE: OnceLock<Option<usize>> = OnceLock::new();
/// Standard output as it was before it was led elsewhere for this program alone.
static OF_COMMAND: OnceLock<OwnedFd> = OnceLock::new();
/// Longest line of a table in bytes; longer ones are not held.
const LONGEST_LINE: usize = 1 << 16;

/// Whether standard output goes to a terminal, through a pager or not.
pub fn output_is_terminal() -> bool {
    BEFORE.get().is_some() || io::stdout().is_terminal()
}

/// Columns of the terminal that standard output is or was led from; nothing if there is none.
pub fn output_columns() -> Option<usize> {
    BEFORE.get().copied().unwrap_or_else(|| columns_of(io::stdout()))
}

/// Columns of the terminal that standard error is.
pub fn error_columns() -> Option<usize> {
    columns_of(io::stderr())
}

fn columns_of(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Writes another text in place of a line; neither has the newline.
pub type LineFilter = Box<dyn FnMut(&[u8], &mut dyn Write) -> io::Result<()> + Send>;

/// Standard output of this program while it is led through a filter and a pager.
#[derive(Debug)]
pub struct LedOutput {
    /// Descriptors and what they were.
    saved: Vec<(i32, OwnedFd)>,
    filter: Option<JoinHandle<()>>,
    pager: Option<Child>,
}

/// Starts a pager that waits for text; none if it cannot be started.
pub fn start_pager(mut pager: Command) -> Option<Child> {
    pager.stdin(Stdio::piped()).spawn().ok()
}

impl LedOutput {
    /// Leads what is written from now on through `filter` into a pager, or back to the terminal
    /// without one.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn begin(mut pager: Option<Child>, filter: Option<LineFilter>) -> io::Result<LedOutput> {
        let columns = output_columns();
        io::stdout().flush()?;
        let to_pager = pager.as_mut().and_then(|pager| pager.stdin.take());
        let has_pager = pager.is_some();
        let mut led = LedOutput { saved: Vec::new(), filter: None, pager };
        let mut into = match to_pager {
            Some(pipe) => OwnedFd::from(pipe),
            None => io::stdout().as_fd().try_clone_to_owned()?,
        };
        if let Some(filter) = filter {
            let (from, to) = io::pipe()?;
            let out = File::from(std::mem::replace(&mut into, to.into()));
            led.filter = Some(std::thread::spawn(move || {
                // A reader that quits closes the pipe, which the writer sees.
                let _ = filter_lines(from, out, filter);
            }));
        }
        if has_pager {
            // Ctrl-C is for the pager; leaving that closes the pipe.
            // SAFETY: to ignore a signal takes no memory.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        }
        let is_error_too = io::stderr().is_terminal();
        let _ = BEFORE.set(columns);
        led.lead(&io::stdout(), &into)?;
        if is_error_too {
            led.lead(&io::stderr(), &into)?;
        }
        Ok(led)
    }

    fn lead(&mut self, stream: &impl AsFd, into: &OwnedFd) -> io::Result<()> {
        let stream = stream.as_fd();
        self.saved.push((stream.as_raw_fd(), stream.try_clone_to_owned()?));
        replace(stream.as_raw_fd(), into)
    }

    /// Whether standard error goes the same way.
    pub fn leads_errors(&self) -> bool {
        self.saved.len() > 1
    }

    /// Waits until everything was looked at. Standard output is the terminal again.
    pub fn end(mut self) {
        let _ = io::stdout().flush();
        for (stream, before) in self.saved.drain(..) {
            let _ = replace(stream, &before);
        }
        if let Some(filter) = self.filter.take() {
            let _ = filter.join();
        }
        if let Some(mut pager) = self.pager.take() {
            let _ = pager.wait();
        }
    }
}

/// Makes a file the standard output.
///
/// # Errors
/// If the kernel refuses it.
pub fn send_to(file: impl Into<OwnedFd>) -> io::Result<()> {
    io::stdout().flush()?;
    replace(libc::STDOUT_FILENO, &file.into())
}

/// Makes a file the standard output of this program, but not of the command that it starts.
///
/// # Errors
/// If the kernel refuses it.
pub fn send_own_to(file: impl Into<OwnedFd>) -> io::Result<()> {
    let of_command = io::stdout().as_fd().try_clone_to_owned()?;
    send_to(file)?;
    let _ = OF_COMMAND.set(of_command);
    Ok(())
}

/// Keeps standard output for what this program writes there: commands that it starts from now on
/// write to standard error instead.
///
/// # Errors
/// If there are no descriptors left.
pub fn keep_to_own() -> io::Result<()> {
    let of_command = io::stderr().as_fd().try_clone_to_owned()?;
    let _ = OF_COMMAND.set(of_command);
    Ok(())
}

/// Standard output for a command where it is not this program's.
pub(crate) fn of_command() -> Option<&'static OwnedFd> {
    OF_COMMAND.get()
}

/// Makes a standard stream another file.
fn replace(stream: i32, by: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open, and the one that is replaced has no owner.
    match unsafe { libc::dup2(by.as_raw_fd(), stream) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Until the writer ends. Each read is passed on as far as it has whole lines.
fn filter_lines(mut from: PipeReader, mut out: File, mut filter: LineFilter) -> io::Result<()> {
    let (mut block, mut held, mut done) = (vec![0; LONGEST_LINE], Vec::new(), Vec::new());
    loop {
        let count = from.read(&mut block)?;
        held.extend_from_slice(block.get(..count).unwrap_or_default());
        let mut begin = 0;
        for (at, _) in held.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            filter(held.get(begin..at).unwrap_or_default(), &mut done)?;
            done.push(b'\n');
            begin = at + 1;
        }
        held.drain(..begin);
        if held.len() > LONGEST_LINE || count == 0 {
            done.append(&mut held);
        }
        out.write_all(&done)?;
        done.clear();
        if count == 0 {
            return Ok(());
        }
    }
}
