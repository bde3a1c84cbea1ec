//! Threads that move ring pages while a recording runs, each for a group of CPUs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use kymo_kernel::descriptors::{self, EventFlag};

use super::growing::Growing;
use super::pump::{CpuRing, Pump, PumpError, Sink};

/// Full pages wait in the ring no longer than this, so that a recorder that is
/// killed leaves everything but the last second in the file.
const EVERY: Duration = Duration::from_secs(1);
/// A pause for kernels that call a ring readable whatever is in it.
const PAUSE: Duration = Duration::from_millis(20);
/// A sweep that moved less than this, and less than a quarter of a ring, was not
/// worth its wake-up.
const WORTH: u64 = 256 << 10;
/// CPUs of one thread.
const GROUP: usize = 16;

/// The file that pages go to now; `--switch-output` puts another in its place.
#[derive(Debug)]
pub(crate) struct Current(RwLock<Arc<Growing>>);

impl Current {
    pub(crate) fn new(growing: Growing) -> Arc<Current> {
        Arc::new(Current(RwLock::new(Arc::new(growing))))
    }

    pub(crate) fn get(&self) -> Arc<Growing> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Switches to another file and returns the one before, once all writes to it have ended.
    pub(crate) fn switch(&self, to: Growing) -> Growing {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, Arc::new(to));
        drop(place);
        sole(before)
    }
}

/// Waits for the last mover that holds it.
fn sole(mut shared: Arc<Growing>) -> Growing {
    loop {
        match Arc::try_unwrap(shared) {
            Ok(growing) => return growing,
            Err(other) => shared = other,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes the file out, once the movers are gone.
pub(crate) fn take(current: Arc<Current>) -> io::Result<Growing> {
    let current = Arc::try_unwrap(current).map_err(|_| io::ErrorKind::ResourceBusy)?;
    Ok(sole(current.0.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Wakes the waiter when a file has reached its size.
#[derive(Debug)]
pub(crate) struct SizeAlarm {
    most: u64,
    reached: EventFlag,
}

impl SizeAlarm {
    pub(crate) fn new(most: u64) -> io::Result<SizeAlarm> {
        Ok(SizeAlarm { most, reached: EventFlag::new()? })
    }

    /// Polls readable when a file has reached the size, until it is cleared.
    pub(crate) fn reached(&self) -> &EventFlag {
        &self.reached
    }

    fn look(&self, file: &Growing) {
        if file.total() >= self.most {
            self.reached.set();
        }
    }
}

/// A mover's way to the file.
#[derive(Debug)]
pub(crate) struct ToFile {
    pub(crate) current: Arc<Current>,
    pub(crate) alarm: Option<Arc<SizeAlarm>>,
}

impl ToFile {
    fn grown(&self, file: &Growing) {
        if let Some(alarm) = &self.alarm {
            alarm.look(file);
        }
    }
}

impl Sink for ToFile {
    fn pipe(&mut self, stream: usize, pipe: &OwnedFd, len: usize) -> io::Result<()> {
        let file = self.current.get();
        file.append_pipe(stream, pipe, len)?;
        self.grown(&file);
        Ok(())
    }

    fn bytes(&mut self, stream: usize, pages: &[u8]) -> io::Result<()> {
        let file = self.current.get();
        file.append(stream, pages)?;
        self.grown(&file);
        Ok(())
    }
}

type Moved<S> = (S, Result<u64, PumpError>);

/// The threads.
pub(crate) struct Movers<S> {
    threads: Vec<JoinHandle<Moved<S>>>,
    /// Closed to stop them.
    stop: Option<OwnedFd>,
    /// Each closes its end when it ends by itself.
    ended: Vec<OwnedFd>,
}

impl<S: Sink + Send + 'static> Movers<S> {
    /// Starts moving. One thread for every sixteen CPUs, or one for all.
    pub(crate) fn start(
        sources: Vec<CpuRing>,
        (page, ring): (usize, u64),
        in_one: bool,
        mut sink: impl FnMut() -> S,
    ) -> io::Result<Movers<S>> {
        let (stop_read, stop) = descriptors::pipe()?;
        let mut movers = Movers { threads: Vec::new(), stop: Some(stop), ended: Vec::new() };
        let group = if in_one { sources.len() } else { GROUP };
        let mut sources = sources.into_iter().peekable();
        while sources.peek().is_some() {
            let pump = Pump::new(sources.by_ref().take(group.max(1)).collect(), page)?;
            let (ended, end) = descriptors::pipe()?;
            let (stop, sink) = (stop_read.try_clone()?, sink());
            let thread = std::thread::Builder::new().name("kymo-pages".into());
            movers.threads.push(thread.spawn(move || {
                let moved = run(pump, sink, &stop, WORTH.min(ring / 4));
                drop(end);
                moved
            })?);
            movers.ended.push(ended);
        }
        Ok(movers)
    }

    /// Poll readable when a mover has given up.
    pub(crate) fn ended(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ended.iter().map(|fd| fd.as_fd())
    }

    /// Lets them move what is left, begun pages too, and gives the sinks and
    /// the first error.
    pub(crate) fn stop(mut self) -> (Vec<S>, Result<u64, PumpError>) {
        self.stop = None;
        let (mut sinks, mut result) = (Vec::new(), Ok(0));
        for thread in self.threads.drain(..) {
            let Ok((sink, moved)) = thread.join() else {
                result = Err(PumpError::Sink(io::Error::other("a mover of pages panicked")));
                continue;
            };
            sinks.push(sink);
            result = match (result, moved) {
                (Ok(a), Ok(b)) => Ok(a + b),
                (Err(e), _) | (_, Err(e)) => Err(e),
            };
        }
        (sinks, result)
    }
}

fn run<S: Sink>(mut pump: Pump, mut sink: S, stop: &OwnedFd, worth: u64) -> Moved<S> {
    let moved = until_stopped(&mut pump, &mut sink, stop, worth);
    (sink, moved)
}

fn until_stopped(
    pump: &mut Pump,
    sink: &mut impl Sink,
    stop: &OwnedFd,
    worth: u64,
) -> Result<u64, PumpError> {
    let mut total = 0;
    loop {
        let (woken, stopping) = {
            let mut fds = vec![descriptors::readable(stop)];
            fds.extend(pump.poll_fds().map(|fd| descriptors::readable_fd(fd)));
            let woken = descriptors::wait(&mut fds, EVERY).map_err(PumpError::Ring)?;
            (woken, fds.first().is_some_and(|f| !f.revents().is_empty()))
        };
        if stopping {
            return Ok(total + pump.last(sink)?);
        }
        let moved = pump.sweep(sink)?;
        total += moved;
        sink.attend().map_err(PumpError::Sink)?;
        if woken && moved < worth {
            std::thread::sleep(PAUSE);
        }
    }
}
