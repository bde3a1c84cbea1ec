//! Text on its way to the standard output.

use std::io::{Write, stdout};

use anyhow::Context as _;

/// Writes and flushes; nothing is not written.
pub(super) fn write(text: &[u8]) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).context("standard output")
}
