//! The guest's first process: mounts, loads modules, runs the commands of its job
//! with their output on the port, brings back files, powers off. Called by another
//! name in the running guest (`/init load NAME [PARAMETERS]`, `/init unload NAME`) it loads or
//! unloads a module.
#![forbid(unsafe_code)]

mod commands;
mod prepare;

use std::ffi::CString;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kymo_guest::{GuestMessage, Job};
use rustix::system::RebootCommand;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, name, parameters @ ..] = arguments.as_slice()
        && verb == "load"
    {
        return load(name, &parameters.join(" "));
    }
    if let [verb, name] = arguments.as_slice()
        && verb == "unload"
    {
        return unload(name);
    }
    if std::process::id() != 1 {
        eprintln!("this is the init of the test guest; `cargo xtask vm` starts it");
        return ExitCode::from(2);
    }
    if let Err(e) = run() {
        // Without the port the console is all there is; the host shows its last lines.
        eprintln!("guest: {e}");
    }
    end()
}

fn load(name: &str, parameters: &str) -> ExitCode {
    match prepare::load_by_name(name, parameters) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cannot load {name}: {e}");
            ExitCode::FAILURE
        }
    }
}

fn unload(name: &str) -> ExitCode {
    let gone = CString::new(name)
        .map_err(io::Error::other)
        .and_then(|name| rustix::system::delete_module(&name, 0).map_err(io::Error::from));
    match gone {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cannot unload {name}: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let mut complaints = prepare::mounts();
    let job = std::fs::read(kymo_guest::JOB).and_then(|bytes| Job::from_bytes(&bytes))?;
    let limit = Duration::from_secs(u64::from(job.limit_seconds));
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("guest: the job's {} s are over", limit.as_secs());
        end();
    });
    for module in &job.modules {
        if let Err(e) = prepare::load(&module.path, &module.parameters) {
            complaints.push(format!("module {}: {e}", module.path));
        }
    }
    if !job.disk.is_empty()
        && let Err(e) = prepare::disk(&job.disk)
    {
        complaints.push(format!("disk at {}: {e}", job.disk));
    }
    complaints.extend(prepare::loopback().err().map(|e| format!("loopback interface: {e}")));
    let port = prepare::port().map_err(|e| {
        io::Error::other(format!("{}: {e}; {}", kymo_guest::PORT, complaints.join("; ")))
    })?;
    let port = Arc::new(Mutex::new(port));
    let send = |frame: GuestMessage| commands::send(&port, &frame);
    send(GuestMessage::Ready { after: prepare::uptime() })?;
    for complaint in complaints {
        send(GuestMessage::Complaint(complaint))?;
    }
    for (place, command) in (0..).zip(&job.commands) {
        send(GuestMessage::Started(place))?;
        let ended = commands::run(command, &port).unwrap_or_else(|e| {
            let name = command.arguments.first().map_or("", String::as_str);
            // If the port is gone the next frame fails as well.
            let _ = send(GuestMessage::Complaint(format!("cannot run {name}: {e}")));
            GuestMessage::Ended { status: 127, late: false }
        });
        send(ended)?;
    }
    for path in &job.get {
        commands::bring_back(path, &port)?;
    }
    send(GuestMessage::Done)
}

fn end() -> ! {
    loop {
        // QEMU runs with -no-reboot, so this ends it.
        if let Err(e) = rustix::system::reboot(RebootCommand::Restart) {
            eprintln!("guest: reboot: {e}");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
