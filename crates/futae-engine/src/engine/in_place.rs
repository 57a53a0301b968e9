//! Reads answered in place, in the front end's own buffer. In a batch, a read whose blocks are all
//! resident needs no buffer, no closure and no separate answer.

use super::effects::Effects;
use super::flights::Span;
use super::frames::Frame;
use super::front::Engine;
use super::state::State;
use crate::Request;
use futae_policy::{AccessKind, BlockId, Slot, VolumeId};
use std::sync::Arc;

/// The largest number of blocks of a read that is answered in place; a longer one becomes a
/// [`Request`].
const BLOCKS_MAX: usize = 64;
/// Number of requests from which on prefetching for a batch pays off.
const TOUCH_BATCH_MIN: usize = 4;
/// How many bytes of a request's data are prefetched, and with which stride: enough that the
/// processor fetches the rest by itself while the start is copied.
const TOUCH_BYTES_MAX: u64 = 4096;
const TOUCH_STEP_BYTES: usize = 512;

/// A range of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// Which volume.
    pub volume: VolumeId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Requests of one front end, which the cache decides in their order.
///
/// The cache calls these methods while it holds its lock: they must not block and must not call the
/// cache.
pub trait Batch {
    /// The range of request `at`, if it is a read that may be answered in place.
    fn read(&self, at: usize) -> Option<ReadRange>;

    /// Receives `bytes`, which belong `from` bytes behind the first byte of read `at`. Calls come
    /// in ascending order without gaps, and only for reads whose blocks are all resident.
    fn fill(&mut self, at: usize, from: usize, bytes: &[u8]);

    /// All data of read `at` was delivered: it is answered.
    fn filled(&mut self, at: usize);

    /// Converts request `at` to one that is answered later. Called once, for each request that is
    /// not answered in place.
    fn request(&mut self, at: usize) -> Request;
}

impl Engine {
    /// Starts `count` requests, decided in their order. A read whose blocks are all resident is
    /// answered by [`Batch::fill`] and [`Batch::filled`] before this returns; every other request
    /// becomes a [`Request`].
    pub fn run_batch<B: Batch>(self: &Arc<Self>, count: usize, batch: &mut B) {
        self.act(|state, effects| {
            if count >= TOUCH_BATCH_MIN {
                state.touch((0..count).filter_map(|at| batch.read(at)));
            }
            for at in 0..count {
                if !state.answer_in_place(at, batch, effects) {
                    state.begin_in_turn(batch.request(at), effects);
                }
            }
        });
    }
}

impl State {
    /// Answers read `at` if all of its blocks are resident. Returns whether it did.
    fn answer_in_place<B: Batch>(
        &mut self,
        at: usize,
        batch: &mut B,
        effects: &mut Effects,
    ) -> bool {
        let Some(read) = batch.read(at) else {
            return false;
        };
        let mut slots = [Slot(0); BLOCKS_MAX];
        let Some((span, first, count)) = self.resident_slots(&read, &mut slots) else {
            return false;
        };
        self.tally.bytes_read += span.length;
        self.record(&span, false);
        let mut given = 0;
        for (&slot, index) in slots[..count].iter().zip(first..) {
            let block = BlockId::new(span.volume, index);
            let from = span.offset + given - index * self.block_bytes;
            let length = (self.block_bytes - from).min(span.length - given);
            let bytes = &self.arena.frame(slot)[from as usize..][..length as usize];
            // Before the policy learns of the hit: it may then reuse the slot.
            batch.fill(at, given as usize, bytes);
            given += length;
            self.offer(block, AccessKind::Read, effects);
        }
        batch.filled(at);
        true
    }

    /// The slots of all blocks of a read, the index of its first block and their number. `None`
    /// unless all are resident, nothing is under way in the range, and the current step has room
    /// for them.
    fn resident_slots(
        &self,
        read: &ReadRange,
        slots: &mut [Slot; BLOCKS_MAX],
    ) -> Option<(Span, u64, usize)> {
        let volume = self.volumes.get(usize::from(read.volume.0))?;
        let end = read.offset.checked_add(read.length)?;
        if volume.grows || self.elsewhere.is_some() || read.length == 0 || end > volume.size_bytes {
            return None;
        }
        let span = Span {
            volume: read.volume,
            offset: read.offset,
            length: read.length,
        };
        let (first, end) = self.block_range(&span);
        let count = usize::try_from(end - first).ok()?;
        let slots = slots.get_mut(..count)?;
        if !self.steps.has_room_for(end - first) || self.under_way.write_over(&span).is_some() {
            return None;
        }
        for (slot, index) in slots.iter_mut().zip(first..) {
            *slot = self.level.find(BlockId::new(read.volume, index))?;
            if !matches!(self.frames.get(*slot), Frame::Ready | Frame::AwaitsWrite) {
                return None;
            }
        }
        Some((span, first, count))
    }

    /// Prefetches into the processor's caches what the reads of a batch will need. The memory
    /// latencies of several requests then overlap, which they do not while each request is decided
    /// and copied in turn. Has no other effect.
    pub fn touch(&self, reads: impl Iterator<Item = ReadRange>) {
        if self.elsewhere.is_some() {
            return;
        }
        let mut seen = 0;
        for read in reads {
            // The range has not been validated yet.
            let index = read.offset / self.block_bytes;
            if index >= BlockId::INDEX_LIMIT {
                continue;
            }
            if let Some(slot) = self.level.find(BlockId::new(read.volume, index)) {
                seen ^= u8::from(self.frames.get(slot) == Frame::Ready);
                let start = (read.offset % self.block_bytes) as usize;
                let length = read.length.min(TOUCH_BYTES_MAX) as usize;
                let frame = &self.arena.frame(slot)[start..];
                let mut at = 0;
                while at < length.min(frame.len()) {
                    seen ^= frame[at];
                    at += TOUCH_STEP_BYTES;
                }
            }
        }
        std::hint::black_box(seen);
    }
}
