//! What is set of a guest, and what is seen of it.

use serde::Serialize;

/// What a guest may have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestLimits {
    /// Its name, for people.
    pub name: String,
    /// Bytes that it always has.
    pub least: u64,
    /// Bytes that it never has more than.
    pub most: u64,
    /// Bytes that it begins with.
    pub start: u64,
    /// What its time is worth beside that of the others; above 0.
    pub weight: f64,
    /// Bytes of its memory that are no cache, where it does not tell.
    pub overhead: u64,
}

/// What is seen of a guest at the end of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Bytes that it has in fact; none where that cannot be read.
    pub achieved: Option<u64>,
    /// What it did in the period; none if its agent is silent, or is not to be believed.
    pub activity: Option<Activity>,
}

/// What a guest did in a period, as its agent tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Pages that were found in the page cache.
    pub hits: u64,
    /// Pages that had to be waited for.
    pub misses: u64,
    /// Bytes that are page cache or could be; none where it does not tell.
    pub cache: Option<u64>,
    /// The share of the period in which all tasks waited for memory, from 0 to 1; none where it
    /// does not tell.
    pub pressure: Option<f64>,
}

impl Activity {
    /// Pages that were asked for.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.hits.saturating_add(self.misses)
    }

    /// The share that missed, from 0 to 1; 0 where nothing was asked for.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / (self.accesses() as f64).max(1.0)
    }
}
