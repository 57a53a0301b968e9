//! The table beside a ring, as bytes.

use crate::PAGE_BYTES;
use crate::device::DeviceId;
use crate::evicted_pages::EvictedPage;

/// What a table begins with.
pub const MAGIC: [u8; 16] = *b"futae-in-place\n\0";
/// The version that is written here, and the only one that is read.
pub const VERSION: u32 = 1;
/// Bytes of the head.
pub const HEAD_BYTES: usize = 64;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;
/// Entries of a page of the table.
pub const ENTRIES_A_PAGE: usize = PAGE_BYTES as usize / ENTRY_BYTES;
/// Where `begin` stands in the head.
pub const BEGIN_AT: usize = 40;
/// Where `end` stands in the head.
pub const END_AT: usize = 32;
/// Where the guest's cost stands in the head, and behind it the pages.
pub const GUEST_COST_AT: usize = 48;

/// The head of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of the offer.
    pub offer: u64,
    /// Entries that were ever written.
    pub end: u64,
    /// Entries of which the ring's part may have been written again.
    pub begin: u64,
    /// Processor time that evicted pages have taken in the guest, in nanoseconds.
    pub guest_ns: u64,
    /// Pages that were copied in the guest.
    pub guest_pages: u64,
}

impl Head {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        let fields = [
            self.offer,
            self.end,
            self.begin,
            self.guest_ns,
            self.guest_pages,
        ];
        for (place, field) in bytes[24..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Out of bytes; none if they are not a head of this version.
    #[must_use]
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let is_one = bytes[..16] == MAGIC && bytes[16..20] == VERSION.to_le_bytes();
        is_one.then_some(Self {
            offer: long(bytes, 24),
            end: long(bytes, END_AT),
            begin: long(bytes, BEGIN_AT),
            guest_ns: long(bytes, GUEST_COST_AT),
            guest_pages: long(bytes, GUEST_COST_AT + 8),
        })
    }
}

/// Entry `number` as bytes: a page, and where it begins in the ring.
#[must_use]
pub fn encode_entry(number: u64, page: EvictedPage, position: u64) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..12].copy_from_slice(&page.device.major.to_le_bytes());
    bytes[12..16].copy_from_slice(&page.device.minor.to_le_bytes());
    bytes[16..24].copy_from_slice(&page.sector.to_le_bytes());
    bytes[24..].copy_from_slice(&position.to_le_bytes());
    bytes
}

/// What [`encode_entry`] wrote: the number, the page, and where it begins in the ring.
pub(super) fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> (u64, EvictedPage, u64) {
    let device = DeviceId {
        major: long(bytes, 8) as u32,
        minor: (long(bytes, 8) >> 32) as u32,
    };
    let sector = long(bytes, 16);
    (
        long(bytes, 0),
        EvictedPage { device, sector },
        long(bytes, 24),
    )
}

/// The eight bytes at `at`; zeroes where there are none.
fn long(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(|rest| rest.first_chunk());
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}
