//! Writes trace files.

mod destination;
mod labels;
mod oracle;
#[cfg(feature = "parquet")]
mod parquet;
mod record;
mod sink;
mod text;

use crate::format::{Compression, Context, Format, TraceError, TraceErrorKind};
use crate::{Noted, Request, View};
pub use destination::Destination;
pub use record::Extras;
use record::{Encoder, Record};
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
    /// Begins a file, in place of one that may be there. A name that is a link goes on being one. Pipes and terminals are written
    /// directly, and so is what this process has open, as `/dev/stdout` is.
    pub fn create(path: &Path, options: &WriteOptions) -> Result<Self, TraceError> {
        let destination = Destination::of(path).map_err(|error| TraceError {
            path: path.to_owned(),
            at: None,
            kind: error.into(),
        })?;
        let directory = destination.directory();
        let sink = Sink::create(&destination, options.compression).map_err(Into::into);
        Self::start(path, sink, &directory, options)
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
