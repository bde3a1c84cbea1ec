//! Values of cells, and the Rust types that become one.

use std::cmp::Ordering;

use kymo_model::UntrustedText;

use crate::Type;

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

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
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

/// Name from outside, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub Vec<u8>);

/// Rust type that becomes a cell.
pub trait CellValue {
    /// Whether a value may be absent.
    const NULLABLE: bool = false;

    /// Type of the column.
    fn column_type() -> Type;

    /// The cell.
    fn into_cell(self) -> Cell;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl CellValue for $type {
            fn column_type() -> Type {
                Type::Integer
            }

            fn into_cell(self) -> Cell {
                i64::try_from(self).map_or(Cell::Unsigned(self as u64), Cell::Int)
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, usize, i32, i64);

impl CellValue for bool {
    fn column_type() -> Type {
        Type::Boolean
    }

    fn into_cell(self) -> Cell {
        Cell::Bool(self)
    }
}

impl CellValue for f64 {
    fn column_type() -> Type {
        Type::Number
    }

    fn into_cell(self) -> Cell {
        Cell::Float(self)
    }
}

impl CellValue for Name {
    fn column_type() -> Type {
        Type::Text
    }

    fn into_cell(self) -> Cell {
        Cell::Text(self.0.into())
    }
}

impl CellValue for String {
    fn column_type() -> Type {
        Type::Text
    }

    fn into_cell(self) -> Cell {
        Cell::Text(self.into_bytes().into())
    }
}

impl CellValue for &str {
    fn column_type() -> Type {
        Type::Text
    }

    fn into_cell(self) -> Cell {
        Cell::Text(self.as_bytes().into())
    }
}

impl<T: CellValue> CellValue for Option<T> {
    const NULLABLE: bool = true;

    fn column_type() -> Type {
        T::column_type()
    }

    fn into_cell(self) -> Cell {
        self.map_or(Cell::Null, T::into_cell)
    }
}

impl<T: CellValue> CellValue for Vec<T> {
    fn column_type() -> Type {
        Type::List(Box::new(T::column_type()))
    }

    fn into_cell(self) -> Cell {
        Cell::List(self.into_iter().map(T::into_cell).collect())
    }
}

impl<T: CellValue> CellValue for Vec<(String, T)> {
    fn column_type() -> Type {
        Type::Map(Box::new(T::column_type()))
    }

    fn into_cell(self) -> Cell {
        Cell::Map(self.into_iter().map(|(name, value)| (name, value.into_cell())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_beyond_i64_keep_their_value() {
        assert_eq!(u64::MAX.into_cell(), Cell::Unsigned(u64::MAX));
        assert_eq!((1u64 << 62).into_cell(), Cell::Int(1 << 62));
        assert_eq!((-5i64).into_cell(), Cell::Int(-5));
        assert_eq!(None::<u32>.into_cell(), Cell::Null);
    }

    #[test]
    fn unknown_values_come_before_zero() {
        let mut cells = [Cell::Int(0), Cell::Unsigned(u64::MAX), Cell::Null, Cell::Int(-1)];
        cells.sort_by(Cell::order);
        assert_eq!(cells, [Cell::Null, Cell::Int(-1), Cell::Int(0), Cell::Unsigned(u64::MAX)]);
    }
}
