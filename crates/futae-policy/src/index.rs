//! Two indexes from block to slot and back, behind one interface.

use crate::structures::{grown, prefetch};
use crate::{BlockId, Slot};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// Finds the slot of a resident block, and the block in a slot.
pub trait Index: Send {
    /// The slot that holds `block`, if any.
    fn get(&self, block: BlockId) -> Option<Slot>;
    /// Reads ahead of time what [`get`](Self::get) will need for `block`. Returns its slot and
    /// true, or any slot and false if the block is absent.
    #[inline]
    fn glance(&self, block: BlockId) -> (Slot, bool) {
        let slot = self.get(block);
        (slot.unwrap_or(Slot(0)), slot.is_none())
    }
    /// Whether all that it reads is so small that the processor's caches hold it. Then looking ahead
    /// takes more time than it saves.
    #[inline]
    fn is_near(&self) -> bool {
        false
    }
    /// Prefetches what [`glance`](Self::glance) will read first, without waiting for it.
    #[inline]
    fn prefetch(&self, _block: BlockId) {}
    /// Whether `block` is in `slot`, which may be any number.
    #[inline]
    fn holds(&self, slot: Slot, block: BlockId) -> bool {
        self.get(block) == Some(slot)
    }
    /// The block in `slot`; any block if the slot is free.
    fn block_in(&self, slot: Slot) -> BlockId;
    /// Records that `block`, so far absent, is in `slot`, so far free.
    fn insert(&mut self, block: BlockId, slot: Slot);
    /// Removes `block`, which is in `slot`.
    fn remove(&mut self, block: BlockId, slot: Slot);
    /// Replaces `old` in `slot` by `new`, so far absent.
    #[inline]
    fn replace(&mut self, old: BlockId, slot: Slot, new: BlockId) {
        self.remove(old, slot);
        self.insert(new, slot);
    }
}

/// Records `block` at index `slot` of an array that grows one slot at a time.
#[inline]
fn note<T: Copy + Default>(blocks: &mut Vec<T>, slot: Slot, block: T) {
    if blocks.len() <= slot.i() {
        blocks.resize(slot.i() + 1, T::default());
    }
    blocks[slot.i()] = block;
}

/// A flat array for blocks numbered densely from 0 on volume 0 (the simulator). It grows when a
/// block with a higher number is placed. Block numbers must be below 2^32. 4 bytes per existing
/// block and 4 per slot.
#[derive(Clone, Debug)]
pub struct DenseIndex {
    slots: Vec<u32>,
    blocks: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl DenseIndex {
    /// An index for blocks `0..blocks` of volume 0.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        Self {
            slots: vec![ABSENT; blocks],
            blocks: Vec::new(),
        }
    }
}

impl Index for DenseIndex {
    #[inline]
    fn get(&self, block: BlockId) -> Option<Slot> {
        let slot = *self.slots.get(block.index() as usize)?;
        (slot != ABSENT).then_some(Slot(slot))
    }
    /// The slot's block is wanted next, if the slot is a victim soon.
    #[inline]
    fn glance(&self, block: BlockId) -> (Slot, bool) {
        let slot = self.slots.get(block.index() as usize);
        let slot = slot.copied().unwrap_or(ABSENT);
        prefetch(&self.blocks, slot as usize);
        (Slot(slot), slot == ABSENT)
    }
    #[inline]
    fn prefetch(&self, block: BlockId) {
        prefetch(&self.slots, block.index() as usize);
    }
    #[inline]
    fn block_in(&self, slot: Slot) -> BlockId {
        BlockId::on_first(u64::from(self.blocks[slot.i()]))
    }
    #[inline]
    fn insert(&mut self, block: BlockId, slot: Slot) {
        let at = block.index() as usize;
        debug_assert!(u32::try_from(at).is_ok(), "too high a block number");
        *grown(&mut self.slots, at, ABSENT) = slot.0;
        note(&mut self.blocks, slot, at as u32);
    }
    #[inline]
    fn remove(&mut self, block: BlockId, _slot: Slot) {
        self.slots[block.index() as usize] = ABSENT;
    }
}

/// A hash table of slots, for any block ids (the live caches). The block of each slot is in a plain
/// array, so the table needs 5 bytes per entry: 14 to 19 bytes per block in all.
#[derive(Clone, Debug, Default)]
pub struct HashIndex {
    slots: HashTable<u32>,
    blocks: Vec<BlockId>,
    /// Seeded differently in each process, since clients choose block numbers.
    hasher: DefaultHashBuilder,
}

impl HashIndex {
    #[inline]
    fn hash(&self, block: BlockId) -> u64 {
        self.hasher.hash_one(block)
    }
}

impl Index for HashIndex {
    #[inline]
    fn get(&self, block: BlockId) -> Option<Slot> {
        let held = |&slot: &u32| self.blocks[slot as usize] == block;
        let found = self.slots.find(self.hash(block), held);
        found.map(|&slot| Slot(slot))
    }
    #[inline]
    fn block_in(&self, slot: Slot) -> BlockId {
        self.blocks[slot.i()]
    }
    #[inline]
    fn insert(&mut self, block: BlockId, slot: Slot) {
        note(&mut self.blocks, slot, block);
        let (hash, blocks, hasher) = (self.hash(block), &self.blocks, &self.hasher);
        let again = |&slot: &u32| hasher.hash_one(blocks[slot as usize]);
        self.slots.insert_unique(hash, slot.0, again);
    }
    #[inline]
    fn remove(&mut self, block: BlockId, slot: Slot) {
        let hash = self.hash(block);
        if let Ok(entry) = self.slots.find_entry(hash, |&held| held == slot.0) {
            entry.remove();
        }
    }
}
