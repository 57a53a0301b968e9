//! LRU-K: evicts the block whose K-th last use is the oldest.
//!
//! # Source
//! O'Neil, O'Neil and Weikum, "The LRU-K page replacement algorithm for database disk buffering", SIGMOD
//! 1993, figure 2.1. The paper itself was not at hand; its figure is followed as later work prints it
//! # Picture
//! victim ← [ fewer than K uses known, LRU first ] [ K-th last use: oldest ... ];
//! evicted → ( ghosts with times of uses ) → placed again
//! # Transitions
//! hit: its time becomes the last use, and the others move back by one; a hit within the correlated period
//! continues the last use | miss: placed with its time, and with the times of its ghost entry | evicted,
//! promoted: a ghost entry keeps the times | invalidated: the times are discarded | victim: a block outside
//! of the correlated period, unless all are within it
//! # Parameters
//! k 2: K, 1 to 4
//! correlated 0: accesses within which two uses of a block count as one
//! history 1: ghost entries, as a multiple of the slots, at most 16
//! # Deviations
//! the paper keeps times for a period; here `history` bounds the ghost entries that keep them. Time is
//! counted in accesses. A use that is not known stays unknown when a correlated period ends (figure 2.1
//! adds the period to it, too). Ties are broken by the time of the last use, as the paper proposes
//! # libCacheSim
//! libCacheSim discards the uses of evicted blocks; `lru-k(history=0)` has the same counts
//! # Cost
//! O(1) per hit without a correlated period, else O(log slots); 72 bytes per slot, about 60 per ghost entry

