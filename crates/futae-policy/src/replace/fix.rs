//! Fix: keeps the first blocks that miss, and never evicts.
//!
//! # Source
//! Sugimoto and Yamaguchi 2015, section 5: filled with the first blocks that miss, then never replaced.
//! # Picture
//! new → [ the first blocks that missed ]; once full, nothing more
//! # Transitions
//! hit: nothing | miss: placed while there is a free slot, else served and not kept
//! # Parameters
//! none
//! # Deviations
//! none
//! # Cost
//! O(1) per access; 8 bytes per slot, for the order only

use crate::structures::Queues;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

const ORDER: usize = 0;

/// Nothing is replaced.
#[derive(Debug)]
pub struct Fix {
    arrivals: Queues,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Fix, SpecError> {
    Ok(Fix {
        arrivals: Queues::new(1, shape.slots),
    })
}

impl Policy for Fix {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.arrivals.push_back(ORDER, slot);
    }

    #[inline]
    fn hit(&mut self, _slot: Slot, _access: &Access) {}

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        None
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.arrivals.back(ORDER)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.arrivals.remove(slot);
    }

    /// The latest arrival would be the first to go when the cache is made smaller.
    fn order(&self) -> Vec<Slot> {
        self.arrivals.iter(ORDER).collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.arrivals.len(ORDER), resident);
    }
}

impl SimulatorHints for Fix {}

/// A set that is filled once.
#[cfg(test)]
mod reference {
    pub struct Fix {
        pub slots: usize,
        pub blocks: Vec<u64>,
    }

    impl crate::contract::Reference for Fix {
        fn access(&mut self, block: u64) -> bool {
            let held = self.blocks.contains(&block);
            if !held && self.blocks.len() < self.slots {
                self.blocks.push(block);
            }
            held
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
        assert_eq!(order_after("fix", 3, &[1, 2, 3, 4, 5, 1]), [1, 2, 3]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("fix", |slots, _| reference::Fix {
            slots,
            blocks: Vec::new(),
        });
    }
}
