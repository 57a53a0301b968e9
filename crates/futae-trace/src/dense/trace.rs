//! The accesses of a trace in memory.

use super::places::Places;
use crate::numbering::BATCH;
use crate::{BlockRequest, BlockStream, Digest, InMemory};

/// The accesses that are numbered at a time have their write marks in one word.
const _: () = assert!(BATCH == u64::BITS as usize);

/// A whole trace, its distinct blocks numbered from 0: in the order of their first access, or of their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenseTrace {
    pub(super) ids: Vec<u32>,
    /// One bit an access.
    pub(super) writes: Vec<u64>,
    pub(super) distinct: u32,
    pub(super) numbers: u32,
    /// The number at which each volume begins, if blocks are numbered by their places.
    pub(super) volumes: Vec<u32>,
    /// Where the blocks lie, if that was kept.
    pub(super) places: Places,
    pub(super) requests: u64,
    pub(super) digest: Digest,
}

impl DenseTrace {
    /// The blocks of the accesses, in order.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Whether access `index` is a write.
    #[inline]
    #[must_use]
    pub fn is_write(&self, index: usize) -> bool {
        self.writes
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// The number of distinct blocks.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        self.distinct
    }

    /// How many numbers there are for blocks: every id is below it. As many as distinct blocks, unless blocks are numbered by
    /// their places.
    #[must_use]
    pub fn numbers(&self) -> u32 {
        self.numbers
    }

    /// The number at which each volume begins, in order, if blocks are numbered by their places.
    #[must_use]
    pub fn volumes(&self) -> &[u32] {
        &self.volumes
    }

    /// The number of requests; each is one access or more.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The digest of its accesses.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The accesses as a stream, from the first.
    #[must_use]
    pub fn stream(&self) -> DenseStream<'_> {
        DenseStream {
            trace: self,
            next: 0,
        }
    }
}

/// The accesses of a [`DenseTrace`].
#[derive(Clone, Debug)]
pub struct DenseStream<'a> {
    trace: &'a DenseTrace,
    next: usize,
}

impl BlockStream for DenseStream<'_> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        self.trace.fill(&mut self.next, out)
    }

    fn in_memory(&mut self, limit: usize) -> Option<InMemory<'_>> {
        self.trace.in_memory(&mut self.next, limit)
    }
}

impl DenseTrace {
    /// Copies the accesses from `next` on.
    pub(super) fn fill(&self, next: &mut usize, out: &mut [BlockRequest]) -> usize {
        let count = (self.ids.len() - *next).min(out.len());
        let mut left = &mut out[..count];
        // Word by word of the write marks, many of which are 0.
        while !left.is_empty() {
            let (word, bit) = (self.writes[*next / BATCH], *next % BATCH);
            let (now, later) = left.split_at_mut((BATCH - bit).min(left.len()));
            let ids = &self.ids[*next..*next + now.len()];
            for (request, (&id, bit)) in now.iter_mut().zip(ids.iter().zip(bit..)) {
                *request = access(id, word, bit);
            }
            *next += now.len();
            left = later;
        }
        count
    }

    /// Up to `limit` accesses from `next` on, if their write marks begin at a word.
    pub(super) fn in_memory(&self, next: &mut usize, limit: usize) -> Option<InMemory<'_>> {
        let begin = *next;
        if begin >= self.ids.len() || !begin.is_multiple_of(BATCH) {
            return None;
        }
        *next = self.ids.len().min(begin + limit);
        Some(InMemory {
            blocks: &self.ids[begin..*next],
            writes: &self.writes[begin / BATCH..next.div_ceil(BATCH)],
        })
    }
}

/// The access to a block whose write mark is the bit `at` of `marks`.
#[inline]
pub(super) fn access(id: u32, marks: u64, at: usize) -> BlockRequest {
    BlockRequest::new(u64::from(id), marks >> at & 1 == 1)
}
