//! Whether the upper cache reports its evictions, and which blocks it has evicted.

use super::scatter::scatter;
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

/// Hits are few if they are at most one in this number of requests.
const FEW: u64 = 200;
/// Slots of a shadow for each request of the sample without which nothing is known.
const KNOWN: u64 = 8;

/// Requests of the sample whose hits count, while the upper cache fills this one with what it evicts.
#[derive(Default)]
struct Filling {
    requests: u64,
    hits: u64,
}

/// What the upper cache has reported.
pub struct Upper {
    evictions: u64,
    /// From when it is known to report them until it has evicted as many blocks as the cache has slots.
    filling: Option<Filling>,
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
            filling: None,
            requests: 0,
            evictions_min: u64::from(slots / 64).clamp(4, 16),
            reports: false,
        }
    }

    /// Sees an access. Returns whether it is the one by which it is known that evictions are
    /// reported.
    #[inline]
    pub fn see(&mut self, kind: AccessKind) -> bool {
        if kind == AccessKind::Preload {
            return false;
        }
        if self.reports {
            self.evictions += u64::from(!kind.is_demand());
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
            self.filling = Some(Filling::default());
            self.evicted = Some(Evicted::new(self.slots, self.salt));
        }
        self.reports
    }

    /// Takes note of a request of the sample whose hit counts.
    #[inline]
    pub fn note_counted(&mut self, is_hit: bool) {
        if let Some(filling) = &mut self.filling {
            filling.requests += 1;
            filling.hits += u64::from(is_hit);
        }
    }

    /// Whether it has just evicted as many blocks as the cache has slots, and asked for hardly any of them again. A shadow has
    /// `slots`. Until then all orders of evicted blocks hold nearly the same, so a change costs hardly anything.
    #[inline]
    pub fn has_filled_with_one_timers(&mut self, slots: u32) -> bool {
        if self.filling.is_none() || self.evictions < u64::from(self.slots) {
            return false;
        }
        self.filling.take().is_some_and(|filling| {
            filling.requests * KNOWN >= u64::from(slots) && filling.hits * FEW <= filling.requests
        })
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
