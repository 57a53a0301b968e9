//! LeCaR: evicts by LRU or by LFU at random, with probabilities that follow the regret of each.
//!
//! # Source
//! Vietri, Rodriguez, Martinez, Lyons, Liu, Rangaswami, Zhao and Narasimhan, "Driving cache replacement
//! with ML-based LeCaR", HotStorage 2018, algorithms 1 and 2; where these leave a choice, the authors'
//! program (github.com/sylab/cacheus, code/algs/lecar.py).
//! # Picture
//! victim ← at random: least recently used → ghost entry in ( H_LRU )
//! | least frequently used → in ( H_LFU ) | both are the same block → no ghost entry
//! # Transitions
//! hit: most recent, count + 1 | miss, in H_LRU: LFU gains weight, more if the eviction was more recent |
//! miss, in H_LFU: LRU gains weight likewise | miss: placed as most recent, with the count of its ghost
//! entry, + 1
//! # Parameters
//! learning_rate 0.45: how fast the weights change (paper 0.45)
//! discount 0.005: factor of a regret after as many accesses as there are slots (paper 0.005)
//! keep_uses true: whether a ghost entry keeps the block's use count (as in the authors' program;
//! libCacheSim counts from one again)
//! # Deviations
//! ties among the least frequently used are broken by the time of the last use, in the authors' program by
//! the block's number. The random choice of the next victim is made when the previous one is evicted, so
//! that `order` can name it
//! # libCacheSim
//! libCacheSim has other random numbers, and a block that returns has one use there;
//! `lecar(keep_uses=false)` comes within 0.1 points
//! # Cost
//! O(1) per access; 28 bytes per slot, about 40 per ghost entry, at most as many ghost entries as slots

use crate::SpecError;
use crate::structures::{Counts, Ghosts, Queues, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Prng, Shape, SimulatorHints, Slot,
};

const ORDER: usize = 0;

/// One of the two experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expert {
    Lru,
    Lfu,
}

/// No weight is less.
const WEIGHT_MIN: f64 = 0.01;

/// When a block left and how often it had been used.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    left: u64,
    uses: u32,
}

/// Two orders over the same slots, and the names of blocks that each expert evicted.
#[derive(Debug)]
pub struct LeCar {
    learning_rate: f64,
    discount_by_size: f64,
    /// The factor by which one access reduces a regret.
    discount: f64,
    /// The probability of LRU; LFU has the complement.
    weight_lru: f64,
    now: u64,
    prng: Prng,
    lot: f64,
    /// The expert that named the pending victim; `None` if both did.
    chosen_by: Option<Expert>,
    keep_uses: bool,
    recency: Queues,
    uses: Counts,
    names: Table<BlockId>,
    left_by_lru: Ghosts<Past>,
    left_by_lfu: Ghosts<Past>,
    /// The uses of the last missed block.
    known: crate::structures::MissNote<u32>,
}

