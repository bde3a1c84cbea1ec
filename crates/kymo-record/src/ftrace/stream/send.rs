//! The sending side: pages go from the ring through a pipe into one connection,
//! all CPUs in turn. Nothing is kept here: while the listener does not take
//! anything, events stay in the kernel's ring, which counts what it must drop.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kymo_kernel::descriptors::{self, PollFd, PollFlags, SpliceMode, Spliced};

use super::super::pump::Sink;
use super::super::trace_header::GrowingHeader;
use super::auth::{self, HandshakeError, Secret};
use super::frame::{self, Begin, FrameKind, HEADER, Header, ProtocolError};

/// For the connection and the greeting.
const GREETING: Duration = Duration::from_secs(10);
/// Time that a listener may read nothing after the recording was requested to end.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// Time that it may take to finish the file: it may have to copy all of it.
const FINISHING: Duration = Duration::from_secs(600);
/// An idle sender says that it is alive.
const ALIVE: Duration = Duration::from_secs(5);
/// A piece of the trace header.
const PIECE: usize = 1 << 20;

/// Sending failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SendError {
    #[error("{0:?} is not HOST:PORT")]
    Address(String),
    #[error("no connection to {address} (does `kymo listen` run there?)")]
    Connect { address: String, source: io::Error },
    #[error("{address} does not take the recording")]
    Greeting { address: String, source: HandshakeError },
    #[error("the listener gave up: {0}")]
    Refused(String),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the listener disconnected")]
    Gone(#[source] io::Error),
    #[error("the listener took nothing for {} seconds", .0.as_secs())]
    Stalled(Duration),
}

impl From<SendError> for io::Error {
    fn from(e: SendError) -> io::Error {
        io::Error::other(e)
    }
}

/// A connection to a listener that has taken the trace header of a recording.
#[derive(Debug)]
pub struct Remote {
    socket: TcpStream,
    /// Address as typed.
    address: String,
    directory: String,
    page_size: u32,
    sent: Vec<u64>,
    acked: Vec<u64>,
    done: bool,
    inbox: Vec<u8>,
    last_sent: Instant,
    /// Set when the recording is to end.
    ending: Arc<AtomicBool>,
}

impl Remote {
    /// Connects, greets, and sends the description of the recording. `ending`: the recording is
    /// about to end, so that there is no time to wait.
    pub fn connect(
        address: &str,
        name: &str,
        trace_header: &GrowingHeader,
        secret: Option<&Secret>,
        ending: Arc<AtomicBool>,
    ) -> Result<Remote, SendError> {
        let mut socket = dial(address)?;
        let greeting = |source| SendError::Greeting { address: address.to_owned(), source };
        auth::greet(&mut socket, secret).map_err(greeting)?;
        socket
            .set_read_timeout(None)
            .and_then(|()| socket.set_nonblocking(true))
            .map_err(SendError::Gone)?;
        let streams = trace_header.layout.slots.len();
        let mut remote = Remote {
            socket,
            address: address.to_owned(),
            directory: String::new(),
            page_size: trace_header.layout.page_size,
            sent: vec![0; streams],
            acked: vec![0; streams],
            done: false,
            inbox: Vec::new(),
            last_sent: Instant::now(),
            ending,
        };
        remote.trace_header(FrameKind::Begin, name, trace_header)?;
        let deadline = Instant::now() + GREETING;
        while remote.directory.is_empty() {
            remote.wait_for_word(deadline, GREETING)?;
        }
        Ok(remote)
    }

