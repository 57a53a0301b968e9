//! GDSF: use counts start from a floor that rises with every eviction, so that blocks which were popular
//! long ago are evicted.
//!
//! # Source
//! Cherkasova, "Improving WWW proxies performance with greedy-dual-size-frequency caching policy", HP Labs
//! HPL-98-69R1, 1998.
//! # Picture
//! victim ← [ least floor + uses ... most ]; floor ← priority of the victim
//! # Transitions
//! hit: count + 1, from the present floor | miss: placed with one use, from the floor before the eviction,
//! unless that is the lowest priority of all: then the block is not kept, and the floor rises to its
//! priority | evicted: the floor becomes the victim's priority
//! # Parameters
//! none
//! # Deviations
//! all blocks have the same cost, and those of a level the same size. So of the priority floor + uses ×
//! cost ÷ size remains LFU with dynamic aging. Objects that differ in size are weighed by size. Ties are
//! broken by the time of the last use. In the report a new object that is not kept evicts nothing and
//! leaves the floor unchanged, so a cache whose objects all were used twice could accept no other any more.
//! Here, as in libCacheSim, the new object is placed first, and objects with the lowest priority are
//! evicted until all fit; those evicted before the new one stay evicted, and the floor rises
//! # Cost
//! O(log slots) per access; 32 bytes per slot

use crate::structures::{Heap, MissNote, Table};
use crate::{
    Access, Admission, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};

/// The cost of a miss, so that a use of a large object is not lost beside a high floor.
const SCALE: f64 = 1e6;

/// Lowest priority first.
#[derive(Debug)]
pub struct Gdsf {
    floor: u64,
    /// The floor when the block that comes next was asked for.
    floor_before: MissNote<u64>,
    now: u64,
    uses: Table<u32>,
    /// The bytes of each block, if blocks differ in size. Priorities are then the bits of real
    /// numbers, which have the same order.
    bytes: Option<Table<u32>>,
    /// The bytes of the incoming block, if blocks differ in size.
    incoming: Option<u32>,
    /// Priority, and the time of the last use.
    priorities: Heap<(u64, u64)>,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Gdsf, SpecError> {
    Ok(Gdsf {
        floor: 0,
        floor_before: MissNote::new(),
        now: 0,
        uses: Table::new(shape.slots),
        bytes: None,
        incoming: None,
        priorities: Heap::new(shape.slots),
    })
}

impl Gdsf {
    #[inline]
    fn priority(floor: u64, uses: u32, bytes: Option<u32>) -> u64 {
        match bytes {
            None => floor + u64::from(uses),
            Some(bytes) => {
                let density = f64::from(uses) * SCALE / f64::from(bytes.max(1));
                (f64::from_bits(floor) + density).to_bits()
            }
        }
    }

    #[inline]
    fn set(&mut self, slot: Slot, uses: u32, floor: u64) {
        self.now += 1;
        self.uses.set(slot, uses);
        let bytes = self.bytes.as_ref().map(|bytes| bytes.get(slot));
        let priority = Self::priority(floor, uses, bytes);
        self.priorities.set(slot, (priority, self.now));
    }
}

impl Policy for Gdsf {
    fn note_size(&mut self, bytes: u32) {
        self.incoming = Some(bytes);
    }

    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        self.floor_before.set(access.block, self.floor);
        Admission::Admit
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        if let Some(bytes) = self.incoming {
            self.bytes
                .get_or_insert_with(Table::default)
                .set(slot, bytes);
        }
        let before = self.floor_before.take(access.block);
        self.set(slot, 1, before.unwrap_or(self.floor));
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.set(slot, self.uses.get(slot).saturating_add(1), self.floor);
    }

    #[inline]
    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        let ((least, _), slot) = self.priorities.top()?;
        let before = self.floor_before.get(incoming.block);
        let newcomer = Self::priority(before.unwrap_or(self.floor), 1, self.incoming);
        if newcomer < least {
            self.floor = newcomer;
            return None;
        }
        Some(slot)
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.priorities.top().map(|(_, slot)| slot)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Evicted
            && let Some((priority, _)) = self.priorities.key(slot)
        {
            self.floor = priority;
        }
        self.priorities.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        self.priorities.highest_first()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.priorities.len(), resident);
    }
}

impl SimulatorHints for Gdsf {}

/// A list of (priority, time of last use, uses, block), searched for its least.
#[cfg(test)]
mod reference {
    pub struct Gdsf {
        pub slots: usize,
        pub floor: u64,
        pub now: u64,
        pub blocks: Vec<(u64, u64, u64, u64)>,
    }

    impl crate::contract::Reference for Gdsf {
        fn access(&mut self, block: u64) -> bool {
            self.now += 1;
            if let Some(held) = self.blocks.iter_mut().find(|held| held.3 == block) {
                *held = (self.floor + held.2 + 1, self.now, held.2 + 1, block);
                return true;
            }
            self.blocks.push((self.floor + 1, self.now, 1, block));
            if self.blocks.len() > self.slots {
                self.blocks.sort_unstable();
                self.floor = self.blocks.remove(0).0;
            }
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|held| held.3).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 1 has 3 uses. Each newcomer starts one above the victim before the one that it drives out:
        // 2 at 1, 3 at 1, 4 at 2, 5 at 2, 6 at 3; and 6, as high as 1 and used later, outlives it.
        assert_eq!(order_after("gdsf", 2, &[1, 1, 1, 2, 3]), [1, 3]);
        assert_eq!(order_after("gdsf", 2, &[1, 1, 1, 2, 3, 4, 5]), [1, 5]);
        assert_eq!(order_after("gdsf", 2, &[1, 1, 1, 2, 3, 4, 5, 6]), [6, 1]);
        assert_eq!(order_after("gdsf", 2, &[1, 1, 1, 2, 3, 4, 5, 6, 7]), [7, 6]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("gdsf", |slots, _| reference::Gdsf {
            slots,
            floor: 0,
            now: 0,
            blocks: Vec::new(),
        });
    }
}
