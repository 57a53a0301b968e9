//! Least frequently used while resident: evicts the block with the fewest uses since it was placed.
//!
//! # Source
//! The common form of LFU, which discards the counts of evicted blocks. It is here for comparison with
//! `lfu`: on uniform reads it behaves like FIFO.
//! # Picture
//! victim ← [ 1 use: oldest ... newest ] [ 2 uses ] [ 3 uses ] ...; new → 1 use
//! # Transitions
//! hit: to the newest end of the next count | miss: placed with 1 use | demotion: as a miss, or as a hit if
//! resident
//! # Parameters
//! none
//! # Deviations
//! none. Ties are broken by the time of the last use, the oldest first
//! # Cost
//! O(1) per access; 12 bytes per slot

use crate::structures::Counts;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

/// Fewest uses since placement first.
#[derive(Debug)]
pub struct LfuInCache {
    uses: Counts,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<LfuInCache, SpecError> {
    Ok(LfuInCache {
        uses: Counts::new(shape.slots),
    })
}

impl Policy for LfuInCache {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.uses.insert(slot, 1);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.uses.bump(slot);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.uses.lowest()
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.uses.remove(slot);
    }

    fn rank(&self, slot: Slot) -> u64 {
        u64::from(self.uses.count(slot))
    }

    fn order(&self) -> Vec<Slot> {
        let mut order: Vec<Slot> = self.uses.iter().collect();
        order.reverse();
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.uses.len(), resident);
        assert_eq!(self.uses.iter().count(), resident as usize);
    }
}

impl SimulatorHints for LfuInCache {}

/// A list of (uses, time of last use, block), searched for its least.
#[cfg(test)]
mod reference {
    pub struct LfuInCache {
        pub slots: usize,
        pub now: u64,
        pub blocks: Vec<(u32, u64, u64)>,
    }

    impl crate::contract::Reference for LfuInCache {
        fn access(&mut self, block: u64) -> bool {
            self.now += 1;
            if let Some(held) = self.blocks.iter_mut().find(|held| held.2 == block) {
                (held.0, held.1) = (held.0 + 1, self.now);
                return true;
            }
            if self.blocks.len() == self.slots {
                let least = self.blocks.iter().min().copied();
                self.blocks.retain(|&held| Some(held) != least);
            }
            self.blocks.push((1, self.now, block));
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|held| held.2).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 1 was used twice, 2 and 3 once: 2 goes first, and its return counts from 1 again.
        assert_eq!(order_after("lfu-in-cache", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        let reads = [1, 2, 2, 2, 3, 1, 3, 4, 2, 1];
        assert_eq!(order_after("lfu-in-cache", 2, &reads), [2, 1]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("lfu-in-cache", |slots, _| reference::LfuInCache {
            slots,
            now: 0,
            blocks: Vec::new(),
        });
    }
}
