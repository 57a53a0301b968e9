//! S3-FIFO: a small queue filters out blocks that are requested only once.
//!
//! # Source
//! Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023,
//! algorithm 1.
//! # Picture
//! new → [ small, FIFO ] → used twice: [ main, FIFO with reinsertion ] → evicted;
//! else ghost entry in ( ghost ), requested again → main
//! # Transitions
//! hit: count + 1, at most 3 | miss, in ghost: to main | other miss: to small | victim, small over its
//! share: its oldest, which moves to main instead if it has `threshold` uses or more; else the oldest of
//! main, which is reinserted with count − 1 if its count is not 0
//! # Parameters
//! small 0.1: share of the slots for the small queue, rounded down, at least 1
//! ghost 0.9: ghost entries as a share of the slots, rounded down, at least 1
//! threshold 2: uses, after the first, that move a block from small to main
//! fill_main false: until the first eviction, place in main what exceeds the share of small
//! # Deviations
//! when a block moves to main, the paper makes room in main at once and then evicts a second block from
//! small. Here each miss evicts one block, so later misses bring main back to its share (as in the authors'
//! own libCacheSim). libCacheSim 0.3.5 fills main first while the cache is filling, of which the paper says
//! nothing: `fill_main=true`
//! # libCacheSim
//! libCacheSim fills the main queue while the cache is filling, of which the paper says nothing;
//! `s3-fifo(fill_main=true)` does nearly the same
//! # Cost
//! O(1) per access, amortised; 23 bytes per slot, about 28 per ghost entry

use crate::structures::{Ghosts, LogQueues, Table};
use crate::{
    Access, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};

const SMALL: usize = 0;
const MAIN: usize = 1;
const MOST_USES: u8 = 3;

/// Two queues, and the names of blocks evicted from the small one.
#[derive(Debug)]
pub struct S3Fifo {
    small_share: f64,
    ghost_share: f64,
    threshold: u8,
    fill_main: bool,
    has_evicted: bool,
    small_limit: u32,
    queues: LogQueues<2>,
    uses: Table<u8>,
    names: Table<BlockId>,
    ghost: Ghosts,
}

/// Builds the policy; its parameters are `small`, `ghost`, `threshold` and `fill_main`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<S3Fifo, SpecError> {
    let threshold = arguments.take("threshold", "1 to 3", |n: &u8| (1..=3).contains(n))?;
    let fill_main = arguments.take("fill_main", "true or false", |_: &bool| true)?;
    let mut policy = S3Fifo {
        small_share: arguments.share("small", 0.1)?,
        ghost_share: arguments.share("ghost", 0.9)?,
        threshold: threshold.unwrap_or(2),
        fill_main: fill_main.unwrap_or(false),
        has_evicted: false,
        small_limit: 1,
        queues: LogQueues::new(shape.slots),
        uses: Table::new(shape.slots),
        names: Table::new(shape.slots),
        ghost: Ghosts::new(1),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl S3Fifo {
    /// The oldest block of main without remaining uses.
    fn main_victim(&mut self) -> Option<Slot> {
        loop {
            let oldest = self.queues.front(MAIN)?;
            let uses = self.uses.at(oldest);
            if *uses == 0 {
                return Some(oldest);
            }
            *uses -= 1;
            self.queues.move_back(MAIN, oldest);
        }
    }

    /// The oldest of small that was not used often enough to move to main.
    fn small_victim(&mut self) -> Option<Slot> {
        while let Some(oldest) = self.queues.front(SMALL) {
            let uses = self.uses.at(oldest);
            if *uses < self.threshold {
                return Some(oldest);
            }
            *uses = 0;
            self.queues.move_back(MAIN, oldest);
        }
        None
    }
}

impl Policy for S3Fifo {
    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let fills_main =
            self.fill_main && !self.has_evicted && self.queues.len(SMALL) >= self.small_limit;
        let named = self.ghost.take(access.block).is_some() || fills_main;
        self.queues
            .push_back(if named { MAIN } else { SMALL }, slot);
        self.uses.set(slot, 0);
        self.names.set(slot, access.block);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let uses = self.uses.at(slot);
        if *uses < MOST_USES {
            *uses += 1;
        }
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let from_small = if self.queues.len(SMALL) >= self.small_limit {
            self.small_victim()
        } else {
            None
        };
        from_small
            .or_else(|| self.main_victim())
            .or_else(|| self.small_victim())
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        self.has_evicted |= why == Departure::Evicted;
        if why == Departure::Evicted && self.queues.queue_of(slot) == SMALL {
            self.ghost.push(self.names.get(slot), ());
        }
        self.queues.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        let share = |of: f64| ((f64::from(slots) * of) as u32).max(1);
        self.small_limit = share(self.small_share);
        self.ghost.set_limit(share(self.ghost_share));
    }

    /// The order if no further access came: small shrinks below its share, then main.
    fn order(&self) -> Vec<Slot> {
        let (mut small, mut rising) = (Vec::new(), Vec::new());
        for slot in self.queues.iter(SMALL) {
            let rises = self.uses.get(slot) >= self.threshold;
            if rises { &mut rising } else { &mut small }.push(slot);
        }
        let mut main: Vec<Slot> = self.queues.iter(MAIN).collect();
        main.sort_by_key(|&slot| self.uses.get(slot));
        let kept = if self.queues.len(SMALL) >= self.small_limit {
            (self.small_limit as usize - 1).min(small.len())
        } else {
            small.len()
        };
        let mut next: Vec<Slot> = small.drain(..small.len() - kept).collect();
        next.extend(main);
        next.extend(small);
        next.extend(rising);
        next.reverse();
        next
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        for slot in self.queues.iter(SMALL).chain(self.queues.iter(MAIN)) {
            assert!(self.uses.get(slot) <= MOST_USES);
            assert!(
                self.ghost.get(self.names.get(slot)).is_none(),
                "resident and departed"
            );
        }
    }
}

