//! An index from block to slot for a level with a candidate's policy.

use crate::{BlockId, DenseIndex, HashIndex, Index, Slot};

/// An array where blocks are numbered densely, in the simulator; else a hash table.
#[derive(Debug)]
pub enum Whereabouts {
    /// Any blocks.
    Any(HashIndex),
    /// Blocks with dense numbers.
    Numbered(DenseIndex),
}

impl Default for Whereabouts {
    fn default() -> Self {
        Self::Any(HashIndex::default())
    }
}

impl Whereabouts {
    /// An empty one for blocks that are numbered densely.
    pub fn numbered() -> Self {
        Self::Numbered(DenseIndex::new(0))
    }
}

impl Index for Whereabouts {
    #[inline]
    fn get(&self, block: BlockId) -> Option<Slot> {
        match self {
            Self::Any(index) => index.get(block),
            Self::Numbered(index) => index.get(block),
        }
    }
    #[inline]
    fn block_in(&self, slot: Slot) -> BlockId {
        match self {
            Self::Any(index) => index.block_in(slot),
            Self::Numbered(index) => index.block_in(slot),
        }
    }
    #[inline]
    fn insert(&mut self, block: BlockId, slot: Slot) {
        match self {
            Self::Any(index) => index.insert(block, slot),
            Self::Numbered(index) => index.insert(block, slot),
        }
    }
    #[inline]
    fn remove(&mut self, block: BlockId, slot: Slot) {
        match self {
            Self::Any(index) => index.remove(block, slot),
            Self::Numbered(index) => index.remove(block, slot),
        }
    }
}
