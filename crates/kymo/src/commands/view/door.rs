//! Resources for serving a page that a sandboxed process cannot open: a listening socket, a file
//! for the page's data, a program that opens a browser. [`prepare`] opens them before.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use kymo_kernel::system::random;

/// A socket on 127.0.0.1, and the token that addresses behind it begin with.
pub(super) struct Door {
    pub(super) listener: TcpListener,
    pub(super) port: u16,
    pub(super) token: String,
    /// Without a name, for as long as this process lives.
    pub(super) file: File,
    /// Waits for a line, then opens a browser; removes its file in any case.
    browser: Option<Child>,
}

static PREPARED: Mutex<Option<Door>> = Mutex::new(None);

/// The program that waits: `$1` is the file that leads a browser to the page. One that runs already
/// reads it behind xdg-open's end.
const BROWSER: &str = "if read -r go; then xdg-open \"$1\"; sleep 10; fi; rm -f \"$1\"";

/// Creates the door for serving a page in this process.
pub(crate) fn prepare(port: u16) -> anyhow::Result<()> {
    let door = Door::open(port)?;
    *PREPARED.lock().unwrap_or_else(PoisonError::into_inner) = Some(door);
    Ok(())
}

/// Whether there is one: then this process has given up rights, and other programs are out of its
/// reach.
pub(crate) fn is_prepared() -> bool {
    PREPARED.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

impl Door {
    /// The one that was prepared, or a new one.
    pub(super) fn take(port: u16) -> anyhow::Result<Door> {
        let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).take();
        prepared.map_or_else(|| Door::open(port), Ok)
    }

    fn open(port: u16) -> anyhow::Result<Door> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("127.0.0.1:{port}: cannot listen"))?;
        let port = listener.local_addr()?.port();
        let mut bytes = [0u8; 16];
        random(&mut bytes).context("no random bytes for the address")?;
        let token: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let mut door = Door { listener, port, token, file: unnamed_file()?, browser: None };
        door.browser = browser(&door.address());
        Ok(door)
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Opens a browser where there is a desktop.
    pub(super) fn open_browser(&mut self) {
        let Some(mut child) = self.browser.take() else { return };
        if let Some(mut input) = child.stdin.take() {
            // One that has ended opens nothing.
            let _ = input.write_all(b"go\n");
        }
        std::thread::spawn(move || child.wait());
    }
}

pub(super) fn unnamed_file() -> anyhow::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut random_name = [0u8; 8];
    random(&mut random_name).context("no random bytes for a file")?;
    let name = format!("kymo-view-{:016x}", u64::from_ne_bytes(random_name));
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("{}: cannot create", path.display()))?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Starts a process that will open a browser, if there is a desktop. All users can read the
/// arguments of programs, so the address goes through a file that only this user can read.
fn browser(address: &str) -> Option<Child> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|v| std::env::var_os(v).is_some());
    let directory = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| has_display)?;
    let path: PathBuf =
        Path::new(&directory).join(format!("kymo-view-{}.html", std::process::id()));
    let page =
        format!("<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0; url={address}\">\n");
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut f| f.write_all(page.as_bytes())).ok()?;
    let mut opens = Command::new("sh");
    opens.args(["-c", BROWSER, "sh"]).arg(&path).stdin(Stdio::piped());
    opens.stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C is for the server: this one still removes the file.
    let started = opens.process_group(0).spawn();
    if started.is_err() {
        let _ = std::fs::remove_file(path);
    }
    started.ok()
}
