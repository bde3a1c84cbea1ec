//! One line on the terminal that standard error is: what is being done, once that takes longer
//! than a second. It is wiped before results are shown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kymo_analysis::activity;
use kymo_model::UntrustedText;

/// Time after which progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(500);

static STATE: Mutex<ProgressState> = Mutex::new(ProgressState::Before);
/// The line is another's: files are fetched.
static IS_FETCHING: AtomicBool = AtomicBool::new(false);

enum ProgressState {
    Before,
    Running(Arc<(Mutex<bool>, Condvar)>, JoinHandle<()>),
    /// Results are shown, or what happens now.
    Ended,
}

/// Begins to tell of the work on a recording.
pub(crate) fn begin(recording: impl std::fmt::Display) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if !matches!(*state, ProgressState::Before) || !crate::streams::error_is_terminal() {
        return;
    }
    let ended = Arc::new((Mutex::new(false), Condvar::new()));
    let (name, watched) = (recording.to_string(), ended.clone());
    let drawer = std::thread::Builder::new().spawn(move || tell(&name, &watched));
    if let Ok(drawer) = drawer {
        *state = ProgressState::Running(ended, drawer);
    }
}

fn tell(name: &str, (ended, changed): &(Mutex<bool>, Condvar)) {
    let (began, mut pause, mut is_shown) = (Instant::now(), PATIENCE, false);
    let mut is_ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
    while !*is_ended {
        let waited = changed.wait_timeout(is_ended, pause);
        is_ended = waited.unwrap_or_else(PoisonError::into_inner).0;
        if !*is_ended && began.elapsed() >= PATIENCE && !IS_FETCHING.load(Ordering::Relaxed) {
            let what = if activity::is_resolving() { "resolving" } else { "reading" };
            draw(&format!("{what} {name}… {} s", began.elapsed().as_secs()));
            (pause, is_shown) = (STEP, true);
        }
    }
    if is_shown {
        draw("");
    }
}

/// Draws the line anew, also where colors are not wanted.
fn draw(line: &str) {
    let line = UntrustedText::new(line).to_text();
    // The line may have no reader.
    let _ = crate::streams::control_stderr(&format!("\r\x1b[K{line}"));
}

/// Leaves the line to the progress of fetching, or takes it back.
pub(crate) fn set_fetching(is_fetching: bool) {
    IS_FETCHING.store(is_fetching, Ordering::Relaxed);
}

/// Wipes the line, for good.
pub(crate) fn end() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::replace(&mut *state, ProgressState::Ended);
    if let ProgressState::Running(ended, drawer) = before {
        *ended.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        ended.1.notify_one();
        let _ = drawer.join();
    }
}
