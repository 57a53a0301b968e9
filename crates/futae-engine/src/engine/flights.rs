//! Work under way: reads from stores, the requests that wait for them, and writes.

use crate::{Done, IoBuf, IoError, Request};
use futae_policy::{BlockId, Slot, VolumeId};

/// Bytes on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which volume.
    pub volume: VolumeId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Span {
    /// The bytes of a block of a volume of `size_bytes`; the last one may be short.
    pub fn of_block(block: BlockId, block_bytes: u64, size_bytes: u64) -> Self {
        let offset = block.index() * block_bytes;
        Self {
            volume: block.volume(),
            offset,
            length: block_bytes.min(size_bytes.saturating_sub(offset)),
        }
    }

    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The bytes in both, if any.
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        let offset = self.offset.max(other.offset);
        let end = self.end().min(other.end());
        (self.volume == other.volume && offset < end).then(|| Self {
            volume: self.volume,
            offset,
            length: end - offset,
        })
    }

    /// Copies the bytes in both from a buffer that holds `self` to one that holds `other`.
    pub fn copy(&self, from: &[u8], other: &Self, to: &mut [u8]) {
        if let Some(both) = self.overlap(other) {
            let source = (both.offset - self.offset) as usize;
            let target = (both.offset - other.offset) as usize;
            let length = both.length as usize;
            to[target..target + length].copy_from_slice(&from[source..source + length]);
        }
    }
}

/// Whether a read is for nobody yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// Somebody waits for it.
    #[default]
    No,
    /// A block that is loaded in the background.
    Whole,
    /// A piece of one.
    Piece,
}

/// One read from a store. While it is under way, other misses on its blocks wait for it.
#[derive(Default)]
pub struct Flight {
    /// What is read; grows while the flight is put together.
    pub span: Option<Span>,
    /// Whether whole blocks are read, so that others may wait for it and slots may be filled.
    pub whole: bool,
    /// Requests that want some of it, by key in the table of waiting reads.
    pub readers: Vec<usize>,
    /// Slots to fill.
    pub targets: Vec<(BlockId, Slot)>,
    /// Blocks that were evicted before they arrived and of which the level below is to hear.
    pub evicted: Vec<BlockId>,
    /// The generation of the store when it was sent there.
    pub generation: u64,
    /// Whether it is read for nobody yet.
    pub background: Background,
    /// Blocks that were handed down, to be held against what it brings.
    pub compared: Vec<(BlockId, IoBuf)>,
    /// Whether it is read because of notices.
    pub is_notice: bool,
    /// Writes that wait until it is over.
    pub parked: Vec<Request>,
}

impl Flight {
    /// A slot that it was to fill has another use. Each stands among its targets once.
    pub fn forget(&mut self, slot: Slot) {
        if let Some(at) = self.targets.iter().position(|target| target.1 == slot) {
            self.targets.swap_remove(at);
        }
    }
}

/// A read request that waits for flights.
pub struct WaitingRead {
    /// What was asked for.
    pub span: Span,
    /// Where it is put together, if it is not what one flight brings.
    pub buffer: Option<IoBuf>,
    /// Flights still under way.
    pub flights: u32,
    /// The first failure.
    pub error: Option<IoError>,
    /// Who gets it.
    pub done: Done,
}

/// What a write leaves in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data.
    Data,
    /// Zeroes.
    Zeroes,
    /// Anything: it was trimmed, or changed past the cache.
    Anything,
}

/// A write, trim or zeroing under way. Requests that overlap its blocks wait.
pub struct Write {
    /// The bytes written.
    pub span: Span,
    /// The same, widened to whole blocks.
    pub blocks: Span,
    /// What is written.
    pub content: Content,
    /// The size of its volume before, if the write made it grow.
    pub grown_from: Option<u64>,
    /// Whether it has begun; a change waits for what is dirty in its range.
    pub has_begun: bool,
    /// Who gets the answer.
    pub done: Done,
    /// Requests that wait until it is over.
    pub parked: Vec<Request>,
}

/// A write-back under way.
pub struct Run {
    pub volume: VolumeId,
    pub first: u64,
    pub end: u64,
    pub span: Span,
    /// Writes that wait until it is over.
    pub parked: Vec<Request>,
}

/// A flush under way.
pub struct Flush {
    pub volume: VolumeId,
    pub done: Done,
    /// The newest write that it covers.
    pub stamp: u64,
    /// Dirty blocks that it waits for.
    pub left: u64,
    /// The first failure that it has to tell of.
    pub error: Option<IoError>,
    /// Whether the store is to make it stable.
    pub is_stable: bool,
}