use crate::structures::{Ghosts, Heap, MissNote, Queues, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

/// As many uses as can be looked back on.
const MOST: usize = 4;
const RECENT: usize = 0;

/// Times of the last uses, the latest first; 0 if unknown.
type Times = [u64; MOST];

/// The K-th last use, and the last. Neither ever falls.
type Key = (u64, u64);

/// Blocks by their K-th last use.
#[derive(Debug)]
pub struct LruK {
    k: usize,
    correlated: u64,
    history: f64,
    now: u64,
    times: Table<Times>,
    /// The last use, which can go on within the correlated period.
    last: Table<u64>,
    /// Blocks outside of the correlated period, each with a key that it had: a hit changes `times`
    /// only, and the heap is corrected when the slot reaches its top.
    settled: Heap<Key>,
    /// Blocks that may be within the correlated period, least recent first.
    recent: Queues,
    names: Table<BlockId>,
    past: Ghosts<Times>,
    found: MissNote<Times>,
}

/// Builds the policy; its parameters are `k`, `correlated` and `history`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<LruK, SpecError> {
    let k = arguments.take("k", "a number from 1 to 4", |k| (1..=MOST).contains(k))?;
    let correlated = arguments.count("correlated", 0, 0)?;
    let history = arguments.take("history", "a number from 0 to 16", |share: &f64| {
        (0.0..=16.0).contains(share)
    })?;
    let mut policy = LruK {
        k: k.unwrap_or(2),
        correlated,
        history: history.unwrap_or(1.0),
        now: 0,
        times: Table::new(shape.slots),
        last: Table::new(shape.slots),
        settled: Heap::new(shape.slots),
        recent: Queues::new(1, shape.slots),
        names: Table::new(shape.slots),
        past: Ghosts::new(0),
        found: MissNote::new(),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl LruK {
    #[inline]
    fn key(&self, slot: Slot) -> Key {
        (self.times.get(slot)[self.k - 1], self.last.get(slot))
    }

    fn is_settled(&self, slot: Slot) -> bool {
        self.settled.key(slot).is_some()
    }

    /// Blocks whose correlated period is over when the next access comes can be victims again.
    fn settle(&mut self) {
        while let Some(slot) = self.recent.front(RECENT)
            && self.now + 1 - self.last.get(slot) > self.correlated
        {
            self.recent.remove(slot);
            self.settled.set(slot, self.key(slot));
        }
    }

    fn place(&mut self, slot: Slot) {
        if self.correlated == 0 {
            self.settled.set(slot, self.key(slot));
        } else {
            self.recent.push_back(RECENT, slot);
        }
    }

    fn unplace(&mut self, slot: Slot) {
        if self.is_settled(slot) {
            self.settled.remove(slot);
        } else {
            self.recent.remove(slot);
        }
    }
}

impl Policy for LruK {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        // Before the victim's name can push this one out.
        let known = self.past.take(access.block).unwrap_or_default();
        self.found.set(access.block, known);
        Admission::Admit
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        let mut times = match self.found.take(access.block) {
            Some(known) => known,
            None => self.past.take(access.block).unwrap_or_default(),
        };
        self.now += 1;
        times.rotate_right(1);
        times[0] = self.now;
        self.times.set(slot, times);
        self.last.set(slot, self.now);
        self.names.set(slot, access.block);
        self.place(slot);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.now += 1;
        let last = std::mem::replace(self.last.at(slot), self.now);
        if self.now - last > self.correlated {
            let times = self.times.at(slot);
            // The time within one correlated period counts as zero.
            let period = last - times[0];
            for at in (1..MOST).rev() {
                times[at] = match times[at - 1] {
                    0 => 0,
                    before => before + period,
                };
            }
            times[0] = self.now;
        }
        if self.correlated > 0 {
            self.unplace(slot);
            self.recent.push_back(RECENT, slot);
        }
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.settle();
        while let Some((key, slot)) = self.settled.top() {
            let now = self.key(slot);
            if key == now {
                return Some(slot);
            }
            self.settled.set(slot, now);
        }
        self.recent.front(RECENT)
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        if why != Departure::Invalidated {
            self.past.push(self.names.get(slot), self.times.get(slot));
        }
        self.unplace(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.past
            .set_limit((f64::from(slots) * self.history) as u32);
    }

    /// Those outside of the correlated period go first.
    fn order(&self) -> Vec<Slot> {
        let (mut settled, mut order): (Vec<Slot>, Vec<Slot>) = self
            .settled
            .iter()
            .map(|(_, slot)| slot)
            .chain(self.recent.iter(RECENT))
            .partition(|&slot| self.now + 1 - self.last.get(slot) > self.correlated);
        settled.sort_by_key(|&slot| std::cmp::Reverse(self.key(slot)));
        order.reverse();
        order.extend(settled);
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.settled.len() + self.recent.len(RECENT), resident);
        for (key, slot) in self.settled.iter() {
            assert!(key <= self.key(slot));
            assert!(
                self.past.get(self.names.get(slot)).is_none(),
                "resident and departed"
            );
        }
    }
}

impl SimulatorHints for LruK {
    fn number_blocks(&mut self, first: u64) {
        self.past.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.past.glance(block)
    }
}

/// The paper's figure on lists, with a search for the victim.
#[cfg(test)]
mod reference {
    #[derive(Clone)]
    pub struct Held {
        block: u64,
        hist: Vec<u64>,
        last: u64,
    }

    pub struct LruK {
        pub slots: usize,
        pub k: usize,
        pub correlated: u64,
        pub names: usize,
        pub t: u64,
        pub blocks: Vec<Held>,
        pub past: Vec<Held>,
    }

    impl crate::contract::Reference for LruK {
        fn access(&mut self, block: u64) -> bool {
            self.t += 1;
            let (t, k, period) = (self.t, self.k, self.correlated);
            if let Some(p) = self.blocks.iter_mut().find(|held| held.block == block) {
                if t - p.last > period {
                    let passed = p.last - p.hist[0];
                    p.hist = p.hist.iter().map(|&at| at + passed).collect();
                    p.hist.insert(0, t);
                    p.hist.truncate(k);
                }
                p.last = t;
                return true;
            }
            let known = self.past.iter().position(|held| held.block == block);
            let mut hist = known.map_or(Vec::new(), |at| self.past.remove(at).hist);
            if self.blocks.len() == self.slots {
                let rank = |held: &Held| (held.hist.get(k - 1).copied().unwrap_or(0), held.last);
                let eligible = self.blocks.iter().filter(|held| t - held.last > period);
                let victim = eligible.min_by_key(|held| rank(held));
                let oldest = self.blocks.iter().min_by_key(|held| held.last);
                let victim = victim.or(oldest).expect("full").block;
                let at = self.blocks.iter().position(|held| held.block == victim);
                self.past.push(self.blocks.remove(at.expect("held")));
                if self.past.len() > self.names {
                    self.past.remove(0);
                }
            }
            hist.insert(0, t);
            hist.truncate(k);
            self.blocks.push(Held {
                block,
                hist,
                last: t,
            });
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|held| held.block).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 1 was used twice; of 2 and 3 one use is known, and 2's lies longer ago.
        assert_eq!(order_after("lru-k", 3, &[1, 1, 2, 3]), [1, 3, 2]);
        // 2 goes for 4 and comes back for 3 with its use of then: its second last use is at time 3, that of 1 at
        // time 1, and of 4 none is known.
        assert_eq!(order_after("lru-k", 3, &[1, 1, 2, 3, 4, 2]), [2, 1, 4]);
        // Without names 2 comes as new.
        let text = "lru-k(history=0)";
        assert_eq!(order_after(text, 3, &[1, 1, 2, 3, 4, 2]), [1, 2, 4]);
    }

    #[test]
    fn uses_within_a_correlated_period_are_one() {
        // 1 is used again at once: one use. 2 is used again after two others: two uses.
        let text = "lru-k(correlated=1)";
        assert_eq!(
            order_after(text, 4, &[1, 1, 2, 3, 4, 2, 3, 9]),
            [9, 3, 2, 4]
        );
    }

    #[test]
    fn equals_its_reference_model() {
        for (text, k, correlated, share) in [
            ("lru-k", 2, 0, 1.0),
            ("lru-k(history=0)", 2, 0, 0.0),
            ("lru-k(k=1)", 1, 0, 1.0),
            ("lru-k(k=3,history=0.5)", 3, 0, 0.5),
            ("lru-k(correlated=3)", 2, 3, 1.0),
            ("lru-k(k=4,correlated=1,history=2)", 4, 1, 2.0),
        ] {
            equals_reference(text, |slots, _| reference::LruK {
                slots,
                k,
                correlated,
                names: (slots as f64 * share) as usize,
                t: 0,
                blocks: Vec::new(),
                past: Vec::new(),
            });
        }
    }
}
