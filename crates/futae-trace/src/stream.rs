//! Requests in whole blocks, the input of a simulator.

use futae_policy::AccessKind;
use std::fmt;

/// A read or write of one block, in eight bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BlockRequest(u64);

const WRITE: u64 = 1 << 63;

impl BlockRequest {
    /// A read of `block`, which must be below 2^63.
    #[inline]
    #[must_use]
    pub fn read(block: u64) -> Self {
        debug_assert!(block & WRITE == 0);
        Self(block)
    }

    /// A write of `block`, which must be below 2^63.
    #[inline]
    #[must_use]
    pub fn write(block: u64) -> Self {
        debug_assert!(block & WRITE == 0);
        Self(block | WRITE)
    }

    /// A write or a read of `block`, which must be below 2^63.
    #[inline]
    #[must_use]
    pub fn new(block: u64, is_write: bool) -> Self {
        debug_assert!(block & WRITE == 0);
        Self(block | u64::from(is_write) << 63)
    }

    /// The same request for another block.
    #[inline]
    #[must_use]
    pub fn at(self, block: u64) -> Self {
        debug_assert!(block & WRITE == 0);
        Self(self.0 & WRITE | block)
    }

    /// The block's number.
    #[inline]
    #[must_use]
    pub fn block(self) -> u64 {
        self.0 & !WRITE
    }

    /// Whether the block is written.
    #[inline]
    #[must_use]
    pub fn is_write(self) -> bool {
        self.0 & WRITE != 0
    }

    /// [`AccessKind::Read`] or [`AccessKind::Write`].
    #[inline]
    #[must_use]
    pub fn kind(self) -> AccessKind {
        if self.is_write() {
            AccessKind::Write
        } else {
            AccessKind::Read
        }
    }
}

impl fmt::Debug for BlockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_write() { 'W' } else { 'R' };
        write!(f, "{kind}{}", self.block())
    }
}

/// A source of block requests that is read in batches, so that its decisions are made once per
/// batch and not per request.
pub trait BlockStream {
    /// Writes the next requests to the front of `out` and returns how many there were: all of
    /// `out`, or less when the stream has ended.
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize;

    /// Some of the next requests, at least one and at most `limit`, from a stream that has them in
    /// memory and has validated their blocks' numbers. `None` at its end, and whenever
    /// [`fill`](Self::fill) must be called instead.
    fn in_memory(&mut self, _limit: usize) -> Option<InMemory<'_>> {
        None
    }
}

/// Requests as they are in memory.
#[derive(Clone, Copy, Debug)]
pub struct InMemory<'a> {
    /// The numbers of their blocks.
    pub blocks: &'a [u32],
    /// One bit a request, from the lowest: whether it is a write.
    pub writes: &'a [u64],
}

#[cfg(test)]
mod tests {
    use super::{AccessKind, BlockRequest};

    #[test]
    fn a_block_and_its_kind_share_eight_bytes() {
        let highest = (1 << 63) - 1;
        for block in [0, 1, highest] {
            assert_eq!(BlockRequest::read(block).block(), block);
            assert_eq!(BlockRequest::write(block).block(), block);
            assert_eq!(BlockRequest::read(block).kind(), AccessKind::Read);
            assert_eq!(BlockRequest::write(block).kind(), AccessKind::Write);
        }
        assert_eq!(BlockRequest::write(3).at(5), BlockRequest::write(5));
        assert_eq!(
            format!("{:?}", [BlockRequest::read(1), BlockRequest::write(2)]),
            "[R1, W2]"
        );
    }
}
