//! The receiving side of one connection: pages go from the socket through a pipe
//! into a growing trace.dat. What is acknowledged is in the file and counted in
//! its table, so it outlives this process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kymo_kernel::descriptors::{self, SpliceMode, Spliced};

use super::super::growing::Growing;
use super::auth::{self, HandshakeError, Secret};
use super::frame::{self, Begin, FrameKind, HEADER, Header, MAX_TRACE_HEADER, ProtocolError};

/// For the greeting as a whole, so that strangers do not hold places.
const GREETING: Duration = Duration::from_secs(10);
/// A sender that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Interval at which a blocked read returns, and a pending acknowledgement is sent.
const TICK: Duration = Duration::from_millis(200);
/// Acknowledged at least this often.
const ACK_BYTES: u64 = 1 << 20;
const PIPE_BYTES: usize = 1 << 20;
/// Directories of one name.
const MAX_DIRECTORIES: u32 = 100_000;

/// Limits of a listener.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) dir: PathBuf,
    pub(super) secret: Option<Secret>,
    pub(super) max_size: Option<u64>,
    pub(super) sync: bool,
}

/// A connection ended before its recording did.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ReceiveError {
    #[error(transparent)]
    Handshake(HandshakeError),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("the sender disconnected: the connection closed")]
    Closed,
    #[error("the sender sent nothing for {} seconds", SILENCE.as_secs())]
    Silent,
    #[error("the connection broke")]
    Socket(#[source] io::Error),
    #[error("the listener was stopped")]
    Stopped,
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the recording is larger than {0} bytes (--max-size)")]
    TooLarge(u64),
}

/// A socket whose reads give up after some time, or on request.
struct Link<'a> {
    socket: &'a TcpStream,
    stop: &'a AtomicBool,
    deadline: Option<Instant>,
    heard: Instant,
}

impl Link<'_> {
    /// Called when nothing came for a tick.
    fn tick(&self) -> Result<(), ReceiveError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ReceiveError::Stopped);
        }
        if self.heard.elapsed() > SILENCE || self.deadline.is_some_and(|d| Instant::now() > d) {
            return Err(ReceiveError::Silent);
        }
        Ok(())
    }
}

impl Read for Link<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.tick().map_err(io::Error::other)?;
                }
                Ok(n) => {
                    self.heard = Instant::now();
                    if self.deadline.is_some() {
                        self.tick().map_err(io::Error::other)?;
                    }
                    return Ok(n);
                }
                Err(e) => return Err(e),
            }
        }
    }
}

impl Write for Link<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reason behind an error of reading the link.
fn read_error(e: io::Error) -> ReceiveError {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => ReceiveError::Closed,
        io::ErrorKind::Other => match e.downcast::<ReceiveError>() {
            Ok(e) => e,
            Err(e) => ReceiveError::Socket(e),
        },
        _ => ReceiveError::Socket(e),
    }
}

/// A recording that has begun to arrive.
pub(super) struct Arriving<'a> {
    link: Link<'a>,
    rules: &'a Rules,
    directory: PathBuf,
    growing: Growing,
    /// Bytes acknowledged.
    acked: u64,
    last_ack: Instant,
    pipe: (OwnedFd, OwnedFd),
    room: usize,
}

/// Result of receiving a recording.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) path: PathBuf,
    /// Bytes of ring pages in the file.
    pub(super) stored: u64,
    pub(super) error: Option<ReceiveError>,
}

