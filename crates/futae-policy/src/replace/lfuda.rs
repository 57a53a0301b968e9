//! LFU with dynamic aging: use counts start from an age that rises with every eviction, so that blocks
//! which were popular long ago are evicted.
//!
//! # Source
//! Arlitt, Cherkasova, Dilley, Friedrich and Jin, "Evaluating content management techniques for web proxy
//! caches", ACM SIGMETRICS Performance Evaluation Review 27(4), 2000, section 3 (LFU-DA). The report itself
//! was not at hand; followed is the formula by which later work cites it: priority = age + uses
//! # Picture
//! victim ← [ least age + uses ... most ]; age ← priority of the victim
//! # Transitions
//! hit: count + 1, from the present age | miss: placed with one use, from the present age, which is that of
//! the victim if there was one | evicted: the age becomes the victim's priority
//! # Parameters
//! none
//! # Deviations
//! none. Ties are broken by the time of the last use, the oldest first. `gdsf` differs in that a new
//! block's use counts from the age before its victim. libCacheSim's LFUDA is another policy: at every hit
//! it adds the age to a block's own priority, so that priorities double
//! # Cost
//! O(1) per hit, O(log slots) per eviction, amortised; 48 bytes per slot

use crate::structures::{Heap, Table};
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

/// Priority, and the time of the last use. Neither ever falls.
type Key = (u64, u64);

/// Lowest priority first.
#[derive(Debug)]
pub struct Lfuda {
    age: u64,
    now: u64,
    uses: Table<u32>,
    keys: Table<Key>,
    /// Each slot with a key that it had: a hit changes `keys` only, and the heap is corrected when
    /// the slot reaches its top.
    heap: Heap<Key>,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Lfuda, SpecError> {
    Ok(Lfuda {
        age: 0,
        now: 0,
        uses: Table::new(shape.slots),
        keys: Table::new(shape.slots),
        heap: Heap::new(shape.slots),
    })
}

impl Lfuda {
    #[inline]
    fn set(&mut self, slot: Slot, uses: u32) -> Key {
        self.now += 1;
        let key = (self.age + u64::from(uses), self.now);
        self.uses.set(slot, uses);
        self.keys.set(slot, key);
        key
    }
}

impl Policy for Lfuda {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        let key = self.set(slot, 1);
        self.heap.set(slot, key);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let uses = self.uses.get(slot).saturating_add(1);
        self.set(slot, uses);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        loop {
            let (key, slot) = self.heap.top()?;
            let now = self.keys.get(slot);
            if key == now {
                return Some(slot);
            }
            self.heap.set(slot, now);
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Evicted {
            self.age = self.keys.get(slot).0;
        }
        self.heap.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        let mut order: Vec<Slot> = self.heap.iter().map(|(_, slot)| slot).collect();
        order.sort_by_key(|&slot| std::cmp::Reverse(self.keys.get(slot)));
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.heap.len(), resident);
        assert!(
            self.heap
                .iter()
                .all(|(key, slot)| key <= self.keys.get(slot))
        );
    }
}

impl SimulatorHints for Lfuda {}

/// A list of (priority, time of last use, uses, block), searched for its least.
#[cfg(test)]
mod reference {
    pub struct Lfuda {
        pub slots: usize,
        pub age: u64,
        pub now: u64,
        pub blocks: Vec<(u64, u64, u64, u64)>,
    }

    impl crate::contract::Reference for Lfuda {
        fn access(&mut self, block: u64) -> bool {
            self.now += 1;
            let held = self.blocks.iter().position(|held| held.3 == block);
            let uses = match held {
                Some(at) => self.blocks.remove(at).2 + 1,
                None => 1,
            };
            if self.blocks.len() == self.slots {
                self.blocks.sort_unstable();
                self.age = self.blocks.remove(0).0;
            }
            self.blocks.push((self.age + uses, self.now, uses, block));
            held.is_some()
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
        // 1 has 3 uses: priority 3. 2 has 1, 3 evicts it: age 1, so 3 has priority 2.
        assert_eq!(order_after("lfuda", 2, &[1, 1, 1, 2, 3]), [1, 3]);
        // 4 evicts 3: age 2, priority 3, as 1 has; 1 was used earlier, and goes for 5: age 3, priority 4.
        assert_eq!(order_after("lfuda", 2, &[1, 1, 1, 2, 3, 4]), [4, 1]);
        assert_eq!(order_after("lfuda", 2, &[1, 1, 1, 2, 3, 4, 5]), [5, 4]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("lfuda", |slots, _| reference::Lfuda {
            slots,
            age: 0,
            now: 0,
            blocks: Vec::new(),
        });
    }
}
