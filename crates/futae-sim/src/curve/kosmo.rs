//! Curves of policies that are no stack algorithms, in one pass: Kosmo (Shakiba, Sultan and Stumm,
//! "Kosmo: efficient online miss ratio curve generation for eviction policy evaluation", FAST 2024).
//!
//! Miniature simulation keeps each block in every simulated cache that holds it. Kosmo keeps each
//! block once, in a global table, with an *eviction map* (section 3.1): what a cache of each size
//! knows of it. The smallest size whose cache holds the requested block is the position of a request,
//! and the positions make the curve, as LRU's stack distances do. After a request, some of the caches
//! that missed are rebuilt from the table (section 3.2), and what they have no room for is evicted
//! from them in its map. How many is the granularity, 10 by default (section 3.3). The blocks are a
//! sample, as in SHARDS.
//!
//! A block that a cache evicted is taken to be in no smaller one, either (section 3.3). That holds
//! for LRU and for LFU over all the past, whose curves are exact if all caches are rebuilt for every
//! request. For the others it is an assumption. FIFO breaks it most: a large cache evicts a popular
//! block that a small one placed a moment ago. The curve falls even where Bélády's anomaly makes it
//! rise.
//!
//! This is written after the authors' program (github.com/Stumm-Lab/kosmo-fast24, May 2025), where a
//! description of the paper left something open.
//!
//! The paper also has maps for 2Q and MRU, which are not here: futae's 2Q is the full version, whose
//! names of departed blocks a cache does not hold. Objects that differ in size and times to live
//! (sections 3.6 and 3.7) are not here, either.

use super::{SampleError, Sampled};
use futae_policy::{Kind, PolicySpec, SpecError};
use ranks::{Ranks, WithRanks, ranks};
use table::{AnyTable, Table};

mod map;
mod ranks;
mod table;

/// How many caches are rebuilt for a request: the paper's choice.
const GRANULARITY: u32 = 10;

/// An approximate curve of FIFO, LRU, LFU, LFU in the cache, or LRFU.
pub type Kosmo = Sampled<Box<dyn AnyTable>>;

/// Why there is no such curve.
#[derive(Debug, thiserror::Error)]
pub enum KosmoError {
    /// The policy does not evict by ranks.
    #[error(
        "kosmo knows {}, not {policy}; miniature simulation (mini) takes any policy",
        KNOWN.map(|kind| kind.name()).join(", ")
    )]
    Policy {
        /// The policy.
        policy: String,
    },
    /// The policy's arguments are wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The rate is wrong.
    #[error(transparent)]
    Sample(#[from] SampleError),
}

/// The policies whose curves it makes.
const KNOWN: [Kind; 5] = [
    Kind::fifo,
    Kind::lru,
    Kind::lfu,
    Kind::lfu_in_cache,
    Kind::lrfu,
];

struct Make;

impl WithRanks for Make {
    type Found = Box<dyn AnyTable>;

    fn with<R: Ranks + 'static>(self, ranks: R) -> Self::Found {
        Box::new(Table::new(ranks, GRANULARITY))
    }
}

impl Kosmo {
    /// The curve of `policy` from this share of the blocks, above 0 and at most 1. With `blocks`,
    /// there are at most this many in the sample at a time, and its rate falls when there are more.
    pub fn new(
        policy: &PolicySpec,
        rate: f64,
        blocks: Option<usize>,
        seed: u64,
    ) -> Result<Self, KosmoError> {
        let table = ranks(policy, Make).ok_or_else(|| KosmoError::Policy {
            policy: policy.to_string(),
        })??;
        let kosmo = Self::at_rate(rate, seed, table)?;
        Ok(match blocks {
            Some(blocks) => kosmo.bounded_by(blocks),
            None => kosmo,
        })
    }

    /// Rebuilds this many caches for a request, at least 1. More take more time, and the curve is
    /// closer to the truth.
    #[must_use]
    pub fn with_granularity(mut self, caches: u32) -> Self {
        self.found_mut().set_granularity(caches);
        self
    }

    /// Its memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.sample_bytes() + self.found().memory_bytes()
    }
}