impl<'a> Arriving<'a> {
    /// Greets a sender and takes the trace header of its recording. No file is made
    /// before it proved that it may send.
    pub(super) fn begin(
        socket: &'a TcpStream,
        rules: &'a Rules,
        stop: &'a AtomicBool,
    ) -> Result<Arriving<'a>, ReceiveError> {
        let socket_error = ReceiveError::Socket;
        socket.set_read_timeout(Some(TICK)).map_err(socket_error)?;
        socket.set_write_timeout(Some(GREETING)).map_err(socket_error)?;
        socket.set_nodelay(true).map_err(socket_error)?;
        let now = Instant::now();
        let mut link = Link { socket, stop, deadline: Some(now + GREETING), heard: now };
        auth::receive(&mut link, rules.secret.as_ref()).map_err(|e| match e {
            HandshakeError::Io(e) => read_error(e),
            e => ReceiveError::Handshake(e),
        })?;
        let header = header(&mut link)?;
        if header.kind != FrameKind::Begin {
            return Err(ProtocolError::Order(header.kind as u8).into());
        }
        let begin = Begin::decode(&frame::payload(&mut link, header).map_err(read_error)?)?;
        link.deadline = None;
        let directory = own_directory(&rules.dir, &begin.name)?;
        let path = directory.join("trace.dat");
        let write = |source| ReceiveError::Write { path: path.clone(), source };
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        let growing = file.and_then(|f| Growing::new(f, begin.layout)).map_err(write)?;
        let pipe = descriptors::pipe().map_err(write)?;
        let room = descriptors::set_pipe_size(&pipe.1, PIPE_BYTES).unwrap_or(64 << 10);
        let last_ack = Instant::now();
        let mut arriving =
            Arriving { link, rules, directory, growing, acked: 0, last_ack, pipe, room };
        let len = arriving.growing.front_len();
        if let Err(e) =
            arriving.trace_header(len).and_then(|()| arriving.growing.begin().map_err(write))
        {
            // A trace header that did not arrive is of no use.
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir(&arriving.directory);
            return Err(arriving.tell(e));
        }
        let name =
            arriving.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        arriving.say(FrameKind::Ready, name.as_bytes())?;
        Ok(arriving)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.join("trace.dat")
    }

    /// Takes pages until the recording ends in one way or another; the file is
    /// finished in each of them.
    pub(super) fn run(mut self) -> Arrived {
        let path = self.path();
        let error = match self.frames() {
            Ok(()) => None,
            Err(e) => Some(self.tell(e)),
        };
        let stored = self.growing.total();
        let totals = self.totals();
        let finished = self.growing.finish(error.is_none());
        let finished =
            finished.and_then(|(f, _)| if self.rules.sync { f.sync_all() } else { Ok(()) });
        let socket = self.link.socket;
        let error = match (error, finished) {
            (Some(e), _) => Some(e),
            (None, Err(source)) => {
                let e = ReceiveError::Write { path: path.clone(), source };
                let _ = refuse(socket, &e);
                Some(e)
            }
            (None, Ok(())) => {
                let mut socket = socket;
                socket
                    .write_all(&frame::frame(FrameKind::Done, &totals))
                    .err()
                    .map(ReceiveError::Socket)
            }
        };
        Arrived { path, stored, error }
    }

    /// Lets the sender know why.
    fn tell(&self, e: ReceiveError) -> ReceiveError {
        if !matches!(e, ReceiveError::Closed | ReceiveError::Socket(_)) {
            let _ = refuse(self.link.socket, &e);
        }
        e
    }

    fn frames(&mut self) -> Result<(), ReceiveError> {
        loop {
            // An idle sender gets its acknowledgement too.
            let mut first = [0; 1];
            while let Err(e) = self.link.socket.read_exact(&mut first) {
                match e.kind() {
                    io::ErrorKind::WouldBlock => self.link.tick()?,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(read_error(e)),
                }
                self.acknowledge(true)?;
            }
            self.link.heard = Instant::now();
            let mut bytes = [0; HEADER];
            let [begin, rest @ ..] = &mut bytes;
            *begin = first[0];
            self.link.read_exact(rest).map_err(read_error)?;
            let header = Header::decode(bytes)?;
            match header.kind {
                FrameKind::Pages => self.pages(header)?,
                FrameKind::Alive => {}
                FrameKind::Final => self.final_front(header)?,
                FrameKind::End => return self.end(header),
                other => return Err(ProtocolError::Order(other as u8).into()),
            }
            self.acknowledge(false)?;
        }
    }

    fn pages(&mut self, header: Header) -> Result<(), ReceiveError> {
        let Header { stream, len, position, .. } = header;
        let streams = self.growing.streams();
        if usize::from(stream) >= streams {
            return Err(ProtocolError::Stream { stream, streams }.into());
        }
        let stored = self.growing.stored(usize::from(stream));
        if position != stored
            || len == 0
            || !(len as usize).is_multiple_of(self.growing.page_size())
        {
            return Err(ProtocolError::Place { stream, at: position, len, stored }.into());
        }
        if let Some(max) = self.rules.max_size
            && self.growing.total() + u64::from(len) > max
        {
            return Err(ReceiveError::TooLarge(max));
        }
        let mut left = len as usize;
        while left > 0 {
            let most = left.min(self.room);
            let mode = SpliceMode::default();
            match descriptors::splice(self.link.socket, &self.pipe.1, None, most, mode) {
                Ok(Spliced::Moved(0)) => return Err(ReceiveError::Closed),
                Ok(Spliced::Moved(n)) => {
                    self.link.heard = Instant::now();
                    self.growing
                        .append_pipe(usize::from(stream), &self.pipe.0, n)
                        .map_err(|source| ReceiveError::Write { path: self.path(), source })?;
                    left = left.saturating_sub(n);
                }
                Ok(Spliced::WouldBlock) => self.link.tick()?,
                Ok(Spliced::Interrupted) => {}
                Err(e) => return Err(ReceiveError::Socket(e)),
            }
        }
        Ok(())
    }

    fn totals(&self) -> Vec<u8> {
        frame::totals((0..self.growing.streams()).map(|s| self.growing.stored(s)))
    }

    /// Acknowledges the bytes that are safe, when there are enough.
    fn acknowledge(&mut self, idle: bool) -> Result<(), ReceiveError> {
        let total = self.growing.total();
        let new = total - self.acked;
        if new == 0 || (!idle && new < ACK_BYTES && self.last_ack.elapsed() < TICK) {
            return Ok(());
        }
        if self.rules.sync {
            let write = |source| ReceiveError::Write { path: self.path(), source };
            self.growing.sync().map_err(write)?;
        }
        self.say(FrameKind::Ack, &self.totals())?;
        (self.acked, self.last_ack) = (total, Instant::now());
        Ok(())
    }

    fn say(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), ReceiveError> {
        self.link.write_all(&frame::frame(kind, payload)).map_err(ReceiveError::Socket)
    }

    fn final_front(&mut self, header: Header) -> Result<(), ReceiveError> {
        let payload = frame::payload(&mut self.link, header).map_err(read_error)?;
        let layout = Begin::decode(&payload)?.layout;
        let len = layout.len;
        if len > self.growing.room_for_header() {
            // It would not fit before the pages; the first one serves as well.
            return self.pieces(len, |_, _, _| Ok(()));
        }
        self.growing.replace_layout(layout).map_err(|_| ProtocolError::TraceHeader(len))?;
        self.trace_header(len)
    }

    /// The pieces of a trace header into the file.
    fn trace_header(&mut self, len: u64) -> Result<(), ReceiveError> {
        let path = self.path();
        self.pieces(len, |growing, at, bytes| {
            let write = |source| ReceiveError::Write { path: path.clone(), source };
            growing.header_bytes(at, bytes).map_err(write)
        })
    }

    fn pieces(
        &mut self,
        len: u64,
        mut take: impl FnMut(&Growing, u64, &[u8]) -> Result<(), ReceiveError>,
    ) -> Result<(), ReceiveError> {
        if len > MAX_TRACE_HEADER {
            return Err(ProtocolError::TraceHeader(len).into());
        }
        let mut have = 0;
        while have < len {
            let header = header(&mut self.link)?;
            if header.kind != FrameKind::TraceHeader || header.len == 0 {
                return Err(ProtocolError::Order(header.kind as u8).into());
            }
            if header.position != have || have + u64::from(header.len) > len {
                return Err(
                    ProtocolError::FrontPlace { at: header.position, expected: have }.into()
                );
            }
            let bytes = frame::payload(&mut self.link, header).map_err(read_error)?;
            take(&self.growing, have, &bytes)?;
            have += bytes.len() as u64;
        }
        Ok(())
    }

    fn end(&mut self, header: Header) -> Result<(), ReceiveError> {
        let payload = frame::payload(&mut self.link, header).map_err(read_error)?;
        let said = frame::totals_of(&payload, self.growing.streams())?;
        for (stream, said) in said.into_iter().enumerate() {
            let stored = self.growing.stored(stream);
            if said != stored {
                return Err(ProtocolError::Total { stream, said, stored }.into());
            }
        }
        Ok(())
    }
}

