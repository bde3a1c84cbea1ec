//! Starts QEMU, listens to what the guest says through its port, and finds out how
//! it ended: in order, in a panic, or not at all.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_guest::{GuestMessage, OutputStream};

use super::architecture::Architecture;

/// `oops=panic`: a kernel bug ends the run instead of spoiling what comes after it.
/// A guest that the host leaves without a CPU for long is no lockup, so watchdogs
/// are off.
// On a busy machine the emulated timer may miss the moment in which the kernel looks whether it ticks.
const KERNEL_LINE: &str =
    "quiet panic=-1 oops=panic nowatchdog rcupdate.rcu_cpu_stall_suppress=1 no_timer_check";

/// One thread for both CPUs: with a thread for each, a guest that patches its own
/// code (the function tracers) now and then hangs or runs the old code for a while.
const ACCELERATOR: &str = "tcg,thread=single";

/// Lines of the console that are kept for the report.
const CONSOLE_LINES: usize = 60;

/// Construction and supervision of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) architecture: Architecture,
    pub(crate) image: PathBuf,
    pub(crate) initrd: PathBuf,
    /// A disk, read-only.
    pub(crate) disk: Option<PathBuf>,
    /// More parameters for the kernel.
    pub(crate) append: String,
    pub(crate) memory_mb: u32,
    /// It is ended after this time.
    pub(crate) limit: Duration,
    /// Nor may it be silent for longer than this.
    pub(crate) silence: Duration,
    /// Shows the console as it comes.
    pub(crate) show_console: bool,
}

/// Result of a command of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) status: u32,
    /// It took longer than it was allowed to.
    pub(crate) late: bool,
}

/// Result of a guest that ended in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// One for each command.
    pub(crate) ended: Vec<Ended>,
    /// Files brought back: path in the guest, copy on the host.
    pub(crate) files: Vec<(String, PathBuf)>,
    /// The last lines of the console: who was killed for want of memory, for instance.
    pub(crate) console: String,
    pub(crate) boot: Duration,
    pub(crate) total: Duration,
}

/// Hears what commands write: their place, the stream, the bytes.
pub(crate) type Listener<'a> = &'a mut dyn FnMut(usize, OutputStream, &[u8]) -> anyhow::Result<()>;

/// The last lines of the console.
type Console = Arc<Mutex<VecDeque<String>>>;

/// QEMU, killed when dropped.
struct Running {
    child: Child,
    console: Console,
    readers: Vec<JoinHandle<()>>,
}

impl Machine {
    /// Runs the guest to its end. Files that come back are put into `directory`, which
    /// is also where the socket is.
    pub(crate) fn run(&self, directory: &Path, listener: Listener<'_>) -> anyhow::Result<Outcome> {
        let start = Instant::now();
        let deadline = start + self.limit;
        let socket = directory.join("port");
        // QEMU gets the name relative to its directory: such a path may have 107 bytes.
        let door = UnixListener::bind(&socket)
            .or_else(|_| in_directory(directory, || UnixListener::bind("port")))
            .with_context(|| socket.display().to_string())?;
        let mut running = self.start(directory)?;
        let mut talk = Talk { directory, place: 0, file: None, outcome: Outcome::default() };
        let result = running.accept(&door, deadline).and_then(|port| {
            talk.listen(Patient { port, deadline, silence: self.silence }, start, listener)
        });
        let end = running.end();
        match result {
            Ok(true) => {
                talk.outcome.total = start.elapsed();
                talk.outcome.console = end;
                Ok(talk.outcome)
            }
            Ok(false) => bail!("the guest died{}\n{end}", talk.state()),
            Err(e) => bail!("the guest failed{}: {e:#}\n{end}", talk.state()),
        }
    }

    fn start(&self, directory: &Path) -> anyhow::Result<Running> {
        let memory = self.memory_mb.max(least_memory_mb(&self.initrd)?).to_string();
        let (emulator, package, options) = self.architecture.emulator();
        let console = self.architecture.console();
        let line = format!("console={console} {KERNEL_LINE} {}", self.append);
        let mut qemu = Command::new(emulator);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(options)
            .args(["-accel", ACCELERATOR, "-smp", "2", "-m", &memory])
            .arg("-kernel")
            .arg(absolute(&self.image)?)
            .arg("-initrd")
            .arg(absolute(&self.initrd)?)
            .args(["-append", &line, "-serial", "stdio"])
            .args(["-chardev", "socket,id=port,path=port"])
            .args(["-device", "virtio-serial-pci"])
            .args(["-device", "virtserialport,chardev=port,name=kymo"])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(disk) = &self.disk {
            // A comma in a value is written twice.
            let file = absolute(disk)?.to_string_lossy().replace(',', ",,");
            qemu.arg("-drive").arg(format!("if=none,id=disk,format=raw,readonly=on,file={file}"));
            qemu.args(["-device", "virtio-blk-pci,drive=disk"]);
        }
        let mut child = qemu.spawn().with_context(|| {
            format!("cannot run {emulator}, which is in Debian's package {package}")
        })?;
        let console = Console::default();
        let show = self.show_console;
        let mut readers = Vec::new();
        if let Some(out) = child.stdout.take() {
            readers.push(keep(out, "", show, &console));
        }
        if let Some(err) = child.stderr.take() {
            readers.push(keep(err, "qemu: ", show, &console));
        }
        Ok(Running { child, console, readers })
    }
}

