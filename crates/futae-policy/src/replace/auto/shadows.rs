//! The candidates as shadow caches, and the choice of the one with the most hits.

use super::candidates::{self, candidates};
use super::opening::Opening;
use super::pauses::WARMING;
use super::real::Real;
use super::scatter::scatter;
use super::shadow::{Shadow, level, number};
use super::upper::Upper;
use crate::{Access, AccessKind, BlockId, Outcome, PolicySpec, Prng, Shape, SpecError};

/// Slots of the cache per slot of a shadow.
const SHARE: u32 = 256;
/// The smallest number of slots of a shadow, unless the cache is smaller: with fewer, chance
/// decides.
const SLOTS_MIN: u32 = 1024;
/// Shadows of a cache whose size changes are made anew once they have this many times the slots that they should have, or a part of
/// them that is as small.
const MISFIT: u32 = 4;
/// Requests of the sample between two comparisons of the candidates.
const WINDOW: u32 = 64;
/// By this factor the lead must be longer once the upper cache reports its evictions: the order
/// that is then in force is rarely far from the best, and a change costs reads.
const DOUBT_BELOW: f64 = 25.0;
/// The largest factor by which the lead of a candidate grows whose rehearsals came to nothing.
const HANDICAP_MAX: f64 = 64.0;

/// Deviations of chance by which a candidate must lead to be rehearsed, for each rehearsal that came to
/// nothing, and at most.
const SURE_STEP: f64 = 2.0;
const SURE_MAX: f64 = 6.0;
/// Hits for each request that is compared by which a candidate must lead, unless shadows have all slots: with less, two orders that are
/// about as good take turns.
pub const GAIN: f64 = 0.001;
/// Accesses of the sample after which candidates that need evictions rest until there are any.
const RESTS_AFTER: u64 = 1 << 16;
/// Accesses that wait at most until the shadows decide on them.
const WAITING_MAX: usize = 256;

/// One candidate.
struct Candidate {
    spec: PolicySpec,
    /// Whether it is useful only below a cache that reports its evictions.
    needs_evictions: bool,
    /// None while it leads the cache and shadows have all slots of it.
    shadow: Option<Shadow>,
    /// Which requests of this window hit and count, a bit each.
    hits: u64,
    /// Hits, the later the more.
    score: f64,
    /// Factor of the lead that this candidate needs; doubled by each rehearsal in vain.
    handicap: f64,
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
    /// For each pair of candidates the requests that only one of them hit, the later the more.
    apart: Vec<f64>,
    /// Deviations of chance by which a candidate must lead.
    sure: f64,
    /// Hits of the cache itself, as those of a candidate.
    real: Real,
    upper: Upper,
    /// Until the first eviction.
    opening: Option<Opening>,
    /// Requests over which hits are compared, the later the more.
    weight: f64,
    /// Requests of the sample after a pause that are not compared.
    warming: u32,
    /// Accesses of the sample on which the shadows have decided.
    decided: u64,
    /// Whether candidates that need evictions rest, because nothing was evicted above for long.
    rests: bool,
    /// Accesses of the sample on which the shadows have not decided yet, each with its bit in [`Candidate::hits`], or 0 if
    /// its hit does not count.
    waiting: Vec<(Access, u64)>,
    /// Which of these requests the leader of the cache held and count.
    led: u64,
}

/// Slots of each shadow of a cache with this many.
fn slots_of(slots: u32) -> u32 {
    (slots / SHARE).max(SLOTS_MIN.min(slots)).max(1)
}

impl Shadows {
    /// Empty shadows for a cache of this shape, which the first candidate leads.
    pub fn new(shape: &Shape, memory: f64, lead: f64) -> Result<Self, SpecError> {
        let mut new = Self::led_by(0, shape, memory, lead)?;
        new.opening = Opening::beside(|at| &new.candidates[at].spec, new.slots, shape)?;
        Ok(new)
    }

