//! Automatic choice: runs several policies on a sample of the requests, and follows the one with the most
//! hits.
//!
//! # Source
//! Shadow caches after Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC construction with SHARDS",
//! FAST 2015, and Waldspurger, Saemundsson, Ahmad and Park, "Cache modeling and optimization using
//! miniature simulations", ATC 2017; the choice among them, the rehearsal and the imitation are futae's
//! own. docs/explanation/auto.md describes all of it
//! # Picture
//! request → active policy, over the slots of the cache
//! | hashed sample of the requests → a shadow of each candidate → scores
//! → the best one is rehearsed with all slots, without data → ahead of the cache: active;
//! victim ← a block that it would not hold
//! # Transitions
//! hit, miss, demotion, notice: as the active policy decides; each shadow sees the accesses of the sample,
//! and a rehearsal all | full for the first time: of the first policy and the candidates that may open, the
//! one with the most hits in a quarter of a shadow's slots is active | each 64 requests of the sample:
//! scores are compared, and a candidate that is ahead of the active policy by `lead` is rehearsed | the
//! rehearsal is ahead of the cache by `lead`, by 8 hits, by 2 standard deviations of chance, and after the
//! first change by one hit per 20 blocks that differ: it is active | it is not so in time: it ends, and its
//! candidate needs twice the lead next time | after a change: a block that the active policy would not hold
//! is evicted first, and one that it would hold and the cache does not is fetched at its next request | the
//! cache above has reported 4 to 16 evictions: `exclusive(lfu)` is active, and other candidates need 25
//! times the lead | that cache has evicted as many blocks as there are slots, with at most one hit in 200
//! requests: `exclusive(bidifilter)` is active | the shadows have all slots: no rehearsals; a change needs
//! 0.35 hits per block that differs, twice that on the way back | after 100 requests per slot, and 262,144 at
//! least: pauses of a fifth of the requests so far, between which candidates are compared for 30 requests per
//! slot; another hit ratio ends a pause
//! # Parameters
//! memory 20: requests per slot over which hits are compared
//! lead 0.002: hits per slot by which a candidate must be ahead. It must also be ahead by one hit per 1,000
//! compared requests, unless the shadows have all slots
//! # Deviations
//! none of a published rule. The registry marks the candidates. The first one is active at the start, and a
//! second one is rehearsed at the start. Candidates that need demotions, of which two have an inner policy,
//! count only below a cache that reports evictions. A shadow has a 256th of the slots, at least 1,024, or
//! all of a smaller cache. The settings were found on the traces by which lab/results judges them
//! # Cost
//! that of the active policy, once more during a rehearsal, and that of each candidate for the requests of
//! the sample; 48 bytes per slot, about 100 more during a rehearsal, 8 to 16 more below a cache that
//! reports evictions, and shadows of at most a 256th of the slots with about 100 bytes per block and
//! candidate

mod agreed;
mod candidates;
mod content;
mod imitation;
mod opening;
mod pauses;
mod real;
mod rehearsal;
mod scatter;
mod shadow;
mod shadows;
mod upper;
mod whereabouts;

use crate::{
    Access, AccessKind, Admission, Arguments, BlockId, Class, Departure, Policy, Shape,
    SimulatorHints, Slot, SpecError, StoreCosts,
};
use agreed::Agreed;
pub use candidates::candidates;
use content::Content;
use imitation::Imitation;
use opening::Filling;
use pauses::Pauses;
use rehearsal::Rehearsal;
use shadow::Shadow;
use shadows::{GAIN, Shadows};

/// Changes that are remembered; later ones are not.
const REMARKS_MAX: usize = 1000;
/// Requests for each slot over which a rehearsal is compared with the cache.
const REHEARSED_MEMORY: f64 = 2.0;
/// Requests for each slot after which a rehearsal that is not ahead ends, unless its score is the highest.
const PATIENCE: f64 = 4.0;
/// Requests for each slot after which a rehearsal that is not ahead ends.
const PATIENCE_MAX: f64 = 16.0;
/// The largest factor by which rehearsals that came to nothing lengthen that of the candidate with the highest score. Some orders
/// need long to know which blocks they should have kept.
const PATIENCE_GROWTH_MAX: f64 = 8.0;
/// The smallest lead in hits of a rehearsal, however small the cache is.
const REHEARSED_LEAD_MIN: f64 = 8.0;

