//! The protocol's table, on pages of [`PAGE_BYTES`](crate::PAGE_BYTES).

/// The host's side.
pub mod reader {
    include!(concat!(env!("OUT_DIR"), "/reader.rs"));
}

/// What the agent and the host tell each other.
pub mod offer {
    pub use protocol::in_place::RingOffer;
}

/// The table as bytes.
pub mod table {
    use crate::DeviceId;
    use crate::evicted_pages::EvictedPage;
    pub use protocol::in_place::{ENTRY_BYTES, HEAD_BYTES, Head, VERSION};

    /// Entries of a page of the table.
    pub const ENTRIES_A_PAGE: usize = crate::PAGE_BYTES as usize / ENTRY_BYTES;

    /// What [`encode_entry`] wrote: the number, the page, and where it begins in the ring.
    pub(super) fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> (u64, EvictedPage, u64) {
        let word = |at: usize| {
            let eight = bytes.get(at..).and_then(|rest| rest.first_chunk());
            eight.map_or(0, |eight| u64::from_le_bytes(*eight))
        };
        let device = DeviceId {
            major: word(8) as u32,
            minor: (word(8) >> 32) as u32,
        };
        let sector = word(16);
        (word(0), EvictedPage { device, sector }, word(24))
    }
}

pub use protocol::in_place::{
    BEGIN_AT, END_AT, ENTRY_BYTES, GUEST_COST_AT, HEAD_BYTES, Head, RingAnswer, RingOffer, VERSION,
    Verdict, encode_entry,
};
pub use table::ENTRIES_A_PAGE;
