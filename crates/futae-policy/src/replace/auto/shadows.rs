//! The candidates as shadow caches, and the choice of the one with the most hits.

use super::imitation::Shadow;
use super::whereabouts::{Whereabouts, number};
use crate::{
    Access, AccessKind, BlockId, Kind, Level, Outcome, PolicySpec, Prng, Shape, SpecError, Trait,
};

/// Slots of the cache per slot of a shadow.
const SHARE: u32 = 64;
/// The smallest number of slots of a shadow, unless the cache is smaller: with fewer, chance
/// decides.
const SLOTS_MIN: u32 = 1024;
/// Requests of the sample between two comparisons of the candidates.
const WINDOW: u32 = 64;

/// One candidate.
struct Candidate {
    spec: PolicySpec,
    /// Whether it is useful only below a cache that reports its evictions.
    needs_evictions: bool,
    /// None while it leads the cache and shadows have all slots of it.
    shadow: Option<Shadow>,
    /// Hits in this window.
    hits: u32,
    /// Hits, the later the more.
    score: f64,
}

/// All candidates.
pub struct Shadows {
    candidates: Vec<Candidate>,
    in_force: usize,
    /// Blocks whose hash is at most this are in the sample.
    threshold: u64,
    salt: u64,
    /// Slots of a shadow.
    slots: u32,
    /// Requests a slot over which hits are compared.
    memory: f64,
    /// Hits per slot by which a candidate must lead.
    lead: f64,
    /// Requests of the sample in this window so far.
    seen: u32,
    /// Whether the upper cache has reported evictions.
    has_evictions: bool,
}

/// The candidates in the registry, the initial one first.
fn marked() -> impl Iterator<Item = Kind> {
    let all = Kind::ALL.iter().copied();
    all.filter(|kind| kind.traits().contains(&Trait::Candidate))
}

/// An empty level of this shape under a policy.
pub fn level(spec: &PolicySpec, shape: &Shape) -> Result<Shadow, SpecError> {
    let policy = crate::build(spec, shape)?;
    Ok(Level::new(policy, Whereabouts::default(), shape.slots))
}

impl Shadows {
    /// Empty shadows for a cache of this shape.
    pub fn new(shape: &Shape, memory: f64, lead: f64) -> Result<Self, SpecError> {
        let slots = (shape.slots / SHARE).max(SLOTS_MIN.min(shape.slots)).max(1);
        let is_whole = slots >= shape.slots;
        let share = f64::from(slots) / f64::from(shape.slots.max(1));
        let candidate = |(at, kind): (usize, Kind)| {
            let mut spec = PolicySpec::of(kind);
            spec.keep_served();
            let leads = is_whole && at == 0;
            let shadow = (!leads).then(|| level(&spec, &Shape { slots, ..*shape }));
            Ok(Candidate {
                needs_evictions: spec.lives_on_demotions(),
                spec,
                shadow: shadow.transpose()?,
                hits: 0,
                score: 0.0,
            })
        };
        let candidates = marked().enumerate().map(candidate);
        Ok(Self {
            candidates: candidates.collect::<Result<_, SpecError>>()?,
            in_force: 0,
            threshold: if is_whole {
                u64::MAX
            } else {
                (share * u64::MAX as f64) as u64
            },
            salt: Prng::new(shape.seed).bits(),
            slots,
            memory,
            lead,
            seen: 0,
            has_evictions: false,
        })
    }

    /// The policy of a candidate.
    pub fn spec(&self, at: usize) -> &PolicySpec {
        &self.candidates[at].spec
    }

    /// The candidate in force.
    pub fn in_force(&self) -> usize {
        self.in_force
    }

    /// Whether each shadow has as many slots as the cache.
    pub fn are_whole(&self) -> bool {
        self.threshold == u64::MAX
    }

    /// The candidate that is rehearsed before scores are known; `None` if shadows have all slots.
    pub fn first_rehearsed(&self) -> Option<usize> {
        let is_first = |kind: Kind| kind.traits().contains(&Trait::RehearsedFirst);
        marked().position(is_first).filter(|_| !self.are_whole())
    }

