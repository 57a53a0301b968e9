//! Look-ahead: the simulator makes a level read what future accesses will need.

use super::Level;
use crate::{BlockId, Index, Policy, SimulatorHints, Slot};
use std::hint::black_box;

/// The most victims to look for at a time.
const VICTIMS: usize = 128;

impl<P: Policy + SimulatorHints, I: Index> Level<P, I> {
    /// Announces, before any other call, that all blocks are on volume 0, numbered densely from
    /// `first` on.
    pub fn number_blocks(&mut self, first: u64) {
        self.policy.number_blocks(first);
    }

    /// Looks up what accesses to `blocks` will need. Called some blocks ahead of the accesses, it
    /// makes their memory latencies overlap. Stores in `likely`, which has the same length, the
    /// slot of each block, or any slot, and passes the likely victims to `evicted`.
    #[inline]
    pub fn look_ahead(
        &self,
        blocks: impl Iterator<Item = BlockId>,
        likely: &mut [Slot],
        mut evicted: impl FnMut(BlockId),
    ) {
        let (mut seen, mut absent) = (0u32, 0);
        for (block, likely) in blocks.zip(likely) {
            let is_absent;
            (*likely, is_absent) = self.index.glance(block);
            absent += usize::from(is_absent);
            self.policy.approach(*likely);
            seen = seen.wrapping_add(self.policy.glance(block));
        }
        if self.resident == self.capacity {
            let mut victims = [Slot(0); VICTIMS];
            let wanted = &mut victims[..absent.min(VICTIMS)];
            let found = self.policy.foresee_all(wanted);
            for slot in &victims[..found] {
                let block = self.index.block_in(*slot);
                seen = seen.wrapping_add(block.index() as u32);
                evicted(block);
                if self.has_classes {
                    seen = seen.wrapping_add(self.classes[slot.i()].number() as u32);
                }
            }
        }
        black_box(seen);
    }

    /// Whether looking ahead takes more time than it saves.
    #[inline]
    pub fn is_near(&self) -> bool {
        self.index.is_near()
    }

    /// The slot of a block, or any slot.
    #[inline]
    pub fn likely(&self, block: BlockId) -> Slot {
        self.index.glance(block).0
    }

    /// Whether `block` is in slot `likely`, which [`look_ahead`](Self::look_ahead) returned.
    #[inline]
    pub fn holds(&self, likely: Slot, block: BlockId) -> bool {
        self.index.holds(likely, block)
    }

    /// Prefetches what [`look_ahead`](Self::look_ahead) will read first for these blocks, without
    /// waiting for it.
    #[inline]
    pub fn prefetch(&self, blocks: impl Iterator<Item = BlockId>) {
        blocks.for_each(|block| self.prefetch_one(block));
    }

    /// As [`prefetch`](Self::prefetch) for one block.
    #[inline]
    pub fn prefetch_one(&self, block: BlockId) {
        self.index.prefetch(block);
    }
}
