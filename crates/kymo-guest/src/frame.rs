//! Frames from the guest to the host: one byte of type, four bytes of length, the content.

use std::io::{self, Read, Write};

use crate::bytes::{Reader, Writer};

/// Longer frames do not exist; a length beyond it is a broken stream.
const MAX: usize = 1 << 20;

/// Which output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// One message of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestMessage {
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
    Output(OutputStream, Vec<u8>),
    /// It ended; `128 + signal` as a shell says it.
    Ended {
        /// Exit status.
        status: u32,
        /// Killed because it took longer than allowed.
        late: bool,
    },
    /// A file that was asked for begins; its content follows as [`GuestMessage::Data`].
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

impl GuestMessage {
    /// As much content as one frame of output or data takes.
    pub const CHUNK: usize = MAX / 4;

    /// Writes the frame with one `write_all`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut out = Writer(vec![self.kind(), 0, 0, 0, 0]);
        match self {
            GuestMessage::Ready { after } => {
                out.number(*after);
            }
            GuestMessage::Complaint(text) => out.0.extend(text.as_bytes()),
            GuestMessage::Started(place) => {
                out.number(*place);
            }
            GuestMessage::Output(_, bytes) | GuestMessage::Data(bytes) => out.0.extend(bytes),
            GuestMessage::Ended { status, late } => {
                out.number(*status).number(u32::from(*late));
            }
            GuestMessage::File { path, mode } => {
                out.number(*mode).bytes(path.as_bytes());
            }
            GuestMessage::FileEnd | GuestMessage::Done => {}
        }
        let length = u32::try_from(out.0.len() - 5).unwrap_or(u32::MAX).to_le_bytes();
        out.0[1..5].copy_from_slice(&length);
        to.write_all(&out.0)
    }

    /// The next frame, or `None` where the stream ends between two.
    pub fn read(from: &mut impl Read) -> io::Result<Option<GuestMessage>> {
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
        GuestMessage::parse(kind, &content).map(Some)
    }

    fn kind(&self) -> u8 {
        match self {
            GuestMessage::Ready { .. } => 1,
            GuestMessage::Complaint(_) => 2,
            GuestMessage::Started(_) => 3,
            GuestMessage::Output(OutputStream::Out, _) => 4,
            GuestMessage::Output(OutputStream::Err, _) => 5,
            GuestMessage::Ended { .. } => 6,
            GuestMessage::File { .. } => 7,
            GuestMessage::Data(_) => 8,
            GuestMessage::FileEnd => 9,
            GuestMessage::Done => 10,
        }
    }

    fn parse(kind: u8, content: &[u8]) -> io::Result<GuestMessage> {
        let mut input = Reader::new(content);
        let frame = match kind {
            1 => GuestMessage::Ready { after: input.number()? },
            2 => GuestMessage::Complaint(String::from_utf8_lossy(input.rest()).into_owned()),
            3 => GuestMessage::Started(input.number()?),
            4 => GuestMessage::Output(OutputStream::Out, input.rest().to_vec()),
            5 => GuestMessage::Output(OutputStream::Err, input.rest().to_vec()),
            6 => GuestMessage::Ended { status: input.number()?, late: input.number()? != 0 },
            7 => {
                let mode = input.number()?;
                GuestMessage::File { path: input.string()?, mode }
            }
            8 => GuestMessage::Data(input.rest().to_vec()),
            9 => GuestMessage::FileEnd,
            10 => GuestMessage::Done,
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
            GuestMessage::Ready { after: 1234 },
            GuestMessage::Complaint("no such module".into()),
            GuestMessage::Started(3),
            GuestMessage::Output(OutputStream::Out, b"out\xff".to_vec()),
            GuestMessage::Output(OutputStream::Err, Vec::new()),
            GuestMessage::Ended { status: 137, late: true },
            GuestMessage::File { path: "/tmp/x".into(), mode: 0o755 },
            GuestMessage::Data(vec![7; GuestMessage::CHUNK]),
            GuestMessage::FileEnd,
            GuestMessage::Done,
        ];
        let mut stream = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut stream).unwrap());
        let mut rest = stream.as_slice();
        for frame in &frames {
            assert_eq!(GuestMessage::read(&mut rest).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(GuestMessage::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn a_broken_stream_is_an_error() {
        let check = |bytes: &[u8], expected: &str| {
            let error = GuestMessage::read(&mut &bytes[..]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(b"\x04\xff\xff\xff\xff", "claims 4294967295 bytes");
        check(b"\x63\0\0\0\0", "unknown frame of kind 99");
        check(b"\x06\x04\0\0\0\0\0\0\0", "4 bytes are missing at byte 4 of 4");
        check(b"\x04\x08\0\0\0abc", "fill whole buffer");
    }
}
