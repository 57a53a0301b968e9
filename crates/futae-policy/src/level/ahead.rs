//! Look-ahead: the simulator makes a level read what future accesses will need.

use super::Level;
use crate::{BlockId, Index, Policy, SimulatorHints, Slot};
use std::hint::black_box;

impl<P: Policy + SimulatorHints, I: Index> Level<P, I> {
    /// Announces, before any other call, that all blocks are on volume 0, numbered densely from
    /// `first` on.
    pub fn number_blocks(&mut self, first: u64) {
        self.policy.number_blocks(first);
    }

    /// Looks up what accesses to `blocks` will need. Called some blocks ahead of the accesses, it
    /// makes their memory latencies overlap. Stores in `likely`, which has the same length, the
    /// slot of each block, or any slot.
    #[inline]
    pub fn look_ahead(&self, blocks: impl Iterator<Item = BlockId>, likely: &mut [Slot]) {
        let (mut seen, mut absent) = (0u32, 0);
        for (block, likely) in blocks.zip(likely) {
            let is_absent;
            (*likely, is_absent) = self.index.glance(block);
            absent += u32::from(is_absent);
            seen = seen.wrapping_add(self.policy.glance(block));
        }
        if self.resident == self.capacity {
            for ahead in 0..absent {
                let Some(slot) = self.policy.foresee(ahead) else {
                    break;
                };
                seen = seen.wrapping_add(self.index.block_in(slot).index() as u32);
                if self.has_classes {
                    seen = seen.wrapping_add(self.classes[slot.i()].number() as u32);
                }
            }
        }
        black_box(seen);
    }

    /// Prefetches what [`look_ahead`](Self::look_ahead) will read first for these blocks, without
    /// waiting for it.
    #[inline]
    pub fn prefetch(&self, blocks: impl Iterator<Item = BlockId>) {
        blocks.for_each(|block| self.index.prefetch(block));
    }
}
