//! A program on a pty whose other end is a terminal emulator: what it shows is what is asserted.
#![allow(dead_code, unreachable_pub, reason = "not every test uses all of it")]

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Limit of all waits, which end long before on any machine.
const LONGEST: Duration = Duration::from_secs(60);

/// A terminal with a program on it.
pub struct TerminalTest {
    pub pty: File,
    /// The program's side, kept open so that its state can be asked for at the end.
    pub tty: File,
    pub emulator: vt100::Parser,
    pub child: Child,
    pub all: Vec<u8>,
}

impl Drop for TerminalTest {
    /// A test that fails leaves nothing that waits for keys.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TerminalTest {
    /// Starts a program, which its words are.
    pub fn start(
        (rows, columns): (u16, u16),
        environment: &[(&str, &str)],
        words: &[&str],
    ) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let pty: OwnedFd = openpt(flags | OpenptFlags::from_bits_retain(0o4000)).unwrap();
        grantpt(&pty).unwrap();
        unlockpt(&pty).unwrap();
        let name = ptsname(&pty, Vec::new()).unwrap();
        let tty = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(&tty, size(rows, columns)).unwrap();
        let side = || Stdio::from(tty.try_clone().unwrap());
        let child = Command::new("setsid")
            .arg("-c")
            .args(words)
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied())
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let emulator = vt100::Parser::new(rows, columns, 0);
        TerminalTest { pty: File::from(pty), tty, emulator, child, all: Vec::new() }
    }

    pub fn press(&mut self, keys: &str) {
        self.pty.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether the program gets keys as they are pressed, Ctrl-C among them.
    pub fn reads_keys(&self) -> bool {
        !tcgetattr(&self.tty).unwrap().local_modes.contains(LocalModes::ISIG)
    }

    pub fn resize(&mut self, (rows, columns): (u16, u16)) {
        self.emulator.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.tty, size(rows, columns)).unwrap();
    }

    pub fn text(&self) -> String {
        self.emulator.screen().contents()
    }

    pub fn line(&self, row: u16) -> String {
        let columns = self.emulator.screen().size().1;
        self.emulator
            .screen()
            .rows(0, columns)
            .nth(usize::from(row))
            .unwrap_or_default()
            .trim_end()
            .to_owned()
    }

    /// Reads what the program wrote by now.
    pub fn read(&mut self) {
        let mut bytes = [0; 1 << 16];
        loop {
            match self.pty.read(&mut bytes) {
                Ok(0) => return,
                Ok(n) => {
                    self.all.extend_from_slice(&bytes[..n]);
                    self.emulator.process(&bytes[..n]);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The other side is closed.
                Err(_) => return,
            }
        }
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    pub fn wait(&mut self, what: &str, is: impl Fn(&TerminalTest) -> bool) {
        let began = Instant::now();
        loop {
            self.read();
            if is(self) {
                return;
            }
            assert!(began.elapsed() < LONGEST, "no {what}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub fn wait_text(&mut self, text: &str) {
        self.wait(text, |t| t.text().contains(text));
    }

    /// Waits for its end; the terminal is as it was before.
    #[track_caller]
    pub fn end(mut self) -> (ExitStatus, String) {
        let began = Instant::now();
        let status = loop {
            self.read();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < LONGEST, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        };
        self.read();
        let modes = tcgetattr(&self.tty).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        assert!(!self.emulator.screen().alternate_screen(), "still on the other screen");
        assert!(!self.emulator.screen().hide_cursor(), "no cursor");
        (status, self.text())
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
