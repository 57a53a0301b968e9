//! The contract between a level and a replacement policy.

use crate::{Access, BlockId, Class, Directive, Slot, SpecError, StoreCosts};

/// Whether a policy wants a missed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Place it (if a victim can be found).
    Admit,
    /// Serve it without keeping it.
    Bypass,
}

/// Why a block leaves its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The policy chose it as a victim.
    Evicted,
    /// An upper level has taken the block over; this says nothing about its worth.
    Promoted,
    /// The block was removed or is no longer valid (trim, resize by the operator, error).
    Invalidated,
}

/// A replacement order over the slots of one level.
///
/// The level guarantees these calls:
///
/// * for an access to a resident block: [`hit`](Policy::hit);
/// * for any other access: [`miss`](Policy::miss); if that admits and no slot is free,
///   [`victim`](Policy::victim), then [`remove`](Policy::remove) of the slot it named; then
///   [`insert`](Policy::insert). A slot is inserted only while it is not in the order, and hit or
///   removed only while it is.
///
/// A policy consists of plain arrays over slots: no hashing except for names of departed blocks, no
/// bytes, no clock, no errors. At most as many blocks are resident as there were slots at its
/// construction or last resize; after a shrink, a slot's own number can be higher.
pub trait Policy: Send {
    /// A block that is not resident was accessed. Called before a victim is chosen, so that the
    /// policy can consult its history before making room changes it.
    #[inline]
    fn miss(&mut self, _access: &Access) -> Admission {
        Admission::Admit
    }

    /// The block of the next [`miss`](Policy::miss) has this many bytes. Called before each miss if
    /// blocks differ in size ([`Trait::AnySize`](crate::Trait::AnySize)), otherwise never.
    fn note_size(&mut self, _bytes: u32) {}

    /// A block was placed in `slot`.
    fn insert(&mut self, slot: Slot, access: &Access);

    /// The resident block in `slot` was accessed, or demoted again.
    fn hit(&mut self, slot: Slot, access: &Access);

    /// The slot to free for `incoming`; `None` declines the newcomer.
    fn victim(&mut self, incoming: &Access) -> Option<Slot>;

    /// The slot to free when the level shrinks, which a policy must not decline: the
    /// [`victim`](Policy::victim) for an unknown newcomer.
    fn surplus(&mut self) -> Option<Slot> {
        self.victim(&Access::read(BlockId::default()))
    }

    /// The block in `slot` leaves.
    fn remove(&mut self, slot: Slot, why: Departure);

    /// The block in `slot` was accessed, and the level above takes it over with that: as [`hit`](Policy::hit) and then
    /// [`remove`](Policy::remove), which a policy may do in one step.
    #[inline]
    fn hand_up(&mut self, slot: Slot, access: &Access) {
        self.hit(slot, access);
        self.remove(slot, Departure::Promoted);
    }

    /// The class of the block in `slot` changed without an access.
    #[inline]
    fn reclass(&mut self, _slot: Slot, _class: Class) {}

    /// As [`reclass`](Self::reclass), for a policy that would otherwise move the block at its next
    /// use: moves it now. `access` names the block and its new class, and does not count as a use.
    fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        self.reclass(slot, access.class);
    }

    /// The measured costs of stores, for policies that weigh by them.
    fn note_costs(&mut self, _costs: &StoreCosts) {}

    /// Announces, before any other call, that what are several volumes in truth have been numbered into volume 0, and begin at these
    /// indices, in order. For policies to which it matters where a volume begins and ends; a simulator calls it, a live cache, in which
    /// each volume has its own [`VolumeId`](crate::VolumeId), does not.
    fn note_volumes(&mut self, _firsts: &[u64]) {}

    /// The classes by which the policy weighs blocks, and the current weights; empty if it does not
    /// weigh. Blocks of higher weight are evicted sooner.
    fn weights(&self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// A block that the policy wants to place without a request; a policy that chooses its contents
    /// at reviews names the blocks to load here. Called after every access until it returns `None`;
    /// in a live cache, not before the last named block has been loaded. The block then arrives as
    /// an access of kind [`Preload`](crate::AccessKind::Preload) by the usual calls:
    /// [`victim`](Policy::victim) names the slot to free for it, or declines if it is no longer
    /// worth it. Until then the policy's state is unchanged, so a block that never arrives is
    /// harmless.
    #[inline]
    fn review(&mut self) -> Option<BlockId> {
        None
    }

    /// What the level below is to do with a block that this level has just read or written, or
    /// evicted: for policies that direct it ([`Trait::Directs`](crate::Trait::Directs)).
    #[inline]
    fn directive(&self, _block: BlockId) -> Option<Directive> {
        None
    }

    /// The level above says what is to become of a block. Called before the access to that block.
    #[inline]
    fn direct(&mut self, _directive: &Directive) {}

    /// The policy's own decisions so far, each as a line for a log.
    fn remarks(&self) -> &[String] {
        &[]
    }

    /// Why the policy has failed. Only for policies outside the registry, whose answers are
    /// checked. A failed policy admits nothing, and its order is meaningless.
    fn fault(&self) -> Option<&SpecError> {
        None
    }

    /// Blocks beyond the resident ones that are worth keeping over a restart, oldest first: the
    /// history of accesses, if the policy has one.
    fn history(&self) -> Vec<BlockId> {
        Vec::new()
    }

    /// Restores a saved [`history`](Self::history). Called before any other call.
    fn recall(&mut self, _history: &[BlockId]) {}

    /// The level can now hold `slots` blocks: the policy recomputes what depends on that number. On
    /// a shrink, the surplus has been removed before.
    fn resize(&mut self, _slots: u32) {}

    /// The resident slots, safest first, next victim last.
    fn order(&self) -> Vec<Slot>;

    /// A number that groups slots in the sequence of [`order`](Policy::order), in constant time: a
    /// slot of a higher rank is safer. The order within a rank is unspecified. A policy without
    /// such groups has one rank.
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
    fn hand_up(&mut self, slot: Slot, access: &Access) {
        (**self).hand_up(slot, access);
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
    fn note_volumes(&mut self, firsts: &[u64]) {
        (**self).note_volumes(firsts);
    }
    fn weights(&self) -> Vec<(String, f64)> {
        (**self).weights()
    }
    fn directive(&self, block: BlockId) -> Option<Directive> {
        (**self).directive(block)
    }
    fn direct(&mut self, directive: &Directive) {
        (**self).direct(directive);
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

/// The order in which an unchanged copy of `policy` would evict all blocks, safest first. For
/// policies whose next victims are easier to find by evicting than by inspection.
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
