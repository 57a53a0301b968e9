//! The policy in force orders the cache itself, as long as the cache holds what it decided.

use crate::structures::Table;
use crate::{Access, Admission, BlockId, Class, Departure, RegisteredPolicy, Slot};

/// No slot; other values are a slot's number plus one.
const NONE: u32 = 0;

/// A policy over the slots of the cache, which has numbers of its own for them.
///
/// A block that comes takes the slot of the block that went, in both. So the numbers of a slot stay.
pub struct Agreed {
    policy: Box<dyn RegisteredPolicy>,
    /// The block in each slot of the cache.
    blocks: Table<BlockId>,
    numbers: Option<Numbers>,
    /// Accesses of the cache before the first one of the policy.
    late: u64,
}

/// Slots of the cache, and their numbers in the policy.
pub struct Numbers {
    own: Table<u32>,
    real: Table<u32>,
    next: u32,
}

impl Numbers {
    /// Those of pairs: a slot of the cache, and the policy's number of it.
    pub fn new(pairs: impl Iterator<Item = (Slot, Slot)>) -> Self {
        let mut numbers = Self {
            own: Table::new(0),
            real: Table::new(0),
            next: 0,
        };
        for (slot, own) in pairs {
            numbers.pair(slot, own);
            numbers.next = numbers.next.max(own.0 + 1);
        }
        numbers
    }

    fn pair(&mut self, slot: Slot, own: Slot) {
        self.own.set(slot, own.0 + 1);
        self.real.set(own, slot.0 + 1);
    }

    #[inline]
    fn own(&self, slot: Slot) -> Slot {
        Slot(self.own.get(slot).wrapping_sub(1))
    }

    #[inline]
    fn real(&self, own: Slot) -> Slot {
        Slot(self.real.get(own).wrapping_sub(1))
    }

    /// The number of a slot, a new one if the slot was never used.
    fn assign(&mut self, slot: Slot) -> Slot {
        if self.own.get(slot) == NONE {
            self.pair(slot, Slot(self.next));
            self.next += 1;
        }
        self.own(slot)
    }
}

impl Agreed {
    /// An empty cache.
    pub fn new(policy: Box<dyn RegisteredPolicy>, slots: u32) -> Self {
        Self {
            policy,
            blocks: Table::new(slots),
            numbers: None,
            late: 0,
        }
    }

    /// A cache that holds what a policy decided that saw its first access `late` accesses after the cache.
    pub fn from_pairs(
        policy: Box<dyn RegisteredPolicy>,
        numbers: Numbers,
        blocks: Table<BlockId>,
        late: u64,
    ) -> Self {
        Self {
            policy,
            blocks,
            numbers: Some(numbers),
            late,
        }
    }

    #[inline]
    fn own(&self, slot: Slot) -> Slot {
        match &self.numbers {
            None => slot,
            Some(numbers) => numbers.own(slot),
        }
    }

    #[inline]
    fn real(&self, own: Slot) -> Slot {
        match &self.numbers {
            None => own,
            Some(numbers) => numbers.real(own),
        }
    }

    /// The access as the policy counts accesses.
    #[inline]
    fn told(&self, access: &Access) -> Access {
        Access {
            tick: access.tick.wrapping_sub(self.late),
            ..*access
        }
    }

    /// The block in a slot that is in use.
    pub fn block(&self, slot: Slot) -> BlockId {
        self.blocks.get(slot)
    }

    #[inline]
    pub fn miss(&mut self, access: &Access) -> Admission {
        self.policy.miss(&self.told(access))
    }

    #[inline]
    pub fn insert(&mut self, slot: Slot, access: &Access) {
        self.blocks.set(slot, access.block);
        let own = match &mut self.numbers {
            None => slot,
            Some(numbers) => numbers.assign(slot),
        };
        self.policy.insert(own, &self.told(access));
    }

    #[inline]
    pub fn hit(&mut self, slot: Slot, access: &Access) {
        self.policy.hit(self.own(slot), &self.told(access));
    }

    #[inline]
    pub fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        let own = self.policy.victim(&self.told(incoming))?;
        Some(self.real(own))
    }

    pub fn surplus(&mut self) -> Option<Slot> {
        let own = self.policy.surplus()?;
        Some(self.real(own))
    }

    #[inline]
    pub fn remove(&mut self, slot: Slot, why: Departure) {
        self.policy.remove(self.own(slot), why);
    }

    pub fn reclass(&mut self, slot: Slot, class: Class) {
        self.policy.reclass(self.own(slot), class);
    }

    pub fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        let access = self.told(access);
        self.policy.reclass_at_once(self.own(slot), &access);
    }

    /// The policy in force.
    pub fn policy(&self) -> &dyn RegisteredPolicy {
        &*self.policy
    }

    /// The same, to be informed.
    pub fn policy_mut(&mut self) -> &mut dyn RegisteredPolicy {
        &mut *self.policy
    }

    #[inline]
    pub fn foresee(&self, ahead: u32) -> Option<Slot> {
        let own = self.policy.foresee(ahead)?;
        Some(self.real(own))
    }

    #[inline]
    pub fn foresee_all(&self, victims: &mut [Slot]) -> usize {
        let found = self.policy.foresee_all(victims);
        if self.numbers.is_some() {
            for victim in &mut victims[..found] {
                *victim = self.real(*victim);
            }
        }
        found
    }

    #[inline]
    pub fn approach(&self, slot: Slot) {
        self.policy.approach(self.own(slot));
    }

    pub fn order(&self) -> Vec<Slot> {
        let own = self.policy.order().into_iter();
        own.map(|own| self.real(own)).collect()
    }

    pub fn rank(&self, slot: Slot) -> u64 {
        1 + self.policy.rank(self.own(slot))
    }

    /// Panics unless the numbers are pairs.
    pub fn audit(&self, resident: u32) {
        self.policy.audit(resident);
        for own in self.policy.order() {
            assert_eq!(self.own(self.real(own)), own, "numbers that are no pair");
        }
    }
}
