//! As much of HTTP/1.1 as fetching a file needs: one request a connection,
//! bodies with a length, in chunks, or up to the end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use crate::error::FetchError;
use crate::stream::{Stream, is_late};
use crate::url::Url;

/// Bytes of status and headers.
const LONGEST_HEAD: u64 = 64 << 10;
/// Bytes of a line between chunks.
const LONGEST_LINE: u64 = 4 << 10;

/// The answer to a request; its body is read from it.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    /// Bytes of the body, where announced.
    pub(crate) length: Option<u64>,
    /// Bytes of the body so far.
    pub(crate) got: u64,
    /// A reading broke off where it cannot be taken up again.
    pub(crate) torn: bool,
    framing: Framing,
    stream: BufReader<Stream>,
}

#[derive(Debug, Clone, Copy)]
enum Framing {
    /// Bytes that are left.
    Length(u64),
    /// Bytes that are left of this chunk; `None` before the next one.
    Chunked(Option<u64>),
    ToTheEnd,
    Ended,
}

/// Asks for a path and reads the answer's head, all within `wait`.
pub(crate) fn get(url: &Url, headers: &str, wait: Duration) -> Result<Response, FetchError> {
    let deadline = Instant::now() + wait;
    let mut stream = Stream::connect(url, deadline, wait)?;
    let broken = |error: io::Error| match is_late(&error) {
        true => FetchError::Silent { after: wait },
        false => FetchError::Broken { got: 0, error },
    };
    let (path, host) = (&url.path, url.authority());
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kymo/{}\r\nAccept: */*\r\n\
         Accept-Encoding: identity\r\nConnection: close\r\n{headers}\r\n",
        env!("CARGO_PKG_VERSION")
    );
    stream.write_all(request.as_bytes()).and_then(|()| stream.flush()).map_err(broken)?;
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let mut left = LONGEST_HEAD;
    // Answers that only say "go on" come before the real one.
    loop {
        let head = Head::read(&mut stream, &mut left, &broken)?;
        if !(100..200).contains(&head.status) {
            let framing = head.framing()?;
            let Head { status, location, length, .. } = head;
            return Ok(Response { status, location, length, got: 0, torn: false, framing, stream });
        }
    }
}

#[derive(Debug, Default)]
struct Head {
    status: u16,
    location: Option<String>,
    length: Option<u64>,
    chunked: bool,
    encoded: bool,
}

impl Head {
    fn read(
        stream: &mut BufReader<Stream>,
        left: &mut u64,
        broken: &dyn Fn(io::Error) -> FetchError,
    ) -> Result<Head, FetchError> {
        let first = line(stream, left).map_err(broken)?;
        let mut head = Head { status: status(&first)?, ..Head::default() };
        loop {
            let text = line(stream, left).map_err(broken)?;
            if text.is_empty() {
                return Ok(head);
            }
            if *left == 0 {
                return Err(FetchError::Malformed("its headers do not end"));
            }
            let Some((name, value)) = text.split_once(':') else {
                return Err(FetchError::Malformed("a header without a colon"));
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "location" => head.location = Some(value.to_owned()),
                "content-length" => {
                    let length = value.parse();
                    let length =
                        length.map_err(|_| FetchError::Malformed("a length that is none"))?;
                    head.length = Some(length);
                }
                "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
                "content-encoding" => head.encoded = !value.eq_ignore_ascii_case("identity"),
                _ => {}
            }
        }
    }

    fn framing(&self) -> Result<Framing, FetchError> {
        match (self.encoded, self.chunked, self.length) {
            (true, ..) if self.status == 200 => {
                Err(FetchError::Malformed("it is encoded, which was not asked for"))
            }
            (_, true, _) => Ok(Framing::Chunked(None)),
            (_, _, Some(length)) => Ok(Framing::Length(length)),
            _ => Ok(Framing::ToTheEnd),
        }
    }
}

fn status(line: &str) -> Result<u16, FetchError> {
    let malformed = FetchError::Malformed("it is not HTTP");
    let Some(rest) = line.strip_prefix("HTTP/1.") else { return Err(malformed) };
    let status = rest.split(' ').nth(1).and_then(|s| s.parse().ok());
    status.filter(|s| (100..1000).contains(s)).ok_or(malformed)
}

/// A line without its end; an unfinished one is an error.
fn line(stream: &mut BufReader<Stream>, left: &mut u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = stream.by_ref().take(*left).read_until(b'\n', &mut bytes)?;
    *left -= read as u64;
    if bytes.pop() != Some(b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer ends in a line"));
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Response {
    /// Until when the next readings may take.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.stream.get_mut().set_deadline(deadline);
    }

    /// The next bytes of the body; 0 at its end.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Result<usize, FetchError> {
        let wanted = match self.framing {
            Framing::Ended | Framing::Length(0) => return Ok(0),
            Framing::Length(left) | Framing::Chunked(Some(left)) => left,
            Framing::ToTheEnd => u64::MAX,
            Framing::Chunked(None) => match self.chunk()? {
                0 => {
                    self.framing = Framing::Ended;
                    return Ok(0);
                }
                size => size,
            },
        };
        let most = buf.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
        let part = buf.get_mut(..most).unwrap_or_default();
        let got = self.stream.read(part);
        let got = got.map_err(|error| FetchError::Broken { got: self.got, error })?;
        if got == 0 && !matches!(self.framing, Framing::ToTheEnd) {
            let expected = self.length.unwrap_or(self.got.saturating_add(wanted));
            return Err(FetchError::Cut { got: self.got, expected });
        }
        self.got += got as u64;
        let left = wanted.saturating_sub(got as u64);
        self.framing = match self.framing {
            Framing::Length(_) => Framing::Length(left),
            Framing::Chunked(_) if left > 0 => Framing::Chunked(Some(left)),
            Framing::Chunked(_) => {
                self.between()?;
                Framing::Chunked(None)
            }
            other => other,
        };
        Ok(got)
    }

    /// The size of the next chunk.
    fn chunk(&mut self) -> Result<u64, FetchError> {
        let text = self.line()?;
        let digits = text.split(';').next().unwrap_or_default().trim();
        u64::from_str_radix(digits, 16).map_err(|_| FetchError::Malformed("a chunk without a size"))
    }

    /// The empty line behind a chunk.
    fn between(&mut self) -> Result<(), FetchError> {
        match self.line()?.is_empty() {
            true => Ok(()),
            false => Err(FetchError::Malformed("a chunk without an end")),
        }
    }

    fn line(&mut self) -> Result<String, FetchError> {
        line(&mut self.stream, &mut { LONGEST_LINE }).map_err(|error| {
            self.torn = true;
            FetchError::Broken { got: self.got, error }
        })
    }
}
