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

mod offer;
mod reader;
mod table;

pub use offer::{RingAnswer, RingOffer, Verdict};
pub use reader::{NoRing, RingEntry, RingMemory, RingReader};
pub use table::{
    BEGIN_AT, END_AT, ENTRIES_A_PAGE, ENTRY_BYTES, GUEST_COST_AT, HEAD_BYTES, Head, MAGIC, VERSION,
    encode_entry,
};
