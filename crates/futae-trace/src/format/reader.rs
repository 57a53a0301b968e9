//! Reads any trace file as a stream of requests.

use super::compression::{Compression, Source};
use super::context::Context;
use super::data::Data;
use super::decoder::{Decoder, RecordDecoder};
use super::line::{self, Comments};
use super::meter::Meter;
use super::opened::Opened;
use super::rows::Rows;
use super::{Doubt, Format, TraceError, TraceErrorKind, TraceOptions};
use crate::{Noted, Request};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 64 << 10;
/// The longest line that is read.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A stream of requests or errors. It ends after an error.
pub trait RequestReader: Iterator<Item = Result<Request, TraceError>> {
    /// The name of the trace in errors.
    fn path(&self) -> &Path;

    /// Appends the next requests to `batch` until it holds `limit` of them; fewer only if the trace ends. Before an error
    /// the requests that precede it are appended. Reading in batches is faster than one by one.
    fn read_batch(&mut self, batch: &mut Vec<Request>, limit: usize) -> Result<(), TraceError> {
        while batch.len() < limit {
            match self.next() {
                Some(request) => batch.push(request?),
                None => break,
            }
        }
        Ok(())
    }

    /// If the next requests are all reads of volume 0 of the same length, and the format supports it: appends the start sectors
    /// (512 bytes) of up to `limit` of them to `starts`, and returns their length in bytes. For traces of plain block numbers
    /// this is faster than [`read_batch`](Self::read_batch), which reads all that this does not.
    fn read_starts(&mut self, _starts: &mut Vec<u64>, _limit: usize) -> Option<u64> {
        None
    }
}

impl RequestReader for TraceReader {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_batch(&mut self, batch: &mut Vec<Request>, limit: usize) -> Result<(), TraceError> {
        while batch.len() < limit {
            if self.read_run(batch, limit) {
                continue;
            }
            match self.next() {
                Some(request) => batch.push(request?),
                None => break,
            }
        }
        Ok(())
    }

    fn read_starts(&mut self, starts: &mut Vec<u64>, limit: usize) -> Option<u64> {
        let before = starts.len();
        let length = self.run(limit, |decoder, records, context| {
            let length = decoder.decode_starts(records, context, starts)?;
            Some((starts.len() - before, length))
        });
        self.found |= starts.len() > before;
        length
    }
}

/// An open trace file.
pub struct TraceReader {
    path: PathBuf,
    format: Format,
    compression: Compression,
    input: BufReader<Source>,
    meter: Meter,
    file_bytes: Option<u64>,
    decoder: Decoder,
    context: Context,
    skip_bad: bool,
    /// Records read so far; in text, lines.
    record: u64,
    /// Where the next record begins, after decompression.
    byte: u64,
    skipped: u64,
    ended: bool,
    /// Whether a request has been found.
    found: bool,
    names_blocks: bool,
    has_sizes: bool,
    /// Whether a line may hold more than one request.
    repeats: bool,
    /// Which of the lines that follow are comments.
    comments: Comments,
    doubts: Vec<Doubt>,
    buffer: Vec<u8>,
}

impl TraceReader {
    /// Opens a trace, compressed or not: a file, or an object behind a URL.
    pub fn open(path: &Path, options: &TraceOptions) -> Result<Self, TraceError> {
        let data = Opened::of(path).and_then(|opened| Data::of(path, opened, options));
        Self::of_data(path, data, options)
    }

    /// Reads a trace from any source; `path` is its name in errors and helps to detect its format.
    pub fn new(
        path: &Path,
        raw: impl Read + Send + 'static,
        options: &TraceOptions,
    ) -> Result<Self, TraceError> {
        let data = Data::of(path, Opened::of_source(Box::new(raw)), options);
        Self::of_data(path, data, options)
    }

    /// Reads a trace from a table, whose columns are named as those of a CSV may be; `path` is its name in errors.
    pub fn of_rows(
        path: &Path,
        rows: impl Rows + 'static,
        options: &TraceOptions,
    ) -> Result<Self, TraceError> {
        Self::of_data(path, Data::of_rows(rows, options), options)
    }

