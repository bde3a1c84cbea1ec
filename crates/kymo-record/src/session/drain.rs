//! Draining the rings of a recording into its file until it is time to stop, and going on
//! in a new file when that is asked for.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use kymo_files::perfdata::write::{PerfDataWriter, synth};
use kymo_kernel::perf_ring::RingMode;
use kymo_kernel::process::Signal;
use kymo_model::{Note, NoteKind};

use super::switch_trigger::SwitchTrigger;
use super::{Session, scan_of};
use crate::control::ControlCommand;
use crate::error::RecordError;
use crate::open::EventRing;
use crate::options::SwitchOn;
use crate::output;

/// A killed recorder has lost no more than what was written in this time.
const MARK_EVERY: Duration = Duration::from_millis(250);
/// The rings are read at least this often, however little is in them.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Times of the current recording.
struct DrainClock {
    began: Instant,
    /// Start of the current file.
    file_began: Instant,
    /// Time of the file's last mark, and whether anything was written since.
    marked: Instant,
    unmarked: bool,
    /// The delay, as long as the events wait for it.
    delay: Option<Duration>,
    /// Rings whose owner has ended.
    hung: Vec<bool>,
}

/// Request by a signal.
#[derive(PartialEq, Eq)]
enum SignalRequest {
    None,
    End,
    SwitchFile,
}