    /// Without an opening.
    fn led_by(in_force: usize, shape: &Shape, memory: f64, lead: f64) -> Result<Self, SpecError> {
        let slots = slots_of(shape.slots);
        let is_whole = slots >= shape.slots;
        let share = f64::from(slots) / f64::from(shape.slots.max(1));
        let candidate = |(at, mut spec): (usize, PolicySpec)| {
            spec.keep_served();
            let leads = is_whole && at == in_force;
            let shadow = (!leads).then(|| level(&spec, &Shape { slots, ..*shape }));
            Ok(Candidate {
                needs_evictions: spec.lives_on_demotions(),
                spec,
                shadow: shadow.transpose()?,
                hits: 0,
                score: 0.0,
                handicap: 1.0,
            })
        };
        let all = candidates().into_iter().enumerate().map(candidate);
        let candidates: Vec<Candidate> = all.collect::<Result<_, SpecError>>()?;
        let salt = Prng::new(shape.seed).bits();
        Ok(Self {
            apart: vec![0.0; candidates.len() * candidates.len()],
            opening: None,
            candidates,
            in_force,
            threshold: if is_whole {
                u64::MAX
            } else {
                (share * u64::MAX as f64) as u64
            },
            salt,
            slots,
            memory,
            lead,
            seen: 0,
            sure: 0.0,
            real: Real::default(),
            upper: Upper::new(shape.slots, salt),
            weight: 0.0,
            warming: 0,
            decided: 0,
            rests: false,
            waiting: Vec::new(),
            led: 0,
        })
    }

    /// The policy of a candidate.
    pub fn spec(&self, at: usize) -> &PolicySpec {
        &self.candidates[at].spec
    }

    /// By this factor the lead of a candidate must be longer, and its rehearsal may be.
    pub fn handicap(&self, at: usize) -> f64 {
        self.candidates[at].handicap
    }

    /// Whether a candidate's shadow holds a block. The leader of the cache counts as if it held all.
    pub fn holds(&self, at: usize, block: BlockId) -> bool {
        let shadow = self.candidates[at].shadow.as_ref();
        shadow.is_none_or(|shadow| shadow.find(block).is_some())
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
        candidates::rehearsed_first().filter(|_| !self.are_whole())
    }

    /// Takes note of an access of the level above. Returns the candidate to be in force below a
    /// cache that reports its evictions, and how the blocks of the cache are passed on to it: when it is first known to be
    /// one, and when it has filled the cache.
    #[inline]
    pub fn note_upper(&mut self, access: &Access) -> Option<(usize, AccessKind)> {
        let is_known = self.upper.see(access.kind);
        if self.rests && self.upper.has_evicted() {
            self.wake();
        }
        if is_known {
            // The upper cache has these blocks, too.
            return candidates::first_below().map(|first| (first, AccessKind::Read));
        }
        if self.upper.has_filled_with_one_timers(self.slots) {
            return self.below_one_timers();
        }
        None
    }

    /// The upper cache has evicted its first block. Candidates that rested hold what they held before, and their scores begin
    /// where that of the order in force is.
    #[cold]
    fn wake(&mut self) {
        self.catch_up();
        self.rests = false;
        let score = self.candidates[self.in_force].score;
        for candidate in &mut self.candidates {
            if candidate.needs_evictions {
                candidate.score = score;
            }
        }
    }

    /// A pause has ended.
    pub fn resume(&mut self) {
        self.warming = WARMING * self.slots;
        self.real.settle(self.warming);
    }

    #[cold]
    fn below_one_timers(&self) -> Option<(usize, AccessKind)> {
        let is_first = Some(self.in_force) == candidates::first_below();
        let next = candidates::below_one_timers().filter(|_| is_first)?;
        Some((next, self.spec(next).handover_kind()))
    }

    /// Takes note of an access before anything counts it.
    #[inline]
    pub fn note(&mut self, access: &Access) {
        self.upper.note(access);
    }

    /// Whether a hit of the noted access counts. Below a cache that reports its evictions those of reads do, and those of
    /// writes to blocks that it evicted. The other writes come down although the upper cache has the block, and a hit saves
    /// them nothing.
    #[inline]
    pub fn counts(&self, kind: AccessKind) -> bool {
        match kind {
            AccessKind::Read => true,
            AccessKind::Write => !self.upper.reports() || self.upper.asks_again(),
            _ => false,
        }
    }

