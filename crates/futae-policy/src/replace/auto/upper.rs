//! Whether the upper cache reports its evictions, and which blocks it has evicted.

use super::shadows::scatter;
use crate::{Access, AccessKind, BlockId};

/// The upper cache is known to report them only if there is an eviction for each so many requests at
/// least, from the first one on. Otherwise one guest of many may report them.
const REQUESTS_MAX: u64 = 8;

/// Marks for each slot of the cache. The more there are, the fewer share a place.
const MARKS: usize = 4;

/// Blocks that the upper cache evicted and did not ask for since.
///
/// A mark is a part of the block's hash, in a place that the other part gives. A later eviction may take the place.
struct Evicted {
    marks: Vec<u16>,
    salt: u64,
}

impl Evicted {
    fn new(slots: u32, salt: u64) -> Self {
        let places = (slots as usize * MARKS).next_power_of_two();
        Self {
            marks: vec![0; places],
            salt,
        }
    }

    /// The place of a block, and its mark, which is not 0.
    #[inline]
    fn place(&self, block: BlockId) -> (usize, u16) {
        let hash = scatter(block, self.salt);
        let at = hash as usize & (self.marks.len() - 1);
        (at, (hash >> 48) as u16 | 1)
    }

    #[inline]
    fn put(&mut self, block: BlockId) {
        let (at, mark) = self.place(block);
        self.marks[at] = mark;
    }

    /// Removes the mark of a block. Whether it had one.
    #[inline]
    fn take(&mut self, block: BlockId) -> bool {
        let (at, mark) = self.place(block);
        let is_marked = self.marks[at] == mark;
        if is_marked {
            self.marks[at] = 0;
        }
        is_marked
    }
}

/// What the upper cache has reported.
pub struct Upper {
    evictions: u64,
    /// Requests since the first eviction.
    requests: u64,
    /// Evictions from which on the upper cache may be known to report them.
    evictions_min: u64,
    reports: bool,
    /// Once it is known to report them.
    evicted: Option<Evicted>,
    /// Whether it had evicted the last block it asked for.
    asks_again: bool,
    slots: u32,
    salt: u64,
}

impl Upper {
    /// Nothing reported yet, to a cache of this size.
    pub fn new(slots: u32, salt: u64) -> Self {
        Self {
            evicted: None,
            asks_again: false,
            slots,
            salt,
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
        if self.reports {
            self.evicted = Some(Evicted::new(self.slots, self.salt));
        }
        self.reports
    }

    /// Takes note of an access before it counts.
    #[inline]
    pub fn note(&mut self, access: &Access) {
        let Some(evicted) = &mut self.evicted else {
            return;
        };
        match access.kind {
            AccessKind::Read | AccessKind::Write => self.asks_again = evicted.take(access.block),
            AccessKind::Demotion | AccessKind::Notice => evicted.put(access.block),
            AccessKind::Preload => {}
        }
    }

    /// Whether the upper cache is known not to have held the last block that was asked for.
    #[inline]
    pub fn asks_again(&self) -> bool {
        self.asks_again
    }

    /// The size of the cache has changed.
    pub fn resize(&mut self, slots: u32) {
        self.slots = slots;
        if self.evicted.is_some() {
            self.evicted = Some(Evicted::new(slots, self.salt));
        }
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