    fn of_data(
        path: &Path,
        data: Result<Data, TraceErrorKind>,
        options: &TraceOptions,
    ) -> Result<Self, TraceError> {
        let path = path.to_owned();
        let data = match data {
            Ok(data) => data,
            Err(kind) => {
                let at = None;
                return Err(TraceError { path, at, kind });
            }
        };
        let keys = data.decoder.keys();
        let mut context = Context::new(options.guest, options.unit_bytes);
        if options.lives {
            context.keep_lives();
        }
        if options.latencies {
            context.keep_latencies();
        }
        Ok(Self {
            path,
            format: data.format,
            compression: data.compression,
            input: BufReader::with_capacity(BUFFER_BYTES, data.rest),
            meter: data.meter,
            file_bytes: data.file_bytes,
            context,
            skip_bad: options.skip_bad,
            record: 0,
            byte: data.skipped_bytes,
            skipped: 0,
            ended: false,
            found: false,
            names_blocks: data.names_blocks || keys.is_some(),
            has_sizes: keys.is_some_and(|keys| keys.has_sizes),
            repeats: matches!(&data.decoder, Decoder::Lines(decoder) if decoder.repeats()),
            comments: match &data.decoder {
                Decoder::Lines(decoder) => decoder.comments(),
                Decoder::Records(_) | Decoder::Table(_) => Comments::Nowhere,
            },
            doubts: data.doubts,
            decoder: data.decoder,
            buffer: Vec::new(),
        })
    }

    /// The format of the data.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether each record names one block by its number, so that the start of a request suffices.
    #[must_use]
    pub fn names_blocks(&self) -> bool {
        self.names_blocks
    }

    /// Whether each record names an object that has a size of its own: then lengths of requests are sizes of objects.
    #[must_use]
    pub fn has_sizes(&self) -> bool {
        self.has_sizes
    }

    /// The lifetimes of the objects of the requests so far, in seconds, 0 for a request without one. Empty if the trace has none,
    /// or if they are [not kept](TraceOptions::lives). Taking them clears them.
    #[must_use]
    pub fn take_lives(&mut self) -> Vec<u32> {
        self.context.take_lives()
    }

    /// How long each request so far took when it was recorded, in microseconds, 0 for a request of which this is not known.
    /// Empty if the trace has no latencies, or if they are [not kept](TraceOptions::latencies). Taking them clears them.
    #[must_use]
    pub fn take_latencies(&mut self) -> Vec<u32> {
        self.context.take_latencies()
    }

    /// What the trace says of the last request besides, and of nothing that was taken before. For those who read one request at a time
    /// and take this after each.
    #[must_use]
    pub fn take_noted(&mut self) -> Noted {
        self.context.take_noted()
    }

    /// Doubts about the interpretation of the trace. Some are known only at the end.
    #[must_use]
    pub fn doubts(&self) -> Vec<Doubt> {
        let sizes = match &self.decoder {
            Decoder::Records(decoder) => decoder.ignores_sizes(),
            _ => false,
        };
        let sizes = sizes.then_some(Doubt::SizesIgnored);
        let folded = match self.context.folded_volumes() {
            0 => None,
            _ => Some(Doubt::VolumesFolded),
        };
        let more = sizes.into_iter().chain(folded);
        self.doubts.iter().cloned().chain(more).collect()
    }

    /// How the file is compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// How many bad records were left out so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes of the file read so far, before decompression, as a measure of progress.
    #[must_use]
    pub fn file_bytes_read(&self) -> u64 {
        self.meter.bytes()
    }

