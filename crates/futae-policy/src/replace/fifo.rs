//! First in, first out: evicts the block that was placed first, whether or not it was hit.
//!
//! # Source
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2),
//! 1966.
//! # Picture
//! victim ← [ oldest ... newest ] ← new
//! # Transitions
//! hit: stays | miss: placed at the newest end | demotion of a resident block: stays
//! # Parameters
//! none
//! # Deviations
//! none
//! # Cost
//! O(1) per access, nothing on a hit; 8 bytes per slot

use crate::structures::Queues;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

const ORDER: usize = 0;

/// Placed longest ago first.
#[derive(Debug)]
pub struct Fifo {
    order: Queues,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Fifo, SpecError> {
    Ok(Fifo {
        order: Queues::new(1, shape.slots),
    })
}

impl Policy for Fifo {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.order.push_back(ORDER, slot);
    }

    #[inline]
    fn hit(&mut self, _slot: Slot, _access: &Access) {}

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.order.front(ORDER)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.order.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        self.order.iter_back(ORDER).collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.order.len(ORDER), resident);
    }
}

impl SimulatorHints for Fifo {}

/// A list in order of arrival.
#[cfg(test)]
mod reference {
    pub struct Fifo {
        pub slots: usize,
        pub blocks: Vec<u64>,
    }

    impl crate::contract::Reference for Fifo {
        fn access(&mut self, block: u64) -> bool {
            if self.blocks.contains(&block) {
                return true;
            }
            if self.blocks.len() == self.slots {
                self.blocks.remove(0);
            }
            self.blocks.push(block);
            false
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
        assert_eq!(order_after("fifo", 3, &[1, 2, 3, 1]), [3, 2, 1]);
        assert_eq!(order_after("fifo", 3, &[1, 2, 3, 1, 4]), [4, 3, 2]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("fifo", |slots, _| reference::Fifo {
            slots,
            blocks: Vec::new(),
        });
    }
}
