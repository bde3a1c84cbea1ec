//! Lines of addresses: the line program of a unit is run once, and its rows
//! answer the addresses as they come. No table is kept.

use gimli::ColumnType;

use super::super::{Reader, Result};
use super::Budget;

/// A row that covers an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowAt {
    pub(super) file: u64,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The row of each of `addresses`, which ascend. What was found before damage
/// stays in `found`.
pub(super) fn run(
    program: gimli::IncompleteLineProgram<Reader<'_>>,
    addresses: &[(u64, u32)],
    found: &mut [Option<RowAt>],
    budget: &mut Budget,
) -> Result<()> {
    let mut rows = program.rows();
    // The row before, its address, and the first address asked for from there on.
    let mut before: Option<(RowAt, u64, usize)> = None;
    while let Some((_, row)) = rows.next_row()? {
        let addr = row.address();
        let mut at = None;
        if let Some((held, from, first)) = before {
            if addr == from && !row.end_sequence() {
                // The last row of an address speaks for it.
                before = Some((of(row), from, first));
                continue;
            }
            let mut next = first;
            while addresses.get(next).is_some_and(|(a, _)| *a < addr) {
                if let Some(slot) = found.get_mut(next).filter(|slot| slot.is_none()) {
                    *slot = Some(held);
                }
                next += 1;
                budget.spend(1)?;
            }
            at = (addr > from).then_some(next);
        }
        before = if row.end_sequence() {
            None
        } else {
            let at = at.unwrap_or_else(|| addresses.partition_point(|(a, _)| *a < addr));
            Some((of(row), addr, at))
        };
    }
    Ok(())
}

fn of(row: &gimli::LineRow) -> RowAt {
    let column = match row.column() {
        ColumnType::LeftEdge => 0,
        ColumnType::Column(c) => u32::try_from(c.get()).unwrap_or(u32::MAX),
    };
    let line = row.line().map_or(0, |l| u32::try_from(l.get()).unwrap_or(u32::MAX));
    RowAt { file: row.file_index(), line, column }
}
