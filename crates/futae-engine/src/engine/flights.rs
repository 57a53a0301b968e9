//! Work under way: reads from stores, the requests that wait for them, and writes.

use crate::{ClientId, Done, IoBuf, IoError, Request};
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

    /// Every byte that a volume can have.
    pub const fn all_of(volume: VolumeId) -> Self {
        Self {
            volume,
            offset: 0,
            length: u64::MAX,
        }
    }

    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The intersection, if any.
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        let offset = self.offset.max(other.offset);
        let end = self.end().min(other.end());
        (self.volume == other.volume && offset < end).then(|| Self {
            volume: self.volume,
            offset,
            length: end - offset,
        })
    }

    /// Copies the intersection from a buffer that holds `self` to one that holds `other`.
    pub fn copy(&self, from: &[u8], other: &Self, to: &mut [u8]) {
        if let Some(both) = self.overlap(other) {
            let source = (both.offset - self.offset) as usize;
            let target = (both.offset - other.offset) as usize;
            let length = both.length as usize;
            to[target..target + length].copy_from_slice(&from[source..source + length]);
        }
    }
}

/// Whether a read happens in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// No: a request waits for it.
    #[default]
    No,
    /// A whole block, loaded in the background.
    Whole,
    /// A piece of a block, loaded in the background.
    Piece,
}

/// One read from a store. Other misses on its blocks wait for it instead of starting a second read.
#[derive(Default)]
pub struct Flight {
    /// The range to read; it grows while the flight is assembled.
    pub span: Option<Span>,
    /// Whether whole blocks are read, so that other requests may wait for it and frames may be
    /// filled.
    pub whole: bool,
    /// Keys of the requests that need some of it, in the table of waiting reads.
    pub readers: Vec<usize>,
    /// Frames to fill.
    pub targets: Vec<(BlockId, Slot)>,
    /// Blocks that were evicted before they arrived and that the lower level is to learn of.
    pub evicted: Vec<BlockId>,
    /// The generation of the store when the read was sent.
    pub generation: u64,
    /// Whether it is a background load.
    pub background: Background,
    /// Demoted blocks, to be compared with the data that the store returns.
    pub compared: Vec<(BlockId, IoBuf)>,
    /// Whether a notice caused the read.
    pub is_notice: bool,
    /// Writes that wait until it has ended.
    pub parked: Vec<Request>,
}

impl Flight {
    /// A target slot has been reused. A slot occurs among the targets at most once.
    pub fn forget(&mut self, slot: Slot) {
        if let Some(at) = self.targets.iter().position(|target| target.1 == slot) {
            self.targets.swap_remove(at);
        }
    }
}

/// A read request that waits for flights.
pub struct WaitingRead {
    /// The requested range.
    pub span: Span,
    /// Where the answer is assembled, unless it is exactly what one flight returns.
    pub buffer: Option<IoBuf>,
    /// The number of flights that it still waits for.
    pub flights: u32,
    /// The first failure.
    pub error: Option<IoError>,
    /// Receives the answer.
    pub done: Done,
}

/// What a write leaves in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data.
    Data,
    /// Zeroes.
    Zeroes,
    /// Unspecified: the range was trimmed, or a change bypassed the cache.
    Anything,
}

/// A write, trim or zeroing under way. Requests that overlap its blocks wait.
pub struct Write {
    /// The range that is written.
    pub span: Span,
    /// The range, widened to whole blocks.
    pub blocks: Span,
    /// The kind of content.
    pub content: Content,
    /// Whether it has begun; a change first waits for dirty blocks in its range.
    pub has_begun: bool,
    /// Receives the answer.
    pub done: Done,
    /// Requests that wait until it has ended.
    pub parked: Vec<Request>,
}

/// A write-back under way.
pub struct Run {
    pub volume: VolumeId,
    pub first: u64,
    pub end: u64,
    pub span: Span,
    /// Writes that wait until it has ended.
    pub parked: Vec<Request>,
}

/// A flush under way.
pub struct Flush {
    pub volume: VolumeId,
    pub done: Done,
    /// The newest write that it covers.
    pub stamp: u64,
    /// Number of dirty blocks that it waits for.
    pub left: u64,
    /// The first failure that it has to report.
    pub error: Option<IoError>,
    /// When it began, in the time of [`Losses::now`](super::losses::Losses::now).
    pub begun: u64,
    pub kind: FlushKind,
}

/// What a flush is to do, and who asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushKind {
    /// The store has all dirty blocks; they need not be stable.
    Settle,
    /// They are stable; this client asks, and learns of failures.
    OfClient(ClientId),
    /// They are stable; the server asks. Each connected client learns of a failure by its next flush.
    Own,
}
