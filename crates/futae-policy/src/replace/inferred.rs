//! Inferred: exclusive below caches that report no evictions, which it infers from the times at which
//! blocks are requested again.
//!
//! # Source
//! the aim of Bairavasundaram, Sivathanu, Arpaci-Dusseau and Arpaci-Dusseau, "X-RAY", ISCA 2004, and of
//! Jones, Arpaci-Dusseau and Arpaci-Dusseau, "Geiger", ASPLOS 2006, section 2: know from requests what the
//! cache above has evicted; and to read that again, as Chen, Zhou and Li, "Eviction-based cache placement
//! for storage caches", USENIX ATC 2003, section 4 (reload from disk). The rule that estimates how long a
//! block stays above is futae's own
//! # Picture
//! served → [ presumed above, oldest first ] → after as many misses as the earliest blocks took to return
//! → presumed evicted above: kept as demoted if its data is still here, else read again;
//! both in the cache `exclusive`
//! # Transitions
//! as `exclusive(keep_served=true)`, for which this makes notices: a block is presumed evicted above when
//! as many other blocks were served after it as lie between two requests of a block at the quantile `early`
//! # Parameters
//! early 0.02: the share of returning blocks that may return before they are presumed evicted above
//! times 2: how often a block must have been served, as far as ghost entries tell, to be read again; 1
//! stands for all blocks, 0 for none. `inferred(POLICY)` orders the blocks presumed evicted by another
//! policy than `lfu`, e.g. `lru` for loads whose popular blocks change
//! # Deviations
//! Geiger and X-RAY know a file system or a machine's memory; this knows only the order in which blocks are
//! served
//! # Cost
//! O(1) per access; 40 bytes per slot beside the inner policy, and at most 8 ghost entries per slot, of 40
//! bytes

use crate::structures::{Ghosts, Table};
use crate::{
    Access, AccessKind, Admission, Argument, Arguments, BlockId, Class, Departure, Kind, Policy,
    PolicySpec, RegisteredPolicy, Shape, SimulatorHints, Slot, SpecError, StoreCosts,
};
use std::collections::VecDeque;

mod gaps;

use gaps::Gaps;

/// Names remembered per slot, in each of the two lists.
const NAMES_A_SLOT: u32 = 4;
const EARLY: f64 = 0.02;
const TIMES: u32 = 2;

/// A block that was served.
#[derive(Clone, Copy, Debug)]
struct Served {
    /// How many were served before it.
    at: u64,
    /// Its slot then, if it was kept.
    slot: Option<Slot>,
    /// How often it was served, as far as is remembered.
    times: u32,
}

/// An exclusive cache that infers the upper level's evictions.
pub struct Inferred {
    inner: Box<dyn RegisteredPolicy>,
    /// The blocks in slots.
    names: Table<Option<BlockId>>,
    served: u64,
    /// Blocks believed to be above, served longest ago first.
    above: Ghosts<Served>,
    /// Blocks believed to have left it.
    gone: Ghosts<Served>,
    gaps: Gaps,
    times: u32,
    /// Blocks to read again.
    wanted: VecDeque<BlockId>,
    slots: u32,
}

/// Builds the policy; its parameters are `early` and `times`, its argument the inner policy, `lfu` unless written.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Inferred, SpecError> {
    let order = arguments
        .inner()
        .unwrap_or_else(|| PolicySpec::of(Kind::lfu));
    let early = arguments.take("early", "a share from 0 to 0.5", |early: &f64| {
        (0.0..=0.5).contains(early)
    })?;
    let times = arguments.take("times", "0 to 1000", |times: &u32| *times <= 1000)?;
    let mut inner = PolicySpec::of(Kind::exclusive);
    inner.arguments.push(Argument::Inner(order));
    inner.keep_served();
    let mut policy = Inferred {
        inner: crate::build(&inner, shape)?,
        names: Table::new(shape.slots),
        served: 0,
        above: Ghosts::new(0),
        gone: Ghosts::new(0),
        gaps: Gaps::new(early.unwrap_or(EARLY)),
        times: times.unwrap_or(TIMES),
        wanted: VecDeque::new(),
        slots: shape.slots,
    };
    policy.remember();
    Ok(policy)
}

