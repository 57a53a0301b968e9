//! Access to inner levels for a policy that is composed of levels and already knows a block's slot.

use super::Level;
use crate::{Access, BlockId, Index, Policy, SimulatorHints, Slot};

impl<P: Policy, I: Index> Level<P, I> {
    /// As [`access`](Self::access), for a block known to be in `slot`: skips the look-up.
    #[inline]
    pub(crate) fn hit_known(&mut self, slot: Slot, access: &Access) {
        debug_assert_eq!(self.index.get(access.block), Some(slot), "another slot");
        self.hit(slot, access);
    }

    /// Number of accesses so far.
    pub(crate) fn seen(&self) -> u64 {
        self.tick
    }

    /// The policy alone.
    pub(crate) fn into_policy(self) -> P {
        self.policy
    }

    /// The policy, to be looked at.
    #[cfg(test)]
    pub(crate) fn policy_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// The index, which may be replaced while the level is empty.
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

    /// As [`SimulatorHints::foresee`], if the level is full.
    #[inline]
    pub(crate) fn foresee(&self, ahead: u32) -> Option<Slot> {
        let slot = (self.resident == self.capacity).then(|| self.policy.foresee(ahead))??;
        std::hint::black_box(self.index.block_in(slot));
        Some(slot)
    }
}
