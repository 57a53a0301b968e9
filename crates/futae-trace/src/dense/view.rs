//! How requests become blocks.

use crate::Request;
use std::ops::RangeInclusive;

/// The unit of [`View::Start`].
pub(crate) const SECTOR_BYTES: u64 = 512;

/// How requests become blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// One block per request, named by its volume and the sector (512 bytes) where it starts; the
    /// length is ignored. Cache simulators call this "ignore object size".
    Start,
    /// The blocks of this many bytes that the request touches, wholly or partly, in order.
    Blocks(u64),
}

impl View {
    /// The numbers, on the request's volume, of the blocks that it touches. A request without a
    /// length touches one.
    #[must_use]
    pub fn blocks(self, request: &Request) -> RangeInclusive<u64> {
        let first = request.offset_bytes;
        match self {
            Self::Start => first / SECTOR_BYTES..=first / SECTOR_BYTES,
            Self::Blocks(bytes) => {
                let last = first.saturating_add(request.length_bytes.saturating_sub(1));
                first / bytes..=last / bytes
            }
        }
    }
}
