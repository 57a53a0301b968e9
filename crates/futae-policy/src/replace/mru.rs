//! Most recently used: evicts the block that was accessed last.
//!
//! # Source
//! Sugimoto and Yamaguchi 2015, one of the nine policies compared there (section 5). It suits a cache below
//! another one, where the block just read is the least likely to be requested again.
//! # Picture
//! new, hit → [ MRU end ... LRU end ], victim from the MRU end
//! # Transitions
//! hit: to the MRU end | miss: placed at the MRU end, in place of the block there
//! # Parameters
//! none
//! # Deviations
//! none
//! # Cost
//! O(1) per access; 8 bytes per slot

use crate::structures::Queues;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

const ORDER: usize = 0;

/// Most recently used first.
#[derive(Debug)]
pub struct Mru {
    order: Queues,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Mru, SpecError> {
    Ok(Mru {
        order: Queues::new(1, shape.slots),
    })
}

impl Policy for Mru {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.order.push_back(ORDER, slot);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.order.move_back(ORDER, slot);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.order.back(ORDER)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.order.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        self.order.iter(ORDER).collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.order.len(ORDER), resident);
    }
}

impl SimulatorHints for Mru {}

/// A list in order of last use; the last one is overwritten.
#[cfg(test)]
mod reference {
    pub struct Mru {
        pub slots: usize,
        pub blocks: Vec<u64>,
    }

    impl crate::contract::Reference for Mru {
        fn access(&mut self, block: u64) -> bool {
            let at = self.blocks.iter().position(|&held| held == block);
            match at {
                Some(at) => drop(self.blocks.remove(at)),
                None if self.blocks.len() == self.slots => drop(self.blocks.pop()),
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
        assert_eq!(order_after("mru", 3, &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(order_after("mru", 3, &[1, 2, 3, 4]), [1, 2, 4]);
        assert_eq!(order_after("mru", 3, &[1, 2, 3, 4, 1, 5]), [2, 4, 5]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("mru", |slots, _| reference::Mru {
            slots,
            blocks: Vec::new(),
        });
    }
}
