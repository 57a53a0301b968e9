//! The contract between a level and a replacement policy.

use crate::{Access, BlockId, Class, Slot, SpecError, StoreCosts};

/// Whether a policy wants a missed block at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Place it (if a victim can be found).
    Admit,
    /// Serve it and keep nothing.
    Bypass,
}

/// Why a slot is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The policy chose it as a victim.
    Evicted,
    /// An upper level has taken the block over; not a verdict on its worth.
    Promoted,
    /// The block is gone or no longer true (trim, resize by the operator, error).
    Invalidated,
}

/// A replacement order over the slots of one level.
///
/// The level calls, and promises:
///
/// * for an access to a resident block: [`hit`](Policy::hit);
/// * for any other access: [`miss`](Policy::miss); if that admits and no slot is free,
///   [`victim`](Policy::victim), then [`remove`](Policy::remove) of the slot it named; then
///   [`insert`](Policy::insert). A slot is inserted only while it is not in the order, and
///   hit or removed only while it is.
///
/// A policy has plain arrays over slots: no hashing but for names of departed blocks, no bytes,
/// no clock, no errors. The number of slots given when it was built or last resized is the number
/// of blocks that can be resident; a slot's own number can be higher after a shrink.
pub trait Policy: Send {
    /// A block that is not resident was asked for. Called before any victim is chosen, so that
    /// history can be consulted before making room changes it.
    #[inline]
    fn miss(&mut self, _access: &Access) -> Admission {
        Admission::Admit
    }

    /// The block of the next [`miss`](Policy::miss) has so many bytes. Said before each miss where blocks differ in size
    /// ([`Trait::AnySize`](crate::Trait::AnySize)), and never where they do not.
    fn note_size(&mut self, _bytes: u32) {}

    /// A block was placed in `slot`.
    fn insert(&mut self, slot: Slot, access: &Access);

    /// The resident block in `slot` was asked for, or handed down again.
    fn hit(&mut self, slot: Slot, access: &Access);

    /// The slot to give up for `incoming`; `None` declines the newcomer.
    fn victim(&mut self, incoming: &Access) -> Option<Slot>;

    /// The slot to give up when the level is made smaller, which no policy may decline: the
    /// [`victim`](Policy::victim) for a newcomer that nobody knows.
    fn surplus(&mut self) -> Option<Slot> {
        self.victim(&Access::read(BlockId::default()))
    }

    /// The block in `slot` leaves.
    fn remove(&mut self, slot: Slot, why: Departure);

    /// The block in `slot` changed class without being asked for.
    #[inline]
    fn reclass(&mut self, _slot: Slot, _class: Class) {}

    /// As [`reclass`](Self::reclass), for a policy that would wait for the slot's next use before
    /// it moves it: it is moved now. `access` names its block and its new class, and does not count as a use.
    fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        self.reclass(slot, access.class);
    }

    /// What stores were last found to cost; for policies that weigh by it.
    fn note_costs(&mut self, _costs: &StoreCosts) {}

    /// The classes by which the policy weighs blocks, and the weights in force; none if it does
    /// not. Blocks of higher weight go sooner.
    fn weights(&self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// A block that the policy wants placed though nobody asks for it now: a policy that chooses
    /// its contents at reviews names what to load here. Asked after every access until there is
    /// none; live, not before the block named last has been loaded. The block comes back as an
    /// access of kind [`Preload`](crate::AccessKind::Preload) by the usual calls:
    /// [`victim`](Policy::victim) then names the slot that is dropped for it, or declines if that
    /// is no longer a gain. Until then nothing changes, and a block that never comes is no matter.
    #[inline]
    fn review(&mut self) -> Option<BlockId> {
        None
    }

    /// What the policy has decided about itself so far, each as a line for a log.
    fn remarks(&self) -> &[String] {
        &[]
    }

    /// Why the policy's answers can no longer be followed: of policies that are not in the registry,
    /// whose answers are checked. From then on the policy admits nothing, and its order means nothing.
    fn fault(&self) -> Option<&SpecError> {
        None
    }

    /// What the policy remembers beyond which blocks are resident and that a restart need not
    /// lose, oldest first: the blocks of its history of accesses, if it keeps one.
    fn history(&self) -> Vec<BlockId> {
        Vec::new()
    }

    /// Takes up a [`history`](Self::history) that was saved. Called before any other call.
    fn recall(&mut self, _history: &[BlockId]) {}

    /// The level can now hold `slots` blocks: whatever was derived from that number must be derived
    /// anew. On a shrink, the surplus has been removed before.
    fn resize(&mut self, _slots: u32) {}

    /// The resident slots, safest first, next victim last.
    fn order(&self) -> Vec<Slot>;

    /// A number by which groups of slots stand in [`order`](Policy::order), found in constant time: a slot
    /// of a higher rank is safer. Within a rank the order is left open. A policy that keeps no such groups
    /// has one rank.
    fn rank(&self, _slot: Slot) -> u64 {
        0
    }

    /// Panics unless the policy's own invariants hold with `resident` slots in order. For tests.
    fn audit(&self, resident: u32);
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        (**self).miss(access)
    }
    fn note_size(&mut self, bytes: u32) {
        (**self).note_size(bytes);
    }
    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        (**self).insert(slot, access);
    }
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        (**self).hit(slot, access);
    }
    #[inline]
    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        (**self).victim(incoming)
    }
    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        (**self).remove(slot, why);
    }
    #[inline]
    fn reclass(&mut self, slot: Slot, class: Class) {
        (**self).reclass(slot, class);
    }
    #[inline]
    fn review(&mut self) -> Option<BlockId> {
        (**self).review()
    }
    fn note_costs(&mut self, costs: &StoreCosts) {
        (**self).note_costs(costs);
    }
    fn weights(&self) -> Vec<(String, f64)> {
        (**self).weights()
    }
    fn remarks(&self) -> &[String] {
        (**self).remarks()
    }
    fn fault(&self) -> Option<&SpecError> {
        (**self).fault()
    }
    fn history(&self) -> Vec<BlockId> {
        (**self).history()
    }
    fn recall(&mut self, history: &[BlockId]) {
        (**self).recall(history);
    }
    fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        (**self).reclass_at_once(slot, access);
    }
    fn resize(&mut self, slots: u32) {
        (**self).resize(slots);
    }
    fn order(&self) -> Vec<Slot> {
        (**self).order()
    }
    fn rank(&self, slot: Slot) -> u64 {
        (**self).rank(slot)
    }
    fn surplus(&mut self) -> Option<Slot> {
        (**self).surplus()
    }
    fn audit(&self, resident: u32) {
        (**self).audit(resident);
    }
}

/// The order in which an unchanged copy of `policy` would evict everything, safest first: for
/// policies whose next victims are easier to find by going on than by looking.
pub(crate) fn order_by_evicting<P: Policy + Clone>(policy: &P) -> Vec<Slot> {
    let nobody = Access::read(BlockId::default());
    let mut copy = policy.clone();
    let mut order = Vec::new();
    while let Some(slot) = copy.victim(&nobody) {
        copy.remove(slot, Departure::Evicted);
        order.push(slot);
    }
    order.reverse();
    order
}
