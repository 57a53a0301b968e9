//! One cache level, which owns residency.

use crate::{
    Access, AccessKind, Admission, BlockId, Class, Counters, Departure, HashIndex, Index, Policy,
    Slot, SpecError, StoreCosts,
};

mod ahead;
mod change;
mod directives;
mod known;
mod restore;
mod spare;

/// A block that leaves a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Which block.
    pub block: BlockId,
    /// The slot that it leaves.
    pub slot: Slot,
    /// Its class at the time.
    pub class: Class,
}

/// A level's decision on one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The block is resident in this slot.
    Hit(Slot),
    /// The block was not resident and was placed in this slot, after `evicted` had left it.
    Admitted {
        /// Where the block now is.
        slot: Slot,
        /// The block that made room, if the level was full.
        evicted: Option<Victim>,
    },
    /// The block was not resident and was not given a slot.
    Bypassed,
}

/// One cache: a policy, an index from block to slot, each slot's class, the free slots, and the
/// counters. The level does not own the content of slots: frames of memory in a live cache, nothing
/// in the simulator.
#[derive(Debug)]
pub struct Level<P, I = HashIndex> {
    policy: P,
    index: I,
    capacity: u32,
    resident: u32,
    /// Number of accesses of any kind.
    tick: u64,
    /// Number of those that were preloads.
    preloads: u64,
    classes: Vec<Class>,
    /// Whether some block may have a class other than [`Class::NORMAL`].
    has_classes: bool,
    /// Slots that were used and are free again. Slots at or above `classes.len()` were never used.
    free: Vec<Slot>,
    /// How many of `free`, from its bottom, are stripped: no block gets them before the level is larger.
    stripped: usize,
    /// Requests and hits are left out: they follow from the other counters, so a hit increments one
    /// number only.
    counted: Counters,
}

impl<P: Policy, I: Index> Level<P, I> {
    /// An empty level of `capacity` slots, at least 1.
    pub fn new(policy: P, index: I, capacity: u32) -> Self {
        assert!(capacity > 0, "a level has at least one slot");
        Self {
            policy,
            index,
            capacity,
            resident: 0,
            tick: 0,
            preloads: 0,
            classes: Vec::new(),
            has_classes: false,
            free: Vec::new(),
            stripped: 0,
            counted: Counters::default(),
        }
    }

    /// Slots in all.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Blocks resident now.
    pub fn resident(&self) -> u32 {
        self.resident
    }

    /// The current counters.
    pub fn counters(&self) -> Counters {
        let counted = &self.counted;
        let requests = self.tick - self.preloads - counted.demotions_in - counted.notices_in;
        Counters {
            requests,
            hits: requests - counted.misses,
            ..*counted
        }
    }

    /// Counts an evicted block as demoted, or as sent by notice.
    pub fn note_sent_down(&mut self, kind: AccessKind) {
        match kind {
            AccessKind::Demotion => self.counted.demotions_out += 1,
            AccessKind::Notice => self.counted.notices_out += 1,
            AccessKind::Read | AccessKind::Write | AccessKind::Preload => {}
        }
    }

    /// The slot of `block`, if resident. Not an access: changes and counts nothing.
    #[inline]
    pub fn find(&self, block: BlockId) -> Option<Slot> {
        self.index.get(block)
    }

    /// The block in a slot that is in use.
    pub fn block_in(&self, slot: Slot) -> BlockId {
        self.index.block_in(slot)
    }

    /// The class of the block in a slot that is in use.
    #[inline]
    pub fn class_in(&self, slot: Slot) -> Class {
        // If all blocks have the same class, classes need not be read.
        if self.has_classes {
            self.classes[slot.i()]
        } else {
            Class::NORMAL
        }
    }

