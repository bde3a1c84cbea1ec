//! Running one command with its output on the port, and bringing back files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kymo_guest::{GuestMessage, OutputStream};
use rustix::process::{Pid, Signal, WaitOptions};

/// Environment of every command.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/vm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/tmp"),
    ("LC_ALL", "C"),
    ("TERM", "dumb"),
    ("KYMO_GUEST", "1"),
];

/// A grandchild may keep the output open; this long its last words are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The port, shared by the readers of both outputs.
pub(crate) type Port = Arc<Mutex<File>>;

/// Sends one frame whole.
pub(crate) fn send(port: &Port, frame: &GuestMessage) -> io::Result<()> {
    frame.write(&mut *port.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a command to its end; returns how it ended.
pub(crate) fn run(command: &kymo_guest::Command, port: &Port) -> io::Result<GuestMessage> {
    let Some((program, arguments)) = command.arguments.split_first() else {
        return Err(io::Error::other("no program is named"));
    };
    let (out, err) = (io::pipe()?, io::pipe()?);
    let mut start = Command::new(program);
    start.args(arguments).env_clear().envs(ENVIRONMENT.iter().copied());
    start.envs(command.environment.iter().filter_map(|pair| pair.split_once('=')));
    start.current_dir("/tmp").process_group(0).stdin(Stdio::null()).stdout(out.1).stderr(err.1);
    let child = start.spawn()?;
    // It holds the write ends of the pipes.
    drop(start);
    let closed = [follow(out.0, OutputStream::Out, port), follow(err.0, OutputStream::Err, port)];
    let pid = Pid::from_child(&child);
    let (ended, watch) = mpsc::channel::<()>();
    let late = Arc::new(AtomicBool::new(false));
    let limit = Duration::from_secs(u64::from(command.limit_seconds));
    std::thread::spawn({
        let late = Arc::clone(&late);
        move || {
            if watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                late.store(true, Ordering::Relaxed);
                // Fails only if it ended in this very moment.
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            }
        }
    });
    let status = reap(pid)?;
    drop(ended);
    for reader in closed {
        // Output after this is lost, and belongs to no test.
        let _ = reader.recv_timeout(LAST_WORDS);
    }
    Ok(GuestMessage::Ended { status, late: late.load(Ordering::Relaxed) })
}

/// Sends what comes out of a pipe; the receiver hears when it is closed.
fn follow(mut pipe: io::PipeReader, stream: OutputStream, port: &Port) -> mpsc::Receiver<()> {
    let (closed, receiver) = mpsc::channel();
    let port = Arc::clone(port);
    std::thread::spawn(move || {
        let mut chunk = vec![0; GuestMessage::CHUNK];
        while let Ok(length @ 1..) = pipe.read(&mut chunk) {
            let bytes = chunk.get(..length).unwrap_or_default().to_vec();
            if send(&port, &GuestMessage::Output(stream, bytes)).is_err() {
                break;
            }
        }
        // The receiver has stopped if the command ended long ago.
        let _ = closed.send(());
    });
    receiver
}

/// Waits for a child, and meanwhile for every orphan, as the first process must.
fn reap(pid: Pid) -> io::Result<u32> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((who, status))) if who == pid => {
                let signal = status.terminating_signal().unwrap_or_default();
                let status = status.exit_status().unwrap_or(128 + signal);
                return Ok(u32::try_from(status).unwrap_or_default());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Sends a file. One that cannot be read is a complaint.
pub(crate) fn bring_back(path: &str, port: &Port) -> io::Result<()> {
    let opened = File::open(path).and_then(|file| {
        let about = file.metadata()?;
        if about.is_dir() { Err(io::Error::other("is a directory")) } else { Ok((file, about)) }
    });
    let (mut file, about) = match opened {
        Ok(opened) => opened,
        Err(e) => return send(port, &GuestMessage::Complaint(format!("{path}: {e}"))),
    };
    let mode = about.permissions().mode() & 0o7777;
    send(port, &GuestMessage::File { path: path.to_owned(), mode })?;
    let mut chunk = vec![0; GuestMessage::CHUNK];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return send(port, &GuestMessage::FileEnd),
            Ok(length) => {
                let bytes = chunk.get(..length).unwrap_or_default().to_vec();
                send(port, &GuestMessage::Data(bytes))?;
            }
            Err(e) => return send(port, &GuestMessage::Complaint(format!("{path}: {e}"))),
        }
    }
}