/// Least memory to unpack an initial file system: the kernel keeps the files in a tmpfs, which may
/// take half of the memory that the archive leaves. Tests copy a program now and then.
fn least_memory_mb(initrd: &Path) -> anyhow::Result<u32> {
    let size = initrd.metadata().with_context(|| initrd.display().to_string())?.len();
    u32::try_from((size >> 20) * 3 + 768).context("an initial file system of petabytes")
}

/// Binds in a directory whose path is too long for a socket's address, through a path
/// that is short.
fn in_directory<T>(directory: &Path, bind: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = std::env::current_dir()?;
    std::env::set_current_dir(directory)?;
    let result = bind();
    std::env::set_current_dir(before)?;
    result
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| path.display().to_string())
}

/// Reads a stream of QEMU to its end, keeping the last lines.
fn keep(
    stream: impl io::Read + Send + 'static,
    mark: &'static str,
    show: bool,
    console: &Console,
) -> JoinHandle<()> {
    let console = Arc::clone(console);
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line without end is cut, not collected.
            match (&mut stream).take(4096).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                _ => return,
            }
            let text = format!("{mark}{}", String::from_utf8_lossy(&line).trim_end());
            if show {
                eprintln!("{text}");
            }
            let mut kept = console.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == CONSOLE_LINES {
                kept.pop_front();
            }
            kept.push_back(text);
        }
    })
}

impl Running {
    /// Waits for QEMU to connect its end of the port.
    fn accept(&mut self, door: &UnixListener, deadline: Instant) -> anyhow::Result<UnixStream> {
        door.set_nonblocking(true).context("port")?;
        loop {
            match door.accept() {
                Ok((port, _)) => {
                    port.set_nonblocking(false).context("port")?;
                    return Ok(port);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e).context("port"),
            }
            if let Some(status) = self.child.try_wait().context("waiting for QEMU")? {
                bail!("QEMU ended immediately: {status}");
            }
            if Instant::now() > deadline {
                bail!("QEMU did not open the port");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends QEMU, which usually is ending itself, and returns the console's last words.
    fn end(&mut self) -> String {
        let patience = Instant::now() + Duration::from_secs(2);
        while Instant::now() < patience && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        let kept = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return "(its console is empty)".into();
        }
        let lines: Vec<String> = kept.iter().map(|line| format!("  | {line}")).collect();
        format!("the last lines of its console:\n{}", lines.join("\n"))
    }

    fn kill(&mut self) {
        // Fails if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            // A reader that panicked has shown that itself.
            let _ = reader.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The conversation so far.
struct Talk<'a> {
    directory: &'a Path,
    /// The command that runs, counted from 1.
    place: usize,
    file: Option<File>,
    outcome: Outcome,
}

impl Talk<'_> {
    /// Takes frames until the last one. `false`: the guest was gone before it.
    fn listen(
        &mut self,
        port: Patient,
        start: Instant,
        listener: Listener<'_>,
    ) -> anyhow::Result<bool> {
        let mut port = BufReader::with_capacity(1 << 16, port);
        loop {
            let frame = match GuestMessage::read(&mut port) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                Err(e) => return Err(e.into()),
            };
            match frame {
                GuestMessage::Ready { .. } => self.outcome.boot = start.elapsed(),
                GuestMessage::Complaint(text) => eprintln!("guest: {text}"),
                GuestMessage::Started(place) => self.place = place as usize + 1,
                GuestMessage::Output(stream, bytes) => {
                    listener(self.place.saturating_sub(1), stream, &bytes)?;
                }
                GuestMessage::Ended { status, late } => {
                    self.outcome.ended.push(Ended { status, late })
                }
                GuestMessage::File { path, mode } => self.begin_file(path, mode)?,
                GuestMessage::Data(bytes) => {
                    let file = self.file.as_mut().context("data of no file")?;
                    file.write_all(&bytes).context("writing a file of the guest")?;
                }
                GuestMessage::FileEnd => self.file = None,
                GuestMessage::Done => return Ok(true),
            }
        }
    }

    fn begin_file(&mut self, path: String, mode: u32) -> anyhow::Result<()> {
        let copy = self.directory.join(format!("got-{}", self.outcome.files.len()));
        let file = File::create(&copy).with_context(|| copy.display().to_string())?;
        let mode = std::fs::Permissions::from_mode(mode & 0o777);
        file.set_permissions(mode).with_context(|| copy.display().to_string())?;
        self.file = Some(file);
        self.outcome.files.push((path, copy));
        Ok(())
    }

    /// State of the guest, for a message.
    fn state(&self) -> String {
        let done = self.outcome.ended.len();
        match self.place {
            0 => " before its first command".into(),
            place if place > done => format!(" in command {place}"),
            place => format!(" after command {place}"),
        }
    }
}

/// A stream whose reads end at a deadline, or when nothing comes for long.
struct Patient {
    port: UnixStream,
    deadline: Instant,
    silence: Duration,
}

impl io::Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let late = |what: &str| io::Error::new(io::ErrorKind::TimedOut, what.to_owned());
        let left = self.deadline.checked_duration_since(Instant::now());
        let left = left.ok_or_else(|| late("it ran into its time limit"))?;
        self.port.set_read_timeout(Some(left.min(self.silence).max(Duration::from_millis(1))))?;
        match self.port.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && left <= self.silence => {
                Err(late("it ran into its time limit"))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                Err(late(&format!("it said nothing for {} s", self.silence.as_secs())))
            }
            // QEMU that dies takes its end of the socket along.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            other => other,
        }
    }
}
