//! Cacheus: evicts by an LRU that resists scans or an LFU that resists churn, at random, with probabilities
//! and a learning rate that adapt.
//!
//! # Source
//! Rodriguez, Yusuf, Lyons, Paz, Rangaswami, Liu, Zhao and Narasimhan, "Learning cache replacement with
//! Cacheus", FAST 2021 (SR-LRU and CR-LFU). The paper was not at hand in full; followed is the authors'
//! program (github.com/sylab/cacheus, code/algs/cacheus.py)
//! # Picture
//! new → [ Q, LRU ] → hit → [ S, LRU ] → S full: demoted to Q
//! | victim ← at random: LRU block of Q → ghost entry in ( H_LRU )
//! | least frequently used, of equal ones the latest → in ( H_LFU )
//! | both are the same block → no ghost entry
//! # Transitions
//! hit in S: most recent, count + 1 | hit in Q: to S, whose LRU block is demoted if S is full; if the block
//! was a demoted one, S grows | miss, in H_LRU: to S, LRU loses weight, and if the block was new at its
//! eviction, Q grows | miss, in H_LFU: to S, LFU loses weight | other miss: to Q as new (while the cache is
//! filling, to S as long as Q is empty) | after as many accesses as there are slots: the learning rate
//! changes further in the direction in which hits rose, and is reset after ten periods without a rise
//! # Parameters
//! new_share 0.01: initial share of the slots for Q, rounded, at least 1 (as in the authors' program)
//! # Deviations
//! the random choice of the next victim is made when the previous one is evicted, so that `order` can name
//! it. A block with a ghost entry returns with the count that it had at its eviction, without this use, as
//! in the authors' program
//! # libCacheSim
//! libCacheSim has other random numbers, an initial learning rate at random, and adapts it by a hit ratio
//! in whole numbers, which is 0; on a loop it hits nothing, where the authors' program keeps a part of the
//! loop
//! # Cost
//! O(1) per access, but for a returning block as many steps as there are distinct lower counts; 35 bytes
//! per slot, about 40 per ghost entry, at most as many ghost entries as slots

use crate::structures::{Counts, Ghosts, LogQueues, MissNote, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Prng, Shape, SimulatorHints, Slot,
    SpecError,
};

mod rate;
use rate::Rate;

const QUICK: usize = 0;
const STABLE: usize = 1;

/// No weight is less.
const WEIGHT_MIN: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expert {
    Lru,
    Lfu,
}

/// How often a block that left had been used, and whether it was new.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    uses: u32,
    is_new: bool,
}

/// Where a missed block is to be placed, decided before its victim leaves.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// It came while the cache was filling.
    First { queue: usize },
    /// It is new.
    New,
    /// The history has its name, with this many uses.
    Back { uses: u32 },
}

/// State of a resident block beside its place and its uses.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    is_new: bool,
    is_demoted: bool,
}

/// Two queues with a moving border, an LFU over the same slots, and the names of blocks that each
/// expert evicted.
#[derive(Debug)]
pub struct Cacheus {
    new_share: f64,
    slots: u32,
    /// The limit of S, beyond which its oldest are demoted; Q has the remaining slots.
    stable_limit: u32,
    demoted: u32,
    /// Names in the LRU's history of blocks that left as new.
    new_names: u32,
    /// The probability of LRU; LFU has the complement.
    weight_lru: f64,
    rate: Rate,
    prng: Prng,
    lot: f64,
    chosen_by: Option<Expert>,
    queues: LogQueues<2>,
    uses: Counts,
    marks: Table<Marks>,
    names: Table<BlockId>,
    history_limit: u32,
    left_by_lru: Ghosts<Past>,
    left_by_lfu: Ghosts<Past>,
    found: MissNote<Place>,
}

