//! A drain on a thread of its own: a channel's rings go into their directory while others
//! wait for the end of what is recorded.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kymo_kernel::opaque_mapping::Alarm;

use super::drain::{Drain, DrainStats};
use super::error::UstError;
use super::watch::ChannelWatch;

/// Time between two rounds over all programs.
const ROUND: Duration = Duration::from_millis(50);
/// The shortest pause where programs cannot be listened to, and the first after one was woken for
/// nothing.
const LEAST: Duration = Duration::from_millis(1);
/// Time to wait for a program's last events.
const FORGET: Duration = Duration::from_millis(20);

/// Result of the thread.
type Done = Result<(ChannelWatch, Drain), UstError>;

/// A drain under way. Dropped, it ends as [`finish`](Draining::finish) does.
#[derive(Debug)]
pub struct Draining {
    end: Alarm,
    thread: Option<JoinHandle<Done>>,
}

impl Draining {
    /// Begins. Programs say when their rings fill up; where they cannot be listened to, rings
    /// that take in more than `busy` bytes between two looks are looked at more often.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(watch: ChannelWatch, drain: Drain, busy: u64) -> Result<Draining, UstError> {
        let end = Alarm::default();
        let ended = end.clone();
        let thread = std::thread::Builder::new()
            .name("drain".into())
            .spawn(move || rounds(watch, drain, busy, &ended))
            .map_err(UstError::Thread)?;
        Ok(Draining { end, thread: Some(thread) })
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
        self.end.raise();
        let gone = || UstError::Thread(std::io::ErrorKind::BrokenPipe.into());
        let thread = self.thread.take().ok_or_else(gone)?;
        let (watch, drain) = thread.join().map_err(|_| gone())??;
        let passed_over = [&watch.notes(), drain.passed_over()].concat();
        Ok((passed_over, drain.stats()))
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        self.end.raise();
        if let Some(thread) = self.thread.take() {
            // No more requests.
            let _ = thread.join();
        }
    }
}

fn rounds(mut watch: ChannelWatch, mut drain: Drain, busy: u64, end: &Alarm) -> Done {
    watch.listen();
    let (mut pause, mut rest, mut heard) = (ROUND, LEAST, true);
    while !end.is_raised() {
        let before = drain.stats().bytes;
        watch.round(|channel, program| drain.take(channel, program))?;
        let taken = drain.stats().bytes - before;
        pause = if taken > busy { pause / 2 } else { (pause * 2).min(ROUND) };
        let next = Instant::now() + ROUND;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() || end.is_raised() {
                break;
            }
            heard = watch.sleep(end, if heard { left } else { left.min(pause.max(LEAST)) });
            if !heard {
                break;
            }
            let before = drain.stats().bytes;
            watch.signalled(|channel, program| drain.take(channel, program))?;
            if drain.stats().bytes > before {
                rest = LEAST;
            } else if !end.is_raised() && Instant::now() < next {
                // Without new packets: a frequent waker is polled as seldom as before.
                end.sleep(std::iter::empty(), rest.min(left));
                rest = (rest * 2).min(ROUND);
            }
        }
    }
    watch.stop();
    std::thread::sleep(FORGET);
    watch.round(|channel, program| drain.take_all(channel, program))?;
    drain.seal()?;
    Ok((watch, drain))
}
