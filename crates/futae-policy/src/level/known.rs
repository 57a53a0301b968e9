//! What a policy that is made of levels asks them, knowing more than an access says.

use super::Level;
use crate::{Access, BlockId, Index, Policy, SimulatorHints, Slot};

impl<P: Policy, I: Index> Level<P, I> {
    /// As [`access`](Self::access) of a block that is known to be in `slot`: without looking for it.
    #[inline]
    pub(crate) fn hit_known(&mut self, slot: Slot, access: &Access) {
        debug_assert_eq!(self.index.get(access.block), Some(slot), "another slot");
        self.hit(slot, access);
    }

    /// The index, to be replaced while the level is empty.
    pub(crate) fn index_mut(&mut self) -> &mut I {
        &mut self.index
    }
}

impl<P: Policy + SimulatorHints, I: Index> Level<P, I> {
    /// Reads what an access to `block` will need, as [`SimulatorHints::glance`].
    #[inline]
    pub(crate) fn glance(&self, block: BlockId) -> u32 {
        let (slot, _) = self.index.glance(block);
        slot.0.wrapping_add(self.policy.glance(block))
    }

    /// As [`SimulatorHints::foresee`], where the level is full.
    #[inline]
    pub(crate) fn foresee(&self, ahead: u32) -> Option<Slot> {
        let slot = (self.resident == self.capacity).then(|| self.policy.foresee(ahead))??;
        std::hint::black_box(self.index.block_in(slot));
        Some(slot)
    }
}