/// Builds the policy; its parameter is `new_share`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Cacheus, SpecError> {
    let mut prng = Prng::new(shape.seed);
    let mut policy = Cacheus {
        new_share: arguments.share("new_share", 0.01)?,
        slots: 0,
        stable_limit: 0,
        demoted: 0,
        new_names: 0,
        weight_lru: 0.5,
        rate: Rate::new(shape.slots),
        lot: prng.unit(),
        prng,
        chosen_by: None,
        queues: LogQueues::new(shape.slots),
        uses: Counts::new(shape.slots),
        marks: Table::new(shape.slots),
        names: Table::new(shape.slots),
        history_limit: 0,
        left_by_lru: Ghosts::new(u32::MAX),
        left_by_lfu: Ghosts::new(u32::MAX),
        found: MissNote::new(),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

/// A ratio of two counts, rounded, at least 1: so far the border moves.
fn step(more: u32, less: u32) -> u32 {
    ((f64::from(more) / f64::from(less.max(1)) + 0.5) as u32).max(1)
}

impl Cacheus {
    fn tick(&mut self) {
        self.rate.tick(&mut self.prng);
    }

    fn quick_limit(&self) -> u32 {
        self.slots - self.stable_limit
    }

    /// Each queue is meant to have at least one slot.
    fn most(&self) -> u32 {
        self.slots - 1
    }

    fn grow_stable(&mut self) {
        let step = step(self.new_names, self.demoted);
        self.stable_limit = (self.stable_limit + step).min(self.most());
    }

    fn grow_quick(&mut self) {
        let step = step(self.demoted, self.new_names);
        let quick = (self.quick_limit() + step).min(self.most().max(1));
        self.stable_limit = self.slots - quick;
    }

    fn punish(&mut self, expert: Expert) {
        let (mut lru, mut lfu) = (self.weight_lru, 1.0 - self.weight_lru);
        *(if expert == Expert::Lru {
            &mut lru
        } else {
            &mut lfu
        }) *= (-self.rate.rate()).exp();
        self.weight_lru = (lru / (lru + lfu)).clamp(WEIGHT_MIN, 1.0 - WEIGHT_MIN);
    }

    /// Looks up the name of a missed block; the expert that evicted it loses weight.
    fn consult(&mut self, block: BlockId) -> Place {
        self.tick();
        if let Some(past) = self.left_by_lru.take(block) {
            if past.is_new {
                self.new_names -= 1;
                self.grow_quick();
            }
            self.punish(Expert::Lru);
            return Place::Back { uses: past.uses };
        }
        if let Some(past) = self.left_by_lfu.take(block) {
            self.punish(Expert::Lfu);
            return Place::Back { uses: past.uses };
        }
        let (quick, stable) = (self.queues.len(QUICK), self.queues.len(STABLE));
        if stable < self.stable_limit && quick == 0 {
            Place::First { queue: STABLE }
        } else if stable + quick < self.slots && quick < self.quick_limit() {
            Place::First { queue: QUICK }
        } else {
            Place::New
        }
    }

    fn demote_oldest(&mut self) {
        if let Some(oldest) = self.queues.front(STABLE) {
            self.queues.move_back(QUICK, oldest);
            self.marks.at(oldest).is_demoted = true;
            self.demoted += 1;
        }
    }

    fn limit_stable(&mut self) {
        while self.queues.len(STABLE) > 0 && self.queues.len(STABLE) >= self.stable_limit {
            self.demote_oldest();
        }
    }

    /// The next victim, and the expert that names it, unless both do.
    fn next(&self) -> Option<(Slot, Option<Expert>)> {
        let oldest = self.queues.front(QUICK);
        let lru = oldest.or_else(|| self.queues.front(STABLE))?;
        let lfu = self.uses.lowest_latest()?;
        Some(if lru == lfu {
            (lru, None)
        } else if self.lot < self.weight_lru {
            (lru, Some(Expert::Lru))
        } else {
            (lfu, Some(Expert::Lfu))
        })
    }

    /// Forgets names until there is room for `coming` more in each history.
    fn trim(&mut self, coming: u32) {
        while self.left_by_lru.len() + coming > self.history_limit {
            match self.left_by_lru.pop_oldest() {
                Some((_, past)) => self.new_names -= u32::from(past.is_new),
                None => break,
            }
        }
        while self.left_by_lfu.len() + coming > self.history_limit
            && self.left_by_lfu.pop_oldest().is_some()
        {}
    }

    fn remember(&mut self, expert: Expert, slot: Slot) {
        if self.history_limit == 0 {
            return;
        }
        let past = Past {
            uses: self.uses.count(slot),
            is_new: self.marks.get(slot).is_new,
        };
        let name = self.names.get(slot);
        if expert == Expert::Lru {
            self.new_names += u32::from(past.is_new);
            self.left_by_lru.push(name, past);
        } else {
            self.left_by_lfu.push(name, past);
        }
        self.trim(0);
    }
}

impl Policy for Cacheus {
    fn miss(&mut self, access: &Access) -> Admission {
        let place = self.consult(access.block);
        self.found.set(access.block, place);
        Admission::Admit
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        let place = match self.found.take(access.block) {
            Some(place) => place,
            None => self.consult(access.block),
        };
        let (queue, uses, is_new) = match place {
            Place::First { queue } => (queue, 1, false),
            Place::New => (QUICK, 1, true),
            Place::Back { uses } => (STABLE, uses, false),
        };
        self.queues.push_back(queue, slot);
        self.uses.insert(slot, uses);
        self.names.set(slot, access.block);
        self.marks.set(
            slot,
            Marks {
                is_new,
                is_demoted: false,
            },
        );
        if !matches!(place, Place::First { .. }) {
            self.limit_stable();
        }
    }

    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.tick();
        self.rate.note_hit();
        self.uses.bump(slot);
        if self.queues.queue_of(slot) == STABLE {
            self.queues.move_back(STABLE, slot);
            return;
        }
        if self.marks.get(slot).is_demoted {
            self.grow_stable();
            self.marks.at(slot).is_demoted = false;
            self.demoted -= 1;
        }
        if self.queues.len(STABLE) >= self.stable_limit {
            self.demote_oldest();
        }
        self.queues.move_back(STABLE, slot);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let (slot, by) = self.next()?;
        self.chosen_by = by;
        Some(slot)
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        if self.marks.get(slot).is_demoted {
            self.demoted -= 1;
        }
        if why == Departure::Evicted {
            if let Some(expert) = self.chosen_by {
                self.remember(expert, slot);
            }
            self.lot = self.prng.unit();
        }
        self.queues.remove(slot);
        self.uses.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        let is_first = self.slots == 0;
        self.slots = slots.max(1);
        self.rate.set_period(self.slots);
        self.history_limit = self.slots / 2;
        self.trim(0);
        if is_first {
            let quick = (f64::from(self.slots) * self.new_share + 0.5) as u32;
            self.stable_limit = self.slots - quick.clamp(1, self.slots);
        }
        self.stable_limit = self.stable_limit.min(self.most());
        self.limit_stable();
    }

    /// The next victim, then those in Q by age, then those in S.
    fn order(&self) -> Vec<Slot> {
        let mut order: Vec<Slot> = self.queues.iter_back(STABLE).collect();
        order.extend(self.queues.iter_back(QUICK));
        if let Some((next, _)) = self.next() {
            order.retain(|&slot| slot != next);
            order.push(next);
        }
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        assert_eq!(self.uses.len(), resident);
        let quick = self.queues.iter(QUICK);
        let demoted = quick.filter(|&slot| self.marks.get(slot).is_demoted);
        assert_eq!(demoted.count() as u32, self.demoted);
        let new_names = self.left_by_lru.iter().filter(|(_, past)| past.is_new);
        assert_eq!(new_names.count() as u32, self.new_names);
        assert!(self.left_by_lru.len() <= self.history_limit);
        assert!(self.left_by_lfu.len() <= self.history_limit);
        assert!(self.stable_limit <= self.most());
    }
}

