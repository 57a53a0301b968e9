//! Miniature caches, one a candidate: names of blocks that are sampled by hash, and their hits.

use crate::{
    Access, BlockId, Departure, HashIndex, Level, Outcome, PolicySpec, RegisteredPolicy, Shape,
    SpecError, build,
};

/// How large shadows are.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Share of the slots that all shadows together name.
    pub share: f64,
    /// Blocks that a shadow has at least, where the cache has as many.
    pub least: u64,
}

impl Sampling {
    /// Blocks of each of so many shadows beside so many slots.
    pub fn slots_of_each(&self, candidates: usize, slots: u32) -> u32 {
        let share = f64::from(slots) * self.share / candidates.max(1) as f64;
        let least = self.least.min(u64::from(slots)) as u32;
        (share as u32).clamp(least, slots).max(1)
    }
}

/// A candidate's miniature cache.
struct Shadow {
    level: Level<Box<dyn RegisteredPolicy>>,
    /// Hits in this period.
    hits: u64,
    /// Hits in all periods, each weighing three quarters of the next.
    of_late: f64,
}

/// The miniature caches of all candidates.
pub struct Shadows {
    sampling: Sampling,
    salt: u64,
    /// A block is sampled if its hash is not above this.
    threshold: u64,
    /// Sampled requests that make a period.
    period: u64,
    requests: u64,
    requests_of_late: f64,
    all: Vec<Shadow>,
}

const MEMORY: f64 = 0.75;
const PERIOD_MIN: u64 = 64;

impl Shadows {
    /// Empty shadows of `candidates` for a cache of this shape.
    pub fn new(
        sampling: Sampling,
        candidates: &[PolicySpec],
        shape: &Shape,
    ) -> Result<Self, SpecError> {
        let each = sampling.slots_of_each(candidates.len(), shape.slots);
        let small = Shape {
            slots: each,
            seed: shape.seed,
        };
        let shadow = |spec| -> Result<Shadow, SpecError> {
            Ok(Shadow {
                level: Level::new(build(spec, &small)?, HashIndex::default(), each),
                hits: 0,
                of_late: 0.0,
            })
        };
        let mut shadows = Self {
            sampling,
            salt: mix(shape.seed),
            threshold: 0,
            period: 0,
            requests: 0,
            requests_of_late: 0.0,
            all: candidates.iter().map(shadow).collect::<Result<_, _>>()?,
        };
        shadows.sample(each, shape.slots);
        Ok(shadows)
    }

    fn sample(&mut self, each: u32, slots: u32) {
        let rate = f64::from(each) / f64::from(slots);
        self.threshold = (rate * u64::MAX as f64) as u64;
        self.period = u64::from(each / 2).max(PERIOD_MIN);
    }

    #[inline]
    fn is_sampled(&self, block: BlockId) -> bool {
        mix(block.raw() ^ self.salt) <= self.threshold
    }

    /// Puts an access before every shadow, if its block is sampled; whether a period is over.
    #[inline]
    pub fn access(&mut self, access: &Access) -> bool {
        self.is_sampled(access.block) && self.access_sampled(access)
    }

    #[inline(never)]
    fn access_sampled(&mut self, access: &Access) -> bool {
        let is_demand = access.kind.is_demand();
        for shadow in &mut self.all {
            let outcome = shadow.level.access(access);
            shadow.hits += u64::from(is_demand && matches!(outcome, Outcome::Hit(_)));
        }
        self.requests += u64::from(is_demand);
        self.requests >= self.period
    }

    /// Begins a period; the hit ratio of late of each candidate.
    pub fn close_period(&mut self) -> Vec<f64> {
        self.requests_of_late = self.requests_of_late * MEMORY + self.requests as f64;
        self.requests = 0;
        let all = self.requests_of_late.max(1.0);
        let close = |shadow: &mut Shadow| {
            shadow.of_late = shadow.of_late * MEMORY + shadow.hits as f64;
            shadow.hits = 0;
            shadow.of_late / all
        };
        self.all.iter_mut().map(close).collect()
    }

    /// The block is gone.
    pub fn forget(&mut self, block: BlockId) {
        if self.is_sampled(block) {
            for shadow in &mut self.all {
                shadow.level.remove(block, Departure::Invalidated);
            }
        }
    }

    /// The cache has another number of slots.
    pub fn resize(&mut self, slots: u32) {
        let each = self.sampling.slots_of_each(self.all.len(), slots);
        for shadow in &mut self.all {
            shadow.level.resize(each);
        }
        self.sample(each, slots);
    }

    /// Panics unless every shadow is sound. For tests.
    pub fn audit(&self) {
        for shadow in &self.all {
            shadow.level.audit();
        }
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[inline]
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
