//! From block to slot: two indexes behind one interface.

use crate::{BlockId, Slot};
use hashbrown::HashMap;

/// Finds the slot of a resident block.
pub trait Index: Send {
    /// The slot that holds `block`, if any.
    fn get(&self, block: BlockId) -> Option<Slot>;
    /// Notes that `block`, so far absent, is in `slot`.
    fn insert(&mut self, block: BlockId, slot: Slot);
    /// Forgets `block`.
    fn remove(&mut self, block: BlockId);
}

/// A flat array, where blocks were numbered densely from 0 on volume 0 (the simulator). It grows
/// when a block with a higher number is placed.
#[derive(Clone, Debug)]
pub struct DenseIndex {
    slots: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl DenseIndex {
    /// An index for blocks `0..blocks` of volume 0.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        Self {
            slots: vec![ABSENT; blocks],
        }
    }
}

impl Index for DenseIndex {
    #[inline]
    fn get(&self, block: BlockId) -> Option<Slot> {
        let slot = *self.slots.get(block.index() as usize)?;
        (slot != ABSENT).then_some(Slot(slot))
    }
    #[inline]
    fn insert(&mut self, block: BlockId, slot: Slot) {
        let at = block.index() as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, ABSENT);
        }
        self.slots[at] = slot.0;
    }
    #[inline]
    fn remove(&mut self, block: BlockId) {
        self.slots[block.index() as usize] = ABSENT;
    }
}

/// A hash table, for any block ids (the live caches).
#[derive(Clone, Debug, Default)]
pub struct HashIndex {
    slots: HashMap<BlockId, Slot>,
}

impl Index for HashIndex {
    #[inline]
    fn get(&self, block: BlockId) -> Option<Slot> {
        self.slots.get(&block).copied()
    }
    #[inline]
    fn insert(&mut self, block: BlockId, slot: Slot) {
        self.slots.insert(block, slot);
    }
    #[inline]
    fn remove(&mut self, block: BlockId) {
        self.slots.remove(&block);
    }
}
