//! What is known of memory that outlives the process.

use crate::engine::verify::Keys;
use crate::memory_file::Row;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Of which stores blocks are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryTrust {
    /// Of those of which can be seen whether others have written to them.
    #[default]
    Files,
    /// Of devices, too: nobody else writes to them while no server runs.
    Devices,
}

/// What a cache whose memory outlives it knows of that memory.
pub struct Kept {
    pub keys: Keys,
    pub trust: MemoryTrust,
    /// Whether what it holds was taken up.
    pub is_recalled: bool,
    pub tally: MemoryStatus,
    /// When the order of its blocks was last noted.
    pub order_noted: Option<Instant>,
}

/// What became of the blocks that the server before left in a memory file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Blocks that were found in the memory file at the start.
    #[serde(default)]
    pub memory_found_blocks: u64,
    /// Those of them that were asked for since, and had their hash.
    #[serde(default)]
    pub memory_verified_blocks: u64,
    /// Those of them that were asked for since, and had another hash: they were read from their stores.
    #[serde(default)]
    pub memory_refused_blocks: u64,
}

/// The place of a volume in the memory file.
#[derive(Clone, Copy, Debug)]
pub struct KeptVolume {
    pub row: Row,
    pub era: u64,
    /// Whether the file holds blocks of it that count.
    pub has_blocks: bool,
    /// Whether its store was written to since its stamp was last noted.
    pub is_written: bool,
    /// Writes that were sent to its store.
    pub writes: u64,
}
