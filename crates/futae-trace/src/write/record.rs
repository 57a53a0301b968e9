//! Records, and what puts them into a format.

use super::sink::Sink;
use crate::format::{Format, REQUEST_BYTES_MAX, TraceErrorKind};
use crate::{Noted, Request};

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
    pub(super) fn columns(self) -> impl Iterator<Item = &'static str> {
        let place = if self.objects { "key" } else { "offset" };
        let lives = self.lives.then_some("ttl");
        let latencies = self.latencies.then_some("latency_us");
        let all = ["time_us", "volume", "kind", place, "length"];
        all.into_iter().chain(lives).chain(latencies)
    }
}

/// One record to be written.
pub(super) struct Record<'a> {
    pub(super) request: Request,
    /// The number of the block or object, where the format has numbers.
    pub(super) block: u64,
    /// The volume's number among all, and its name, where the trace has names.
    pub(super) volume: (usize, Option<&'a str>),
    /// Where the request begins on that volume.
    pub(super) offset_bytes: u64,
    pub(super) noted: Noted,
}

impl Record<'_> {
    /// Where the data is, for a table; an error if its reader would take the request for damage.
    pub(super) fn place(&self, extras: Extras) -> Result<u64, TraceErrorKind> {
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
pub(super) struct Numbers {
    format: Format,
    /// Whether a block of volume 0 has a number that may be another volume's.
    first_is_far: bool,
    /// Whether there are other volumes.
    has_others: bool,
}

impl Numbers {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            first_is_far: false,
            has_others: false,
        }
    }

    /// The number of a record's block. An error if another block may have the same.
    pub(super) fn of(&mut self, record: &Record<'_>) -> Result<u64, TraceErrorKind> {
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
    pub(super) fn unfit(&self, record: &Record<'_>) -> TraceErrorKind {
        TraceErrorKind::Unfit {
            block: record.block,
            volume: record.request.volume.0,
            format: self.format.name(),
        }
    }
}

/// Puts records into a format.
pub(super) trait Encoder: Send {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind>;

    /// Writes what is left and returns where all was written to.
    fn finish(self: Box<Self>) -> Result<Sink, TraceErrorKind>;
}
