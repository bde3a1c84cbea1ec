//! Results on a terminal: through a pager, as git does it, and no wider than the screen. Files,
//! pipes and programs get the same text as ever.

use std::ffi::OsString;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use kymo_kernel::terminal_output::{
    LedOutput, LineFilter, output_columns, output_is_terminal, start_pager,
};
use kymo_view::fit_line;

use crate::called_name::CalledName;

/// Options of the screen from the command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScreenOptions {
    /// No pager.
    pub(crate) no_pager: bool,
    /// Lines stay as they are: names in full, or JSON.
    pub(crate) whole_lines: bool,
}

static OPTIONS: OnceLock<ScreenOptions> = OnceLock::new();
static LED: Mutex<Option<LedOutput>> = Mutex::new(None);
/// A pager that nothing was shown through yet.
static WAITING: Mutex<Option<Child>> = Mutex::new(None);
/// Whether the result is live.
static IS_LIVE: AtomicBool = AtomicBool::new(false);

impl ScreenOptions {
    /// Settles it for this run.
    pub(crate) fn choose(self) {
        let _ = OPTIONS.set(self);
    }
}

/// No pager from now on: what is shown happens now.
pub(crate) fn set_live() {
    IS_LIVE.store(true, Ordering::Relaxed);
    crate::progress::end();
}

/// Starts the pager before it is known whether there is something to show: afterwards no program
/// may be started any more.
pub(crate) fn prepare() {
    let options = OPTIONS.get().copied().unwrap_or_default();
    if options.no_pager || !output_is_terminal() {
        return;
    }
    *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = pager().and_then(start_pager);
}

/// Has a pager show the text that follows, if it goes to a terminal.
pub(crate) fn page() {
    lead(false);
}

/// Starts paging for tables, with lines no wider than the screen as far as names can be shortened.
pub(crate) fn page_tables() {
    lead(true);
}

fn lead(fits: bool) {
    crate::progress::end();
    let mut led = LED.lock().unwrap_or_else(PoisonError::into_inner);
    if led.is_some() || !output_is_terminal() {
        return;
    }
    let options = OPTIONS.get().copied().unwrap_or_default();
    let columns = output_columns().filter(|_| fits && !options.whole_lines);
    let filter = columns.map(|columns| -> LineFilter {
        Box::new(move |line, out| match std::str::from_utf8(line) {
            Ok(line) => out.write_all(fit_line(line, columns).as_bytes()),
            Err(_) => out.write_all(line),
        })
    });
    let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner).take();
    let pager = if options.no_pager || IS_LIVE.load(Ordering::Relaxed) {
        None
    } else {
        waiting.or_else(|| pager().and_then(start_pager))
    };
    let is_coloured = crate::streams::is_colored();
    // Without it everything is shown as it is.
    *led = LedOutput::begin(pager, filter).ok();
    // The pipe is no terminal, but a terminal is behind it.
    if is_coloured && led.as_ref().is_some_and(LedOutput::leads_errors) {
        anstream::ColorChoice::Always.write_global();
    }
}

/// A text of as many lines as there are, made to fit the screen that standard error is.
pub(crate) fn fitted(text: &str) -> String {
    let columns = kymo_kernel::terminal_output::error_columns();
    match columns.filter(|_| !OPTIONS.get().copied().unwrap_or_default().whole_lines) {
        Some(columns) => text.lines().map(|line| fit_line(line, columns) + "\n").collect(),
        None => text.to_owned(),
    }
}

/// Waits until the pager was left.
pub(crate) fn end() {
    if let Some(led) = LED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        led.end();
    }
    if let Some(mut pager) = WAITING.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // It has nothing to show.
        let _ = pager.wait();
    }
}

/// The pager of the environment; none if that is empty or `cat`.
fn pager() -> Option<Command> {
    let own = if CalledName::get() == CalledName::Perf { "PERF_PAGER" } else { "KYMO_PAGER" };
    let named = [own, "PAGER"].iter().find_map(std::env::var_os);
    let text = named.unwrap_or_else(|| OsString::from("less"));
    if text.is_empty() || text == "cat" {
        return None;
    }
    let is_word =
        text.as_encoded_bytes().iter().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(b));
    let mut pager = match is_word {
        // A missing pager is reported.
        true => Command::new(&text),
        false => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(&text);
            shell
        }
    };
    if std::env::var_os("LESS").is_none() {
        pager.env("LESS", "FRX");
    }
    Some(pager)
}