/// Builds the policy; its parameters are `learning_rate`, `discount` and `keep_uses`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<LeCar, SpecError> {
    let learning_rate = arguments.share("learning_rate", 0.45)?;
    let discount = arguments.share("discount", 0.005)?;
    let keep_uses = arguments.take("keep_uses", "true or false", |_: &bool| true)?;
    let mut prng = Prng::new(shape.seed);
    let mut policy = LeCar {
        learning_rate,
        discount_by_size: discount,
        discount,
        weight_lru: 0.5,
        now: 0,
        lot: prng.unit(),
        prng,
        chosen_by: None,
        keep_uses: keep_uses.unwrap_or(true),
        recency: Queues::new(1, shape.slots),
        uses: Counts::new(shape.slots),
        names: Table::new(shape.slots),
        left_by_lru: Ghosts::new(0),
        left_by_lfu: Ghosts::new(0),
        known: crate::structures::MissNote::new(),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl LeCar {
    /// The uses of a recently evicted block; the expert that evicted it loses weight.
    fn consult(&mut self, block: BlockId) -> u32 {
        let (past, to_lru) = if let Some(past) = self.left_by_lru.take(block) {
            (past, false)
        } else if let Some(past) = self.left_by_lfu.take(block) {
            (past, true)
        } else {
            return 0;
        };
        let regret = self.discount.powf((self.now - past.left) as f64);
        let gain = (self.learning_rate * regret).exp();
        let (mut lru, mut lfu) = (self.weight_lru, 1.0 - self.weight_lru);
        *(if to_lru { &mut lru } else { &mut lfu }) *= gain;
        self.weight_lru = (lru / (lru + lfu)).clamp(WEIGHT_MIN, 1.0 - WEIGHT_MIN);
        if self.keep_uses { past.uses } else { 0 }
    }

    /// The next victim, and the expert that names it, unless both do.
    fn next(&self) -> Option<(Slot, Option<Expert>)> {
        let (lru, lfu) = (self.recency.front(ORDER)?, self.uses.lowest()?);
        Some(if lru == lfu {
            (lru, None)
        } else if self.lot < self.weight_lru {
            (lru, Some(Expert::Lru))
        } else {
            (lfu, Some(Expert::Lfu))
        })
    }
}

impl Policy for LeCar {
    fn miss(&mut self, access: &Access) -> Admission {
        let uses = self.consult(access.block);
        self.known.set(access.block, uses);
        Admission::Admit
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        let uses = match self.known.take(access.block) {
            Some(uses) => uses,
            None => self.consult(access.block),
        };
        self.recency.push_back(ORDER, slot);
        self.uses.insert(slot, uses.saturating_add(1));
        self.names.set(slot, access.block);
        self.now += 1;
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.recency.move_back(ORDER, slot);
        self.uses.bump(slot);
        self.now += 1;
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let (slot, by) = self.next()?;
        self.chosen_by = by;
        Some(slot)
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Evicted {
            let past = Past {
                left: self.now,
                uses: self.uses.count(slot),
            };
            let ghosts = match self.chosen_by {
                Some(Expert::Lru) => Some(&mut self.left_by_lru),
                Some(Expert::Lfu) => Some(&mut self.left_by_lfu),
                None => None,
            };
            if let Some(ghosts) = ghosts {
                ghosts.push(self.names.get(slot), past);
            }
            self.lot = self.prng.unit();
        }
        self.recency.remove(slot);
        self.uses.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.left_by_lru.set_limit(slots / 2);
        self.left_by_lfu.set_limit(slots / 2);
        self.discount = self.discount_by_size.powf(1.0 / f64::from(slots.max(1)));
    }

    /// The next victim, then all others by recency.
    fn order(&self) -> Vec<Slot> {
        let mut order: Vec<Slot> = self.recency.iter_back(ORDER).collect();
        if let Some((next, _)) = self.next() {
            order.retain(|&slot| slot != next);
            order.push(next);
        }
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.recency.len(ORDER), resident);
        assert_eq!(self.uses.len(), resident);
        assert!((0.0..=1.0).contains(&self.weight_lru));
        for slot in self.recency.iter(ORDER) {
            let name = self.names.get(slot);
            assert!(self.left_by_lru.get(name).is_none() && self.left_by_lfu.get(name).is_none());
        }
    }
}

impl SimulatorHints for LeCar {
    fn number_blocks(&mut self, first: u64) {
        self.left_by_lru.number_blocks(first);
        self.left_by_lfu.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.left_by_lru.glance(block) ^ self.left_by_lfu.glance(block)
    }
}

/// The paper's two algorithms on lists, with the same lots.
#[cfg(test)]
mod reference {
    use crate::Prng;

    #[derive(Clone, Copy)]
    pub struct Held {
        block: u64,
        uses: u32,
        last: u64,
    }

