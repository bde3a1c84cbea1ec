//! Recordings as tables, for Python: the module `kymotrace._native`.
//!
//! ```text
//! Recordings (kymo-sql) ─► ColumnTable ─► arrays of Arrow, same memory ─► __arrow_c_stream__
//!                       ─► SQLite ─► rows ─► arrays of Arrow ─────────────┘
//! ```

mod arrays;
mod recording;
mod results;
mod table;
mod work;

use pyo3::prelude::*;

pyo3::create_exception!(kymotrace, Error, pyo3::exceptions::PyException);
pyo3::create_exception!(kymotrace, TraceWarning, pyo3::exceptions::PyUserWarning);

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<recording::Recording>()?;
    module.add_class::<table::Table>()?;
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("TraceWarning", module.py().get_type::<TraceWarning>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
