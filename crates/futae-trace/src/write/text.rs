//! CSV and plain numbers.

use super::labels::Labels;
use super::record::{Encoder, Extras, Numbers, Record};
use super::sink::Sink;
use crate::format::{Format, TraceErrorKind};
use crate::{Request, RequestKind};
use futae_policy::VolumeId;
use std::fmt::Write as _;
use std::io::Write;

/// The lines of a CSV trace. [`TraceWriter`](super::TraceWriter) writes whole files of them; one who adds to a file
/// piece by piece writes them alone.
#[derive(Default)]
pub struct CsvLines {
    labels: Labels,
    line: String,
}

impl CsvLines {
    /// Lines with these names of volumes. The same names in the same order stand the same way in every piece.
    pub fn of<'a>(volumes: impl Iterator<Item = (VolumeId, &'a str)>) -> Self {
        let mut lines = Self::default();
        for (volume, name) in volumes {
            lines.labels.of(usize::from(volume.0), Some(name));
        }
        lines
    }

    /// The first line of a file.
    #[must_use]
    pub fn header() -> String {
        header(Extras::default())
    }

    /// The line of a request, whose volume has this name where it is first seen, or else its number.
    pub fn line(&mut self, request: &Request, name: Option<&str>) -> &str {
        self.begin(
            request,
            (usize::from(request.volume.0), name),
            request.offset_bytes,
        );
        self.end()
    }

    /// The first five fields.
    fn begin(&mut self, request: &Request, (number, name): (usize, Option<&str>), place: u64) {
        let time = request
            .time_us
            .map_or_else(String::new, |time| time.to_string());
        let volume = self.labels.of(number, name);
        let kind = kind(request.kind);
        let length = request.length_bytes;
        self.line.clear();
        // A string takes all that is written to it.
        let _ = write!(self.line, "{time},{volume},{kind},{place},{length}");
    }

    /// Another field, 0 for what is not known.
    fn add(&mut self, number: Option<u32>) {
        let _ = write!(self.line, ",{}", number.unwrap_or(0));
    }

    fn end(&mut self) -> &str {
        self.line.push('\n');
        &self.line
    }
}

fn header(extras: Extras) -> String {
    extras.columns().collect::<Vec<_>>().join(",") + "\n"
}

/// One line a request, after a line with the names of the columns.
pub struct Csv {
    sink: Sink,
    extras: Extras,
    lines: CsvLines,
}

impl Csv {
    pub fn new(mut sink: Sink, extras: Extras) -> Result<Self, TraceErrorKind> {
        sink.write_all(header(extras).as_bytes())?;
        Ok(Self {
            sink,
            extras,
            lines: CsvLines::default(),
        })
    }
}

impl Encoder for Csv {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind> {
        let place = record.place(self.extras)?;
        self.lines.begin(&record.request, record.volume, place);
        if self.extras.lives {
            self.lines.add(record.noted.life_seconds);
        }
        if self.extras.latencies {
            self.lines.add(record.noted.latency_us);
        }
        self.sink.write_all(self.lines.end().as_bytes())?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Sink, TraceErrorKind> {
        Ok(self.sink)
    }
}

/// A read or a write in a letter.
pub fn kind(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "R",
        RequestKind::Write => "W",
    }
}

/// One decimal number a line.
pub struct Ids {
    sink: Sink,
    numbers: Numbers,
}

impl Ids {
    pub fn new(sink: Sink) -> Self {
        Self {
            sink,
            numbers: Numbers::new(Format::Ids),
        }
    }
}

impl Encoder for Ids {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind> {
        writeln!(self.sink, "{}", self.numbers.of(record)?)?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Sink, TraceErrorKind> {
        Ok(self.sink)
    }
}

/// One number of 32 or 64 bits a request.
pub struct Binary {
    sink: Sink,
    format: Format,
    numbers: Numbers,
}

impl Binary {
    pub fn new(sink: Sink, format: Format) -> Self {
        Self {
            sink,
            format,
            numbers: Numbers::new(format),
        }
    }
}

impl Encoder for Binary {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind> {
        let id = self.numbers.of(record)?;
        let short = u32::try_from(id).map_err(|_| self.numbers.unfit(record));
        match self.format {
            Format::Le32 => self.sink.write_all(&short?.to_le_bytes())?,
            Format::Be32 => self.sink.write_all(&short?.to_be_bytes())?,
            Format::Be64 => self.sink.write_all(&id.to_be_bytes())?,
            _ => self.sink.write_all(&id.to_le_bytes())?,
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Sink, TraceErrorKind> {
        Ok(self.sink)
    }
}
