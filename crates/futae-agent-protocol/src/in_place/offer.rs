//! What an agent and a host tell each other about a ring.

use super::table::ENTRIES_A_PAGE;
use serde::{Deserialize, Serialize};

/// Where the ring of a guest's evicted pages lies: from the agent, after its hello.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingOffer {
    /// The version of what lies there: [`VERSION`](super::VERSION).
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
