//! Errors in trace files.

use super::doubt::Doubt;
use super::formats::Format;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A trace that cannot be read: which file, where in it, and what is wrong.
#[derive(Debug)]
pub struct TraceError {
    /// The file, as it was named.
    pub path: PathBuf,
    /// The record, counted from 1 (in text, the line), and the byte where it begins in the data
    /// after decompression; none where no record is to blame.
    pub at: Option<(u64, u64)>,
    /// The error.
    pub kind: TraceErrorKind,
}

/// An error in a trace or a record.
#[derive(Debug, thiserror::Error)]
pub enum TraceErrorKind {
    /// The file cannot be opened, read or decompressed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The data has no feature of a known format.
    #[error(
        "the format cannot be told from the data; name one of {}",
        Format::names()
    )]
    UnknownFormat,
    /// The named format does not exist.
    #[error("unknown trace format `{name}`{}; known are {}", suggest(.near.as_deref()), Format::names())]
    NoSuchFormat {
        /// The given name.
        name: String,
        /// A format with a similar name.
        near: Option<String>,
    },
    /// The generic format needs a column map.
    #[error("a csv trace needs a map of its columns, such as `offset=1:512,length=2:512,kind=3`")]
    NoColumns,
    /// A column map for a format whose columns are known.
    #[error(
        "the format {format} and a column map exclude each other: a map is for tables; leave out one of them"
    )]
    ColumnsOfFormat {
        /// The format.
        format: &'static str,
    },
    /// A column map that cannot be used.
    #[error("`{text}` in the column map is not {expected}")]
    Columns {
        /// What was written.
        text: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// Data without a single request.
    #[error("the trace has no requests: {}", no_requests(.format, *.records, *.skipped))]
    NoRequests {
        /// The format that it was read as.
        format: &'static str,
        /// How many records it has; in text, lines.
        records: u64,
        /// How many of them were bad and left out.
        skipped: u64,
    },
    /// Data that cannot be of the format that the file's name says.
    #[error("the file's name says {format}, but {doubt}")]
    Implausible {
        /// The format.
        format: &'static str,
        /// Why it cannot be.
        doubt: Doubt,
    },
    /// A line of a `.lis` file that is no page, after lines that are.
    #[error(
        "the length is {length}, but all lengths at the beginning are 1, so that each number there is taken for a page; \
         if they are blocks of 512 bytes, give --columns separator=blank,offset=0:512,length=1:512"
    )]
    NotAPage {
        /// The field.
        length: String,
    },
    /// A line with fewer fields than the format has.
    #[error("the record has {found} fields, and the {field} should be field {wanted}")]
    Missing {
        /// What the field holds.
        field: &'static str,
        /// Where it should be, counted from 1.
        wanted: usize,
        /// How many fields there are.
        found: usize,
    },
    /// A field that does not hold what it should.
    #[error("`{text}` is not {expected}")]
    Field {
        /// What was found.
        text: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A value of a table that is not what its column should hold.
    #[error("column {column}: {}", cell(.text.as_deref(), .expected))]
    Cell {
        /// The name of the column, and the type of its values.
        column: String,
        /// What was found; `None`: no value.
        text: Option<String>,
        /// What belongs there.
        expected: &'static str,
    },
    /// A line that is not the JSON it should be.
    #[error("the line is no request in JSON: {0}")]
    Json(String),
    /// An archive that cannot be used.
    #[error("{0}")]
    Archive(String),
    /// A binary record that is not of this format.
    #[error("the bytes are not a {format} record")]
    NotARecord {
        /// The format.
        format: &'static str,
    },
    /// A record of another version than the first one.
    #[error(
        "a blktrace record of version {found} in a file that is read as version {wanted}; \
         read are versions 7 and 8, one of them in a file"
    )]
    BlktraceVersion {
        /// The version that the record says.
        found: u32,
        /// The version of the file.
        wanted: u32,
    },
    /// The data ends inside a record.
    #[error("the data ends after {found} of the record's {wanted} bytes")]
    Truncated {
        /// Bytes of the record that are there.
        found: usize,
        /// Bytes that a record has.
        wanted: usize,
    },
    /// A line longer than any record.
    #[error("the line is longer than {limit} bytes")]
    LineTooLong {
        /// The longest line that is read.
        limit: usize,
    },
    /// A request beyond the end of the largest possible volume.
    #[error("the request ends beyond 2^64 bytes")]
    OutOfRange,
    /// A request longer than any storage device takes, so probably damage.
    #[error("the request is {bytes} bytes long, more than 1 GiB")]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// An object larger than any that is believed.
    #[error("the object is {bytes} bytes large, more than 4 GiB")]
    ObjectTooLarge {
        /// Its size.
        bytes: u64,
    },
    /// More volumes than can be numbered.
    #[error(
        "the trace has more than 1114110 volumes; if all of them share one cache, name its volumes and its offsets as one key, such as \
         --columns key=VOLUME,key=OFFSET"
    )]
    TooManyVolumes,
    /// A request too far out for volumes that share a number.
    #[error(
        "the trace has 65536 volumes or more, so each from the 65536th on has room for 16 TiB, and this request is beyond; name its \
         volumes and its offsets as one key, such as --columns key=VOLUME,key=OFFSET"
    )]
    FoldedTooLarge,
    /// More distinct blocks than can be numbered.
    #[error("the trace touches more than 2^32 distinct blocks; use larger blocks")]
    TooManyBlocks,
    /// A table that cannot be read.
    #[error("{0}")]
    Table(String),
    /// A Parquet file that cannot be read or written.
    #[error("Parquet: {0}")]
    Parquet(String),
    /// A build without Parquet.
    #[error("this futae was built without Parquet (the cargo feature `parquet`)")]
    NoParquet,
    /// A build without URLs.
    #[error(
        "this futae was built without reading from URLs (the cargo feature `object-store`); download the trace first"
    )]
    NoObjectStore,
    /// A format that is read but not written.
    #[error(
        "{format} traces are read, not written; written are {}",
        Format::writable_names()
    )]
    Unwritable {
        /// The format.
        format: &'static str,
    },
    /// A file name that does not say which format to write.
    #[error(
        "the name does not tell which format to write; name one of {}",
        Format::writable_names()
    )]
    NoFormatNamed,
    /// A block that a format of numbers has no number for.
    #[error(
        "block {block} of volume {volume} has no number in a {format} trace; write csv or parquet, which keep volumes and offsets"
    )]
    Unfit {
        /// The block.
        block: u64,
        /// Its volume.
        volume: u16,
        /// The format.
        format: &'static str,
    },
}

