//! Text on its way to the standard output, in large pieces.

use std::io::{Write, stdout};

use anyhow::Context as _;

/// Text is written in pieces of this size.
pub(super) const PIECE: usize = 256 << 10;

/// What was rendered and not yet written.
#[derive(Default)]
pub(super) struct Output {
    pub(super) text: Vec<u8>,
}

impl Output {
    /// Writes if there is that much.
    #[inline]
    pub(super) fn drain(&mut self, at_least: usize) -> anyhow::Result<()> {
        if self.text.len() < at_least { Ok(()) } else { self.flush() }
    }

    /// Writes what there is.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        write(&self.text)?;
        self.text.clear();
        Ok(())
    }
}

/// Writes and flushes.
pub(super) fn write(text: &[u8]) -> anyhow::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).context("standard output")
}
