//! `Reader`: the requests of a trace file, as records of fixed width.

use crate::columns::Columns;
use crate::error::refused;
use crate::reading::Reading;
use crate::table::Table;
use futae_trace::{Request, RequestKind, RequestReader, TraceOptions, TraceReader};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Bytes of a record: see [`put_down`].
const RECORD_BYTES: usize = 29;
/// Records between two looks after signals.
const BATCH: usize = 1 << 16;

/// Puts down one record, little-endian: time (i64, -1 for none), offset and length (u64), volume and guest (u16),
/// whether it is a write (u8). `_traces.py` names the same fields.
fn put_down(request: &Request, out: &mut Vec<u8>) {
    let time = request.time_us.and_then(|time| i64::try_from(time).ok());
    out.extend(time.unwrap_or(-1).to_le_bytes());
    out.extend(request.offset_bytes.to_le_bytes());
    out.extend(request.length_bytes.to_le_bytes());
    out.extend(request.volume.0.to_le_bytes());
    out.extend(request.guest.to_le_bytes());
    out.push(u8::from(request.kind == RequestKind::Write));
}

/// A trace file that is being read.
#[pyclass(frozen)]
pub struct Reader(Mutex<TraceReader>);

#[pymethods]
impl Reader {
    /// Opens a file; with `all` also what only some simulations ask for: sizes of objects, lifetimes and latencies.
    #[new]
    fn open(path: PathBuf, reading: Reading, all: bool) -> PyResult<Self> {
        let options = TraceOptions {
            sizes: all,
            lives: all,
            latencies: all,
            ..reading.options()?
        };
        let reader = TraceReader::open(&path, &options).map_err(refused)?;
        Ok(Self(Mutex::new(reader)))
    }

    /// The next records, at most `limit`, as bytes; none at the end.
    fn read<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut records = Vec::new();
        while records.len() / RECORD_BYTES < limit {
            let wanted = BATCH.min(limit - records.len() / RECORD_BYTES);
            let batch = py.detach(|| {
                let mut batch = Vec::new();
                let mut reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let read = reader.read_batch(&mut batch, wanted);
                read.map(|()| batch)
            });
            let batch = batch.map_err(refused)?;
            if batch.is_empty() {
                break;
            }
            batch
                .iter()
                .for_each(|request| put_down(request, &mut records));
            py.check_signals()?;
        }
        Ok(PyBytes::new(py, &records))
    }

    /// All further requests, in columns. Other threads run meanwhile.
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        let reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut columns = Columns::new(reader.has_sizes());
        drop(reader);
        loop {
            let read = py.detach(|| {
                let mut batch = Vec::new();
                let mut reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let read = reader.read_batch(&mut batch, BATCH);
                batch.iter().for_each(|request| columns.push(request));
                columns.note(&reader.take_lives(), &reader.take_latencies());
                read.map(|()| batch.len())
            });
            if read.map_err(refused)? == 0 {
                return Ok(Table::new(columns));
            }
            py.check_signals()?;
        }
    }

    /// What is known of it so far: format, compression, volumes, bad records left out, doubts.
    fn facts(&self) -> (String, String, Vec<String>, u64, Vec<String>) {
        let reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (
            reader.format().name().to_owned(),
            format!("{:?}", reader.compression()).to_lowercase(),
            reader.volumes().to_vec(),
            reader.skipped(),
            reader.doubts().iter().map(ToString::to_string).collect(),
        )
    }
}