fn header(link: &mut Link<'_>) -> Result<Header, ReceiveError> {
    let mut bytes = [0; HEADER];
    link.read_exact(&mut bytes).map_err(read_error)?;
    Ok(Header::decode(bytes)?)
}

/// Reports to a sender that its recording is refused.
pub(super) fn refuse(mut socket: &TcpStream, why: &dyn std::error::Error) -> io::Result<()> {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(c) = cause {
        text = format!("{text}: {c}");
        cause = c.source();
    }
    let text = text.get(..text.len().min(1000)).unwrap_or("an error");
    socket.write_all(&frame::frame(FrameKind::Refused, text.as_bytes()))
}

/// Makes a directory for a sender. Its name comes from elsewhere: only letters,
/// digits, `-`, `_` and inner dots of it are used. An existing directory is left alone.
fn own_directory(dir: &Path, name: &str) -> Result<PathBuf, ReceiveError> {
    let name = plain_name(name);
    for n in 1..MAX_DIRECTORIES {
        let path = dir.join(if n == 1 { name.clone() } else { format!("{name}.{n}") });
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(ReceiveError::Write { path, source }),
        }
    }
    let source = io::ErrorKind::AlreadyExists.into();
    Err(ReceiveError::Write { path: dir.join(name), source })
}

fn plain_name(name: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name.chars().take(64).map(|c| if keep(c) { c } else { '_' }).collect();
    let name = name.trim_matches('.');
    if name.is_empty() { "sender".into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_the_directory() {
        for (name, plain) in [
            ("web-1.example.org", "web-1.example.org"),
            ("../../etc", "_.._etc"),
            ("/etc/passwd", "_etc_passwd"),
            ("..", "sender"),
            ("", "sender"),
            ("a\0b\n", "a_b_"),
            ("héé", "h__"),
        ] {
            assert_eq!(plain_name(name), plain, "{name:?}");
        }
        assert_eq!(plain_name(&"x".repeat(500)).len(), 64);
    }

    #[test]
    fn an_existing_directory_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..3)
            .map(|_| own_directory(dir.path(), "h").unwrap().file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["h", "h.2", "h.3"]);
    }
}
