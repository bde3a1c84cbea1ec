//! Rust types that become cells.

use crate::cell::Cell;
use crate::column::ColumnType;

/// Name from outside, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub Vec<u8>);

/// Rust type that becomes a cell.
pub trait CellValue {
    /// Whether a value may be absent.
    const NULLABLE: bool = false;

    /// Type of the column.
    fn column_type() -> ColumnType;

    /// The cell.
    fn into_cell(self) -> Cell;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl CellValue for $type {
            fn column_type() -> ColumnType {
                ColumnType::Integer
            }

            fn into_cell(self) -> Cell {
                i64::try_from(self).map_or(Cell::Unsigned(self as u64), Cell::Int)
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, usize, i32, i64);

impl CellValue for bool {
    fn column_type() -> ColumnType {
        ColumnType::Boolean
    }

    fn into_cell(self) -> Cell {
        Cell::Bool(self)
    }
}

impl CellValue for f64 {
    fn column_type() -> ColumnType {
        ColumnType::Number
    }

    fn into_cell(self) -> Cell {
        Cell::Float(self)
    }
}

impl CellValue for Name {
    fn column_type() -> ColumnType {
        ColumnType::Text
    }

    fn into_cell(self) -> Cell {
        Cell::Text(self.0.into())
    }
}

impl CellValue for String {
    fn column_type() -> ColumnType {
        ColumnType::Text
    }

    fn into_cell(self) -> Cell {
        Cell::Text(self.into_bytes().into())
    }
}

impl CellValue for &str {
    fn column_type() -> ColumnType {
        ColumnType::Text
    }

    fn into_cell(self) -> Cell {
        Cell::Text(self.as_bytes().into())
    }
}

impl<T: CellValue> CellValue for Option<T> {
    const NULLABLE: bool = true;

    fn column_type() -> ColumnType {
        T::column_type()
    }

    fn into_cell(self) -> Cell {
        self.map_or(Cell::Null, T::into_cell)
    }
}

impl<T: CellValue> CellValue for Vec<T> {
    fn column_type() -> ColumnType {
        ColumnType::List(Box::new(T::column_type()))
    }

    fn into_cell(self) -> Cell {
        Cell::List(self.into_iter().map(T::into_cell).collect())
    }
}

impl<T: CellValue> CellValue for Vec<(String, T)> {
    fn column_type() -> ColumnType {
        ColumnType::Map(Box::new(T::column_type()))
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
}
