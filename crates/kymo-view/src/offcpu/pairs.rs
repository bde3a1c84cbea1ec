//! Stacks of those who waited, beside the stacks of those who woke them.

use std::io::{self, Write};

use kymo_analysis::offcpu::{OffCpuCause, WakerId};

use super::OffCpuView;
use crate::units::{Grouped, Millis, shown};

/// Columns of a stack.
const WIDTH: usize = 44;

impl OffCpuView<'_> {
    /// Writes the waits of the largest totals that have a waker.
    pub(super) fn write_pairs(&self, out: &mut dyn Write) -> io::Result<()> {
        let ended = |cause: OffCpuCause| !cause.is_idle() && !cause.is_runnable();
        let cells = self.table.cells.iter();
        let cells = cells.filter(|((cause, stack, _), _)| ended(*cause) && stack.is_some());
        for (n, ((cause, stack, waker), cell)) in cells.take(self.pairs).enumerate() {
            if n == 0 {
                writeln!(out, " Waiters and wakers (innermost function first)\n")?;
            }
            writeln!(
                out,
                "  {}: {} ms in {}, at most {} ms",
                cause.text(),
                Millis(cell.total, self.units),
                waits(cell.count),
                Millis(cell.max, self.units),
            )?;
            let sleeper = stack.map_or_else(Vec::new, |s| self.table.stacks.names(s));
            let (by, frames) = self.waker(*waker);
            write_beside(out, &sleeper, (&by, &frames))?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Returns the waker in words, and its stack.
    fn waker(&self, id: Option<WakerId>) -> (String, Vec<&str>) {
        let Some(waker) = id.and_then(|id| self.table.waker(id)) else {
            return ("(woken, unknown waker)".to_owned(), Vec::new());
        };
        let comm = shown(&waker.comm);
        let by = match waker.context.text() {
            Some(interrupt) => format!("woken by {interrupt}, in"),
            None => format!("woken by {comm}, in"),
        };
        (by, waker.stack.map_or_else(Vec::new, |s| self.table.stacks.names(s)))
    }
}

/// A number of waits, in words.
pub(crate) fn waits(count: u64) -> String {
    if count == 1 { "1 wait".to_owned() } else { format!("{} waits", Grouped(count)) }
}

/// Writes the stack of who waits, and beside it that of who ended the wait.
pub(crate) fn write_beside<S: AsRef<str> + PartialEq>(
    out: &mut dyn Write,
    waiter: &[S],
    (by, waker): (&str, &[S]),
) -> io::Result<()> {
    writeln!(out, "{}", format!("    {:<WIDTH$}  {by}", "waits in").trim_end())?;
    let (waiter, waker) = (folded(waiter), folded(waker));
    for at in 0..waiter.len().max(waker.len()) {
        let left = waiter.get(at).map_or("", String::as_str);
        let right = waker.get(at).map_or("", String::as_str);
        writeln!(out, "{}", format!("      {left:<WIDTH$}  {right}").trim_end())?;
    }
    Ok(())
}

/// Lines of a stack, in which what stands below itself is one: a recursion, or functions without
/// a name.
fn folded<S: AsRef<str> + PartialEq>(names: &[S]) -> Vec<String> {
    let line = |same: &[S]| {
        let name = shown(same.first().map_or("", AsRef::as_ref).as_bytes());
        let times = if same.len() > 1 { format!(" ({} times)", same.len()) } else { String::new() };
        let room = WIDTH.saturating_sub(times.len());
        name.chars().take(room).collect::<String>() + &times
    };
    names.chunk_by(|a, b| a == b).map(line).collect()
}
