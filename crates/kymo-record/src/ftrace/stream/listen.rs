//! The listener: takes connections, one thread each, until stopped.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kymo_kernel::descriptors;
use kymo_kernel::process::Signals;

use super::auth::Secret;
use super::receive::{Arriving, ReceiveError, Rules, refuse};

/// Options of a listener.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Recordings go to directories in here.
    pub dir: PathBuf,
    /// Address to listen on.
    pub bind: SocketAddr,
    /// Secret that senders must know.
    pub secret: Option<Secret>,
    /// Listen beyond this machine although anyone may send.
    pub allow_unauthenticated: bool,
    /// The most bytes of pages taken for one recording.
    pub max_size: Option<u64>,
    /// The most recordings at the same time.
    pub max_senders: usize,
    /// Ends after this many recordings.
    pub count: Option<u64>,
    /// Acknowledge only what is on the disk.
    pub sync: bool,
}

/// Something to tell the user.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ListenEvent {
    Listening {
        address: SocketAddr,
    },
    Started {
        from: SocketAddr,
        path: PathBuf,
    },
    Complete {
        from: SocketAddr,
        path: PathBuf,
        stored: u64,
    },
    /// The recording ended early; what is stored can be read.
    Broken {
        from: SocketAddr,
        path: PathBuf,
        stored: u64,
        error: ReceiveError,
    },
    /// No recording came about.
    Refused {
        from: SocketAddr,
        error: ReceiveError,
    },
    /// No room for another sender.
    Full {
        from: SocketAddr,
    },
}

/// Listening failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ListenError {
    #[error(
        "{0} can be reached from other machines and no secret is required; \
         give --secret-file, or --no-secret to take recordings from anyone"
    )]
    Open(SocketAddr),
    #[error("cannot listen on {address}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot make the directory {}", path.display())]
    Dir { path: PathBuf, source: io::Error },
    #[error("cannot wait for connections")]
    Wait(#[source] io::Error),
}

/// Numbers of received recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listened {
    /// Complete recordings.
    pub complete: u64,
    /// Recordings that ended early.
    pub broken: u64,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    open: AtomicUsize,
    complete: AtomicU64,
    broken: AtomicU64,
    /// Connections that have not begun a recording, the oldest first.
    silent: Mutex<VecDeque<(u64, TcpStream)>>,
}

impl State {
    /// Ends the connection that has been silent longest, if there is one: senders are not kept out
    /// by silent connections.
    fn end_silent(&self) -> bool {
        let oldest = self.silent.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        // Its thread reads the end, and counts it out.
        oldest.is_some_and(|(_, socket)| socket.shutdown(Shutdown::Both).is_ok())
    }

    fn begins(&self, number: u64, socket: &TcpStream) -> io::Result<()> {
        let socket = socket.try_clone()?;
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).push_back((number, socket));
        Ok(())
    }

    fn has_begun(&self, number: u64) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|(n, _)| *n != number);
    }
}

/// Takes recordings until a signal asks to end or enough have come. Recordings
/// that are under way then are ended, and can be read as far as they came.
pub fn listen(
    options: &ListenOptions,
    signals: &Signals,
    tell: &(dyn Fn(ListenEvent) + Sync),
) -> Result<Listened, ListenError> {
    if options.secret.is_none()
        && !options.bind.ip().is_loopback()
        && !options.allow_unauthenticated
    {
        return Err(ListenError::Open(options.bind));
    }
    std::fs::create_dir_all(&options.dir)
        .map_err(|source| ListenError::Dir { path: options.dir.clone(), source })?;
    let bind = |source| ListenError::Bind { address: options.bind, source };
    let listener = TcpListener::bind(options.bind).map_err(bind)?;
    listener.set_nonblocking(true).map_err(bind)?;
    tell(ListenEvent::Listening { address: listener.local_addr().map_err(bind)? });
    let rules = Rules {
        dir: options.dir.clone(),
        secret: options.secret.clone(),
        max_size: options.max_size,
        sync: options.sync,
    };
    let state = State::default();
    let result = std::thread::scope(|scope| {
        let result = accept(
            &listener,
            options,
            signals,
            &state,
            |socket, from, number| {
                let (state, rules) = (&state, &rules);
                state.open.fetch_add(1, Ordering::Relaxed);
                scope.spawn(move || {
                    serve(&socket, (from, number), rules, state, tell);
                    state.open.fetch_sub(1, Ordering::Relaxed);
                });
            },
            tell,
        );
        state.stop.store(true, Ordering::Relaxed);
        result
    });
    result.map_err(ListenError::Wait)?;
    let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
    Ok(Listened { complete: count(&state.complete), broken: count(&state.broken) })
}

fn accept(
    listener: &TcpListener,
    options: &ListenOptions,
    signals: &Signals,
    state: &State,
    mut start: impl FnMut(TcpStream, SocketAddr, u64),
    tell: &dyn Fn(ListenEvent),
) -> io::Result<()> {
    let mut number = 0;
    loop {
        let listening = listener.as_fd();
        let mut fds = [descriptors::readable(&listening), descriptors::readable(signals)];
        descriptors::wait(&mut fds, Duration::from_millis(200))?;
        while let Some(signal) = signals.next()? {
            if signal.is_end() {
                return Ok(());
            }
        }
        let ended = state.complete.load(Ordering::Relaxed) + state.broken.load(Ordering::Relaxed);
        if options.count.is_some_and(|n| ended >= n) {
            return Ok(());
        }
        match listener.accept() {
            Ok((socket, from)) => {
                socket.set_nonblocking(false)?;
                let has_room = state.open.load(Ordering::Relaxed) < options.max_senders;
                if (has_room || state.end_silent()) && state.begins(number, &socket).is_ok() {
                    start(socket, from, number);
                    number += 1;
                } else {
                    tell(ListenEvent::Full { from });
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // A connection that ended before it was taken, or no descriptors
            // left for now.
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn serve(
    socket: &TcpStream,
    (from, number): (SocketAddr, u64),
    rules: &Rules,
    state: &State,
    tell: &(dyn Fn(ListenEvent) + Sync),
) {
    let begun = Arriving::begin(socket, rules, &state.stop);
    state.has_begun(number);
    let arriving = match begun {
        Ok(arriving) => arriving,
        Err(error) => {
            let _ = refuse(socket, &error);
            return tell(ListenEvent::Refused { from, error });
        }
    };
    tell(ListenEvent::Started { from, path: arriving.path() });
    let arrived = arriving.run();
    let (path, stored) = (arrived.path, arrived.stored);
    match arrived.error {
        None => {
            tell(ListenEvent::Complete { from, path, stored });
            state.complete.fetch_add(1, Ordering::Relaxed);
        }
        Some(error) => {
            tell(ListenEvent::Broken { from, path, stored, error });
            state.broken.fetch_add(1, Ordering::Relaxed);
        }
    }
}
