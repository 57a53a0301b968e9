//! A candidate tried on all requests and all slots, before the cache follows it.

use super::shadow::{Shadow, number};
use crate::{Access, BlockId, Outcome};

/// A candidate's level, and its hits compared with those of the cache.
pub struct Rehearsal {
    candidate: usize,
    level: Shadow,
    /// The candidate's lead in hits over the cache; recent hits weigh more.
    ahead: f64,
    /// Requests that only one of the two hit; recent ones weigh more.
    apart: f64,
    /// The factor by which each request reduces the older lead.
    kept: f64,
    requests: u64,
    /// Requests that count; recent ones weigh more.
    weight: f64,
}

impl Rehearsal {
    /// A candidate whose `level` starts with the content of the cache. The lead covers about
    /// `memory` requests.
    pub fn new(candidate: usize, level: Shadow, memory: f64) -> Self {
        Self {
            candidate,
            level,
            ahead: 0.0,
            apart: 0.0,
            kept: (-1.0 / memory.max(1.0)).exp(),
            requests: 0,
            weight: 0.0,
        }
    }

    /// An access, which the cache itself hit or not. `counts`: whether a hit of it counts.
    #[inline]
    pub fn see(&mut self, access: &Access, is_hit: bool, counts: bool) {
        let is_mine = matches!(self.level.access(access), Outcome::Hit(_));
        if access.kind.is_demand() {
            self.requests += 1;
        }
        if counts {
            let more = f64::from(i8::from(is_mine) - i8::from(is_hit));
            self.ahead = self.ahead * self.kept + more;
            self.apart = self.apart * self.kept + more.abs();
            self.weight = self.weight * self.kept + 1.0;
        }
    }

    /// Which candidate.
    pub fn candidate(&self) -> usize {
        self.candidate
    }

    /// The lead in hits over the cache.
    pub fn ahead(&self) -> f64 {
        self.ahead
    }

    /// The deviation that the lead would have by chance.
    pub fn deviation(&self) -> f64 {
        self.apart.sqrt()
    }

    /// Requests over which the lead is.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Reads what an access to `block` will need.
    #[inline]
    pub fn glance(&self, block: BlockId) -> u32 {
        self.level.glance(block)
    }

    /// Whether the candidate holds a block.
    pub fn holds(&self, block: BlockId) -> bool {
        self.level.find(block).is_some()
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The candidate's level, to be followed.
    pub fn into_level(self) -> Shadow {
        self.level
    }

    /// The size of the cache has changed.
    pub fn resize(&mut self, slots: u32) {
        self.level.resize(slots);
    }

    /// Announces the numbering of blocks; see [`crate::SimulatorHints::number_blocks`].
    pub fn number_blocks(&mut self, first: u64) {
        number(&mut self.level, first);
    }

    /// Panics unless the level's invariants hold.
    pub fn audit(&self) {
        self.level.audit();
    }
}