impl SimulatorHints for Cacheus {
    fn number_blocks(&mut self, first: u64) {
        self.left_by_lru.number_blocks(first);
        self.left_by_lfu.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.left_by_lru.glance(block) ^ self.left_by_lfu.glance(block)
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::{Cacheus, reference};
    use crate::contract::{equals_reference, order_after};
    use crate::{Access, Arguments, BlockId, Departure, Policy, PolicySpec, Shape, Slot};

    /// 4 slots, of which S has 3 and Q 1; each history has 2 names.
    #[test]
    fn worked_example() {
        // 1 to 3 fill S, 4 comes to Q. 4 is used: S is full, so its oldest, 1, is demoted to Q.
        assert_eq!(order_after("cacheus", 4, &[1, 2, 3, 4])[..3], [3, 2, 1]);
        let mut order = order_after("cacheus", 4, &[1, 2, 3, 4, 4]);
        order.retain(|&block| block != 3);
        assert_eq!(order, [4, 2, 1]);
    }

    #[test]
    fn who_gave_up_what_comes_back_loses_weight() {
        let shape = Shape { slots: 4, seed: 1 };
        let mut arguments = Arguments::new(&PolicySpec::plain("cacheus"));
        let mut policy: Cacheus = super::build(&mut arguments, &shape).expect("valid");
        let read = |index| Access::read(BlockId::on_first(index));
        for block in 0..4u32 {
            policy.miss(&read(u64::from(block)));
            policy.insert(Slot(block), &read(u64::from(block)));
        }
        policy.hit(Slot(3), &read(3));
        // Q has 0, which was demoted; the least used are 0 to 2, of which 2 came last.
        policy.lot = 0.0;
        assert_eq!(policy.victim(&read(4)), Some(Slot(0)), "LRU");
        policy.lot = 0.99;
        assert_eq!(policy.victim(&read(4)), Some(Slot(2)), "LFU");
        policy.remove(Slot(2), Departure::Evicted);
        policy.insert(Slot(2), &read(4));
        let rate = policy.rate.rate();
        assert!((rate - (2.0 * 2f64.ln() / 4.0).sqrt()).abs() < 1e-9 || rate > 0.0);
        policy.miss(&read(2));
        let expected = 1.0 / (1.0 + (-rate).exp());
        assert!((policy.weight_lru - expected).abs() < 1e-9, "{policy:?}");
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("cacheus", reference::Cacheus::new);
    }
}
