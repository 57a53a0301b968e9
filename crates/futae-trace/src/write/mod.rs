//! Writes trace files.

mod labels;
mod oracle;
#[cfg(feature = "parquet")]
mod parquet;
mod sink;
mod text;

use crate::format::{Compression, Context, Format, REQUEST_BYTES_MAX, TraceError, TraceErrorKind};
use crate::{Noted, Request, View};
use sink::Sink;
use std::io::Write;
use std::path::{Path, PathBuf};
pub use text::CsvLines;

/// Options for writing a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// One of [`Format::WRITABLE`].
    pub format: Format,
    /// How the file is compressed.
    pub compression: Compression,
    /// What becomes a record: each request with [`View::Start`], each of its blocks with
    /// [`View::Blocks`]. For formats with numbers, it also defines the number of a block: the
    /// sector of 512 bytes where the request starts, or the block.
    pub view: View,
    /// What tables say of requests besides.
    pub extras: Extras,
}

/// What CSV and Parquet have for traces that have more than requests for ranges of volumes. Other formats leave it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// The requests are for [objects](Request::object), whose numbers stand in a column `key` in place of offsets.
    pub objects: bool,
    /// A column `ttl` has [times to live](Noted::life_seconds).
    pub lives: bool,
    /// A column `latency_us` has [latencies](Noted::latency_us).
    pub latencies: bool,
}

impl Extras {
    /// The columns of a table, by which it is read back: microseconds, empty where there are none; the volume's name; `R` or `W`; bytes
    /// or the object's number; bytes; seconds; microseconds.
    fn columns(self) -> impl Iterator<Item = &'static str> {
        let place = if self.objects { "key" } else { "offset" };
        let lives = self.lives.then_some("ttl");
        let latencies = self.latencies.then_some("latency_us");
        let all = ["time_us", "volume", "kind", place, "length"];
        all.into_iter().chain(lives).chain(latencies)
    }
}

impl WriteOptions {
    /// The options, without extras, implied by a file's name: the format of `.oracleGeneral` (or
    /// `.oracleGeneral.bin`), `.csv`, `.parquet`, `.ids` or `.txt`, `.le32`, `.le64`, `.be32` and
    /// `.be64`, and the compression of a further `.gz`, `.zst`, `.xz` or `.bz2`. A given `format`
    /// overrides that of the name.
    pub fn of_name(path: &Path, format: Option<Format>, view: View) -> Result<Self, TraceError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (name, compression) = Compression::of_name(&name);
        let named = Format::WRITABLE.into_iter().find(|format| {
            let suffixes = format.suffixes().iter();
            suffixes.copied().any(|suffix| {
                let dot = name.len().checked_sub(suffix.len() + 1);
                let (name, suffix) = (name.as_bytes(), suffix.as_bytes());
                dot.is_some_and(|dot| {
                    name[dot] == b'.' && name[dot + 1..].eq_ignore_ascii_case(suffix)
                })
            })
        });
        match format.or(named) {
            Some(format) => Ok(Self {
                format,
                compression,
                view,
                extras: Extras::default(),
            }),
            None => Err(TraceError {
                path: path.to_owned(),
                at: None,
                kind: TraceErrorKind::NoFormatNamed,
            }),
        }
    }
}

/// One record to be written.
struct Record<'a> {
    request: Request,
    /// The number of the block or object, where the format has numbers.
    block: u64,
    /// The volume's number among all, and its name, where the trace has names.
    volume: (usize, Option<&'a str>),
    /// Where the request begins on that volume.
    offset_bytes: u64,
    noted: Noted,
}

impl Record<'_> {
    /// Where the data is, for a table; an error if its reader would take the request for damage.
    fn place(&self, extras: Extras) -> Result<u64, TraceErrorKind> {
        if extras.objects {
            return Ok(self.request.object());
        }
        match self.request.length_bytes {
            bytes if bytes > REQUEST_BYTES_MAX => Err(TraceErrorKind::TooLong { bytes }),
            _ => Ok(self.offset_bytes),
        }
    }
}

/// Where the volume is in a number.
const VOLUME_SHIFT: u32 = 48;

/// A number for each block of each volume, in a format that has nothing else. Blocks of volume 0 keep theirs.
struct Numbers {
    format: Format,
    /// Whether a block of volume 0 has a number that may be another volume's.
    first_is_far: bool,
    /// Whether there are other volumes.
    has_others: bool,
}

impl Numbers {
    fn new(format: Format) -> Self {
        Self {
            format,
            first_is_far: false,
            has_others: false,
        }
    }

    /// The number of a record's block. An error if another block may have the same.
    fn of(&mut self, record: &Record<'_>) -> Result<u64, TraceErrorKind> {
        let volume = record.request.volume.0;
        let is_far = record.block >> VOLUME_SHIFT > 0;
        self.first_is_far |= volume == 0 && is_far;
        self.has_others |= volume > 0;
        if volume > 0 && is_far || self.first_is_far && self.has_others {
            return Err(self.unfit(record));
        }
        Ok(u64::from(volume) << VOLUME_SHIFT | record.block)
    }

