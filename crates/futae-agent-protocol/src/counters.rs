//! What is counted in a sampling period.

use serde::{Deserialize, Serialize};

/// Events of one period, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Counters {
    /// Pages that were read through the cache, by system calls or by page faults on mappings.
    pub accesses: u64,
    /// Times that a reader did not find the page it asked for and waited for it. What is read along
    /// with that page counts as readahead, also where the same request asked for it.
    pub misses: u64,
    /// Pages that came into the cache: for readers, by readahead, and for writers.
    pub added: u64,
    /// Of those added: pages that no reader was waiting for.
    pub readahead: u64,
    /// Of those added: pages that a writer made.
    pub written: u64,
    /// Pages read in again that had been evicted lately.
    pub refaults: u64,
    /// Pages that left since memory was needed.
    pub reclaimed: u64,
    /// Pages that left since their file was truncated or deleted.
    pub truncated: u64,
    /// Pages that left since somebody asked for it (`posix_fadvise`, `drop_caches`, direct I/O).
    pub invalidated: u64,
    /// Pages that became dirty.
    pub dirtied: u64,
}

impl Counters {
    /// Fields of a record, in the order in which they travel.
    pub const FIELDS: usize = 10;

    /// The fields in the order in which they travel.
    #[must_use]
    pub fn to_array(&self) -> [u64; Self::FIELDS] {
        [
            self.accesses,
            self.misses,
            self.added,
            self.readahead,
            self.written,
            self.refaults,
            self.reclaimed,
            self.truncated,
            self.invalidated,
            self.dirtied,
        ]
    }

    /// The reverse of [`Counters::to_array`].
    #[must_use]
    pub fn from_array(fields: [u64; Self::FIELDS]) -> Self {
        let [
            accesses,
            misses,
            added,
            readahead,
            written,
            refaults,
            reclaimed,
            truncated,
            invalidated,
            dirtied,
        ] = fields;
        Self {
            accesses,
            misses,
            added,
            readahead,
            written,
            refaults,
            reclaimed,
            truncated,
            invalidated,
            dirtied,
        }
    }

    /// Pages that a reader found: accesses without misses, never below zero.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.accesses.saturating_sub(self.misses)
    }

    /// Pages that left, for whatever reason.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.reclaimed
            .saturating_add(self.truncated)
            .saturating_add(self.invalidated)
    }

    /// Adds the events of `other`. Stays at the largest number rather than overflow.
    pub fn add(&mut self, other: &Self) {
        let mut fields = self.to_array();
        for (field, more) in fields.iter_mut().zip(other.to_array()) {
            *field = field.saturating_add(more);
        }
        *self = Self::from_array(fields);
    }

    /// The events since `earlier`, a count of the same kind. Never below zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut fields = self.to_array();
        for (field, less) in fields.iter_mut().zip(earlier.to_array()) {
            *field = field.saturating_sub(less);
        }
        Self::from_array(fields)
    }

    /// Whether nothing happened.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;

    #[test]
    fn fields_travel_in_their_order() {
        let numbers: [u64; Counters::FIELDS] = std::array::from_fn(|index| index as u64 + 1);
        let counters = Counters::from_array(numbers);
        assert_eq!(counters.to_array(), numbers);
        assert_eq!((counters.accesses, counters.dirtied), (1, 10));
    }

    #[test]
    fn sums_neither_overflow_nor_go_below_zero() {
        let one = Counters::from_array([1; Counters::FIELDS]);
        let mut most = Counters::from_array([u64::MAX; Counters::FIELDS]);
        most.add(&one);
        assert_eq!(most.evicted(), u64::MAX);
        assert!(one.since(&most).is_zero());
        let fewer = Counters {
            accesses: 1,
            misses: 2,
            ..Counters::default()
        };
        assert_eq!(fewer.hits(), 0);
    }
}
