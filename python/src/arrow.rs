//! Tables of other programs, by Arrow's PyCapsule interface: pyarrow, polars, pandas, and what else has it.
//!
//! A stream gives a batch after the other, of which only one is here at a time. The values stay where they are.

#![expect(
    unsafe_code,
    reason = "pointers in the capsules of Arrow's PyCapsule interface"
)]

use crate::cells::{append, is_readable, unit_ns};
use crate::error::refused;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{DataType, Schema};
use futae_trace::{Cell, TableColumn, TraceErrorKind, TraceOptions, TraceReader};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Rows that are turned into cells at a time.
const ROWS: usize = 1024;

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, String>> + Send>;

/// The rows of a table.
pub struct ArrowRows {
    batches: Batches,
    columns: Vec<TableColumn>,
    types: Vec<DataType>,
    wanted: Vec<usize>,
    batch: Option<RecordBatch>,
    /// The next row of the batch.
    next: usize,
}

/// A table that is read once, by a simulation.
#[pyclass(frozen, module = "futae")]
pub struct Rows(Mutex<Option<ArrowRows>>);

#[pymethods]
impl Rows {
    /// Opens a table. A `TypeError` if it is none: a lone column, or something that is not Arrow's.
    #[new]
    fn of(table: &Bound<'_, PyAny>) -> PyResult<Self> {
        let rows = match table.getattr_opt("__arrow_c_stream__")? {
            Some(stream) => ArrowRows::of_stream(&stream.call0()?)?,
            None => ArrowRows::of_array(&table.getattr("__arrow_c_array__")?.call0()?)?,
        };
        Ok(Self(Mutex::new(Some(rows))))
    }
}

impl Rows {
    /// A reader of the rows, which nobody else gets then. `name` is for errors.
    pub fn open(&self, name: &str, options: &TraceOptions) -> PyResult<TraceReader> {
        if options.format.is_some() {
            return Err(refused("format is for trace files"));
        }
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = rows.take().ok_or_else(|| refused("a table is read once"))?;
        TraceReader::of_rows(Path::new(name), rows, options).map_err(refused)
    }
}

/// What a capsule holds. The type must be the one that goes with the name.
fn held<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<*mut T> {
    let capsule = capsule.cast::<PyCapsule>()?;
    Ok(capsule.pointer_checked(Some(name))?.as_ptr().cast())
}

fn no_table(what: impl ToString) -> PyErr {
    PyTypeError::new_err(what.to_string())
}

impl ArrowRows {
    fn of_stream(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let stream = held::<FFI_ArrowArrayStream>(capsule, c"arrow_array_stream")?;
        // SAFETY: A capsule of this name holds a valid `ArrowArrayStream`, says the interface, which may be moved out.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream) };
        let reader = RecordBatchStreamReader::try_new(stream).map_err(no_table)?;
        let schema = reader.schema();
        let batches = reader.map(|batch| batch.map_err(|error| error.to_string()));
        Ok(Self::new(Box::new(batches), &schema))
    }

    fn of_array(capsules: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (schema, array) = capsules.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let schema = held::<FFI_ArrowSchema>(&schema, c"arrow_schema")?;
        let array = held::<FFI_ArrowArray>(&array, c"arrow_array")?;
        // SAFETY: Capsules of these names hold a valid `ArrowSchema` and `ArrowArray`, says the interface, which may be moved out.
        let (schema, array) = unsafe {
            (
                FFI_ArrowSchema::from_raw(schema),
                FFI_ArrowArray::from_raw(array),
            )
        };
        // SAFETY: The producer made the two for each other.
        let data = unsafe { from_ffi(array, &schema) }.map_err(no_table)?;
        if !matches!(data.data_type(), DataType::Struct(_)) {
            return Err(no_table("a column is no table"));
        }
        if data.null_count() > 0 {
            return Err(no_table("a table has no rows that are null"));
        }
        let batch = RecordBatch::from(StructArray::from(data));
        let schema = batch.schema();
        Ok(Self::new(Box::new(std::iter::once(Ok(batch))), &schema))
    }

    fn new(batches: Batches, schema: &Schema) -> Self {
        let columns = schema.fields().iter().map(|field| TableColumn {
            name: field.name().clone(),
            values: field.data_type().to_string(),
            time_ns: unit_ns(field.data_type()),
            is_nested: field.data_type().is_nested(),
        });
        let types = schema
            .fields()
            .iter()
            .map(|field| field.data_type().clone());
        Self {
            batches,
            columns: columns.collect(),
            types: types.collect(),
            wanted: Vec::new(),
            batch: None,
            next: 0,
        }
    }
}

impl futae_trace::Rows for ArrowRows {
    fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    fn want(&mut self, wanted: &[usize]) -> Result<(), TraceErrorKind> {
        if let Some(&column) = wanted
            .iter()
            .find(|&&column| !is_readable(&self.types[column]))
        {
            return Err(TraceErrorKind::Table(self.columns[column].refusal()));
        }
        self.wanted = wanted.to_vec();
        Ok(())
    }

    fn fill(&mut self, cells: &mut Vec<Vec<Cell>>) -> Result<(), TraceErrorKind> {
        cells.resize_with(self.wanted.len(), Vec::new);
        cells.iter_mut().for_each(Vec::clear);
        let batch = loop {
            match &self.batch {
                Some(batch) if self.next < batch.num_rows() => break batch,
                _ => {}
            }
            self.next = 0;
            // The one before is given back first.
            self.batch = None;
            // What makes the batches may need Python's lock on threads of its own.
            match Python::attach(|py| py.detach(|| self.batches.next())) {
                Some(batch) => self.batch = Some(batch.map_err(TraceErrorKind::Table)?),
                None => return Ok(()),
            }
        };
        let rows = ROWS.min(batch.num_rows() - self.next);
        for (&column, cells) in self.wanted.iter().zip(cells) {
            append(batch.column(column), self.next..self.next + rows, cells);
        }
        self.next += rows;
        Ok(())
    }
}
