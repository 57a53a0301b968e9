//! The order in which policies evict, as ranks that do not depend on the other blocks.

use super::map::Kept;
use futae_policy::structures::Real;
use futae_policy::{Arguments, Kind, PolicySpec, SpecError};
use std::f64::consts::LOG2_E;

/// What is known of a block whatever the size of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// Requests for it, at least 1.
    pub uses: u32,
    /// The number of the last one, among those for all blocks.
    pub last_use: u64,
}

/// A policy that evicts the block of the lowest rank.
pub trait Ranks: Send {
    /// What a cache knows of a block beside its past.
    type State: Copy + PartialEq + Send;
    /// Ranks; no two blocks have the same.
    type Rank: Copy + Ord + Send;

    /// What the caches keep of a block that smaller ones evicted.
    const KEPT: Kept = Kept::Own;

    /// The state of a block that the last request placed.
    fn placed(&self, past: Past) -> Self::State;
    /// The state after a hit by the last request.
    fn hit(&self, state: Self::State, past: Past) -> Self::State;
    /// The rank of a block.
    fn rank(&self, state: Self::State, past: Past) -> Self::Rank;
}

/// First in, first out: the state is when the block was placed. After an eviction, that is when the
/// smallest cache placed it, as in the authors' program. So a popular block is evicted later from the
/// large caches, which otherwise take it from small ones that placed it a moment ago.
pub struct Fifo;

impl Ranks for Fifo {
    type State = u64;
    type Rank = u64;

    const KEPT: Kept = Kept::OfSmallest;

    fn placed(&self, past: Past) -> u64 {
        past.last_use
    }
    fn hit(&self, placed: u64, _past: Past) -> u64 {
        placed
    }
    fn rank(&self, placed: u64, _past: Past) -> u64 {
        placed
    }
}

/// Least recently used.
pub struct Lru;

impl Ranks for Lru {
    type State = ();
    type Rank = u64;

    fn placed(&self, _past: Past) {}
    fn hit(&self, (): (), _past: Past) {}
    fn rank(&self, (): (), past: Past) -> u64 {
        past.last_use
    }
}

/// Least frequently used in all its past.
pub struct Lfu;

impl Ranks for Lfu {
    type State = ();
    type Rank = (u32, u64);

    fn placed(&self, _past: Past) {}
    fn hit(&self, (): (), _past: Past) {}
    fn rank(&self, (): (), past: Past) -> (u32, u64) {
        (past.uses, past.last_use)
    }
}

/// Least frequently used since it was placed: the state is its uses before that.
pub struct LfuInCache;

impl Ranks for LfuInCache {
    type State = u32;
    type Rank = (u32, u64);

    fn placed(&self, past: Past) -> u32 {
        past.uses - 1
    }
    fn hit(&self, before: u32, _past: Past) -> u32 {
        before
    }
    fn rank(&self, before: u32, past: Past) -> (u32, u64) {
        (past.uses - before, past.last_use)
    }
}

/// LRFU: the state is the logarithm of the sum of a block's uses, each weighted by its age, as of
/// time 0.
pub struct Lrfu {
    lambda: f64,
}

impl Ranks for Lrfu {
    type State = Real;
    type Rank = (Real, u64);

    fn placed(&self, past: Past) -> Real {
        Real(self.lambda * past.last_use as f64)
    }
    fn hit(&self, weight: Real, past: Past) -> Real {
        let one = self.placed(past).0;
        Real(one + (weight.0 - one).exp2().ln_1p() * LOG2_E)
    }
    fn rank(&self, weight: Real, past: Past) -> (Real, u64) {
        (weight, past.last_use)
    }
}

/// Calls of [`ranks`] with the ranks of a policy.
pub trait WithRanks {
    /// The result.
    type Found;
    /// Called once.
    fn with<R: Ranks + 'static>(self, ranks: R) -> Self::Found;
}

/// Calls `with` with the ranks of a policy; `None` if it does not evict by ranks.
pub fn ranks<W: WithRanks>(policy: &PolicySpec, with: W) -> Option<Result<W::Found, SpecError>> {
    let is = |kind: Kind| policy.name == kind.name();
    Some(Ok(if is(Kind::fifo) {
        with.with(Fifo)
    } else if is(Kind::lru) {
        with.with(Lru)
    } else if is(Kind::lfu) {
        with.with(Lfu)
    } else if is(Kind::lfu_in_cache) {
        with.with(LfuInCache)
    } else if is(Kind::lrfu) {
        match futae_policy::replace::lrfu::lambda(&mut Arguments::new(policy)) {
            Ok(lambda) => with.with(Lrfu { lambda }),
            Err(error) => return Some(Err(error)),
        }
    } else {
        return None;
    }))
}
