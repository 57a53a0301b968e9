//! An index from block to slot, for densely numbered blocks.

use futae_policy::structures::{grown, prefetch};
use futae_policy::{BlockId, Index, Slot};

/// A flat array with lazy removal, which makes an eviction cheap.
///
/// It stores each block's slot and each slot's block, and the first is valid only if the second
/// agrees. An eviction thus does not touch the evicted block's entry, which is at a random address;
/// it touches only the slot's, which is in the processor's cache. 4 bytes per existing block and 4
/// per slot.
#[derive(Clone, Debug)]
pub struct BackedIndex {
    first: u64,
    /// The slot that each block was last in.
    slots: Vec<u32>,
    /// The block in each slot.
    blocks: Vec<u32>,
}

/// Second-level caches hold more than this, beside what a policy reads.
const NEAR_BYTES: usize = 512 << 10;
/// No block: there are at most 2^32 - 1 of them.
const NONE: u32 = u32::MAX;

impl BackedIndex {
    /// The largest number of blocks in an index.
    pub const BLOCKS_MAX: u64 = NONE as u64;

    /// An index for blocks of volume 0, from `first` on.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self {
            first,
            slots: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// A block outside the index gets a number that is outside, too.
    #[inline]
    fn own(&self, block: BlockId) -> u64 {
        block.index().wrapping_sub(self.first)
    }
}

impl Index for BackedIndex {
    #[inline]
    fn get(&self, block: BlockId) -> Option<Slot> {
        let slot = Slot(*self.slots.get(self.own(block) as usize)?);
        self.holds(slot, block).then_some(slot)
    }

    /// Without a branch on the value read: such branches are often mispredicted here, and a
    /// misprediction discards the reads for the following blocks.
    #[inline]
    fn glance(&self, block: BlockId) -> (Slot, bool) {
        let slot = self.slots.get(self.own(block) as usize);
        let slot = Slot(slot.copied().unwrap_or(NONE));
        (slot, !self.holds(slot, block))
    }

    #[inline]
    fn is_near(&self) -> bool {
        size_of_val(&self.slots[..]) + size_of_val(&self.blocks[..]) <= NEAR_BYTES
    }

    #[inline]
    fn prefetch(&self, block: BlockId) {
        prefetch(&self.slots, self.own(block) as usize);
    }

    #[inline]
    fn holds(&self, slot: Slot, block: BlockId) -> bool {
        let held = self.blocks.get(slot.i()).copied().unwrap_or(NONE);
        u64::from(held) == self.own(block)
    }

    #[inline]
    fn block_in(&self, slot: Slot) -> BlockId {
        BlockId::on_first(self.first + u64::from(self.blocks[slot.i()]))
    }

    #[inline]
    fn insert(&mut self, block: BlockId, slot: Slot) {
        if self.blocks.len() <= slot.i() {
            self.blocks.resize(slot.i() + 1, NONE);
        }
        let own = self.own(block);
        *grown(&mut self.slots, own as usize, 0) = slot.0;
        self.blocks[slot.i()] = own as u32;
    }

    #[inline]
    fn remove(&mut self, _block: BlockId, slot: Slot) {
        self.blocks[slot.i()] = NONE;
    }

    #[inline]
    fn replace(&mut self, _old: BlockId, slot: Slot, new: BlockId) {
        self.insert(new, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Equal to a map under any insertions and removals that a level may make.
        #[test]
        fn equal_to_a_map(steps in prop::collection::vec((0u64..12, 0u32..6), 0..200)) {
            let mut index = BackedIndex::new(100);
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (block, slot) in steps {
                let id = BlockId::on_first(100 + block);
                if let Some(&slot) = model.get(&block) {
                    index.remove(id, Slot(slot));
                    model.remove(&block);
                } else {
                    // If the slot is taken, its block is removed first, as in an eviction.
                    let held = model.iter().find(|&(_, &s)| s == slot).map(|(&held, _)| held);
                    if let Some(held) = held {
                        index.replace(BlockId::on_first(100 + held), Slot(slot), id);
                        model.remove(&held);
                    } else {
                        index.insert(id, Slot(slot));
                    }
                    model.insert(block, slot);
                }
                for block in 0..12 {
                    let expected = model.get(&block).map(|&slot| Slot(slot));
                    prop_assert_eq!(index.get(BlockId::on_first(100 + block)), expected);
                    if let Some(slot) = expected {
                        prop_assert_eq!(index.block_in(slot), BlockId::on_first(100 + block));
                    }
                }
            }
        }
    }
}
