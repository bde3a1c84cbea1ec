//! What the guest tells the host while it runs, frame by frame: one byte that says
//! what it is, the length in four bytes, the content.

use std::io::{self, Read, Write};

use crate::bytes::{Reader, Writer};

/// Longer frames do not exist; a length beyond it is a broken stream.
const MAX: usize = 1 << 20;

/// Which output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// One message of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The init is up, in milliseconds after the kernel's start.
    Ready {
        /// Milliseconds.
        after: u32,
    },
    /// Something went wrong that the commands may or may not notice.
    Complaint(String),
    /// The command with this place in the job was started.
    Started(u32),
    /// It wrote something.
    Output(Stream, Vec<u8>),
    /// It ended; `128 + signal` as a shell says it.
    Ended {
        /// Exit status.
        status: u32,
        /// Killed because it took longer than allowed.
        late: bool,
    },
    /// A file that was asked for begins; its content follows as [`Frame::Data`].
    File {
        /// Its path in the guest.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// The next bytes of that file.
    Data(Vec<u8>),
    /// That file is complete.
    FileEnd,
    /// The last frame.
    Done,
}

impl Frame {
    /// As much content as one frame of output or data takes.
    pub const CHUNK: usize = MAX / 4;

    /// Writes the frame with one `write_all`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut out = Writer(vec![self.kind(), 0, 0, 0, 0]);
        match self {
            Frame::Ready { after } => {
                out.number(*after);
            }
            Frame::Complaint(text) => out.0.extend(text.as_bytes()),
            Frame::Started(place) => {
                out.number(*place);
            }
            Frame::Output(_, bytes) | Frame::Data(bytes) => out.0.extend(bytes),
            Frame::Ended { status, late } => {
                out.number(*status).number(u32::from(*late));
            }
            Frame::File { path, mode } => {
                out.number(*mode).bytes(path.as_bytes());
            }
            Frame::FileEnd | Frame::Done => {}
        }
        let length = u32::try_from(out.0.len() - 5).unwrap_or(u32::MAX).to_le_bytes();
        out.0[1..5].copy_from_slice(&length);
        to.write_all(&out.0)
    }

    /// The next frame, or `None` where the stream ends between two.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut head = [0; 5];
        loop {
            match from.read(&mut head[..1]) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        from.read_exact(&mut head[1..])?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX {
            let text = format!("frame of kind {kind} claims {length} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut content = vec![0; length];
        from.read_exact(&mut content)?;
        Frame::parse(kind, &content).map(Some)
    }

    fn kind(&self) -> u8 {
        match self {
            Frame::Ready { .. } => 1,
            Frame::Complaint(_) => 2,
            Frame::Started(_) => 3,
            Frame::Output(Stream::Out, _) => 4,
            Frame::Output(Stream::Err, _) => 5,
            Frame::Ended { .. } => 6,
            Frame::File { .. } => 7,
            Frame::Data(_) => 8,
            Frame::FileEnd => 9,
            Frame::Done => 10,
        }
    }

    fn parse(kind: u8, content: &[u8]) -> io::Result<Frame> {
        let mut input = Reader::new(content);
        let frame = match kind {
            1 => Frame::Ready { after: input.number()? },
            2 => Frame::Complaint(String::from_utf8_lossy(input.rest()).into_owned()),
            3 => Frame::Started(input.number()?),
            4 => Frame::Output(Stream::Out, input.rest().to_vec()),
            5 => Frame::Output(Stream::Err, input.rest().to_vec()),
            6 => Frame::Ended { status: input.number()?, late: input.number()? != 0 },
            7 => {
                let mode = input.number()?;
                Frame::File { path: input.string()?, mode }
            }
            8 => Frame::Data(input.rest().to_vec()),
            9 => Frame::FileEnd,
            10 => Frame::Done,
            other => return Err(input.error(&format!("unknown frame of kind {other}"))),
        };
        input.end()?;
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_in_order() {
        let frames = [
            Frame::Ready { after: 1234 },
            Frame::Complaint("no such module".into()),
            Frame::Started(3),
            Frame::Output(Stream::Out, b"out\xff".to_vec()),
            Frame::Output(Stream::Err, Vec::new()),
            Frame::Ended { status: 137, late: true },
            Frame::File { path: "/tmp/x".into(), mode: 0o755 },
            Frame::Data(vec![7; Frame::CHUNK]),
            Frame::FileEnd,
            Frame::Done,
        ];
        let mut stream = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut stream).unwrap());
        let mut rest = stream.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut rest).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn a_broken_stream_is_an_error() {
        let check = |bytes: &[u8], expected: &str| {
            let error = Frame::read(&mut &bytes[..]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(b"\x04\xff\xff\xff\xff", "claims 4294967295 bytes");
        check(b"\x63\0\0\0\0", "unknown frame of kind 99");
        check(b"\x06\x04\0\0\0\0\0\0\0", "4 bytes are missing at byte 4 of 4");
        check(b"\x04\x08\0\0\0abc", "fill whole buffer");
    }
}
