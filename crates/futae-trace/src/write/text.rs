//! CSV and plain numbers.

use super::labels::Labels;
use super::{Encoder, Record, Sink};
use crate::RequestKind;
use crate::format::{Format, TraceErrorKind};
use std::io::Write;

/// The columns of a CSV, by which it is read back: microseconds, empty where there are none; the
/// volume's name; `R` or `W`; bytes; bytes.
pub const COLUMNS: [&str; 5] = ["time_us", "volume", "kind", "offset", "length"];

/// One line a request, after a line with the names of the columns.
pub struct Csv {
    sink: Sink,
    labels: Labels,
}

impl Csv {
    pub fn new(mut sink: Sink) -> Result<Self, TraceErrorKind> {
        writeln!(sink, "{}", COLUMNS.join(","))?;
        Ok(Self {
            sink,
            labels: Labels::default(),
        })
    }
}

impl Encoder for Csv {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind> {
        let request = &record.request;
        if let Some(time_us) = request.time_us {
            write!(self.sink, "{time_us}")?;
        }
        let volume = self.labels.of(request.volume, record.volume);
        let kind = kind(request.kind);
        let (offset, length) = (request.offset_bytes, request.length_bytes);
        writeln!(self.sink, ",{volume},{kind},{offset},{length}")?;
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
pub struct Ids(Sink);

impl Ids {
    pub fn new(sink: Sink) -> Self {
        Self(sink)
    }
}

impl Encoder for Ids {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind> {
        writeln!(self.0, "{}", record.id(Format::Ids)?)?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Sink, TraceErrorKind> {
        Ok(self.0)
    }
}

/// One number of 32 or 64 bits a request.
pub struct Binary {
    sink: Sink,
    format: Format,
}

impl Binary {
    pub fn new(sink: Sink, format: Format) -> Self {
        Self { sink, format }
    }
}

impl Encoder for Binary {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind> {
        let id = record.id(self.format)?;
        let short = u32::try_from(id).map_err(|_| record.unfit(self.format));
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
