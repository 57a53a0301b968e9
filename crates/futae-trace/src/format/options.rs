//! How a trace is to be read.

use super::{Columns, Format};

/// Options for reading a trace.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The format; `None`: detected from the data and the file's name.
    pub format: Option<Format>,
    /// Which column is what, of a table: [`Format::Csv`] or [`Format::Parquet`], and no other format.
    pub columns: Option<Columns>,
    /// The block size for formats that number blocks without giving their size.
    pub unit_bytes: u64,
    /// Whether bad records are counted and left out, rather than ending the trace.
    pub skip_bad: bool,
    /// The guest whose requests these are.
    pub guest: u16,
    /// The largest number of bytes after decompression, beyond which reading fails. It is a limit for untrusted files, since a
    /// small compressed file can hold any amount of data. `None`: no limit.
    pub data_bytes_max: Option<u64>,
    /// Whether a request's length is its object's size even where that is slower: [`Format::OracleGeneral`].
    pub sizes: bool,
    /// Whether the lifetimes in the trace are kept, 4 bytes per request, for [`TraceReader::take_lives`](crate::TraceReader::take_lives).
    pub lives: bool,
    /// Whether the recorded latencies are kept, 4 bytes per request, for [`TraceReader::take_latencies`](crate::TraceReader::take_latencies).
    pub latencies: bool,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            format: None,
            columns: None,
            unit_bytes: 4096,
            skip_bad: false,
            guest: 0,
            data_bytes_max: None,
            sizes: false,
            lives: false,
            latencies: false,
        }
    }
}
