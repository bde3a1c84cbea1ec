//! The kernel's messages, as `/dev/kmsg` has them.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::system_root::system_path;

/// The most bytes that are read.
const LIMIT: usize = 64 << 20;

/// All messages that the kernel keeps, in the form of `/dev/kmsg`.
///
/// # Errors
/// If it cannot be read.
pub fn read() -> io::Result<Vec<u8>> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file =
        OpenOptions::new().read(true).custom_flags(nonblocking).open(system_path("/dev/kmsg"))?;
    let mut text = Vec::new();
    // Each read gives one message.
    let mut message = vec![0; 16 << 10];
    while text.len() < LIMIT {
        match file.read(&mut message) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(message.get(..n).unwrap_or(&[])),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            // Older ones were overwritten meanwhile; the next read continues after them.
            Err(e) if e.raw_os_error() == Some(crate::errno::EPIPE) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(text)
}
