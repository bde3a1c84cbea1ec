//! Values of cells.

use std::cmp::Ordering;

use kymo_model::UntrustedText;

/// Value of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// Not known, or not applicable. Never stands for 0.
    #[default]
    Null,
    /// Yes or no.
    Bool(bool),
    /// Integer.
    Int(i64),
    /// Integer above the range of [`Cell::Int`]: an address.
    Unsigned(u64),
    /// Real number.
    Float(f64),
    /// Text from outside, not escaped.
    Text(Box<[u8]>),
    /// Values of one type.
    List(Vec<Cell>),
    /// Values by name.
    Map(Vec<(String, Cell)>),
    /// Rows of a table within the cell; of a record at most one.
    Rows(Vec<Vec<Cell>>),
}

impl Cell {
    /// Text of the cell, if it is text.
    pub fn text(&self) -> Option<UntrustedText<'_>> {
        self.bytes().map(UntrustedText::new)
    }

    /// Bytes of the cell, if it is text.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Cell::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Non-negative integer of the cell, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Cell::Int(n) => u64::try_from(*n).ok(),
            Cell::Unsigned(n) => Some(*n),
            _ => None,
        }
    }

    /// Number of the cell, if it is one.
    pub fn float(&self) -> Option<f64> {
        match self {
            Cell::Int(n) => Some(*n as f64),
            Cell::Unsigned(n) => Some(*n as f64),
            Cell::Float(n) => Some(*n),
            _ => None,
        }
    }

    /// Order of values of one column; what is not known comes first.
    pub(crate) fn order(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Int(a), Cell::Int(b)) => a.cmp(b),
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Bool(a), Cell::Bool(b)) => a.cmp(b),
            (Cell::Unsigned(a), Cell::Unsigned(b)) => a.cmp(b),
            (Cell::Int(_), Cell::Unsigned(_)) => Ordering::Less,
            (Cell::Unsigned(_), Cell::Int(_)) => Ordering::Greater,
            _ => match (self.float(), other.float()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
        }
    }
}

impl From<bool> for Cell {
    fn from(yes: bool) -> Cell {
        Cell::Bool(yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_come_before_zero() {
        let mut cells = [Cell::Int(0), Cell::Unsigned(u64::MAX), Cell::Null, Cell::Int(-1)];
        cells.sort_by(Cell::order);
        assert_eq!(cells, [Cell::Null, Cell::Int(-1), Cell::Int(0), Cell::Unsigned(u64::MAX)]);
    }
}