/// Deviations of chance by which a rehearsal must be ahead of the cache.
const SURE_REHEARSED: f64 = 2.0;
/// Hits by which a rehearsal must be ahead for each block of the cache that it does not hold.
const PRICE: f64 = 0.05;
/// The same for a shadow of all slots, which has been compared for longer. With 0.4 a change of load would cost more than two turnovers.
const PRICE_OF_SHADOWS: f64 = 0.35;
/// A return to the order that was in force before costs so many times as much: two orders that lead in turn are equally good.
const RETURN: f64 = 2.0;
/// So many slots are examined to find how many these are, the second if it may be done after each window.
const EXAMINED: u32 = 1024;
const EXAMINED_OFTEN: u32 = 256;

/// The content of the cache, the candidates, and the rehearsed one.
pub struct Auto {
    shadows: Shadows,
    content: Content,
    rehearsal: Option<Rehearsal>,
    shape: Shape,
    numbered_from: Option<u64>,
    requests: u64,
    requests_at_change: u64,
    /// Resident blocks.
    resident: u32,
    filling: Filling,
    pauses: Pauses,
    /// The candidate that was in force before.
    left: Option<usize>,
    remarks: Vec<String>,
}

/// Builds the policy; its parameters are `memory` and `lead`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Auto, SpecError> {
    let memory = arguments.take("memory", "a number from 1 to 1000", |memory: &f64| {
        (1.0..=1000.0).contains(memory)
    })?;
    let lead = arguments.share("lead", 0.002)?;
    let shadows = Shadows::new(shape, memory.unwrap_or(20.0), lead)?;
    let first = shadows.spec(shadows.in_force());
    let content = if shadows.are_whole() {
        Content::Imitation(Imitation::new(shadow::level(first, shape)?))
    } else {
        Content::Agreed(Agreed::new(crate::build(first, shape)?, shape.slots))
    };
    let mut auto = Auto {
        shadows,
        content,
        rehearsal: None,
        shape: *shape,
        numbered_from: None,
        requests: 0,
        requests_at_change: 0,
        resident: 0,
        filling: Filling::default(),
        pauses: Pauses::new(shape.slots),
        left: None,
        remarks: Vec::new(),
    };
    if let Some(first) = auto.shadows.first_rehearsed() {
        auto.rehearse(first);
    }
    Ok(auto)
}

impl Auto {
    /// Shows the candidates an access that the leader has decided. Returns whether the leader has
    /// changed.
    #[inline]
    fn see(&mut self, access: &Access, is_hit: bool) -> bool {
        if access.kind.is_demand() {
            self.requests += 1;
            if self.pauses.see(is_hit) {
                self.shadows.resume();
            }
        }
        self.shadows.note(access);
        if let Some(rehearsal) = &mut self.rehearsal {
            rehearsal.see(access, is_hit, self.shadows.counts(access.kind));
        }
        let is_over =
            !self.pauses.is_paused() && self.shadows.see(access, self.content.led(is_hit), is_hit);
        if let Some((first, handover)) = self.shadows.note_upper(access) {
            return self.begin_below(first, handover);
        }
        is_over && self.judge()
    }

    /// Puts a candidate in force that has led nothing so far.
    #[cold]
    fn begin_below(&mut self, first: usize, handover: AccessKind) -> bool {
        self.pauses.end();
        if self.shadows.are_whole() {
            return self.follow_shadow(first);
        }
        let Some(level) = self.level_of_cache(first, handover) else {
            return false;
        };
        self.follow(first, level, 0.0);
        true
    }

    /// The cache is full: the first order that may evict is chosen.
    #[cold]
    fn open(&mut self) {
        let Some(first) = self.shadows.close_opening() else {
            return;
        };
        if self
            .filling
            .load_has_changed(self.shape.slots, self.requests)
        {
            return;
        }
        if self.shadows.are_whole() {
            self.follow_shadow(first);
            return;
        }
        let rehearsed = self.rehearsal.take_if(|it| it.candidate() == first);
        let kind = self.shadows.spec(first).handover_kind();
        let level = match rehearsed {
            Some(rehearsal) => Some(rehearsal.into_level()),
            None => self.level_of_cache(first, kind),
        };
        if let Some(level) = level {
            self.follow(first, level, 0.0);
        }
    }

