//! Evicted pages that a host reads in place, out of the guest's memory.
//!
//! The agent's programs copy evicted pages into a ring in the guest's kernel, whose memory does not move. Where the
//! host has the guest's memory mapped, the agent tells it once where the ring lies ([`RingOffer`]), by page numbers:
//! addresses in the guest's memory divided by 4096. The host only reads. What it has read it says in answers
//! ([`RingAnswer`]); then the agent frees that part of the ring.
//!
//! Beside the ring lies a table, written by the agent, that says what is where in the ring. All numbers are
//! little-endian. Its first page begins with the head:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..16 | [`MAGIC`] |
//! | 16..20 | version, 1 |
//! | 20..24 | zeroes |
//! | 24..32 | the number of the offer |
//! | 32..40 | `end`: entries that were ever written |
//! | 40..48 | `begin`: entries of which the ring's part may have been written again |
//! | 48..56 | processor time that evicted pages have taken in the guest, in nanoseconds |
//! | 56..64 | pages that were copied in the guest |
//!
//! The other pages are an array of entries of 32 bytes; entry `n` stands at place `n` modulo their number:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `n` |
//! | 8..16 | major and minor number of the disk |
//! | 16..24 | first sector of the page on that disk |
//! | 24..32 | where the page's 4096 bytes begin in the ring; modulo its size |
//!
//! Nothing of this is believed by a host ([`RingReader`]): it is the memory of a machine that may be hostile, and it
//! may change while it is read.

mod reader;

pub use reader::{NoRing, RingEntry, RingMemory, RingReader};

use crate::evicted_pages::EvictedPage;
use crate::{DeviceId, PAGE_BYTES};
use serde::{Deserialize, Serialize};

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

/// Where the ring of a guest's evicted pages lies: from the agent, after its hello.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingOffer {
    /// The version of what lies there: [`VERSION`].
    pub version: u32,
    /// A random number, by which the table's head, the answers and this belong together.
    pub offer: u64,
    /// The pages of the table, in their order: the head's, then those of entries; at most
    /// [`RingOffer::MAX_TABLE_PAGES`].
    pub table: Vec<u64>,
    /// The pages of the ring, in their order; at most [`RingOffer::MAX_RING_PAGES`].
    pub ring: Vec<u64>,
}

impl RingOffer {
    /// Pages that a ring can have: 64 MiB.
    pub const MAX_RING_PAGES: usize = 16_384;
    /// Pages that a table can have: one for each page of the ring, and the head.
    pub const MAX_TABLE_PAGES: usize = 1 + Self::MAX_RING_PAGES / ENTRIES_A_PAGE;
}

/// Whether a host reads a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Reads,
    /// It does not, or does no more.
    #[default]
    Refuses,
}

/// What a host says of a ring that was offered: soon after the offer, with every part that it has read, and at least
/// once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingAnswer {
    /// The number of the offer.
    pub offer: u64,
    /// Whether it reads the ring.
    pub verdict: Verdict,
    /// Entries that it needs no more: all before this number.
    pub taken: u64,
    /// Why it does not read the ring, for people; at most 255 bytes.
    pub why: String,
}

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
fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> (u64, EvictedPage, u64) {
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
