//! A drain on a thread of its own: a channel's rings go into their folder while others
//! wait for the end of what is recorded.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::drain::{Drain, DrainStats};
use super::error::UstError;
use super::watch::Watch;

/// How often is looked, while nothing fills up.
const ROUND: Duration = Duration::from_millis(50);
/// The shortest pause.
const LEAST: Duration = Duration::from_millis(1);
/// How long a program's last events are waited for.
const FORGET: Duration = Duration::from_millis(20);

/// What the thread gives back.
type Done = Result<(Watch, Drain), UstError>;

/// A drain under way. Dropped, it ends as [`finish`](Draining::finish) does.
#[derive(Debug)]
pub struct Draining {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<Done>>,
}

impl Draining {
    /// Begins. Rings that take in more than `busy` bytes between two looks are looked at
    /// more often.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(watch: Watch, drain: Drain, busy: u64) -> Result<Draining, UstError> {
        let (end, ended) = channel();
        let thread = std::thread::Builder::new()
            .name("drain".into())
            .spawn(move || rounds(watch, drain, busy, &ended))
            .map_err(UstError::Thread)?;
        Ok(Draining { end: Some(end), thread: Some(thread) })
    }

    /// Whether it has ended by itself: it failed, and `finish` says why.
    pub fn failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Switches the events off, takes what is left, removes the rings: what was passed
    /// over, and what was written.
    ///
    /// # Errors
    /// If the drain failed before or now.
    pub fn finish(mut self) -> Result<(Vec<String>, DrainStats), UstError> {
        self.end = None;
        let gone = || UstError::Thread(std::io::ErrorKind::BrokenPipe.into());
        let thread = self.thread.take().ok_or_else(gone)?;
        let (watch, drain) = thread.join().map_err(|_| gone())??;
        Ok((watch.notes().to_vec(), drain.stats()))
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // Nobody asks any more.
            let _ = thread.join();
        }
    }
}

fn rounds(mut watch: Watch, mut drain: Drain, busy: u64, ended: &Receiver<()>) -> Done {
    let mut pause = ROUND;
    loop {
        let before = drain.stats().bytes;
        watch.round(|channel, program| drain.take(channel, program))?;
        let taken = drain.stats().bytes - before;
        pause = if taken > busy { pause / 2 } else { (pause * 2).min(ROUND) };
        match ended.recv_timeout(pause.max(LEAST)) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    watch.stop();
    std::thread::sleep(FORGET);
    watch.round(|channel, program| drain.take_all(channel, program))?;
    Ok((watch, drain))
}
