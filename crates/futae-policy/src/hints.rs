//! What only the simulator says to policies and asks of them, to be fast.

use crate::{BlockId, Policy, Slot};

/// Hints between the simulator and a policy. They change no decision: a policy that ignores all of
/// them, with an empty `impl`, decides the same. Live caches use none.
pub trait SimulatorHints {
    /// Says, before any other call, that all blocks to come are of volume 0 and numbered densely
    /// from `first` on. A policy that remembers departed blocks can then keep them in arrays, which
    /// grow as blocks come.
    fn number_blocks(&mut self, _first: u64) {}

    /// Reads from memory what the policy will need to decide on `block`, and returns any number. The
    /// simulator calls it for many blocks ahead of their accesses, so that the processor waits for
    /// all of the reads together.
    #[inline]
    fn glance(&self, _block: BlockId) -> u32 {
        0
    }

    /// The slot that will be the victim after `ahead` others, if that is cheap to find. The
    /// simulator reads what it knows of the slot ahead of time, as in [`glance`](Self::glance).
    #[inline]
    fn foresee(&self, _ahead: u32) -> Option<Slot> {
        None
    }
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
}

/// A policy of the registry: it can run live and in the simulator.
pub trait RegisteredPolicy: Policy + SimulatorHints {}

impl<P: Policy + SimulatorHints + ?Sized> RegisteredPolicy for P {}
