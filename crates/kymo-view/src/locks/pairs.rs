//! Stacks of who waits for a lock beside those of who ends the wait.

use std::cmp::Reverse;
use std::io::{self, Write};

use kymo_analysis::locks::WaitCell;
use kymo_analysis::offcpu::{StackNode, StackStore};
use serde_json::{Value, json};

use super::ScaledTime;
use crate::offcpu::{waits, write_beside};
use crate::units::shown;

/// Waits that are shown with their stacks.
pub(super) struct PairList<'a> {
    /// The stacks.
    pub(super) stacks: &'a StackStore,
    /// What each wait was for, and the wait.
    pub(super) cells: Vec<(String, &'a WaitCell)>,
    /// Number of them that are shown, those with the largest totals.
    pub(super) most: usize,
}

impl PairList<'_> {
    pub(super) fn write_text(mut self, out: &mut dyn Write) -> io::Result<()> {
        let names =
            |stack: Option<StackNode>| stack.map_or_else(Vec::new, |s| self.stacks.names(s));
        self.cells.retain(|(_, cell)| cell.stack.is_some());
        self.cells.sort_by_key(|(_, cell)| Reverse(cell.total));
        for (n, (of, cell)) in self.cells.into_iter().take(self.most).enumerate() {
            if n == 0 {
                writeln!(out, "\n Who waited, and who woke it (innermost function first)\n")?;
            }
            writeln!(
                out,
                "  {of}: {} in {}, at most {}",
                ScaledTime(cell.total).to_string().trim_end(),
                waits(cell.count),
                ScaledTime(cell.max).to_string().trim_end(),
            )?;
            let (by, waker) = match &cell.waker {
                Some(waker) => (format!("woken by {}, in", shown(&waker.comm)), names(waker.stack)),
                None => ("(by whom is not known)".to_owned(), Vec::new()),
            };
            write_beside(out, &names(cell.stack), (&by, &waker))?;
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Waits of a row as values.
pub(super) fn cells_json(cells: &[WaitCell], stacks: &StackStore) -> Vec<Value> {
    let names = |stack: Option<StackNode>| stack.map_or_else(Vec::new, |s| stacks.names(s));
    let cell = |cell: &WaitCell| {
        let waker = cell
            .waker
            .as_ref()
            .map(|w| json!({"comm": String::from_utf8_lossy(&w.comm), "stack": names(w.stack)}));
        json!({
            "stack": names(cell.stack),
            "waker": waker,
            "count": cell.count,
            "total_ns": cell.total,
            "max_ns": cell.max,
        })
    };
    cells.iter().map(cell).collect()
}
