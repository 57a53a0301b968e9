//! LHD: evicts, from a random sample, the block with the fewest expected hits for the space and time that
//! it will take.
//!
//! # Source
//! Beckmann, Chen and Cidon, "LHD: improving cache hit rate by maximizing hit density", NSDI 2018.
//! # Picture
//! { resident blocks } → a random sample → victim: least hit density, by class and age;
//! densities are learned from the ages at which blocks of the class were hit and evicted
//! # Transitions
//! hit: counted at its age; its age restarts, and its class follows from the ages at its last two hits |
//! miss: placed in the class of blocks without a hit | evicted: counted at its age | after each period:
//! densities are computed, and the counts decay
//! # Parameters
//! sample 64: blocks in a sample (paper 64); all of them in a cache with no more
//! period 0: accesses between two computations; 0 stands for four per slot, at least 4096
//! decay 0.9: factor of the counts after a period (paper 0.9)
//! explorers 0.01: share of the slots for explorers (authors' code 0.01). One in 32 of the blocks that are
//! placed or hit becomes an explorer while there is room. It is evicted after all others, until its next
//! hit. So hits are counted at ages that other blocks do not reach
//! # Deviations
//! the size is 1. The unit of age is fixed to a 16th of the slots, where the paper adapts it; ages of 64
//! times the slots or more count as equal. `order` lists all blocks by their rank; a random sample need not
//! contain the first victim of that list. libCacheSim has the authors' code: explorers only in the first 50
//! periods of 2^20 accesses, the latest new blocks in every sample, and an adapted unit of age. Its miss
//! ratio on Zipf 1.0 is 0.1974 (here 0.1970), on its own sample 0.8040 (here 0.8057)
//! # Cost
//! O(1) per hit, O(sample) per eviction; 16 bytes per slot, 288 KiB of counts

use crate::structures::{Pool, Table};
use crate::{Access, Arguments, Departure, Policy, Prng, Shape, SimulatorHints, Slot, SpecError};

const AGES: usize = 1024;
const CLASSES: usize = 12;
const EXPLORE_ONE_IN: u64 = 32;

/// State of a block, in one word, since an eviction reads that of many blocks anywhere in memory:
/// 47 bits for its last use, one for whether it is an explorer, 12 for its age at the last hit, and 4
/// for its class.
#[derive(Clone, Copy, Debug, Default)]
struct Known(u64);

impl Known {
    fn new(used: u64, is_explorer: bool, age_at_hit: usize, class: usize) -> Self {
        Self(used << 17 | u64::from(is_explorer) << 16 | (age_at_hit as u64) << 4 | class as u64)
    }

    #[inline]
    fn used(self) -> u64 {
        self.0 >> 17
    }

    #[inline]
    fn is_explorer(self) -> bool {
        self.0 >> 16 & 1 == 1
    }

    fn age_at_hit(self) -> usize {
        (self.0 >> 4) as usize & 0xFFF
    }

    #[inline]
    fn class(self) -> usize {
        self.0 as usize & 0xF
    }
}

const _: () = assert!(AGES <= 0xFFF && CLASSES <= 0x10);

/// Statistics of the blocks of one class by age, and the densities derived from them.
#[derive(Clone, Debug)]
struct Seen {
    hits: Vec<f64>,
    evictions: Vec<f64>,
    density: Vec<f64>,
}

/// Least hit density first, of a sample.
#[derive(Debug)]
pub struct Lhd {
    sample: u32,
    period_given: u64,
    decay: f64,
    period: u64,
    /// Accesses that make one step of age.
    age_unit: u64,
    now: u64,
    prng: Prng,
    pool: Pool,
    known: Table<Known>,
    seen: Vec<Seen>,
    /// The share of the slots for explorers.
    exploring: f64,
    explorers: u32,
    explorers_max: u32,
}

