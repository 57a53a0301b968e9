//! The counters of a level, by the names that every output uses.

use serde::{Deserialize, Serialize};

/// Event counts of one level (or one volume or class of it), in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Demand accesses (reads and writes). `requests = hits + misses`.
    pub requests: u64,
    /// Demand accesses to resident blocks.
    pub hits: u64,
    /// Demand accesses to blocks that were not resident.
    pub misses: u64,
    /// Blocks placed, by any kind of access.
    pub admissions: u64,
    /// Demand misses that were served without being placed.
    pub bypasses: u64,
    /// Blocks evicted to make room.
    pub evictions: u64,
    /// Demotions received from the upper level (blocks with data).
    pub demotions_in: u64,
    /// Demotions received that were not kept.
    pub demotions_declined: u64,
    /// Evicted blocks demoted to the lower level.
    pub demotions_out: u64,
    /// Eviction notices received (blocks without data).
    pub notices_in: u64,
    /// Eviction notices sent to the lower level.
    pub notices_out: u64,
    /// Resident blocks dropped because they were trimmed, overwritten below, or failed.
    pub invalidations: u64,
}

impl Counters {
    /// Hits per request, or `None` without requests.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.hits as f64 / self.requests as f64)
    }

    /// The difference from `earlier`, a copy of the same counters. A count that is smaller now, since it was begun anew, is 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
            admissions: self.admissions.saturating_sub(earlier.admissions),
            bypasses: self.bypasses.saturating_sub(earlier.bypasses),
            evictions: self.evictions.saturating_sub(earlier.evictions),
            demotions_in: self.demotions_in.saturating_sub(earlier.demotions_in),
            demotions_declined: self
                .demotions_declined
                .saturating_sub(earlier.demotions_declined),
            demotions_out: self.demotions_out.saturating_sub(earlier.demotions_out),
            notices_in: self.notices_in.saturating_sub(earlier.notices_in),
            notices_out: self.notices_out.saturating_sub(earlier.notices_out),
            invalidations: self.invalidations.saturating_sub(earlier.invalidations),
        }
    }
}