    /// Bytes of the file, before decompression, if they are known.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        self.file_bytes
    }

    /// The trace's names of its volumes, by number; empty if the format has a single volume.
    #[must_use]
    pub fn volumes(&self) -> &[String] {
        self.context.volumes()
    }

    /// The request of the next record, if it has one. At the end of the data nothing is read.
    fn step(&mut self) -> Result<Option<Request>, TraceErrorKind> {
        match &mut self.decoder {
            Decoder::Lines(decoder) => {
                self.byte += read_line(&mut self.input, &mut self.buffer)?;
                if self.buffer.len() > LINE_BYTES_MAX {
                    return Err(TraceErrorKind::LineTooLong {
                        limit: LINE_BYTES_MAX,
                    });
                }
                let line = str::from_utf8(&self.buffer).map_err(|_| TraceErrorKind::Field {
                    text: String::from_utf8_lossy(&self.buffer)
                        .chars()
                        .take(40)
                        .collect(),
                    expected: "text",
                })?;
                let line = line::without_end(line);
                let has_comments = self.comments != Comments::Nowhere;
                if line::is_blank(line) || has_comments && line::is_comment(line) {
                    return Ok(None);
                }
                if self.comments == Comments::AtTop {
                    self.comments = Comments::Nowhere;
                }
                decoder.decode(line, &mut self.context)
            }
            Decoder::Records(decoder) => {
                let wanted = decoder.record_bytes();
                let found = fill(&mut self.input, &mut self.buffer, wanted)?;
                self.byte += found as u64;
                if found < wanted {
                    return Err(TraceErrorKind::Truncated { found, wanted });
                }
                let tail = decoder.tail_bytes(&self.buffer) as u64;
                let skipped = io::copy(&mut self.input.by_ref().take(tail), &mut io::sink())?;
                self.byte += skipped;
                if skipped < tail {
                    let (found, wanted) = (wanted + skipped as usize, wanted + tail as usize);
                    return Err(TraceErrorKind::Truncated { found, wanted });
                }
                decoder.decode(&self.buffer, &mut self.context)
            }
            Decoder::Table(decoder) => decoder.decode(&mut self.context),
        }
    }

    /// Appends the requests of whole records that are in memory; false if there are none, or if the next record is bad.
    fn read_run(&mut self, batch: &mut Vec<Request>, limit: usize) -> bool {
        let before = batch.len();
        let good = self.run(limit - before, |decoder, records, context| {
            let good = decoder.decode_run(records, context, batch);
            (good > 0).then_some((good, ()))
        });
        self.found |= batch.len() > before;
        good.is_some()
    }

    /// Passes whole records in memory, at most `limit`, to `decode`, which returns how many of them it used, if any.
    #[inline]
    fn run<T>(
        &mut self,
        limit: usize,
        decode: impl FnOnce(&mut dyn RecordDecoder, &[u8], &mut Context) -> Option<(usize, T)>,
    ) -> Option<T> {
        let Decoder::Records(decoder) = &mut self.decoder else {
            return None;
        };
        let bytes = decoder.record_bytes();
        let data = self.input.buffer();
        let records = (data.len() / bytes).min(limit);
        if self.ended || decoder.has_tails() || records == 0 {
            return None;
        }
        let (good, value) = decode(
            decoder.as_mut(),
            &data[..records * bytes],
            &mut self.context,
        )?;
        self.input.consume(good * bytes);
        self.record += good as u64;
        self.byte += (good * bytes) as u64;
        Some(value)
    }

    /// The next request of the line that was read last, if it has more than one.
    fn further(&mut self) -> Result<Option<Request>, TraceErrorKind> {
        match &mut self.decoder {
            Decoder::Lines(decoder) if self.repeats => decoder.further(&mut self.context),
            _ => Ok(None),
        }
    }

    fn at_end(&mut self) -> Result<bool, TraceErrorKind> {
        if let Decoder::Table(decoder) = &mut self.decoder {
            let ended = decoder.at_end();
            self.byte = decoder.byte();
            return ended;
        }
        Ok(self.input.fill_buf()?.is_empty())
    }
}

/// Reads a line, of which at most one byte more than the limit is kept, and returns its length.
fn read_line(input: &mut BufReader<Source>, line: &mut Vec<u8>) -> io::Result<u64> {
    line.clear();
    let limit = LINE_BYTES_MAX as u64 + 1;
    let mut bytes = input.by_ref().take(limit).read_until(b'\n', line)? as u64;
    if bytes == limit && line.last() != Some(&b'\n') {
        bytes += input.skip_until(b'\n')? as u64;
    }
    Ok(bytes)
}

/// Reads `wanted` bytes, or as many as there are.
fn fill(input: &mut BufReader<Source>, buffer: &mut Vec<u8>, wanted: usize) -> io::Result<usize> {
    buffer.resize(wanted, 0);
    let mut found = 0;
    while found < wanted {
        match input.read(&mut buffer[found..]) {
            Ok(0) => break,
            Ok(bytes) => found += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

impl Iterator for TraceReader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let outcome = match self.further() {
                Ok(Some(request)) => return Some(Ok(request)),
                Ok(None) => self.at_end(),
                Err(kind) => Err(kind),
            };
            let byte = self.byte;
            let outcome = match outcome {
                Ok(true) => break,
                Ok(false) => {
                    self.record += 1;
                    self.step()
                }
                Err(kind) => Err(kind),
            };
            match outcome {
                Ok(Some(request)) => {
                    self.found = true;
                    return Some(Ok(request));
                }
                Ok(None) => {}
                Err(kind) if self.skip_bad && kind.is_of_record() => self.skipped += 1,
                Err(kind) => {
                    self.ended = true;
                    let (path, at) = (self.path.clone(), Some((self.record, byte)));
                    return Some(Err(TraceError { path, at, kind }));
                }
            }
        }
        if !std::mem::replace(&mut self.ended, true) && !self.found {
            let (format, records, skipped) = (self.format.name(), self.record, self.skipped);
            let kind = TraceErrorKind::NoRequests {
                format,
                records,
                skipped,
            };
            let (path, at) = (self.path.clone(), None);
            return Some(Err(TraceError { path, at, kind }));
        }
        None
    }
}