    fn judge(&mut self) -> bool {
        let best = self.shadows.judge();
        if best.is_none() && self.rehearsal.is_none() && self.pauses.begin() {
            return false;
        }
        if self.shadows.are_whole() {
            return best.is_some_and(|best| self.shadow_pays(best) && self.follow_shadow(best));
        }
        let slots = f64::from(self.shape.slots);
        let needed = (self.shadows.lead() * slots).max(REHEARSED_LEAD_MIN);
        let price = PRICE * slots;
        let growth = best.map_or(1.0, |best| self.shadows.handicap(best));
        let longest = PATIENCE_MAX * growth.min(PATIENCE_GROWTH_MAX);
        let mut has_won = false;
        let rehearsal = self.rehearsal.take_if(|rehearsal| {
            let turnovers = rehearsal.requests() as f64 / slots;
            let is_best = best == Some(rehearsal.candidate());
            let patience = if is_best { longest } else { PATIENCE };
            let ahead = rehearsal.ahead();
            has_won = ahead
                >= needed
                    .max(SURE_REHEARSED * rehearsal.deviation())
                    .max(GAIN * rehearsal.weight());
            // The first change is tried at once. One after another must pay what it costs.
            if has_won && !self.remarks.is_empty() {
                let is_held = |block| rehearsal.holds(block);
                has_won = ahead >= price * strays_of(is_held, &self.content, &self.shape, EXAMINED);
            }
            has_won || turnovers > patience
        });
        if let Some(rehearsal) = rehearsal {
            let (new, ahead) = (rehearsal.candidate(), rehearsal.ahead());
            if has_won {
                self.follow(new, rehearsal.into_level(), ahead);
                return true;
            }
            self.shadows.note_failure(new);
            return false;
        }
        if let (None, Some(best)) = (&self.rehearsal, best) {
            self.rehearse(best);
        }
        false
    }

    /// Whether a change to a shadow of all slots pays what it costs.
    fn shadow_pays(&self, new: usize) -> bool {
        let again = if self.left == Some(new) { RETURN } else { 1.0 };
        let price = PRICE_OF_SHADOWS * again * f64::from(self.shape.slots);
        let ahead = self.shadows.ahead(new);
        if self.remarks.is_empty() || ahead >= price {
            return true;
        }
        let is_held = |block| self.shadows.holds(new, block);
        ahead >= price * strays_of(is_held, &self.content, &self.shape, EXAMINED_OFTEN)
    }

    fn follow(&mut self, new: usize, level: Shadow, ahead: f64) {
        let old = self.shadows.put_in_force(new);
        self.content.follow(level);
        self.remark(old, new, ahead);
    }

    /// Makes the cache follow a shadow of all slots.
    fn follow_shadow(&mut self, new: usize) -> bool {
        let ahead = self.shadows.ahead(new);
        let Some(leader) = self.shadows.lend(new) else {
            return false;
        };
        let old = self.shadows.put_in_force(new);
        if let Some(before) = self.content.follow(leader) {
            self.shadows.take_back(old, before);
        }
        self.remark(old, new, ahead);
        true
    }

    fn rehearse(&mut self, candidate: usize) {
        let kind = self.shadows.spec(candidate).handover_kind();
        let memory = REHEARSED_MEMORY * f64::from(self.shape.slots);
        let level = self.level_of_cache(candidate, kind);
        self.rehearsal = level.map(|level| Rehearsal::new(candidate, level, memory));
    }

    /// A level of all slots under a candidate, which gets the blocks of the cache by accesses of this
    /// kind.
    fn level_of_cache(&self, candidate: usize, kind: AccessKind) -> Option<Shadow> {
        let spec = self.shadows.spec(candidate);
        // It was built before as a shadow, so this cannot fail.
        let mut level = shadow::level(spec, &self.shape).ok()?;
        if let Some(first) = self.numbered_from {
            shadow::number(&mut level, first);
        }
        for slot in self.content.order().into_iter().rev() {
            level.access(&Access::of(self.content.block(slot), kind));
        }
        Some(level)
    }