impl SimulatorHints for S3Fifo {
    fn number_blocks(&mut self, first: u64) {
        self.ghost.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.ghost.glance(block)
    }

    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.queues.about(SMALL, ahead)
    }
}

/// The paper's algorithm on lists of (block, uses), oldest first.
#[cfg(test)]
mod reference {
    #[derive(Default)]
    pub struct S3Fifo {
        pub slots: usize,
        pub small: Vec<(u64, u8)>,
        pub main: Vec<(u64, u8)>,
        pub ghost: Vec<u64>,
    }

    impl S3Fifo {
        fn small_limit(&self) -> usize {
            (self.slots / 10).max(1)
        }

        fn evict_main(&mut self) -> bool {
            while !self.main.is_empty() {
                let (block, uses) = self.main.remove(0);
                if uses == 0 {
                    return true;
                }
                self.main.push((block, uses - 1));
            }
            false
        }

        fn evict_small(&mut self) -> bool {
            while !self.small.is_empty() {
                let (block, uses) = self.small.remove(0);
                if uses > 1 {
                    self.main.push((block, 0));
                } else {
                    self.ghost.push(block);
                    if self.ghost.len() > (self.slots * 9 / 10).max(1) {
                        self.ghost.remove(0);
                    }
                    return true;
                }
            }
            false
        }
    }

    impl crate::contract::Reference for S3Fifo {
        fn access(&mut self, block: u64) -> bool {
            let mut resident = self.small.iter_mut().chain(&mut self.main);
            if let Some(held) = resident.find(|held| held.0 == block) {
                held.1 = (held.1 + 1).min(3);
                return true;
            }
            if self.small.len() + self.main.len() == self.slots {
                let enough = self.small.len() >= self.small_limit();
                let _ = enough && self.evict_small() || self.evict_main() || self.evict_small();
            }
            if let Some(at) = self.ghost.iter().position(|&name| name == block) {
                self.ghost.remove(at);
                self.main.push((block, 0));
            } else {
                self.small.push((block, 0));
            }
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.small
                .iter()
                .chain(&self.main)
                .map(|held| held.0)
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 4 slots: 1 in small, 3 in main, 3 names. 1 is used twice more, so 2 goes, 1 to main.
        assert_eq!(
            order_after("s3-fifo", 4, &[1, 1, 1, 2, 3, 4, 5]),
            [1, 5, 4, 3]
        );
        // 2 returns by name: to main, and 3 goes.
        assert_eq!(
            order_after("s3-fifo", 4, &[1, 1, 1, 2, 3, 4, 5, 2]),
            [2, 1, 5, 4]
        );
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("s3-fifo", |slots, _| reference::S3Fifo {
            slots,
            ..Default::default()
        });
    }
}