    /// Lead in hits for each slot that a candidate needs.
    pub fn lead(&self) -> f64 {
        if self.upper.reports() {
            self.lead * DOUBT_BELOW
        } else {
            self.lead
        }
    }

    /// A rehearsal of this candidate came to nothing.
    pub fn note_failure(&mut self, at: usize) {
        self.sure = (self.sure + SURE_STEP).min(SURE_MAX);
        let handicap = &mut self.candidates[at].handicap;
        *handicap = (*handicap * 2.0).min(HANDICAP_MAX);
    }

    /// Lets the shadows decide on an access, if its block is in the sample. `led`: whether the
    /// leader of the cache held the block; `is_hit`: whether the cache did. Returns whether a window has ended.
    #[inline]
    pub fn see(&mut self, access: &Access, led: bool, is_hit: bool) -> bool {
        let is_in = self.are_whole() || scatter(access.block, self.salt) <= self.threshold;
        if !is_in || access.kind == AccessKind::Preload {
            return false;
        }
        self.decide(access, led, is_hit);
        self.seen >= WINDOW
    }

    fn decide(&mut self, access: &Access, led: bool, is_real_hit: bool) {
        let counts = self.counts(access.kind);
        let here = u64::from(counts) << (self.seen % WINDOW);
        self.led |= if led { here } else { 0 };
        self.real.see(is_real_hit, here);
        if counts {
            self.upper.note_counted(is_real_hit);
        }
        self.waiting.push((*access, here));
        self.seen += u32::from(access.kind.is_demand());
        if self.seen >= WINDOW || self.waiting.len() >= WAITING_MAX {
            self.catch_up();
        }
    }

    /// Lets the shadows decide on the accesses that wait, one shadow after the other: the processor then has the data and
    /// the code of each in its nearest caches.
    fn catch_up(&mut self) {
        let led = std::mem::take(&mut self.led);
        let rests = self.rests;
        let all = self.candidates.iter_mut();
        for candidate in all.filter(|it| !rests || !it.needs_evictions) {
            let Some(shadow) = &mut candidate.shadow else {
                candidate.hits |= led;
                continue;
            };
            for (access, here) in &self.waiting {
                let is_hit = matches!(shadow.access(access), Outcome::Hit(_));
                candidate.hits |= if is_hit { *here } else { 0 };
            }
        }
        if let Some(opening) = &mut self.opening {
            for (access, here) in &self.waiting {
                opening.see(access, *here != 0);
            }
        }
        self.decided += self.waiting.len() as u64;
        self.rests = self.decided >= RESTS_AFTER && !self.upper.has_evicted();
        self.waiting.clear();
    }

    /// Whether the order of the first evictions is still to be chosen.
    #[inline]
    pub fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Chooses the order of the first evictions, if another one than that in force.
    pub fn close_opening(&mut self) -> Option<usize> {
        self.catch_up();
        let opening = self.opening.take()?;
        // Below a cache that reports its evictions another rule holds.
        if self.upper.has_evicted() {
            return None;
        }
        opening.best()
    }

    /// Whether no request of the sample has come since a window ended.
    #[inline]
    pub fn is_new_window(&self) -> bool {
        self.seen == 0
    }

