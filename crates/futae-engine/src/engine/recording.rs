//! A recording of what is asked of a running cache, in the order in which it is decided: the trace that
//! `futae record` writes down.
//!
//! The recording has a room of fixed size, which its reader empties now and then. What does not fit is counted, not
//! kept, so a reader that is slow, or gone, costs the cache nothing but that count.

use super::flights::Span;
use super::front::Engine;
use super::state::State;
use crate::{Operation, Request};
use futae_policy::VolumeId;
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

/// A recording under way.
pub struct Recording {
    begun: Instant,
    /// A block is in the sample if its hash is at most this; none if everything is recorded.
    sample_max: Option<u64>,
    part: RecordedPart,
}

impl Recording {
    fn keep(&mut self, recorded: Recorded) {
        if self.part.requests.len() < ROOM {
            self.part.requests.push(recorded);
        } else {
            self.part.lost += 1;
        }
    }
}

/// A hash of a block by which samples are drawn: the finaliser of SplitMix64.
fn hash(volume: VolumeId, index: u64) -> u64 {
    let mut x = (u64::from(volume.0) << 48 ^ index).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl State {
    /// Records a request that is answered in place, if there is a recording.
    #[inline]
    pub fn record(&mut self, span: &Span, is_write: bool) {
        if self.recording.is_some() {
            self.record_now(span, is_write);
        }
    }

    /// Records a request that begins, if there is a recording and it is one for data that are there.
    #[inline]
    pub fn record_request(&mut self, request: &Request) {
        if self.recording.is_some()
            && let Some((span, is_write)) = self.asked(request)
        {
            self.record_now(&span, is_write);
        }
    }

    /// What of a volume a request reads or writes.
    fn asked(&self, request: &Request) -> Option<(Span, bool)> {
        let volume = self.volumes.get(usize::from(request.volume.0))?;
        let (offset, length, is_write) = match &request.operation {
            Operation::Read { offset, length } | Operation::ReadOn { offset, length } => {
                (*offset, *length, false)
            }
            Operation::Write { offset, data, .. } => (*offset, data.len() as u64, true),
            Operation::Append { data, .. } => (volume.size_bytes, data.len() as u64, true),
            _ => return None,
        };
        let end = offset.checked_add(length)?;
        let is_there = end <= volume.size_bytes;
        let length = match volume.grows {
            // A read ends where the file does; a write makes it longer.
            true if !is_write => length.min(volume.size_bytes.saturating_sub(offset)),
            true => length,
            false if is_there => length,
            false => return None,
        };
        let span = Span {
            volume: request.volume,
            offset,
            length,
        };
        (length > 0).then_some((span, is_write))
    }

    #[cold]
    fn record_now(&mut self, span: &Span, is_write: bool) {
        let now = self.world.now();
        let (first, end) = self.block_range(span);
        let Some(recording) = &mut self.recording else {
            return;
        };
        let recorded = Recorded {
            micros: now.duration_since(recording.begun).as_micros() as u64,
            volume: span.volume,
            offset: span.offset,
            length: span.length,
            is_write,
        };
        let Some(sample_max) = recording.sample_max else {
            return recording.keep(recorded);
        };
        for index in (first..end).filter(|&index| hash(span.volume, index) <= sample_max) {
            recording.keep(Recorded {
                offset: index * self.block_bytes,
                length: self.block_bytes,
                ..recorded
            });
        }
    }
}

impl Engine {
    /// Begins to record what is asked of the cache, in place of what was recorded so far. `sample` is the part of all
    /// blocks whose requests are recorded, above 0; from 1 on all requests are, whole.
    pub fn begin_recording(&self, sample: f64) {
        let sample_max = (sample < 1.0).then_some((sample.max(0.0) * u64::MAX as f64) as u64);
        let part = RecordedPart {
            requests: Vec::with_capacity(ROOM),
            lost: 0,
        };
        let begun = self.world.now();
        let recording = Recording {
            begun,
            sample_max,
            part,
        };
        let old = self.lock().recording.replace(Box::new(recording));
        drop(old);
    }

    /// What was recorded since this was last called; none if there is no recording.
    pub fn take_recorded(&self) -> Option<RecordedPart> {
        // Made before the lock is taken.
        let mut part = RecordedPart {
            requests: Vec::with_capacity(ROOM),
            lost: 0,
        };
        let mut state = self.lock();
        let recording = state.recording.as_mut()?;
        std::mem::swap(&mut recording.part, &mut part);
        Some(part)
    }

    /// Ends the recording; what is left of it is returned.
    pub fn end_recording(&self) -> Option<RecordedPart> {
        let recording = self.lock().recording.take();
        recording.map(|recording| recording.part)
    }
}