impl Inferred {
    fn remember(&mut self) {
        let names = self.slots.saturating_mul(NAMES_A_SLOT);
        self.above.set_limit(names);
        self.gone.set_limit(names);
    }

    /// Records that a block goes up, and acts on those that have left the upper level meanwhile.
    fn serve(&mut self, block: BlockId, slot: Option<Slot>) {
        let before = self.above.take(block).or_else(|| self.gone.take(block));
        if let Some(before) = before {
            self.gaps.note(self.served - before.at);
        }
        let served = Served {
            at: self.served,
            slot,
            times: before.map_or(1, |before| before.times.saturating_add(1)),
        };
        self.served += 1;
        self.above.push(block, served);
        let Some(stay) = self.gaps.earliest() else {
            return;
        };
        while let Some((block, served)) = self.above.oldest() {
            if self.served - served.at < stay {
                return;
            }
            self.above.pop_oldest();
            self.infer(block, served);
        }
    }

    /// A block is believed to have left the cache above.
    fn infer(&mut self, block: BlockId, served: Served) {
        let kept = served
            .slot
            .filter(|&slot| self.names.get(slot) == Some(block));
        match kept {
            Some(slot) => {
                let notice = Access::of(block, AccessKind::Notice);
                self.inner.hit(slot, &notice);
            }
            None if self.times > 0 && served.times >= self.times => {
                // If no requests come, or loads are slow, the oldest are no longer worth loading.
                if self.wanted.len() >= self.slots as usize {
                    self.wanted.pop_front();
                }
                self.wanted.push_back(block);
            }
            None => {}
        }
        // A notice may have named it before.
        self.gone.take(block);
        self.gone.push(block, served);
    }

    /// A notice is believed at once: the block is no longer in the upper level.
    fn believe(&mut self, access: &Access) {
        let is_told = matches!(access.kind, AccessKind::Demotion | AccessKind::Notice);
        if is_told && let Some(served) = self.above.take(access.block) {
            self.gone.push(access.block, served);
        }
    }
}

impl Policy for Inferred {
    fn miss(&mut self, access: &Access) -> Admission {
        self.believe(access);
        if access.kind.is_demand() {
            self.serve(access.block, None);
        }
        self.inner.miss(access)
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.names.set(slot, Some(access.block));
        if access.kind.is_demand()
            && let Some(mut served) = self.above.take(access.block)
        {
            // It stays the newest.
            served.slot = Some(slot);
            self.above.push(access.block, served);
        }
        self.inner.insert(slot, access);
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        self.believe(access);
        self.inner.hit(slot, access);
        if access.kind.is_demand() {
            self.serve(access.block, Some(slot));
        }
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        self.inner.victim(incoming)
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.inner.surplus()
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        self.names.set(slot, None);
        self.inner.remove(slot, why);
    }

    fn reclass(&mut self, slot: Slot, class: Class) {
        self.inner.reclass(slot, class);
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        self.inner.note_costs(costs);
    }

    fn note_volumes(&mut self, firsts: &[u64]) {
        self.inner.note_volumes(firsts);
    }

    fn fault(&self) -> Option<&SpecError> {
        self.inner.fault()
    }

    fn weights(&self) -> Vec<(String, f64)> {
        self.inner.weights()
    }

    fn review(&mut self) -> Option<BlockId> {
        while let Some(block) = self.wanted.pop_front() {
            if self.gone.get(block).is_some() {
                return Some(block);
            }
        }
        self.inner.review()
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
        self.remember();
        self.inner.resize(slots);
    }

    fn order(&self) -> Vec<Slot> {
        self.inner.order()
    }

    fn rank(&self, slot: Slot) -> u64 {
        self.inner.rank(slot)
    }

    fn audit(&self, resident: u32) {
        self.inner.audit(resident);
        for (block, served) in self.above.iter() {
            assert!(self.gone.get(block).is_none(), "above and gone");
            assert!(served.at < self.served);
        }
    }
}