    /// Ends a window. Returns the candidate with the highest score among those that lead the current
    /// one by enough.
    pub fn judge(&mut self) -> Option<usize> {
        let memory = self.memory * f64::from(self.slots);
        let count = self.candidates.len();
        let seen = std::mem::take(&mut self.seen);
        if self.warming > 0 {
            self.warming = self.warming.saturating_sub(seen);
            self.real.skip_window(seen);
            for candidate in &mut self.candidates {
                candidate.hits = 0;
            }
            return None;
        }
        let kept = (-f64::from(seen) / memory).exp();
        self.weight = self.weight * kept + f64::from(seen);
        self.real
            .end_window(self.candidates[self.in_force].hits, seen, kept);
        for (at, one) in self.candidates.iter().enumerate() {
            for (other, apart) in self.candidates.iter().zip(&mut self.apart[at * count..]) {
                *apart = *apart * kept + f64::from((one.hits ^ other.hits).count_ones());
            }
        }
        for candidate in &mut self.candidates {
            let hits = f64::from(std::mem::take(&mut candidate.hits).count_ones());
            candidate.score = candidate.score * kept + hits;
        }
        let least = (self.lead() * f64::from(self.slots)).max(1.0);
        let gain = if self.are_whole() { 0.0 } else { GAIN };
        let least = least.max(gain * self.weight);
        let mut best: Option<usize> = None;
        for (at, candidate) in self.candidates.iter().enumerate() {
            if at == self.in_force {
                continue;
            }
            let is_of_use = self.upper.has_evicted() || !candidate.needs_evictions;
            let apart = self.apart[self.in_force * count + at];
            let ahead = self.ahead(at);
            let is_ahead = ahead >= least * candidate.handicap && ahead >= self.sure * apart.sqrt();
            let is_more = best.is_none_or(|best| candidate.score > self.candidates[best].score);
            if is_of_use && is_ahead && is_more {
                best = Some(at);
            }
        }
        best
    }

    /// By how many hits the cache is behind the shadow of the candidate in force, if not by chance.
    fn behind(&self) -> f64 {
        if self.are_whole() {
            return 0.0;
        }
        self.real.behind(self.candidates[self.in_force].score)
    }

    /// The lead of a candidate over the current one, in hits.
    pub fn ahead(&self, at: usize) -> f64 {
        self.candidates[at].score - self.candidates[self.in_force].score + self.behind()
    }

    /// Makes a candidate the current one; returns the previous one.
    pub fn put_in_force(&mut self, at: usize) -> usize {
        for candidate in &mut self.candidates {
            candidate.handicap = 1.0;
        }
        self.real = Real::behind_change(self.candidates[at].score, self.slots);
        std::mem::replace(&mut self.in_force, at)
    }

    /// Takes the shadow of a candidate that is to lead the cache.
    pub fn lend(&mut self, at: usize) -> Option<Shadow> {
        self.catch_up();
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

    /// Slots of these shadows for a cache of another size: as many blocks as before are in the sample.
    fn resized(&self, slots: u32) -> u32 {
        let share = self.threshold as f64 / u64::MAX as f64;
        ((f64::from(slots) * share).round() as u32).max(1)
    }

    /// Whether these shadows are about as large for a cache of another size as new ones would be.
    pub fn fit(&self, slots: u32) -> bool {
        let (here, new) = (self.resized(slots), slots_of(slots));
        here <= new.saturating_mul(MISFIT) && new <= here.saturating_mul(MISFIT)
    }

    /// The size of the cache has changed.
    pub fn resize(&mut self, slots: u32) {
        self.catch_up();
        self.upper.resize(slots);
        self.slots = self.resized(slots);
        self.opening = None;
        let slots = self.slots;
        for shadow in self.shadows() {
            shadow.resize(slots);
        }
    }

    /// Empty shadows in place of these for a cache of another size, under the same candidate. That of the candidate is missing
    /// if the new ones have all slots.
    pub fn renew(&mut self, shape: &Shape) -> Result<(), SpecError> {
        let mut new = Self::led_by(self.in_force, shape, self.memory, self.lead)?;
        std::mem::swap(&mut new.upper, &mut self.upper);
        new.upper.resize(shape.slots);
        new.real = Real::behind_change(0.0, new.slots);
        *self = new;
        Ok(())
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

    /// Slots of a shadow.
    #[cfg(test)]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Panics unless each shadow's invariants hold.
    pub fn audit(&self) {
        if let Some(opening) = &self.opening {
            opening.audit();
        }
        for candidate in &self.candidates {
            if let Some(shadow) = &candidate.shadow {
                shadow.audit();
            }
        }
        let lent = self.candidates.iter().filter(|it| it.shadow.is_none());
        assert_eq!(lent.count(), usize::from(self.are_whole()));
    }
}
