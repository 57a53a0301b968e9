//! Settings and observations of a guest.

use serde::Serialize;

/// The limits of a guest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestLimits {
    /// Its name, for people.
    pub name: String,
    /// Its minimum in bytes.
    pub least: u64,
    /// Its maximum in bytes.
    pub most: u64,
    /// Its initial size in bytes.
    pub start: u64,
    /// The weight of its access time relative to that of other guests; above 0.
    pub weight: f64,
    /// Bytes of its memory that are not cache, if it does not report them.
    pub overhead: u64,
}

/// The observation of a guest at the end of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Its actual size in bytes; `None` if it cannot be read.
    pub achieved: Option<u64>,
    /// Its activity in the period; `None` if its agent is silent or not believed.
    pub activity: Option<Activity>,
}

/// A guest's activity in a period, as its agent reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Pages found in the page cache.
    pub hits: u64,
    /// Pages that a process had to wait for.
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
