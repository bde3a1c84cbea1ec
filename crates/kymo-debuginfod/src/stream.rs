//! A connection that never waits beyond its deadline, whatever the other side
//! does: the deadline holds for all that a reading needs, not for each of it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::error::FetchError;
use crate::tls;
use crate::url::Url;

/// A socket with a deadline.
#[derive(Debug)]
pub(crate) struct Timed {
    socket: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(buf)
    }
}

impl Write for Timed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Whether an error means that the deadline came.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Timed),
    Secure(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Stream {
    /// Connects to the host of `url`, until the deadline.
    pub(crate) fn connect(
        url: &Url,
        deadline: Instant,
        wait: Duration,
    ) -> Result<Stream, FetchError> {
        let silent = || FetchError::Silent { after: wait };
        let mut failure = None;
        for address in addresses(url, deadline, wait)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(silent());
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(socket) => return Stream::over(url, Timed { socket, deadline }, wait),
                Err(e) if is_late(&e) => return Err(silent()),
                Err(e) => failure = Some(e),
            }
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
        Err(FetchError::Connect(failure.unwrap_or_else(none)))
    }

    fn over(url: &Url, socket: Timed, wait: Duration) -> Result<Stream, FetchError> {
        if !url.secure {
            return Ok(Stream::Plain(socket));
        }
        let name = ServerName::try_from(url.bare_host().to_owned())
            .map_err(|e| FetchError::Tls(e.to_string()))?;
        let connection = ClientConnection::new(tls::config()?, name)
            .map_err(|e| FetchError::Tls(e.to_string()))?;
        let mut stream = StreamOwned::new(connection, socket);
        // The handshake now, so that its failures have a name.
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|e| match is_late(&e) {
                true => FetchError::Silent { after: wait },
                false => FetchError::Tls(e.to_string()),
            })?;
        }
        Ok(Stream::Secure(Box::new(stream)))
    }

    /// From now on, until then.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        match self {
            Stream::Plain(s) => s.deadline = deadline,
            Stream::Secure(s) => s.sock.deadline = deadline,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(s) => s.read(buf),
            Stream::Secure(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(s) => s.write(buf),
            Stream::Secure(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(s) => s.flush(),
            Stream::Secure(s) => s.flush(),
        }
    }
}

/// The addresses of a host. The system's resolver knows no deadline, so it is
/// asked by a thread of its own, which may stay behind.
fn addresses(url: &Url, deadline: Instant, wait: Duration) -> Result<Vec<SocketAddr>, FetchError> {
    let (sender, receiver) = mpsc::channel();
    let (host, port) = (url.bare_host().to_owned(), url.port);
    let asked = host.clone();
    let resolver = std::thread::Builder::new().name("resolver".into());
    let spawned = resolver.spawn(move || {
        let found = (asked.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Nobody listens any more after the deadline.
        let _ = sender.send(found);
    });
    if let Err(error) = spawned {
        return Err(FetchError::Resolve { host, error });
    }
    let left = deadline.saturating_duration_since(Instant::now());
    match receiver.recv_timeout(left) {
        Ok(found) => found.map_err(|error| FetchError::Resolve { host, error }),
        Err(_) => Err(FetchError::Silent { after: wait }),
    }
}