    /// Lets the shadows decide on an access, if its block is in the sample. `led`: whether the
    /// leader of the cache held the block. Returns whether a window has ended.
    #[inline]
    pub fn see(&mut self, access: &Access, led: bool) -> bool {
        if scatter(access.block, self.salt) > self.threshold || access.kind == AccessKind::Preload {
            return false;
        }
        self.decide(access, led);
        self.seen >= WINDOW
    }

    fn decide(&mut self, access: &Access, led: bool) {
        let is_demand = access.kind.is_demand();
        for candidate in &mut self.candidates {
            let is_hit = match &mut candidate.shadow {
                Some(shadow) => matches!(shadow.access(access), Outcome::Hit(_)),
                None => led,
            };
            candidate.hits += u32::from(is_hit && is_demand);
        }
        self.has_evictions |= !is_demand;
        self.seen += u32::from(is_demand);
    }

    /// Ends a window. Returns the candidate with the highest score, if it leads the current one by
    /// enough.
    pub fn judge(&mut self) -> Option<usize> {
        let memory = self.memory * f64::from(self.slots);
        let kept = (-f64::from(std::mem::take(&mut self.seen)) / memory).exp();
        for candidate in &mut self.candidates {
            let hits = f64::from(std::mem::take(&mut candidate.hits));
            candidate.score = candidate.score * kept + hits;
        }
        let mut best = self.in_force;
        for (at, candidate) in self.candidates.iter().enumerate() {
            let is_of_use = self.has_evictions || !candidate.needs_evictions;
            if is_of_use && candidate.score > self.candidates[best].score {
                best = at;
            }
        }
        let needed = (self.lead * f64::from(self.slots)).max(1.0);
        (self.ahead(best) >= needed).then_some(best)
    }

    /// The lead of a candidate over the current one, in hits.
    pub fn ahead(&self, at: usize) -> f64 {
        self.candidates[at].score - self.candidates[self.in_force].score
    }

    /// Makes a candidate the current one; returns the previous one.
    pub fn put_in_force(&mut self, at: usize) -> usize {
        std::mem::replace(&mut self.in_force, at)
    }

    /// Takes the shadow of a candidate that is to lead the cache.
    pub fn lend(&mut self, at: usize) -> Option<Shadow> {
        self.candidates[at].shadow.take()
    }

    /// The level that led the cache is a shadow again.
    pub fn take_back(&mut self, at: usize, level: Shadow) {
        self.candidates[at].shadow = Some(level);
    }

    fn shadows(&mut self) -> impl Iterator<Item = &mut Shadow> {
        let candidates = self.candidates.iter_mut();
        candidates.filter_map(|candidate| candidate.shadow.as_mut())
    }

    /// The size of the cache has changed.
    pub fn resize(&mut self, slots: u32) {
        let share = self.threshold as f64 / u64::MAX as f64;
        let slots = ((f64::from(slots) * share).round() as u32).max(1);
        self.slots = slots;
        for shadow in self.shadows() {
            shadow.resize(slots);
        }
    }

    /// Announces the numbering of blocks; see [`crate::SimulatorHints::number_blocks`].
    pub fn number_blocks(&mut self, first: u64) {
        let are_whole = self.are_whole();
        for shadow in self.shadows() {
            // For a sample, an array of all blocks would be mostly empty.
            if are_whole {
                number(shadow, first);
            } else {
                shadow.number_blocks(first);
            }
        }
    }

    /// Panics unless each shadow's invariants hold.
    pub fn audit(&self) {
        for candidate in &self.candidates {
            if let Some(shadow) = &candidate.shadow {
                shadow.audit();
            }
        }
        let lent = self.candidates.iter().filter(|it| it.shadow.is_none());
        assert_eq!(lent.count(), usize::from(self.are_whole()));
    }
}

/// A hash of the block, so that the sample does not depend on how blocks are numbered.
#[inline]
fn scatter(block: BlockId, salt: u64) -> u64 {
    let name = (u64::from(block.volume().0) << 48 | block.index()) ^ salt;
    let name = (name ^ (name >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let name = (name ^ (name >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    name ^ (name >> 32)
}
