//! A table, for libraries by the C data interface of Arrow and for loops in Python.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};

use crate::Error;

/// Rows of a recording or of a query. Polars, pandas, DuckDB and pyarrow read it without a copy of
/// its 64-bit columns (`__arrow_c_stream__`).
#[pyclass(module = "kymotrace", frozen)]
pub(crate) struct Table {
    batch: RecordBatch,
}

pub(crate) fn arrow_error(error: ArrowError) -> PyErr {
    Error::new_err(error.to_string())
}

impl Table {
    /// A table of arrays of equal length.
    pub(crate) fn new(columns: Vec<(String, ArrayRef)>, rows: usize) -> PyResult<Table> {
        let field =
            |(name, array): &(String, ArrayRef)| Field::new(name, array.data_type().clone(), true);
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options);
        Ok(Table { batch: batch.map_err(arrow_error)? })
    }

    /// Up to `count` rows from `start` on.
    pub(crate) fn slice(&self, start: usize, count: usize) -> Table {
        Table { batch: self.batch.slice(start, count) }
    }
}

/// A value as an object of Python.
fn value<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return Ok(py.None().into_bound(py));
    }
    Ok(match array.data_type() {
        DataType::Int64 => {
            array.as_primitive::<Int64Type>().value(row).into_pyobject(py)?.into_any()
        }
        DataType::Float64 => {
            array.as_primitive::<Float64Type>().value(row).into_pyobject(py)?.into_any()
        }
        DataType::Dictionary(_, _) => {
            let words = array.as_dictionary::<UInt32Type>();
            let word = words.keys().value(row) as usize;
            words.values().as_string::<i64>().value(word).into_pyobject(py)?.into_any()
        }
        _ => array.as_string::<i64>().value(row).into_pyobject(py)?.into_any(),
    })
}

fn row<'py>(py: Python<'py>, batch: &RecordBatch, row: usize) -> PyResult<Bound<'py, PyTuple>> {
    let values = batch.columns().iter().map(|array| value(py, array, row));
    PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        let names = self.column_names().join(", ");
        format!("<kymotrace.Table: {} rows of {names}>", self.batch.num_rows())
    }

    /// Values of a column as a list.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(array) = self.batch.column_by_name(name) else {
            return Err(PyKeyError::new_err(format!("no column {name}")));
        };
        let values = (0..array.len()).map(|row| value(py, array, row));
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    /// All columns: name → list of values.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for name in self.column_names() {
            columns.set_item(&name, self.column(py, &name)?)?;
        }
        Ok(columns)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyTuple>> {
        let rows = self.batch.num_rows();
        let at =
            if index < 0 { rows.checked_sub(index.unsigned_abs()) } else { Some(index as usize) };
        match at.filter(|at| *at < rows) {
            Some(at) => row(py, &self.batch, at),
            None => Err(PyIndexError::new_err("no such row")),
        }
    }

    /// Rows as tuples.
    fn __iter__(&self) -> Rows {
        Rows { batch: self.batch.clone(), next: 0 }
    }

    /// The schema, by the C data interface of Arrow.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema_ref().as_ref());
        PyCapsule::new_with_value(py, schema.map_err(arrow_error)?, c"arrow_schema")
    }

    /// The rows, by the C stream interface of Arrow.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer that cannot convert give what it has.
        drop(requested_schema);
        let batches = [Ok(self.batch.clone())];
        let reader = RecordBatchIterator::new(batches, self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// Rows of a table one after the other.
#[pyclass(module = "kymotrace")]
pub(crate) struct Rows {
    batch: RecordBatch,
    next: usize,
}

#[pymethods]
impl Rows {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.next >= self.batch.num_rows() {
            return Ok(None);
        }
        self.next += 1;
        row(py, &self.batch, self.next - 1).map(Some)
    }
}
