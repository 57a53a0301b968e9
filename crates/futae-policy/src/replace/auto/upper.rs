//! Whether the upper cache reports its evictions.

use crate::AccessKind;

/// The upper cache is known to report them only if there is an eviction for each so many requests at
/// least, from the first one on. Otherwise one guest of many may report them.
const REQUESTS_MAX: u64 = 8;

/// What the upper cache has reported.
pub struct Upper {
    evictions: u64,
    /// Requests since the first eviction.
    requests: u64,
    /// Evictions from which on the upper cache may be known to report them.
    evictions_min: u64,
    reports: bool,
}

impl Upper {
    /// Nothing reported yet, to a cache of this size.
    pub fn new(slots: u32) -> Self {
        Self {
            evictions: 0,
            requests: 0,
            evictions_min: u64::from(slots / 64).clamp(4, 16),
            reports: false,
        }
    }

    /// Sees an access. Returns whether it is the one by which it is known that evictions are
    /// reported.
    #[inline]
    pub fn see(&mut self, kind: AccessKind) -> bool {
        if self.reports || kind == AccessKind::Preload {
            return false;
        }
        if kind.is_demand() {
            self.requests += u64::from(self.evictions > 0);
            return false;
        }
        self.evictions += 1;
        self.reports =
            self.evictions >= self.evictions_min && self.evictions * REQUESTS_MAX >= self.requests;
        self.reports
    }

    /// Whether it is known to report its evictions. This stays so.
    pub fn reports(&self) -> bool {
        self.reports
    }

    /// Whether it has reported an eviction.
    pub fn has_evicted(&self) -> bool {
        self.evictions > 0
    }
}
