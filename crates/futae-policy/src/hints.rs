//! Hints between the simulator and policies, for speed only.

use crate::{BlockId, Policy, Slot};

/// Hints between the simulator and a policy. They change no decision: with an empty `impl`, which
/// ignores all of them, a policy decides the same. Live caches use none.
pub trait SimulatorHints {
    /// Announces, before any other call, that all blocks are on volume 0 and numbered densely from
    /// `first` on. A policy that remembers departed blocks can then keep them in arrays that grow
    /// with the blocks.
    fn number_blocks(&mut self, _first: u64) {}

    /// Reads from memory what the policy will need to decide on `block`, and returns an arbitrary
    /// number. The simulator calls it for many blocks before their accesses, so that the memory
    /// latencies overlap.
    #[inline]
    fn glance(&self, _block: BlockId) -> u32 {
        0
    }

    /// The slot that will be the victim after `ahead` others, if it is cheap to find. The simulator
    /// then prefetches its own data about the slot, as in [`glance`](Self::glance).
    #[inline]
    fn foresee(&self, _ahead: u32) -> Option<Slot> {
        None
    }

    /// Stores the next victims in `victims`, in order, as far as they are cheap to find; returns their number.
    #[inline]
    fn foresee_all(&self, victims: &mut [Slot]) -> usize {
        for (ahead, victim) in (0..).zip(victims.iter_mut()) {
            let Some(slot) = self.foresee(ahead) else {
                return ahead as usize;
            };
            *victim = slot;
        }
        victims.len()
    }

    /// Prefetches what a hit in this slot, which may be any number, will need.
    #[inline]
    fn approach(&self, _slot: Slot) {}
}

impl<P: SimulatorHints + ?Sized> SimulatorHints for Box<P> {
    fn number_blocks(&mut self, first: u64) {
        (**self).number_blocks(first);
    }
    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        (**self).glance(block)
    }
    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        (**self).foresee(ahead)
    }
    #[inline]
    fn foresee_all(&self, victims: &mut [Slot]) -> usize {
        (**self).foresee_all(victims)
    }
    #[inline]
    fn approach(&self, slot: Slot) {
        (**self).approach(slot);
    }
}

/// A policy of the registry: it can run live and in the simulator.
pub trait RegisteredPolicy: Policy + SimulatorHints {}

impl<P: Policy + SimulatorHints + ?Sized> RegisteredPolicy for P {}
