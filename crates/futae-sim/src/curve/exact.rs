//! LRU at every size, exactly.

use super::{Curve, StackDistances};

/// The exact curve of LRU, in one pass: a request is a hit if fewer distinct other blocks than the
/// cache holds were requested since the last request for the same block.
#[derive(Clone, Debug, Default)]
pub struct ExactLru {
    distances: StackDistances,
    /// Number of requests, by distance.
    counts: Vec<u64>,
    requests: u64,
}

impl ExactLru {
    /// The largest supported number of distinct blocks.
    pub const BLOCKS_MAX: u64 = 1 << 30;

    /// Adds the next request; blocks are numbered densely, below [`Self::BLOCKS_MAX`].
    #[inline]
    pub fn access(&mut self, block: u32) {
        self.requests += 1;
        if let Some(distance) = self.distances.access(block) {
            let at = distance as usize;
            if at >= self.counts.len() {
                self.counts.resize(at + 1, 0);
            }
            self.counts[at] += 1;
        }
    }

    /// Ends a warm-up: resets the counts and keeps the state of the caches.
    pub fn restart(&mut self) {
        self.counts.clear();
        self.requests = 0;
    }

    /// Distinct blocks so far.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        self.distances.distinct()
    }

    /// Requests counted so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The curve so far: a point for every size at which it changes.
    #[must_use]
    pub fn curve(&self) -> Curve {
        let used = (1..).zip(&self.counts).filter(|&(_, &count)| count > 0);
        let positions = used.map(|(position, &count)| (position, count as f64));
        Curve::from_positions(positions, self.requests.max(1) as f64)
    }
}