    /// Offers one block to the level: counts it, informs the policy, and returns the decision. A
    /// resident block keeps its [`Class::DIRTY`] mark; only [`reclass`](Self::reclass) removes it.
    #[inline(always)]
    pub fn access(&mut self, access: &Access) -> Outcome {
        if let Some(slot) = self.index.get(access.block) {
            self.hit(slot, access);
            return Outcome::Hit(slot);
        }
        let mut access = *access;
        access.tick = self.tick;
        self.tick += 1;
        self.count_arrival(access.kind);
        self.admit(&access)
    }

    /// As [`access`](Self::access), if the block is in slot `likely`, which
    /// [`look_ahead`](Self::look_ahead) returned some accesses ago. Otherwise does nothing and
    /// returns false.
    #[inline(always)]
    pub fn access_in(&mut self, likely: Slot, access: &Access) -> bool {
        let is_there = self.index.holds(likely, access.block);
        if is_there {
            self.hit(likely, access);
        }
        is_there
    }

    #[inline(always)]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let mut access = *access;
        access.tick = self.tick;
        self.tick += 1;
        self.count_arrival(access.kind);
        // If all blocks have the same class, classes need not be read.
        if self.has_classes || access.class != Class::NORMAL {
            self.has_classes = true;
            let class = &mut self.classes[slot.i()];
            if class.has(Class::DIRTY) {
                access.class = access.class.with(Class::DIRTY);
            }
            *class = access.class;
        }
        self.policy.hit(slot, &access);
    }

    #[inline]
    fn count_arrival(&mut self, kind: AccessKind) {
        match kind {
            AccessKind::Read | AccessKind::Write => {}
            AccessKind::Demotion => self.counted.demotions_in += 1,
            AccessKind::Notice => self.counted.notices_in += 1,
            AccessKind::Preload => self.preloads += 1,
        }
    }

    #[inline(always)]
    fn admit(&mut self, access: &Access) -> Outcome {
        if access.kind.is_demand() {
            self.counted.misses += 1;
        }
        if self.policy.miss(access) == Admission::Bypass {
            return self.decline(access.kind);
        }
        let (slot, evicted) = if self.resident < self.capacity {
            let slot = self.free_slot();
            self.index.insert(access.block, slot);
            self.resident += 1;
            (slot, None)
        } else {
            let Some(slot) = self.policy.victim(access) else {
                return self.decline(access.kind);
            };
            let victim = self.in_slot(slot);
            self.policy.remove(slot, Departure::Evicted);
            self.index.replace(victim.block, slot, access.block);
            self.counted.evictions += 1;
            (slot, Some(victim))
        };
        self.set_class(slot, access.class);
        self.counted.admissions += 1;
        self.policy.insert(slot, access);
        Outcome::Admitted { slot, evicted }
    }

    fn decline(&mut self, kind: AccessKind) -> Outcome {
        if kind.is_demand() {
            self.counted.bypasses += 1;
        } else if kind == AccessKind::Demotion {
            self.counted.demotions_declined += 1;
        }
        Outcome::Bypassed
    }

    fn free_slot(&mut self) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.stripped = self.stripped.min(self.free.len());
            return slot;
        }
        let slot = Slot(self.classes.len() as u32);
        self.classes.push(Class::NORMAL);
        slot
    }

    #[inline]
    fn set_class(&mut self, slot: Slot, class: Class) {
        // If all blocks have the same class, classes need not be written either.
        if self.has_classes || class != Class::NORMAL {
            self.has_classes = true;
            self.classes[slot.i()] = class;
        }
    }

    #[inline]
    fn in_slot(&self, slot: Slot) -> Victim {
        Victim {
            block: self.index.block_in(slot),
            slot,
            class: self.class_in(slot),
        }
    }

    fn take(&mut self, slot: Slot, why: Departure) -> Victim {
        let victim = self.in_slot(slot);
        self.policy.remove(slot, why);
        self.index.remove(victim.block, slot);
        self.resident -= 1;
        victim
    }

    /// The next block that the policy wants to place without a request, if any. Call it after every
    /// access until it returns `None`. Each named block is loaded, and then offered to the level as
    /// a [`Preload`](AccessKind::Preload). The policy may name a block again while it is being
    /// loaded.
    #[inline]
    pub fn review(&mut self) -> Option<BlockId> {
        loop {
            let block = self.policy.review()?;
            if self.index.get(block).is_none() {
                return Some(block);
            }
        }
    }

    /// Drops `block` if resident; its slot is free afterwards.
    pub fn remove(&mut self, block: BlockId, why: Departure) -> Option<Victim> {
        let slot = self.index.get(block)?;
        let victim = self.take(slot, why);
        self.free.push(slot);
        if why == Departure::Invalidated {
            self.counted.invalidations += 1;
        }
        Some(victim)
    }

    /// Changes the class of a resident block.
    pub fn reclass(&mut self, block: BlockId, class: Class) {
        if let Some(slot) = self.index.get(block) {
            self.set_class(slot, class);
            self.policy.reclass(slot, class);
        }
    }

    /// Informs the policy of the measured costs of stores.
    pub fn note_costs(&mut self, costs: &StoreCosts) {
        self.policy.note_costs(costs);
    }

    /// Announces, before any other call, where volumes begin; see [`Policy::note_volumes`].
    pub fn note_volumes(&mut self, firsts: &[u64]) {
        self.policy.note_volumes(firsts);
    }

    /// The policy's own decisions; see [`Policy::remarks`].
    pub fn remarks(&self) -> &[String] {
        self.policy.remarks()
    }

    /// Why the policy has failed, if it has; see [`Policy::fault`].
    pub fn fault(&self) -> Option<&SpecError> {
        self.policy.fault()
    }

    /// The policy's current weights by class; see [`Policy::weights`].
    pub fn weights(&self) -> Vec<(String, f64)> {
        self.policy.weights()
    }

    /// Changes the class of a resident block, which takes effect at once instead of at the block's
    /// next use.
    pub fn reclass_at_once(&mut self, block: BlockId, class: Class) {
        if let Some(slot) = self.index.get(block) {
            self.set_class(slot, class);
            let mut access = Access::of(block, AccessKind::Preload).classed(class);
            access.tick = self.tick;
            self.policy.reclass_at_once(slot, &access);
        }
    }

    /// Changes the number of slots to `capacity`, at least 1. A shrink evicts and returns the
    /// blocks that the policy chooses one after the other; its time depends on their number, not on
    /// that of all blocks. Slot numbers do not change: a level that shrank may use any slot that it
    /// ever had, but never more than `capacity` of them.
    pub fn resize(&mut self, capacity: u32) -> Vec<Victim> {
        assert!(capacity > 0, "a level has at least one slot");
        let mut evicted = Vec::new();
        // For a policy that declines to choose; safest first.
        let mut order: Option<Vec<Slot>> = None;
        while self.resident > capacity {
            let next = match &mut order {
                Some(order) => order.pop(),
                None => self.policy.surplus(),
            };
            let Some(slot) = next else {
                assert!(order.is_none(), "more resident than in order");
                order = Some(self.policy.order());
                continue;
            };
            evicted.push(self.take(slot, Departure::Evicted));
            self.free.push(slot);
            self.counted.evictions += 1;
        }
        self.capacity = capacity;
        self.policy.resize(capacity);
        evicted
    }

    /// Evicts one block, if there is one, as a shrink does; its slot is then free.
    pub(crate) fn give_up(&mut self) -> Option<Victim> {
        let slot = self
            .policy
            .surplus()
            .or_else(|| self.policy.order().pop())?;
        let victim = self.take(slot, Departure::Evicted);
        self.free.push(slot);
        Some(victim)
    }

    /// Slots in use, safest first, next victim last.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.policy.order()
    }

    /// Resident blocks, safest first, next victim last.
    pub fn order(&self) -> Vec<BlockId> {
        self.policy
            .order()
            .into_iter()
            .map(|slot| self.index.block_in(slot))
            .collect()
    }

    /// The rank of a slot in use; see [`Policy::rank`].
    pub fn rank(&self, slot: Slot) -> u64 {
        self.policy.rank(slot)
    }

    /// The policy's history beyond residency; see [`Policy::history`].
    pub fn history(&self) -> Vec<BlockId> {
        self.policy.history()
    }

    /// Passes a saved history to the policy of a new level.
    pub fn recall(&mut self, history: &[BlockId]) {
        self.policy.recall(history);
    }

    /// Panics unless residency, free slots and the policy agree. For tests.
    pub fn audit(&self) {
        assert!(
            self.resident <= self.capacity,
            "more resident than capacity"
        );
        assert_eq!(
            self.classes.len(),
            self.free.len() + self.resident as usize,
            "slots lost"
        );
        let order = self.policy.order();
        assert_eq!(
            order.len(),
            self.resident as usize,
            "order and residency differ"
        );
        let ranks = order.iter().map(|&slot| self.policy.rank(slot));
        assert!(
            ranks.is_sorted_by(|safer, other| safer >= other),
            "ranks against the order"
        );
        let mut seen = vec![false; self.classes.len()];
        for slot in order {
            assert!(
                !std::mem::replace(&mut seen[slot.i()], true),
                "slot {slot:?} twice in order"
            );
            assert_eq!(
                self.index.get(self.index.block_in(slot)),
                Some(slot),
                "index and order differ"
            );
        }
        self.policy.audit(self.resident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PolicySpec, Shape, build, cards};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A policy that counts how often its whole order is computed.
    struct Counting {
        inner: Box<dyn Policy>,
        asked: Arc<AtomicU32>,
    }

    impl Policy for Counting {
        fn miss(&mut self, access: &Access) -> Admission {
            self.inner.miss(access)
        }
        fn insert(&mut self, slot: Slot, access: &Access) {
            self.inner.insert(slot, access);
        }
        fn hit(&mut self, slot: Slot, access: &Access) {
            self.inner.hit(slot, access);
        }
        fn victim(&mut self, incoming: &Access) -> Option<Slot> {
            self.inner.victim(incoming)
        }
        fn surplus(&mut self) -> Option<Slot> {
            self.inner.surplus()
        }
        fn remove(&mut self, slot: Slot, why: Departure) {
            self.inner.remove(slot, why);
        }
        fn review(&mut self) -> Option<BlockId> {
            self.inner.review()
        }
        fn resize(&mut self, slots: u32) {
            self.inner.resize(slots);
        }
        fn order(&self) -> Vec<Slot> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.inner.order()
        }
        fn audit(&self, resident: u32) {
            self.inner.audit(resident);
        }
    }

    #[test]
    fn no_policy_goes_through_all_blocks_to_give_up_a_few() {
        for card in cards() {
            let spec: PolicySpec = card.name.parse().expect("a policy string");
            let shape = Shape { slots: 64, seed: 1 };
            let asked = Arc::new(AtomicU32::new(0));
            let policy = Counting {
                inner: build(&spec, &shape).expect("a policy"),
                asked: Arc::clone(&asked),
            };
            let mut level = Level::new(policy, HashIndex::default(), 64);
            for index in (0..96).chain(0..48) {
                level.access(&Access::read(BlockId::on_first(index)));
                // Preloaded and demoted blocks have slots, too.
                level.access(&Access::of(BlockId::on_first(index), AccessKind::Preload));
            }
            level.audit();
            let resident = level.resident();
            asked.store(0, Ordering::Relaxed);
            let gone = level.resize(resident - 5);
            assert_eq!(gone.len(), 5, "{}", card.name);
            assert_eq!(asked.load(Ordering::Relaxed), 0, "{}", card.name);
            assert!(gone.iter().all(|gone| level.find(gone.block).is_none()));
            level.audit();
        }
    }
}
