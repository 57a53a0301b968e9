//! A recording of what is asked of a running cache, in the order in which it is decided: the trace that
//! `futae record` writes down.
//!
//! The recording has a room of fixed size, which its reader empties now and then. What does not fit is counted, not
//! kept, so a reader that is slow, or gone, costs the cache nothing but that count.

use super::flights::Span;
use futae_policy::{VolumeId, mixed};
use std::ops::Range;
use std::time::Instant;

/// Requests that the room has space for: 2 MiB of them.
const ROOM: usize = 1 << 16;

/// One request for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When it was decided: microseconds since the recording began.
    pub micros: u64,
    /// Of which volume.
    pub volume: VolumeId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Whether it is a write.
    pub is_write: bool,
}

/// What was recorded since the recording was last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedPart {
    /// The requests; of a sample, one for each block in it.
    pub requests: Vec<Recorded>,
    /// Requests, or blocks of a sample, for which there was no room.
    pub lost: u64,
}

impl RecordedPart {
    /// Nothing yet, with room for all that is kept.
    pub(super) fn with_room() -> Self {
        Self {
            requests: Vec::with_capacity(ROOM),
            lost: 0,
        }
    }
}

/// A recording under way.
pub struct Recording {
    begun: Instant,
    /// A block is in the sample if its hash is at most this; none if everything is recorded.
    sample_max: Option<u64>,
    part: RecordedPart,
}

impl Recording {
    /// One that begins `now`, of the part `sample` of all blocks.
    pub fn new(sample: f64, now: Instant) -> Self {
        Self {
            begun: now,
            sample_max: (sample < 1.0).then_some((sample.max(0.0) * u64::MAX as f64) as u64),
            part: RecordedPart::with_room(),
        }
    }

    /// Records a request for the range `span` of the blocks `blocks`.
    pub fn add(
        &mut self,
        span: &Span,
        is_write: bool,
        (blocks, block_bytes): (Range<u64>, u64),
        now: Instant,
    ) {
        let recorded = Recorded {
            micros: now.duration_since(self.begun).as_micros() as u64,
            volume: span.volume,
            offset: span.offset,
            length: span.length,
            is_write,
        };
        let Some(sample_max) = self.sample_max else {
            return self.keep(recorded);
        };
        for index in blocks.filter(|&index| hash(span.volume, index) <= sample_max) {
            self.keep(Recorded {
                offset: index * block_bytes,
                length: block_bytes,
                ..recorded
            });
        }
    }

    fn keep(&mut self, recorded: Recorded) {
        if self.part.requests.len() < ROOM {
            self.part.requests.push(recorded);
        } else {
            self.part.lost += 1;
        }
    }

    /// What was recorded since the last time, exchanged for `empty`.
    pub fn exchange(&mut self, empty: RecordedPart) -> RecordedPart {
        std::mem::replace(&mut self.part, empty)
    }

    /// What is left of it.
    pub fn finish(self) -> RecordedPart {
        self.part
    }
}

/// A hash of a block by which samples are drawn.
fn hash(volume: VolumeId, index: u64) -> u64 {
    mixed(u64::from(volume.0) << 48 ^ index)
}