/// Builds the policy; its parameters are `sample`, `period`, `decay` and `explorers`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Lhd, SpecError> {
    let sample = arguments.take("sample", "1 to 65536", |n: &u32| (1..=1 << 16).contains(n))?;
    let unknown = Seen {
        hits: vec![0.0; AGES],
        evictions: vec![0.0; AGES],
        density: (0..AGES).map(|age| 1.0 / (age + 1) as f64).collect(),
    };
    let mut policy = Lhd {
        sample: sample.unwrap_or(64),
        period_given: arguments.count("period", 0, 0)?,
        decay: arguments.share("decay", 0.9)?,
        period: 1,
        age_unit: 1,
        now: 0,
        prng: Prng::new(shape.seed),
        pool: Pool::new(shape.slots),
        known: Table::new(shape.slots),
        seen: vec![unknown; CLASSES],
        exploring: arguments.share("explorers", 0.01)?,
        explorers: 0,
        explorers_max: 0,
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Seen {
    /// For each age a: hits to come, Σ hits(x ≥ a), by time to come, Σ (x − a + 1) × events(x ≥ a).
    fn learn(&mut self, decay: f64) {
        let (mut hits, mut events, mut time) = (0.0, 0.0, 0.0);
        for age in (0..AGES).rev() {
            hits += self.hits[age];
            events += self.hits[age] + self.evictions[age];
            time += events;
            self.density[age] = if time > 0.0 { hits / time } else { 0.0 };
            self.hits[age] *= decay;
            self.evictions[age] *= decay;
        }
    }
}

impl Lhd {
    #[inline]
    fn age(&self, known: Known) -> usize {
        let since = self.now - known.used();
        // Narrow divisions take half the time of wide ones.
        match (u32::try_from(since), u32::try_from(self.age_unit)) {
            (Ok(since), Ok(unit)) => ((since / unit) as usize).min(AGES - 1),
            _ => ((since / self.age_unit) as usize).min(AGES - 1),
        }
    }

    #[inline]
    fn tick(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(self.period) {
            self.seen.iter_mut().for_each(|seen| seen.learn(self.decay));
        }
    }

    /// Draws whether a block becomes an explorer.
    #[inline]
    fn draw_explorer(&mut self) -> bool {
        let has_room = self.explorers < self.explorers_max;
        let is_explorer = has_room && self.prng.below(EXPLORE_ONE_IN) == 0;
        self.explorers += u32::from(is_explorer);
        is_explorer
    }

    /// Hits by time to come, at most 1; more than 1 for an explorer.
    #[inline]
    fn density(&self, known: Known) -> f64 {
        let learned = self.seen[known.class()].density[self.age(known)];
        if known.is_explorer() {
            2.0 + learned
        } else {
            learned
        }
    }

    fn rank(&self, slot: Slot) -> f64 {
        self.density(self.known.get(slot))
    }
}

impl Policy for Lhd {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.pool.insert(slot);
        let is_explorer = self.draw_explorer();
        self.known
            .set(slot, Known::new(self.now, is_explorer, AGES, 0));
        self.tick();
    }

    fn hit(&mut self, slot: Slot, _access: &Access) {
        let known = self.known.get(slot);
        let age = self.age(known);
        self.seen[known.class()].hits[age] += 1.0;
        let both = known.age_at_hit() + age;
        let class = CLASSES - 1 - ((both + 1).ilog2() as usize).min(CLASSES - 1);
        self.explorers -= u32::from(known.is_explorer());
        let is_explorer = self.draw_explorer();
        self.known
            .set(slot, Known::new(self.now, is_explorer, age, class));
        self.tick();
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let mut prng = self.prng.clone();
        let known = |slot| self.known.get(slot);
        let victim = self
            .pool
            .lowest_of(self.sample, &mut prng, known, |_, known| {
                self.density(known)
            });
        self.prng = prng;
        victim
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        let known = self.known.get(slot);
        self.explorers -= u32::from(known.is_explorer());
        if why == Departure::Evicted {
            let age = self.age(known);
            self.seen[known.class()].evictions[age] += 1.0;
        }
        self.pool.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.age_unit = u64::from(slots / 16).max(1);
        self.explorers_max = (f64::from(slots) * self.exploring) as u32;
        self.period = match self.period_given {
            0 => (u64::from(slots) * 4).max(4096),
            given => given,
        };
    }

    fn order(&self) -> Vec<Slot> {
        let mut next = self.pool.slots().to_vec();
        next.sort_by(|&a, &b| self.rank(a).total_cmp(&self.rank(b)));
        next.reverse();
        next
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.pool.slots().len(), resident as usize);
        let explorers = self.pool.slots().iter();
        let explorers = explorers.filter(|&&slot| self.known.get(slot).is_explorer());
        assert_eq!(explorers.count(), self.explorers as usize);
        let densities = self.seen.iter().flat_map(|seen| &seen.density);
        assert!(
            densities
                .into_iter()
                .all(|density| (0.0..=1.0).contains(density))
        );
    }
}

impl SimulatorHints for Lhd {}

/// Every event of each class by age, and densities by their definition.
#[cfg(test)]
mod reference {
    use std::collections::BTreeMap;

