//! Least recently used: evicts the block whose last access is the oldest.
//!
//! # Source
//! Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal
//! 9(2), 1970.
//! # Picture
//! victim ← [ LRU end ... MRU end ] ← new, hit
//! # Transitions
//! hit: to the MRU end | miss: placed at the MRU end | demotion: as a miss, or as a hit if resident
//! # Parameters
//! none
//! # Deviations
//! none
//! # Cost
//! O(1) per access; at most 14 bytes per slot

use crate::structures::Recency;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

/// Least recently used first.
#[derive(Debug)]
pub struct Lru {
    order: Recency,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Lru, SpecError> {
    Ok(Lru::new(shape.slots))
}

impl Lru {
    /// The order over `slots` slots, empty.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            order: Recency::new(slots),
        }
    }
}

impl Policy for Lru {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.order.push_back(slot);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.order.move_back(slot);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.order.front()
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.order.remove(slot);
    }

    /// Where the block was in the order leaves no trace.
    #[inline]
    fn hand_up(&mut self, slot: Slot, _access: &Access) {
        self.order.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        self.order.iter_back().collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.order.len(), resident);
    }
}

impl SimulatorHints for Lru {
    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.order.about(ahead)
    }

    #[inline]
    fn foresee_all(&self, victims: &mut [Slot]) -> usize {
        self.order.first(victims)
    }

    #[inline]
    fn approach(&self, slot: Slot) {
        self.order.approach(slot);
    }
}

/// A list in order of last use, searched from end to end.
#[cfg(test)]
mod reference {
    pub struct Lru {
        pub slots: usize,
        pub blocks: Vec<u64>,
    }

    impl crate::contract::Reference for Lru {
        fn access(&mut self, block: u64) -> bool {
            let at = self.blocks.iter().position(|&held| held == block);
            match at {
                Some(at) => drop(self.blocks.remove(at)),
                None if self.blocks.len() == self.slots => drop(self.blocks.remove(0)),
                None => {}
            }
            self.blocks.push(block);
            at.is_some()
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 3 slots; safest first, next victim last.
        assert_eq!(order_after("lru", 3, &[1, 2, 3]), [3, 2, 1]);
        assert_eq!(order_after("lru", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        assert_eq!(order_after("lru", 3, &[1, 2, 3, 1, 4]), [4, 1, 3]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("lru", |slots, _| reference::Lru {
            slots,
            blocks: Vec::new(),
        });
    }
}
