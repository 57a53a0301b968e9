//! Which candidate may evict first: rehearsed on a smaller cache while the cache fills.

use super::candidates;
use super::shadow::{Shadow, level};
use crate::{Access, Outcome, PolicySpec, Shape, SpecError};

/// Slots of a shadow per slot of a smaller cache with which the order of the first evictions is chosen.
const SHARE: u32 = 4;
/// The fewest slots of such a cache. With fewer, nothing is chosen.
const SLOTS_MIN: u32 = 16;

/// Deviations of chance by which a candidate must be ahead of the one in force.
const SURE: f64 = 1.0;
/// Hits by which it must be ahead, however few it has.
const LEAD_MIN: f64 = 2.0;

/// The load is another one if the last blocks of a cache that fills come so many times as fast as all of them did.
const FASTER: u64 = 8;
/// The last blocks: this part of the slots, and so many at least.
const LAST_SHARE: u32 = 128;
const LAST_MIN: u32 = 16;

/// How fast the cache fills.
#[derive(Default)]
pub struct Filling {
    /// Requests before the last blocks came.
    before_last: u64,
}

impl Filling {
    /// The number of the last blocks in a cache of this size.
    fn last(slots: u32) -> u32 {
        (slots / LAST_SHARE).max(LAST_MIN).min(slots)
    }

    /// A block came, the `resident`th, after this number of requests.
    #[inline]
    pub fn see(&mut self, resident: u32, slots: u32, requests: u64) {
        if resident == slots - Self::last(slots) {
            self.before_last = requests;
        }
    }

    /// Whether new blocks come so much faster at the end than they did on average that what was seen before says
    /// nothing about the first evictions.
    pub fn load_has_changed(&self, slots: u32, requests: u64) -> bool {
        let late = requests - self.before_last;
        u64::from(Self::last(slots)) * requests > FASTER * u64::from(slots) * late
    }
}

/// A candidate under a part of the slots.
struct Smaller {
    candidate: usize,
    level: Shadow,
    /// Requests that it hit and the order in force did not.
    won: u32,
    /// The other way round.
    lost: u32,
}

impl Smaller {
    fn ahead(&self) -> f64 {
        f64::from(self.won) - f64::from(self.lost)
    }

    fn is_ahead(&self) -> bool {
        let chance = (f64::from(self.won) + f64::from(self.lost)).sqrt();
        self.ahead() >= (SURE * chance).max(LEAD_MIN)
    }
}

/// Caches that evict before the cache itself does, and show what each order would have kept.
///
/// While the cache fills, all orders hold the same in it. The loss by a wrong first order can be as large as the
/// cache: what has gone must be read again.
pub struct Opening {
    /// The order in force.
    first: Shadow,
    others: Vec<Smaller>,
}

impl Opening {
    /// Smaller caches of the order in force, which is the first candidate, and of those that may follow it, beside shadows with
    /// `slots`. `spec`: the policy of a candidate.
    pub fn beside<'a>(
        spec: impl Fn(usize) -> &'a PolicySpec,
        slots: u32,
        shape: &Shape,
    ) -> Result<Option<Self>, SpecError> {
        let slots = slots / SHARE;
        if slots < SLOTS_MIN {
            return Ok(None);
        }
        let smaller = |at: usize| level(spec(at), &Shape { slots, ..*shape });
        let other = |candidate: usize| {
            Ok(Smaller {
                candidate,
                level: smaller(candidate)?,
                won: 0,
                lost: 0,
            })
        };
        let others = candidates::openers().map(other);
        Ok(Some(Self {
            first: smaller(0)?,
            others: others.collect::<Result<_, SpecError>>()?,
        }))
    }

    /// An access of the sample. `counts`: whether a hit of it counts.
    pub fn see(&mut self, access: &Access, counts: bool) {
        let is_first = matches!(self.first.access(access), Outcome::Hit(_));
        for other in &mut self.others {
            let is_hit = matches!(other.level.access(access), Outcome::Hit(_));
            other.won += u32::from(counts && is_hit && !is_first);
            other.lost += u32::from(counts && is_first && !is_hit);
        }
    }

    /// The candidate that is ahead of the order in force by most.
    pub fn best(&self) -> Option<usize> {
        let ahead = self.others.iter().filter(|other| other.is_ahead());
        // Of equal ones the first, as elsewhere.
        let most = ahead.rev().max_by(|a, b| a.ahead().total_cmp(&b.ahead()));
        most.map(|other| other.candidate)
    }

    /// Panics unless the invariants of the levels hold.
    pub fn audit(&self) {
        self.first.audit();
        for other in &self.others {
            other.level.audit();
        }
    }
}
