//! Options of a cache.

use super::loads::PIECE_BYTES;
use futae_policy::PolicySpec;
use std::path::PathBuf;
use std::time::Duration;

/// What happens to an evicted block if the store is itself a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEviction {
    /// The lower cache gets no message: it is inclusive, or there is none.
    #[default]
    None,
    /// The lower cache gets the block with its data.
    Demote,
    /// The lower cache gets a notice that names the block, without data.
    Notice,
}

/// Options of a cache.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Bytes of a block: a power of two from 4 KiB to 256 MiB.
    pub block_bytes: u64,
    /// Slots.
    pub capacity_blocks: u32,
    /// The replacement policy.
    pub policy: PolicySpec,
    /// Seed for randomised policies.
    pub seed: u64,
    /// What happens to evicted blocks.
    pub on_eviction: OnEviction,
    /// The file for the decision log, if any.
    pub decision_log: Option<PathBuf>,
    /// Write-back mode, if enabled.
    pub write_back: Option<WriteBackOptions>,
}

/// Options of write-back mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteBackOptions {
    /// The part of the cache that may be dirty, from 0 to 1; at least one block.
    pub dirty_max: f64,
    /// The longest time that a block stays dirty before its write-back begins.
    pub dirty_age_max: Duration,
}

impl WriteBackOptions {
    /// The largest blocks that write-back mode supports, in bytes: larger ones are loaded in
    /// pieces.
    pub const BLOCK_BYTES_MAX: u64 = PIECE_BYTES;
}

impl Default for WriteBackOptions {
    fn default() -> Self {
        Self {
            dirty_max: 0.2,
            dirty_age_max: Duration::from_secs(30),
        }
    }
}