    #[derive(Clone, Copy)]
    pub struct Held {
        block: u64,
        used: u64,
        hit_age: u64,
        class: usize,
    }

    /// Hits and evictions by class and age.
    type Events = BTreeMap<(usize, u64), (f64, f64)>;

    pub struct Lhd {
        pub slots: usize,
        pub period: u64,
        pub now: u64,
        pub blocks: Vec<Held>,
        pub events: Events,
        pub learned: Option<Events>,
    }

    impl Lhd {
        pub fn new(slots: usize, period: u64) -> Self {
            Self {
                slots,
                period,
                now: 0,
                blocks: Vec::new(),
                events: Events::new(),
                learned: None,
            }
        }

        fn density(&self, held: &Held) -> f64 {
            let age = (self.now - held.used).min(1023);
            let Some(learned) = &self.learned else {
                return 1.0 / (age + 1) as f64;
            };
            let (mut hits, mut time) = (0.0, 0.0);
            for (&(_, at), &(hit, evicted)) in learned.range((held.class, age)..(held.class + 1, 0))
            {
                hits += hit;
                time += (at - age + 1) as f64 * (hit + evicted);
            }
            if time > 0.0 { hits / time } else { 0.0 }
        }

        fn tick(&mut self) {
            self.now += 1;
            if self.now.is_multiple_of(self.period) {
                self.learned = Some(self.events.clone());
                for (hits, evictions) in self.events.values_mut() {
                    (*hits, *evictions) = (*hits / 2.0, *evictions / 2.0);
                }
            }
        }
    }

    impl crate::contract::Reference for Lhd {
        fn access(&mut self, block: u64) -> bool {
            let now = self.now;
            if let Some(held) = self.blocks.iter_mut().find(|held| held.block == block) {
                let age = (now - held.used).min(1023);
                self.events.entry((held.class, age)).or_default().0 += 1.0;
                let both = (held.hit_age + age + 1) as f64;
                held.class = 11 - (both.log2().floor() as usize).min(11);
                (held.used, held.hit_age) = (now, age);
                self.tick();
                return true;
            }
            if self.blocks.len() == self.slots {
                let density = |at: &usize| self.density(&self.blocks[*at]);
                let least = (0..self.slots).min_by(|a, b| density(a).total_cmp(&density(b)));
                let victim = self.blocks.swap_remove(least.expect("full"));
                let age = (now - victim.used).min(1023);
                self.events.entry((victim.class, age)).or_default().1 += 1.0;
            }
            self.blocks.push(Held {
                block,
                used: now,
                hit_age: 1024,
                class: 0,
            });
            self.tick();
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|held| held.block).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AGES, Seen, reference};
    use crate::contract::{equals_reference, order_after};
    use crate::{Access, BlockId, HashIndex, Level, PolicySpec, Prng, Shape, build};

    #[test]
    fn worked_example() {
        // Nothing has been learned yet: the block unused for longest goes.
        assert_eq!(order_after("lhd", 3, &[1, 2, 3, 1, 4]), [4, 1, 3]);
        // One block hit at age 0, two evicted at age 2.
        let mut seen = Seen {
            hits: vec![0.0; AGES],
            evictions: vec![0.0; AGES],
            density: vec![0.0; AGES],
        };
        (seen.hits[0], seen.evictions[2]) = (1.0, 2.0);
        seen.learn(0.5);
        // At age 0: one hit in 1 + 2 × 3 steps to come; later none.
        assert_eq!(seen.density[..3], [1.0 / 7.0, 0.0, 0.0]);
        assert_eq!((seen.hits[0], seen.evictions[2]), (0.5, 1.0));
    }

    #[test]
    fn explorers_find_hits_at_ages_that_others_do_not_reach() {
        let hits = |policy: &str| {
            let spec: PolicySpec = policy.parse().expect("a policy");
            let shape = Shape {
                slots: 1000,
                seed: 1,
            };
            let policy = build(&spec, &shape).expect("a policy");
            let mut level = Level::new(policy, HashIndex::default(), 1000);
            let mut prng = Prng::new(7);
            for _ in 0..100_000 {
                // Squared, so that some blocks are requested more often than others.
                let drawn = prng.below(100) * prng.below(100);
                level.access(&Access::read(BlockId::on_first(drawn)));
            }
            level.audit();
            level.resize(500);
            level.audit();
            level.counters().hits
        };
        assert!(hits("lhd") > hits("lhd(explorers=0)"));
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("lhd(period=200,decay=0.5,explorers=0)", |slots, _| {
            reference::Lhd::new(slots, 200)
        });
    }
}
