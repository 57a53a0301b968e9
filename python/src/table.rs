//! `Table`: the requests of a trace in columns, whose memory Rust owns and hands out without a copy.

use crate::columns::Columns;
use crate::memory::{self, Column};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::Arc;

/// The requests of a trace in columns: for `numpy.asarray(table["offset_bytes"])`, and as a whole for what
/// takes Arrow's PyCapsule interface (`pyarrow.table`, `polars.DataFrame`, `pandas.DataFrame.from_arrow`).
/// None of this copies a number; what the receiver then does is its own affair.
#[pyclass(frozen, module = "futae")]
pub struct Table(Arc<Columns>);

impl Table {
    pub fn new(columns: Columns) -> Self {
        Self(Arc::new(columns))
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The names of the columns.
    #[getter]
    fn names(&self) -> Vec<String> {
        let layouts = self.0.layouts();
        let names = layouts.iter().map(|it| it.name.to_string_lossy());
        names.map(Into::into).collect()
    }

    fn __getitem__(&self, name: &str) -> PyResult<Column> {
        let layouts = self.0.layouts();
        let at = layouts
            .iter()
            .position(|it| it.name.to_bytes() == name.as_bytes())
            .ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(Column::new(&self.0, at))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        memory::schema(py, &self.0, None)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A wish, says the interface, that a producer need not grant.
        let _ = requested_schema;
        let array = memory::array(py, &self.0, None)?;
        Ok((memory::schema(py, &self.0, None)?, array))
    }
}
