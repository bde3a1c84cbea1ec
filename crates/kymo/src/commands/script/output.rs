//! Text on its way to the standard output.

use std::io::Write;
use std::ops::ControlFlow;

use anyhow::Context as _;
use kymo_render::{OrderedJob, OrderedWorker, RenderError};

/// Writes and flushes; nothing is not written.
pub(super) fn write(text: &[u8]) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = crate::streams::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).context("standard output")
}

/// Renders jobs in their order on as many threads as there are renderers, to the standard
/// output.
pub(super) fn render_in_order<J, W, R>(
    renderers: Vec<W>,
    feed: impl FnOnce(&mut dyn FnMut(OrderedJob<J>) -> ControlFlow<()>) -> R + Send,
) -> anyhow::Result<(R, Vec<W>)>
where
    J: Send + Sync,
    W: OrderedWorker<J>,
    R: Send,
{
    let write = |text: &[u8]| {
        let mut stdout = crate::streams::stdout().lock();
        stdout.write_all(text).and_then(|()| stdout.flush())
    };
    match kymo_render::render_in_order(renderers, feed, write) {
        Err(RenderError::Output(e)) => Err(e).context("standard output"),
        other => Ok(other?),
    }
}
