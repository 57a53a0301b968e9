//! State of memory that outlives the process.

use crate::engine::verify::Keys;
use crate::memory_file::Row;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The stores whose blocks are kept over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryTrust {
    /// Stores that can detect writes by other programs.
    #[default]
    Files,
    /// Devices, too: the operator asserts that no other program writes to them while no server
    /// runs.
    Devices,
}

/// The state of a cache whose memory outlives it.
pub struct Kept {
    pub keys: Keys,
    pub trust: MemoryTrust,
    /// Whether the blocks in the file were recalled.
    pub is_recalled: bool,
    pub tally: MemoryStatus,
    /// When the order of its blocks was last recorded.
    pub order_noted: Option<Instant>,
}

/// What became of the blocks that the previous server left in a memory file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Blocks found in the memory file at the start.
    #[serde(default)]
    pub memory_found_blocks: u64,
    /// Blocks of those that were requested since and matched their hash.
    #[serde(default)]
    pub memory_verified_blocks: u64,
    /// Blocks of those that were requested since and did not match: they were read from their
    /// stores.
    #[serde(default)]
    pub memory_refused_blocks: u64,
}

/// The place of a volume in the memory file.
#[derive(Clone, Copy, Debug)]
pub struct KeptVolume {
    pub row: Row,
    pub era: u64,
    /// Whether the file holds valid blocks of it.
    pub has_blocks: bool,
    /// Whether its store was written to since its stamp was last recorded.
    pub is_written: bool,
    /// Number of writes sent to its store.
    pub writes: u64,
}
