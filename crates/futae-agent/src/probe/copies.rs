//! The ring of copied pages, and its records.

use crate::extents::Pages;
use crate::ring::{Record, Ring};
use crate::system::SharedMemory;
use futae_agent_protocol::PAGE_BYTES;

/// What the programs copy evicted pages into.
pub struct Copies {
    /// The ring; nobody else reads it.
    pub ring: Ring,
    /// Memory of the kernel's in which it can be written down where pages are in the ring.
    pub table: Option<SharedMemory>,
}

/// Bytes of `struct notice`, which stands before the data of a page.
const NOTICE_BYTES: usize = 32;

impl Copies {
    /// Which page a record holds; none if it is none.
    #[must_use]
    pub fn notice(&self, record: &Record) -> Option<Pages> {
        let mut bytes = [0; NOTICE_BYTES];
        let whole = NOTICE_BYTES as u64 + PAGE_BYTES;
        let is_read = record.length == whole && self.ring.read(record.begin, &mut bytes);
        is_read.then(|| notice(&bytes))
    }

    /// Where the data of a record's page begins in the ring.
    #[must_use]
    pub fn data_at(&self, record: &Record) -> u64 {
        record.begin + NOTICE_BYTES as u64
    }
}

/// Reads `struct notice`.
pub(super) fn notice(bytes: &[u8; NOTICE_BYTES]) -> Pages {
    let four = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
    let eight = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
    let (short, long) = (
        |at: usize| u32::from_ne_bytes(four(at)),
        |at: usize| u64::from_ne_bytes(eight(at)),
    );
    Pages {
        device: short(0),
        generation: short(4),
        inode: long(8),
        index: long(16),
        pages: short(24),
        is_device: short(28) != 0,
    }
}