    /// The directory that the listener writes to.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Bytes of ring pages sent.
    pub fn sent(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// Bytes of ring pages that the listener said are in its file.
    pub fn acknowledged(&self) -> u64 {
        self.acked.iter().sum()
    }

    /// Hears what the listener says, and says now and then that this side is alive.
    pub fn attend(&mut self) -> Result<(), SendError> {
        self.hear()?;
        if self.last_sent.elapsed() >= ALIVE {
            self.write(&frame::frame(FrameKind::Alive, &[]))?;
        }
        Ok(())
    }

    /// Sends the final trace header and waits until the listener has finished the file.
    pub fn finish(&mut self, trace_header: Option<&GrowingHeader>) -> Result<(), SendError> {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(trace_header) = trace_header {
            self.trace_header(FrameKind::Final, "", trace_header)?;
        }
        self.write(&frame::frame(FrameKind::End, &frame::totals(self.sent.iter().copied())))?;
        // As long as pages are under way, something must come back now and then;
        // after that the file is being finished.
        let (mut heard, mut acknowledged) = (Instant::now(), self.acknowledged());
        while !self.done {
            let whole = if acknowledged < self.sent() { PATIENCE } else { FINISHING };
            self.wait_for_word(heard + whole, whole)?;
            if self.acknowledged() > acknowledged {
                (heard, acknowledged) = (Instant::now(), self.acknowledged());
            }
        }
        Ok(())
    }

    fn trace_header(
        &mut self,
        kind: FrameKind,
        name: &str,
        trace_header: &GrowingHeader,
    ) -> Result<(), SendError> {
        let begin = Begin { name: name.to_owned(), layout: trace_header.layout.clone() };
        self.write(&frame::frame(kind, &begin.encode()))?;
        let mut position = 0;
        for piece in trace_header.bytes.chunks(PIECE) {
            let header = Header { position, ..Header::plain(FrameKind::TraceHeader, piece.len()) };
            self.write(&header.encode())?;
            self.write(piece)?;
            position += piece.len() as u64;
        }
        Ok(())
    }

    fn header(&mut self, stream: usize, len: usize) -> Result<(), SendError> {
        let sent = self
            .sent
            .get_mut(stream)
            .ok_or(ProtocolError::Stream { stream: u16::MAX, streams: self.acked.len() })?;
        let position = *sent;
        *sent += len as u64;
        let stream = u16::try_from(stream).unwrap_or(u16::MAX);
        self.write(&Header { stream, position, ..Header::plain(FrameKind::Pages, len) }.encode())
    }

    /// Writes all of it, hearing acknowledgements meanwhile.
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), SendError> {
        let mut since = Instant::now();
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(n) => {
                    bytes = bytes.get(n..).unwrap_or_default();
                    since = Instant::now();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_for_room(since)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.gone(e)),
            }
        }
        self.last_sent = Instant::now();
        Ok(())
    }

    /// Waits a moment for the socket to take more.
    fn wait_for_room(&mut self, since: Instant) -> Result<(), SendError> {
        if self.ending.load(Ordering::Relaxed) && since.elapsed() > PATIENCE {
            return Err(SendError::Stalled(PATIENCE));
        }
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT | PollFlags::IN)];
        descriptors::wait(&mut fds, Duration::from_millis(200)).map_err(SendError::Gone)?;
        self.hear()
    }

    fn wait_for_word(&mut self, deadline: Instant, whole: Duration) -> Result<(), SendError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SendError::Stalled(whole));
        }
        let mut fds = [descriptors::readable(&self.socket)];
        descriptors::wait(&mut fds, left.min(ALIVE)).map_err(SendError::Gone)?;
        self.hear()
    }

    /// The connection broke: if the listener said why, that is the reason.
    fn gone(&mut self, source: io::Error) -> SendError {
        match self.hear() {
            Err(e @ SendError::Refused(_)) => e,
            _ => SendError::Gone(source),
        }
    }

    /// Takes in what the listener has said so far, without waiting.
    fn hear(&mut self) -> Result<(), SendError> {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => {
                    self.frames()?;
                    return Err(SendError::Gone(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(n) => {
                    self.inbox.extend_from_slice(bytes.get(..n).unwrap_or_default());
                    self.frames()?;
                    if self.done {
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(SendError::Gone(e)),
            }
        }
    }

    /// Handles the complete frames of the inbox, which holds one frame at most
    /// beyond what is handled: its length has a limit.
    fn frames(&mut self) -> Result<(), SendError> {
        loop {
            let Some((head, rest)) = self.inbox.split_first_chunk::<HEADER>() else {
                return Ok(());
            };
            let header = Header::decode(*head)?;
            let Some(payload) = rest.get(..header.len as usize) else {
                return Ok(());
            };
            let payload = payload.to_vec();
            self.inbox.drain(..HEADER + payload.len());
            self.word(header.kind, &payload)?;
        }
    }

    fn word(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), SendError> {
        match kind {
            FrameKind::Ready => {
                self.directory = frame::text(payload);
                if self.directory.is_empty() {
                    self.directory = "?".into();
                }
            }
            FrameKind::Refused => return Err(SendError::Refused(frame::text(payload))),
            FrameKind::Ack | FrameKind::Done => {
                let totals = frame::totals_of(payload, self.sent.len())?;
                for (stream, (&stored, &said)) in totals.iter().zip(&self.sent).enumerate() {
                    if stored > said {
                        return Err(ProtocolError::Total { stream, said, stored }.into());
                    }
                }
                self.done = kind == FrameKind::Done;
                self.acked = totals;
            }
            other => return Err(ProtocolError::Order(other as u8).into()),
        }
        Ok(())
    }

    /// In words, what may be missing over there after an error.
    pub fn missing(&self) -> String {
        format!(
            "{} of {} bytes sent to {} were acknowledged and can be read there",
            self.acknowledged(),
            self.sent(),
            self.address
        )
    }

    /// Size of a ring page.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }
}

impl Sink for Remote {
    fn ready(&mut self) -> io::Result<bool> {
        Remote::attend(self)?;
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        descriptors::wait(&mut fds, Duration::ZERO)
    }

    fn pipe(&mut self, stream: usize, pipe: &OwnedFd, len: usize) -> io::Result<()> {
        self.header(stream, len)?;
        let (mut left, mut since) = (len, Instant::now());
        let mode = SpliceMode { nonblocking: true, more: true };
        while left > 0 {
            match descriptors::splice(pipe, &self.socket, None, left, mode) {
                Ok(Spliced::Moved(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(Spliced::Moved(n)) => {
                    left = left.saturating_sub(n);
                    since = Instant::now();
                }
                Ok(Spliced::WouldBlock) => self.wait_for_room(since)?,
                Ok(Spliced::Interrupted) => {}
                Err(e) => return Err(self.gone(e).into()),
            }
        }
        self.last_sent = Instant::now();
        Ok(())
    }

    fn bytes(&mut self, stream: usize, pages: &[u8]) -> io::Result<()> {
        self.header(stream, pages.len())?;
        Ok(self.write(pages)?)
    }

    fn attend(&mut self) -> io::Result<()> {
        Ok(Remote::attend(self)?)
    }
}

fn dial(address: &str) -> Result<TcpStream, SendError> {
    let connect = |source| SendError::Connect { address: address.to_owned(), source };
    let found = address.to_socket_addrs().map_err(|e| match e.kind() {
        io::ErrorKind::InvalidInput => SendError::Address(address.to_owned()),
        _ => connect(e),
    })?;
    let mut last = io::ErrorKind::NotFound.into();
    for place in found {
        match TcpStream::connect_timeout(&place, GREETING) {
            Ok(socket) => {
                socket
                    .set_read_timeout(Some(GREETING))
                    .and_then(|()| socket.set_write_timeout(Some(GREETING)))
                    .and_then(|()| socket.set_nodelay(true))
                    .map_err(connect)?;
                // Notices a host that vanished while nothing is sent.
                descriptors::keep_alive(&socket, GREETING);
                return Ok(socket);
            }
            Err(e) => last = e,
        }
    }
    Err(connect(last))
}