    /// Begins again with shadows that are as large as the present cache needs. The cache goes on under the same candidate.
    #[cold]
    fn renew_shadows(&mut self) -> Result<(), SpecError> {
        self.shadows.renew(&self.shape)?;
        if let Some(first) = self.numbered_from {
            self.shadows.number_blocks(first);
        }
        if self.shadows.are_whole() {
            self.rehearsal = None;
            let first = self.shadows.in_force();
            let kind = self.shadows.spec(first).handover_kind();
            if let (Content::Agreed(_), Some(level)) =
                (&self.content, self.level_of_cache(first, kind))
            {
                self.content.follow(level);
            }
        }
        Ok(())
    }

    fn remark(&mut self, old: usize, new: usize, ahead: f64) {
        self.left = Some(old);
        let since = self.requests - std::mem::replace(&mut self.requests_at_change, self.requests);
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push(format!(
                "{} orders the cache in place of {}: {ahead:.0} hits ahead, {} blocks to be fetched or dropped, {since} requests \
                 after the last change",
                self.shadows.spec(new),
                self.shadows.spec(old),
                self.content.stray_count()
            ));
        }
    }
}

/// The share of the slots, among some, whose block another level does not hold.
fn strays_of(
    is_held: impl Fn(BlockId) -> bool,
    content: &Content,
    shape: &Shape,
    examined: u32,
) -> f64 {
    let step = (shape.slots / examined).max(1) as usize;
    let examined = (0..shape.slots).step_by(step);
    let count = examined.len();
    let strays = examined.filter(|&slot| !is_held(content.block(Slot(slot))));
    strays.count() as f64 / count.max(1) as f64
}

impl Policy for Auto {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        if self.resident >= self.shape.slots && self.shadows.is_opening() {
            self.open();
        }
        let admission = self.content.miss(access);
        if self.see(access, false) {
            return self.content.expect(access.block);
        }
        admission
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.resident += 1;
        if self.shadows.is_opening() {
            self.filling
                .see(self.resident, self.shape.slots, self.requests);
        }
        self.content.insert(slot, access);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.content.hit(slot, access);
        self.see(access, true);
        if self.shadows.is_new_window() && !self.shadows.are_whole() {
            let (spec, seed) = (self.shadows.spec(self.shadows.in_force()), self.shape.seed);
            let spare = || shadow::level(spec, &Shape { slots: 1, seed }).ok();
            self.content.settle(access.tick + 1, spare);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        self.content.victim(incoming)
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.content.surplus()
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        self.resident -= 1;
        self.content.remove(slot, why);
    }

    fn reclass(&mut self, slot: Slot, class: Class) {
        self.content.reclass(slot, class);
    }

    fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        self.content.reclass_at_once(slot, access);
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        self.content.note_costs(costs);
    }

    fn weights(&self) -> Vec<(String, f64)> {
        self.content.weights()
    }

    fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn resize(&mut self, slots: u32) {
        self.shape.slots = slots;
        self.pauses = Pauses::new(slots);
        self.content.resize(slots);
        if let Some(rehearsal) = &mut self.rehearsal {
            rehearsal.resize(slots);
        }
        // They were built before, so this cannot fail.
        if self.shadows.fit(slots) || self.renew_shadows().is_err() {
            self.shadows.resize(slots);
        }
    }

    fn order(&self) -> Vec<Slot> {
        self.content.order()
    }

    fn rank(&self, slot: Slot) -> u64 {
        self.content.rank(slot)
    }

    fn audit(&self, resident: u32) {
        self.content.audit(resident);
        self.shadows.audit();
        if let Some(rehearsal) = &self.rehearsal {
            rehearsal.audit();
        }
    }
}

impl SimulatorHints for Auto {
    fn number_blocks(&mut self, first: u64) {
        self.numbered_from = Some(first);
        self.content.number_blocks(first);
        self.shadows.number_blocks(first);
        if let Some(rehearsal) = &mut self.rehearsal {
            rehearsal.number_blocks(first);
        }
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        let rehearsed = self.rehearsal.as_ref().map_or(0, |it| it.glance(block));
        self.content.glance(block).wrapping_add(rehearsed)
    }

    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.content.foresee(ahead)
    }

    #[inline]
    fn foresee_all(&self, victims: &mut [Slot]) -> usize {
        self.content.foresee_all(victims)
    }

    #[inline]
    fn approach(&self, slot: Slot) {
        self.content.approach(slot);
    }
}

/// The choice, written plainly.
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
