//! Requests to a cache, from seeded synthetic workloads and from trace files.
//!
//! A [`WorkloadSpec`] is what a user writes (`zipf(1.0):10GiB`); its [`Generator`] draws an endless
//! stream of [`BlockRequest`]s from a seed, the same on every machine. A [`Request`] is one record
//! of a trace, in bytes. A [`TraceReader`] reads it from a file of any known format and
//! compression, and a [`TraceWriter`] writes it to one. A [`View`] turns it into block requests,
//! and [`DenseTrace`] holds a whole trace of them, with its blocks numbered densely.
//!
//! This crate knows no caches.

mod dense;
mod digest;
mod format;
mod numbering;
mod place;
#[cfg(feature = "object-store")]
mod remote;
mod request;
mod stream;
mod summary;
mod workload;
mod write;

pub use dense::{DensePieces, DenseStream, DenseTrace, Pieced, View};
pub use digest::Digest;
pub use format::{
    Cell, Columns, Compression, Doubt, Format, RequestReader, Rows, TableColumn, TraceError,
    TraceErrorKind, TraceOptions, TraceReader,
};
pub use place::{is_trace, is_url};
pub use request::{Noted, Request, RequestKind};
pub use stream::{BlockRequest, BlockStream, InMemory};
pub use summary::{Summarizer, Summary};
pub use workload::{
    Generator, Workload, WorkloadError, WorkloadErrorKind, WorkloadReader, WorkloadSpec, workloads,
};
pub use write::{CsvLines, Destination, Extras, TraceWriter, WriteOptions};
