//! How a cache is set up.

use super::loads::PIECE_BYTES;
use futae_policy::PolicySpec;
use std::path::PathBuf;
use std::time::Duration;

/// What happens to a block that is evicted, when the store below is itself a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEviction {
    /// The cache below hears nothing of it: it is inclusive, or there is none.
    #[default]
    None,
    /// The cache below gets the block with its data.
    Demote,
    /// The cache below gets a notice that names the block, without data.
    Notice,
}

/// How a cache is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Bytes of a block: a power of two from 4 KiB to 256 MiB.
    pub block_bytes: u64,
    /// Slots.
    pub capacity_blocks: u32,
    /// Who chooses victims.
    pub policy: PolicySpec,
    /// Seed for policies that draw lots.
    pub seed: u64,
    /// What happens to evicted blocks.
    pub on_eviction: OnEviction,
    /// Where to write every decision, if anywhere.
    pub decision_log: Option<PathBuf>,
    /// Keep written blocks, and bring them to their stores later.
    pub write_back: Option<WriteBackOptions>,
}

/// How written blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteBackOptions {
    /// How much of the cache may be dirty, as a share from 0 to 1; one block at least.
    pub dirty_max: f64,
    /// How long a block may be dirty before it is written back.
    pub dirty_age_max: Duration,
}

impl WriteBackOptions {
    /// The largest blocks that are kept, in bytes: larger ones are loaded in pieces.
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