impl Session<'_> {
    pub(super) fn drain_until_end(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let mut clock = DrainClock {
            began: now,
            file_began: now,
            marked: now,
            unmarked: false,
            delay: self.options.delay,
            hung: vec![false; self.rings.rings.len()],
        };
        loop {
            let wait = self.wait_for(&clock);
            self.wait(wait, &mut clock.hung)?;
            let has_written = self.drain()? > 0;
            self.summary.wakeups += u64::from(has_written);
            clock.unmarked |= has_written;
            self.mark_if_due(&mut clock)?;
            let mut request = self.take_signals()?;
            if request == SignalRequest::None {
                request = self.take_commands(&mut clock)?;
            }
            if request == SignalRequest::End {
                return Ok(());
            }
            if let Some(trigger) = &mut self.trigger
                && trigger.take()?
            {
                request = SignalRequest::SwitchFile;
            }
            self.start_if_due(&mut clock)?;
            let size = self.writer.as_ref().map_or(0, PerfDataWriter::data_size);
            let switch = request == SignalRequest::SwitchFile || self.is_file_full(&clock, size);
            if self.ended(clock.began, size)? {
                return Ok(());
            }
            if switch && (self.options.switch.is_some() || self.options.overwrite) {
                self.switch_file().map_err(io::Error::other)?;
                clock.file_began = Instant::now();
            }
        }
    }

    /// Marks the file, if it has grown and has not been marked for a while.
    fn mark_if_due(&mut self, clock: &mut DrainClock) -> io::Result<()> {
        if !clock.unmarked || clock.marked.elapsed() < MARK_EVERY {
            return Ok(());
        }
        // A mark also ends a round, which promises that nothing older follows: samples of rings
        // that overwrite are written last.
        if let Some(writer) = self.writer.as_mut().filter(|_| !self.options.overwrite) {
            writer.mark()?;
        }
        (clock.unmarked, clock.marked) = (false, Instant::now());
        Ok(())
    }

    fn take_signals(&mut self) -> io::Result<SignalRequest> {
        let mut request = SignalRequest::None;
        while let Some(signal) = self.signals.next()? {
            if signal.is_end() {
                self.summary.signal = Some(signal);
                return Ok(SignalRequest::End);
            }
            if signal == Signal::Usr2 {
                request = SignalRequest::SwitchFile;
            }
        }
        Ok(request)
    }

    /// Does what another program asks for by `--control`.
    fn take_commands(&mut self, clock: &mut DrainClock) -> io::Result<SignalRequest> {
        let Some(mut control) = self.control.take() else { return Ok(SignalRequest::None) };
        let mut request = SignalRequest::None;
        for command in control.take()? {
            match command {
                ControlCommand::Enable => {
                    clock.delay = None;
                    self.switch(true, false)?;
                }
                ControlCommand::Disable => {
                    clock.delay = None;
                    self.switch(false, false)?;
                }
                ControlCommand::SwitchFile => request = SignalRequest::SwitchFile,
                ControlCommand::Stop => request = SignalRequest::End,
                ControlCommand::Ping => {}
                ControlCommand::Unknown(line) => {
                    let line: String = line.chars().take(80).collect();
                    self.summary.notes.push(Note::doubt(
                        NoteKind::Control,
                        format!("--control: unknown command {line:?}"),
                        Some("there are enable, disable, snapshot, stop and ping".into()),
                    ));
                    continue;
                }
            }
            control.acknowledge();
        }
        if !control.closed {
            self.control = Some(control);
        }
        Ok(request)
    }

    /// Starts the events when their delay is over.
    fn start_if_due(&self, clock: &mut DrainClock) -> io::Result<()> {
        if clock.delay.is_some_and(|delay| clock.began.elapsed() >= delay) {
            clock.delay = None;
            self.switch(true, false)?;
        }
        Ok(())
    }

    /// Whether the file has the size or age at which a new one begins.
    fn is_file_full(&self, clock: &DrainClock, size: u64) -> bool {
        match self.options.switch {
            Some(SwitchOn::Size(most)) => size >= most,
            Some(SwitchOn::Time(most)) => clock.file_began.elapsed() >= most,
            _ => false,
        }
    }

    /// Longest time to sleep.
    fn wait_for(&self, clock: &DrainClock) -> Option<Duration> {
        let left = |since: Instant, all: Duration| all.saturating_sub(since.elapsed());
        let mut wait = clock.delay.map(|d| left(clock.began, d));
        let mut least = |d: Duration| wait = Some(wait.map_or(d, |w: Duration| w.min(d)));
        if let Some(t) = self.options.timeout {
            least(left(clock.began, t.saturating_add(self.options.delay.unwrap_or_default())));
        }
        if let Some(SwitchOn::Time(t)) = self.options.switch {
            least(left(clock.file_began, t));
        }
        // A ring whose owner ended has no descriptor to wait on.
        if clock.hung.contains(&true) {
            least(Duration::from_millis(100));
        }
        // Files of containers can be opened while their processes live.
        if !self.options.overwrite {
            least(LOOK_EVERY);
        }
        if clock.unmarked {
            least(MARK_EVERY.saturating_sub(clock.marked.elapsed()));
        }
        self.watched.limit(wait)
    }

    fn wait(&mut self, wait: Option<Duration>, hung: &mut [bool]) -> io::Result<()> {
        let signals = [self.signals.as_fd()];
        let watched = self.child.iter().map(|child| child.as_fd()).chain(self.watched.fds());
        let control = self.control.as_ref().map(|control| control.as_fd());
        let trigger = self.trigger.iter().flat_map(SwitchTrigger::fds);
        let others: Vec<BorrowedFd<'_>> =
            signals.into_iter().chain(watched).chain(control).chain(trigger).collect();
        self.rings.wait(&others, wait.unwrap_or(Duration::MAX), hung)?;
        Ok(())
    }

    fn ended(&mut self, began: Instant, size: u64) -> io::Result<bool> {
        let o = self.options;
        let full_time =
            |t: Duration| began.elapsed() >= t.saturating_add(o.delay.unwrap_or_default());
        if o.timeout.is_some_and(full_time) {
            return Ok(true);
        }
        if let Some(max) = o.max_size.filter(|m| size >= *m) {
            self.summary.notes.push(Note::choice(
                NoteKind::MaxSize,
                format!("stopped: {max} bytes were reached"),
                None,
            ));
            self.full = true;
            return Ok(true);
        }
        if let Some(child) = &mut self.child {
            return Ok(child.try_wait()?.is_some());
        }
        self.watched.all_ended()
    }

    /// One pass over all rings; gives the bytes written.
    pub(super) fn drain(&mut self) -> io::Result<usize> {
        let total = self.read_rings(RingMode::Keep)?;
        if let Some(writer) = self.writer.as_mut().filter(|_| total > 0) {
            if !self.options.overwrite {
                writer.record(&synth::finished_round())?;
            }
            if writer.is_pipe() {
                writer.flush()?;
            }
        }
        Ok(total)
    }

    /// Takes what the overwriting rings hold.
    pub(super) fn dump_overwritten(&mut self) -> io::Result<()> {
        self.rings.pause(true)?;
        self.read_rings(RingMode::Overwrite)?;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.record(&synth::finished_round())?;
        self.rings.pause(false)
    }

    /// Writes what the rings of one kind hold; gives the bytes.
    fn read_rings(&mut self, mode: RingMode) -> io::Result<usize> {
        let Some(writer) = &mut self.writer else { return Ok(0) };
        // What cannot be read again from the file is parsed on its way.
        let look = writer.is_pipe() || self.options.compress.is_some();
        let mut total = 0;
        let mut wakeups = self.wakeups.as_mut().filter(|_| mode == RingMode::Keep);
        // Read first: the other rings have reported by then which tasks they wake.
        if let Some(wakeups) = &mut wakeups {
            for ring in self.rings.rings.iter_mut().filter(|r| r.is_apart) {
                ring.ring.read(|first, second| {
                    wakeups.hold(first, second);
                    Ok::<(), io::Error>(())
                })?;
            }
        }
        let is_apart = wakeups.is_some();
        let chosen = |r: &&mut EventRing| r.ring.mode() == mode && !(is_apart && r.is_apart);
        for ring in self.rings.rings.iter_mut().filter(chosen) {
            total += ring.ring.read(|first, second| {
                self.containers.pieces(first, second);
                if look {
                    self.scan.piece(first);
                    self.scan.piece(second);
                }
                if let Some(wakeups) = &mut wakeups {
                    wakeups.follow(first, second);
                }
                writer.spans(first, second)
            })?;
        }
        if let Some(wakeups) = wakeups {
            wakeups.release(|record| {
                if look {
                    self.scan.piece(record);
                }
                total += record.len();
                writer.record(record)
            })?;
        }
        Ok(total)
    }

    /// Completes the file and begins the next.
    fn switch_file(&mut self) -> Result<(), RecordError> {
        if self.options.overwrite {
            self.dump_overwritten().map_err(|e| self.failed(e))?;
        }
        let Some(path) = self.path.clone() else { return Ok(()) };
        self.finish()?;
        self.summary.switched.push(output::set_aside(&path)?);
        self.remove_oldest(0)?;
        let (file, stream) = output::create(&path, true)?;
        self.file = Some(file);
        self.scan = scan_of(&self.rings);
        self.begin(stream)
    }
}