impl SimulatorHints for Inferred {
    fn number_blocks(&mut self, first: u64) {
        self.above.number_blocks(first);
        self.gone.number_blocks(first);
        self.inner.number_blocks(first);
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, level_of, lower_order};
    use crate::{Access, AccessKind, BlockId, Level, Outcome, Prng, RegisteredPolicy};

    type Cache = Level<Box<dyn RegisteredPolicy>>;

    fn read(level: &mut Cache, index: u64) -> bool {
        let read = Access::read(BlockId::on_first(index));
        matches!(level.access(&read), Outcome::Hit(_))
    }

    /// Four blocks in turn: each comes again after four servings, so it is gone then at the latest.
    #[test]
    fn worked_example() {
        let mut level = level_of("inferred(lru)", 3, 1);
        for _ in 0..16 {
            for index in 0..4 {
                read(&mut level, index);
            }
        }
        // Kept like `mru`, since too few have come again.
        assert_eq!(lower_order(&level), [0, 1, 3]);
        for index in 0..4 {
            read(&mut level, index);
        }
        // The 64th that came again: from now on 4 is known, and that 0 is gone.
        assert_eq!((lower_order(&level), level.review()), (vec![0, 2, 3], None));
        // Served again, it is the next victim; 1 is gone, and its data is not here.
        assert!(read(&mut level, 0));
        assert_eq!(lower_order(&level), [2, 3, 0]);
        assert_eq!(level.review(), Some(BlockId::on_first(1)));
        level.access(&Access::of(BlockId::on_first(1), AccessKind::Preload));
        assert_eq!(lower_order(&level), [1, 2, 3]);
    }

    #[test]
    fn what_is_told_is_not_inferred() {
        let mut level = level_of("inferred(lru)", 3, 1);
        for index in [1, 2, 3] {
            read(&mut level, index);
        }
        level.access(&Access::of(BlockId::on_first(1), AccessKind::Notice));
        level.audit();
        assert_eq!(lower_order(&level), [1, 2, 3]);
    }

    /// Hits of two caches of as many slots, the lower one told or not.
    fn hits(below: &str, is_told: bool, draw: &dyn Fn(&mut Prng) -> u64) -> u64 {
        const SLOTS: u32 = 300;
        let (mut upper, mut lower) = (level_of("lru", SLOTS, 1), level_of(below, SLOTS, 1));
        let mut prng = Prng::new(5);
        let mut hits = 0;
        for number in 0..60_000 {
            let index = draw(&mut prng);
            let access = Access::read(BlockId::on_first(index));
            let evicted = match upper.access(&access) {
                Outcome::Hit(_) => {
                    hits += u64::from(number >= 30_000);
                    continue;
                }
                Outcome::Admitted { evicted, .. } => evicted,
                Outcome::Bypassed => None,
            };
            hits += u64::from(read(&mut lower, index) && number >= 30_000);
            if let (true, Some(victim)) = (is_told, evicted) {
                lower.access(&Access::of(victim.block, AccessKind::Demotion));
            }
            while let Some(wanted) = lower.review() {
                lower.access(&Access::of(wanted, AccessKind::Preload));
            }
        }
        hits
    }

    /// The aim: seven tenths of the hits that an exclusive cache gains over LRU by being told.
    #[test]
    fn gains_seven_tenths_of_what_a_told_cache_gains() {
        let skewed = |prng: &mut Prng| prng.below(64) * prng.below(64);
        for draw in [
            &|prng: &mut Prng| prng.below(1000),
            &skewed as &dyn Fn(&mut Prng) -> u64,
        ] {
            let alone = hits("lru", false, draw);
            let told = hits("exclusive", true, draw) - alone;
            let inferred = hits("inferred", false, draw).saturating_sub(alone);
            println!("lru {alone}, told {told} more, inferred {inferred} more");
            assert!(inferred * 10 >= told * 7, "{inferred} of {told}");
        }
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("inferred(lru)", |slots, _| reference::Inferred::new(slots));
    }
}
