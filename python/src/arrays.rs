//! Columns of a table as arrays of Arrow. Arrays of 64-bit values and of words' numbers use the
//! memory of the table, which they keep alive.

use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, LargeStringArray, UInt32Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use kymo_sqlite::LoadedTable;
use kymo_table::{ColumnData, ColumnValue};

/// The values of a slice that belongs to a table.
fn shared<T: arrow_buffer::ArrowNativeType>(
    values: &[T],
    owner: &Arc<LoadedTable>,
) -> ScalarBuffer<T> {
    let bytes = size_of_val(values);
    let start = NonNull::from(values).cast::<u8>();
    // SAFETY: the bytes are those of a slice within the table, which nothing changes or frees as
    // long as the owner holds it; the buffer keeps the owner.
    let buffer = unsafe { Buffer::from_custom_allocation(start, bytes, owner.clone()) };
    ScalarBuffer::from(buffer)
}

/// Which rows have values; `None` if all have.
fn validity(rows: usize, has: impl Fn(usize) -> bool) -> Option<NullBuffer> {
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, has));
    (nulls.null_count() > 0).then_some(nulls)
}

/// A column as an array. Integers have 64 bits, texts are words and their numbers.
pub(crate) fn array(owner: &Arc<LoadedTable>, column: usize) -> Result<ArrayRef, ArrowError> {
    let table = owner.table();
    let rows = table.rows;
    let value = |row: usize| table.value(row, column);
    let has = |row: usize| value(row) != ColumnValue::Null;
    let integers = || -> Int64Array {
        (0..rows)
            .map(|row| match value(row) {
                ColumnValue::Integer(n) => Some(n),
                _ => None,
            })
            .collect()
    };
    Ok(match table.columns.get(column) {
        Some(ColumnData::Integers { values, nulls }) => {
            let nulls = if nulls.is_empty() { None } else { validity(rows, has) };
            Arc::new(Int64Array::try_new(shared(values, owner), nulls)?)
        }
        Some(ColumnData::Reals(values)) => {
            Arc::new(Float64Array::try_new(shared(values, owner), validity(rows, has))?)
        }
        Some(ColumnData::Texts { codes, words }) => {
            let texts: LargeStringArray =
                (0..).map_while(|code| words.get(code)).map(Some).collect();
            let keys = UInt32Array::try_new(shared(codes, owner), validity(rows, has))?;
            Arc::new(DictionaryArray::<UInt32Type>::try_new(keys, Arc::new(texts))?)
        }
        Some(ColumnData::Small(_) | ColumnData::RowNumber | ColumnData::Unread) | None => {
            Arc::new(integers())
        }
    })
}