#[cfg(feature = "parquet")]
impl From<parquet::errors::ParquetError> for TraceErrorKind {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::Parquet(error.to_string())
    }
}

impl TraceErrorKind {
    /// Whether only this record is bad, so that a reader may continue with the next one.
    pub(super) fn is_of_record(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::Field { .. }
                | Self::Cell { .. }
                | Self::NotARecord { .. }
                | Self::BlktraceVersion { .. }
                | Self::Json(_)
                | Self::Truncated { .. }
                | Self::LineTooLong { .. }
                | Self::OutOfRange
                | Self::TooLong { .. }
                | Self::ObjectTooLarge { .. }
        )
    }
}

fn no_requests(format: &str, records: u64, skipped: u64) -> String {
    let remedy = "name the format with --format, or the columns with --columns";
    match (records, skipped) {
        (0, _) => "there is no data".to_owned(),
        (_, 0) => format!("none of its {records} records holds one in {format}; {remedy}"),
        _ => format!(
            "of its {records} records {skipped} are bad in {format}, and none holds one; {remedy}"
        ),
    }
}

fn cell(text: Option<&str>, expected: &str) -> String {
    match text {
        Some(text) => format!("`{text}` is not {expected}"),
        None => format!("there is no value, and it should be {expected}"),
    }
}

fn suggest(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace {}", self.path.display())?;
        if let Some((record, byte)) = self.at {
            write!(f, ", record {record} at byte {byte}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            TraceErrorKind::Io(e) => e.source(),
            _ => None,
        }
    }
}