    pub struct LeCar {
        pub slots: usize,
        pub now: u64,
        pub weights: [f64; 2],
        pub prng: Prng,
        pub lot: f64,
        pub blocks: Vec<Held>,
        /// By LRU and by LFU: (block, time of leaving), oldest first.
        pub left: [Vec<(Held, u64)>; 2],
    }

    impl LeCar {
        pub fn new(slots: usize, seed: u64) -> Self {
            let mut prng = Prng::new(seed);
            Self {
                slots,
                now: 0,
                weights: [0.5, 0.5],
                lot: prng.unit(),
                prng,
                blocks: Vec::new(),
                left: [Vec::new(), Vec::new()],
            }
        }

        fn update_weights(&mut self, block: u64) -> u32 {
            let d = 0.005f64.powf(1.0 / self.slots as f64);
            for expert in 0..2 {
                let at = self.left[expert]
                    .iter()
                    .position(|past| past.0.block == block);
                if let Some(at) = at {
                    let (held, left) = self.left[expert].remove(at);
                    let regret = d.powf((self.now - left) as f64);
                    self.weights[1 - expert] *= (0.45 * regret).exp();
                    let lru = self.weights[0] / (self.weights[0] + self.weights[1]);
                    let lru = lru.clamp(0.01, 0.99);
                    self.weights = [lru, 1.0 - lru];
                    return held.uses;
                }
            }
            0
        }
    }

    impl crate::contract::Reference for LeCar {
        fn access(&mut self, block: u64) -> bool {
            let last = self.now + 1;
            if let Some(held) = self.blocks.iter_mut().find(|held| held.block == block) {
                (held.uses, held.last) = (held.uses + 1, last);
                self.now = last;
                return true;
            }
            let uses = self.update_weights(block) + 1;
            if self.blocks.len() == self.slots {
                let expert = usize::from(self.lot >= self.weights[0]);
                self.lot = self.prng.unit();
                let least = |expert: usize| {
                    let all = self.blocks.iter().copied();
                    all.min_by_key(|held| (held.uses * expert as u32, held.last))
                        .expect("full")
                };
                let is_of_both = least(0).block == least(1).block;
                let victim = least(expert);
                self.blocks.retain(|held| held.block != victim.block);
                if !is_of_both {
                    self.left[expert].push((victim, self.now));
                }
                if self.left[expert].len() > self.slots / 2 {
                    self.left[expert].remove(0);
                }
            }
            self.blocks.push(Held { block, uses, last });
            self.now = last;
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|held| held.block).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LeCar, reference};
    use crate::contract::{equals_reference, order_after};
    use crate::{Access, Arguments, BlockId, Departure, Policy, PolicySpec, Shape, Slot};

    #[test]
    fn worked_example() {
        let shape = Shape { slots: 2, seed: 1 };
        let mut arguments = Arguments::new(&PolicySpec::plain("lecar"));
        let mut policy: LeCar = super::build(&mut arguments, &shape).expect("valid");
        let read = |index| Access::read(BlockId::on_first(index));
        policy.insert(Slot(0), &read(1));
        policy.hit(Slot(0), &read(1));
        policy.insert(Slot(1), &read(2));
        policy.lot = 0.0;
        assert_eq!(
            policy.victim(&read(3)),
            Some(Slot(0)),
            "the lot falls on LRU"
        );
        policy.remove(Slot(0), Departure::Evicted);
        policy.insert(Slot(0), &read(3));
        policy.miss(&read(1));
        // LRU gave 1 up one access ago: LFU gains e^(0.45 × 0.005^(1/2)) = e^0.03182.
        let lfu = 0.031_82f64.exp();
        assert!((policy.weight_lru - 1.0 / (1.0 + lfu)).abs() < 1e-5);
    }

    #[test]
    fn both_experts_agree_on_the_only_block() {
        assert_eq!(order_after("lecar", 1, &[1, 1, 2]), [2]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("lecar", reference::LeCar::new);
    }
}
