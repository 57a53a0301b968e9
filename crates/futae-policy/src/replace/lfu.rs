//! Least frequently used, perfect: evicts the block with the fewest uses, counted over evictions.
//!
//! # Source
//! Sugimoto and Yamaguchi 2015, section 5 ("keeps the past access history, evicts the least frequently
//! accessed so far").
//! # Picture
//! victim ← [ fewest uses: oldest ... newest ] ... [ most uses ];
//! evicted → ( ghosts with counts ) → placed again
//! # Transitions
//! hit: count + 1 | miss: placed, with its count from before, + 1 | demotion: as a miss, or as a hit if
//! resident | evicted, promoted: a ghost entry keeps the count | invalidated: the count is discarded
//! # Parameters
//! none
//! # Deviations
//! none. Ties are broken by the time of the last use, the oldest first. libCacheSim's LFU discards the
//! count of an evicted block and is `lfu-in-cache` here
//! # Cost
//! O(1) per hit; a block with a ghost entry is placed in as many steps as there are distinct lower counts;
//! 20 bytes per slot, about 24 per ghost entry

use crate::structures::{BlockTable, Counts, MissNote, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

/// Fewest uses, past and present, first.
#[derive(Debug)]
pub struct Lfu {
    uses: Counts,
    names: Table<BlockId>,
    /// The counts of departed blocks.
    past: BlockTable,
    /// The past uses of the last missed block.
    found: MissNote<u32>,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Lfu, SpecError> {
    Ok(Lfu {
        uses: Counts::new(shape.slots),
        names: Table::new(shape.slots),
        past: BlockTable::default(),
        found: MissNote::new(),
    })
}

impl Policy for Lfu {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        let uses = self.past.take(access.block);
        self.found.set(access.block, uses);
        Admission::Admit
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let uses = match self.found.take(access.block) {
            Some(uses) => uses,
            None => self.past.take(access.block),
        };
        self.uses.insert(slot, uses.saturating_add(1));
        self.names.set(slot, access.block);
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
    fn remove(&mut self, slot: Slot, why: Departure) {
        if why != Departure::Invalidated {
            self.past.set(self.names.get(slot), self.uses.count(slot));
        }
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
        for slot in self.uses.iter() {
            assert!(self.past.get(self.names.get(slot)) == 0, "counted twice");
        }
    }
}

impl SimulatorHints for Lfu {
    fn number_blocks(&mut self, first: u64) {
        self.past.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.past.get(block)
    }
}

/// Every block ever seen with (uses, time of last use), and a list of what is resident.
#[cfg(test)]
mod reference {
    use std::collections::BTreeMap;

    #[derive(Default)]
    pub struct Lfu {
        pub slots: usize,
        pub now: u64,
        pub uses: BTreeMap<u64, (u32, u64)>,
        pub blocks: Vec<u64>,
    }

    impl crate::contract::Reference for Lfu {
        fn access(&mut self, block: u64) -> bool {
            self.now += 1;
            let hit = self.blocks.contains(&block);
            if !hit {
                if self.blocks.len() == self.slots {
                    let least = self
                        .blocks
                        .iter()
                        .min_by_key(|&held| self.uses[held])
                        .copied();
                    self.blocks.retain(|&held| Some(held) != least);
                }
                self.blocks.push(block);
            }
            let uses = self.uses.entry(block).or_default();
            *uses = (uses.0 + 1, self.now);
            hit
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after, run};
    use crate::{Access, BlockId, Departure};

    #[test]
    fn worked_example() {
        // 2 returns with its three uses and one more; 3 and 4 have one each.
        assert_eq!(order_after("lfu", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        assert_eq!(order_after("lfu", 1, &[2, 2, 2, 3]), [3]);
        let reads = [2, 2, 2, 1, 1, 1, 1, 3, 2, 4];
        assert_eq!(order_after("lfu", 2, &reads[..8]), [1, 3]);
        assert_eq!(order_after("lfu", 2, &reads[..9]), [2, 1], "four uses each");
        assert_eq!(order_after("lfu", 2, &reads), [2, 4]);
    }

    #[test]
    fn a_trimmed_block_starts_anew() {
        let mut level = run("lfu", 2, 1, &[1, 1, 1, 2, 2]);
        level.remove(BlockId::on_first(1), Departure::Invalidated);
        level.access(&Access::read(BlockId::on_first(1)));
        assert_eq!(level.order().last(), Some(&BlockId::on_first(1)));
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("lfu", |slots, _| reference::Lfu {
            slots,
            ..Default::default()
        });
    }
}
