//! Commands that come from another program while it is recorded or counted (`--control` of
//! `perf record` and `perf stat`, manual page perf-record(1)): lines on a descriptor or a
//! named pipe, each answered by `ack` where the other side gave a descriptor for that.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use kymo_kernel::descriptors;

/// The longest line that is a command.
const LONGEST: usize = 4096;

/// Source of control commands, and the target of their answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlSource {
    /// Descriptors that this program was started with.
    Descriptors {
        /// Read from.
        commands: i32,
        /// Written to.
        answers: Option<i32>,
    },
    /// Named pipes; those that do not exist are made, and removed at the end.
    Pipes {
        /// Read from.
        commands: PathBuf,
        /// Written to.
        answers: Option<PathBuf>,
    },
}

impl ControlSource {
    /// `fd:CTL[,ACK]` or `fifo:CTL[,ACK]`.
    pub fn parse(text: &str) -> Option<ControlSource> {
        let (kind, places) = text.split_once(':')?;
        let (commands, answers) = match places.split_once(',') {
            Some((commands, answers)) => (commands, Some(answers)),
            None => (places, None),
        };
        let number = |text: &str| text.parse::<i32>().ok().filter(|fd| *fd >= 0);
        match kind {
            "fd" => Some(ControlSource::Descriptors {
                commands: number(commands)?,
                answers: answers.map(number).map_or(Some(None), |n| n.map(Some))?,
            }),
            "fifo" if !commands.is_empty() => Some(ControlSource::Pipes {
                commands: commands.into(),
                answers: answers.map(PathBuf::from),
            }),
            _ => None,
        }
    }
}

/// Command of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlCommand {
    /// Starts the events.
    Enable,
    /// Stops them.
    Disable,
    /// Writes the file and begins the next (`snapshot`, as by SIGUSR2).
    SwitchFile,
    /// Ends the recording.
    Stop,
    /// Nothing but an answer.
    Ping,
    /// A line that is none of these.
    Unknown(String),
}

impl std::fmt::Display for ControlCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ControlCommand::Unknown(line) => {
                write!(f, "{:?}", line.chars().take(80).collect::<String>())
            }
            known => write!(f, "{known:?}"),
        }
    }
}

impl ControlCommand {
    fn parse(line: &str) -> ControlCommand {
        match line {
            "enable" => ControlCommand::Enable,
            "disable" => ControlCommand::Disable,
            "snapshot" => ControlCommand::SwitchFile,
            "stop" => ControlCommand::Stop,
            "ping" => ControlCommand::Ping,
            _ => ControlCommand::Unknown(line.to_owned()),
        }
    }
}

/// The open ends of a [`ControlSource`].
#[derive(Debug)]
pub(crate) struct ControlChannel {
    commands: File,
    answers: Option<File>,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Whether the other end was closed.
    pub(crate) closed: bool,
    made: Vec<PathBuf>,
}

impl ControlChannel {
    /// Opens the ends.
    pub(crate) fn open(source: &ControlSource) -> io::Result<ControlChannel> {
        let mut made = Vec::new();
        let (commands, answers) = match source {
            ControlSource::Descriptors { commands, answers } => {
                let open = |fd: i32| descriptors::inherited(fd).map(File::from);
                (open(*commands)?, answers.map(open).transpose()?)
            }
            ControlSource::Pipes { commands, answers } => {
                let mut open = |path: &Path| named_pipe(path, &mut made);
                (open(commands)?, answers.as_deref().map(&mut open).transpose()?)
            }
        };
        Ok(ControlChannel { commands, answers, line: Vec::new(), closed: false, made })
    }

    /// The command lines that have come; does not wait.
    pub(crate) fn take(&mut self) -> io::Result<Vec<ControlCommand>> {
        let mut commands = Vec::new();
        let mut bytes = [0; 512];
        while !self.closed && descriptors::is_readable(&self.commands)? {
            let n = match self.commands.read(&mut bytes) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            };
            self.closed = n == 0;
            for &byte in bytes.get(..n).unwrap_or_default() {
                if byte == b'\n' || byte == 0 {
                    let line = std::mem::take(&mut self.line);
                    let line = String::from_utf8_lossy(&line);
                    if !line.trim().is_empty() {
                        commands.push(ControlCommand::parse(line.trim()));
                    }
                } else if self.line.len() < LONGEST {
                    self.line.push(byte);
                }
            }
        }
        Ok(commands)
    }

    /// Answers a command. It may have no reader.
    pub(crate) fn acknowledge(&mut self) {
        if let Some(answers) = &mut self.answers {
            let _ = answers.write_all(b"ack\n");
        }
    }
}

impl AsFd for ControlChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.commands.as_fd()
    }
}

impl Drop for ControlChannel {
    fn drop(&mut self) {
        for path in &self.made {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens a named pipe for both directions, so that neither side waits for the other.
fn named_pipe(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<File> {
    if !path.exists() {
        descriptors::make_named_pipe(path)?;
        made.push(path.to_owned());
    }
    descriptors::open_named_pipe(path).map(|fd: OwnedFd| File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_perf_reads_them() {
        let fds = |commands, answers| Some(ControlSource::Descriptors { commands, answers });
        assert_eq!(ControlSource::parse("fd:5"), fds(5, None));
        assert_eq!(ControlSource::parse("fd:5,6"), fds(5, Some(6)));
        let pipes = ControlSource::Pipes { commands: "/c".into(), answers: Some("/a".into()) };
        assert_eq!(ControlSource::parse("fifo:/c,/a"), Some(pipes));
        for wrong in ["", "5", "fd:", "fd:-1", "fd:5,x", "fifo:", "file:/c"] {
            assert_eq!(ControlSource::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_may_come_in_pieces() {
        let (read, write) = descriptors::pipe().unwrap();
        let mut channel = ControlChannel {
            commands: read.into(),
            answers: None,
            line: Vec::new(),
            closed: false,
            made: Vec::new(),
        };
        let mut write = File::from(write);
        write.write_all(b"enable\ndis").unwrap();
        assert_eq!(channel.take().unwrap(), [ControlCommand::Enable]);
        write.write_all(b"able\nmuch\n").unwrap();
        let unknown = ControlCommand::Unknown("much".into());
        assert_eq!(channel.take().unwrap(), [ControlCommand::Disable, unknown]);
        drop(write);
        assert_eq!((channel.take().unwrap(), channel.closed), (Vec::new(), true));
    }
}