    /// Why a record's block has no number.
    fn unfit(&self, record: &Record<'_>) -> TraceErrorKind {
        TraceErrorKind::Unfit {
            block: record.block,
            volume: record.request.volume.0,
            format: self.format.name(),
        }
    }
}

/// Puts records into a format.
trait Encoder: Send {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind>;

    /// Writes what is left and returns where all was written to.
    fn finish(self: Box<Self>) -> Result<Sink, TraceErrorKind>;
}

/// A trace file that is being written.
///
/// Requests are written as they come, in bounded memory. oracleGeneral is the exception, since each
/// of its records contains the position of the next request for its object. Its records, of 24
/// bytes each, wait in a temporary file beside the trace, and [`finish`](Self::finish) processes
/// them backward with at most 72 bytes of memory per distinct object.
///
/// The file gets its name only when it is complete: an abandoned trace leaves nothing behind.
pub struct TraceWriter {
    path: PathBuf,
    view: View,
    extras: Extras,
    encoder: Box<dyn Encoder>,
    records: u64,
}

impl TraceWriter {
    /// Begins a file, in place of one that may be there.
    pub fn create(path: &Path, options: &WriteOptions) -> Result<Self, TraceError> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let sink = Sink::create(path, directory, options.compression).map_err(Into::into);
        Self::start(path, sink, directory, options)
    }

    /// Writes a trace to anywhere; `path` is its name in errors.
    pub fn new(
        path: &Path,
        out: impl Write + Send + 'static,
        options: &WriteOptions,
    ) -> Result<Self, TraceError> {
        let sink = Sink::new(Box::new(out), options.compression).map_err(Into::into);
        Self::start(path, sink, &std::env::temp_dir(), options)
    }

    fn start(
        path: &Path,
        sink: Result<Sink, TraceErrorKind>,
        directory: &Path,
        options: &WriteOptions,
    ) -> Result<Self, TraceError> {
        let encoder = sink.and_then(|sink| encoder(options, sink, directory));
        Ok(Self {
            path: path.to_owned(),
            view: options.view,
            extras: options.extras,
            encoder: encoder.map_err(|kind| TraceError {
                path: path.to_owned(),
                at: None,
                kind,
            })?,
            records: 0,
        })
    }

    /// Writes a request. `volumes` has the names of volumes by number, as
    /// [`TraceReader::volumes`](crate::TraceReader::volumes) returns them; a volume without a name
    /// is written as its number.
    pub fn write(&mut self, request: &Request, volumes: &[String]) -> Result<(), TraceError> {
        self.write_noted(request, Noted::default(), volumes)
    }

    /// As [`write`](Self::write), with what the [extras](Extras) are to have.
    pub fn write_noted(
        &mut self,
        request: &Request,
        noted: Noted,
        volumes: &[String],
    ) -> Result<(), TraceError> {
        let mut record = Record {
            request: *request,
            block: 0,
            volume: (0, None),
            offset_bytes: 0,
            noted,
        };
        for block in self.view.blocks(request) {
            record.block = if self.extras.objects {
                request.object()
            } else {
                block
            };
            if let View::Blocks(bytes) = self.view {
                record.request.offset_bytes = block * bytes;
                record.request.length_bytes = bytes;
            }
            let (number, offset_bytes) = Context::unfolded(&record.request);
            record.volume = (number, volumes.get(number).map(String::as_str));
            record.offset_bytes = offset_bytes;
            self.records += 1;
            self.encoder.write(&record).map_err(|kind| TraceError {
                path: self.path.clone(),
                at: None,
                kind,
            })?;
        }
        Ok(())
    }

    /// How many records were written so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Completes the file; without this call no file remains.
    pub fn finish(self) -> Result<(), TraceError> {
        let path = self.path;
        let finished = self.encoder.finish();
        finished
            .and_then(|sink| sink.finish().map_err(Into::into))
            .map_err(|kind| TraceError {
                path,
                at: None,
                kind,
            })
    }
}

fn encoder(
    options: &WriteOptions,
    sink: Sink,
    directory: &Path,
) -> Result<Box<dyn Encoder>, TraceErrorKind> {
    let (format, extras) = (options.format, options.extras);
    Ok(match format {
        Format::OracleGeneral => Box::new(oracle::Oracle::new(sink, directory)?),
        Format::Csv => Box::new(text::Csv::new(sink, extras)?),
        Format::Ids => Box::new(text::Ids::new(sink)),
        Format::Le32 | Format::Le64 | Format::Be32 | Format::Be64 => {
            Box::new(text::Binary::new(sink, format))
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => Box::new(parquet::Parquet::new(sink, extras)?),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => return Err(TraceErrorKind::NoParquet),
        _ => {
            return Err(TraceErrorKind::Unwritable {
                format: format.name(),
            });
        }
    })
}

#[cfg(test)]
mod tests;
