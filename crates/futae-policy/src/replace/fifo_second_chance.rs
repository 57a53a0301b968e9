//! FIFO with second chance: two queues; a block that is used while it is in the second one returns to the
//! first.
//!
//! # Source
//! The page replacement of Mach, as Sudo and others 1993 build on it (section 3.2.1).
//! # Picture
//! new → [ active, FIFO ] → clear the mark → [ inactive, FIFO ] → marked: to active | else victim
//! # Transitions
//! hit: marked | miss: to the end of active | victim: inactive is filled from the front of active to its
//! target length; then blocks are taken from its front until one is not marked
//! # Parameters
//! inactive 0.333333: target length of inactive as a share of the slots (at least 32 blocks)
//! # Deviations
//! the paper states no target length, only that it is constant (section 3.2.1)
//! # Cost
//! O(1) per access, amortised; 10 bytes per slot

use crate::policy::order_by_evicting;
use crate::structures::{Queues, Table};
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

const ACTIVE: usize = 0;
const INACTIVE: usize = 1;
/// The least target length of inactive.
pub(super) const LEAST_INACTIVE: u32 = 32;

/// An active and an inactive queue.
#[derive(Clone, Debug)]
pub struct FifoSecondChance {
    inactive_share: f64,
    inactive_target: u32,
    queues: Queues,
    referenced: Table<bool>,
}

/// Builds the policy; its parameter is `inactive`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<FifoSecondChance, SpecError> {
    let mut policy = FifoSecondChance {
        inactive_share: arguments.share("inactive", 1.0 / 3.0)?,
        inactive_target: LEAST_INACTIVE,
        queues: Queues::new(2, shape.slots),
        referenced: Table::new(shape.slots),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl FifoSecondChance {
    fn refill(&mut self) {
        while self.queues.len(INACTIVE) < self.inactive_target {
            let Some(oldest) = self.queues.front(ACTIVE) else {
                return;
            };
            self.referenced.set(oldest, false);
            self.queues.remove(oldest);
            self.queues.push_back(INACTIVE, oldest);
        }
    }
}

impl Policy for FifoSecondChance {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.queues.push_back(ACTIVE, slot);
        self.referenced.set(slot, true);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.referenced.set(slot, true);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        loop {
            self.refill();
            let oldest = self.queues.front(INACTIVE)?;
            if !self.referenced.get(oldest) {
                return Some(oldest);
            }
            self.queues.remove(oldest);
            self.queues.push_back(ACTIVE, oldest);
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.queues.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        let share = (f64::from(slots) * self.inactive_share) as u32;
        self.inactive_target = share.max(LEAST_INACTIVE);
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
    }
}

impl SimulatorHints for FifoSecondChance {}

/// Two lists of (block, referenced), oldest first.
#[cfg(test)]
pub(super) mod reference {
    pub struct FifoSecondChance {
        pub slots: usize,
        pub target: usize,
        pub active: Vec<(u64, bool)>,
        pub inactive: Vec<(u64, bool)>,
    }

    impl crate::contract::Reference for FifoSecondChance {
        fn access(&mut self, block: u64) -> bool {
            let mut resident = self.active.iter_mut().chain(&mut self.inactive);
            if let Some(held) = resident.find(|held| held.0 == block) {
                held.1 = true;
                return true;
            }
            while self.active.len() + self.inactive.len() == self.slots {
                while self.inactive.len() < self.target && !self.active.is_empty() {
                    self.inactive.push((self.active.remove(0).0, false));
                }
                let oldest = self.inactive.remove(0);
                if oldest.1 {
                    self.active.push(oldest);
                }
            }
            self.active.push((block, true));
            false
        }

        fn resident(&self) -> Vec<u64> {
            let all = self.active.iter().chain(&self.inactive);
            all.map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 4 brings 1, 2 and 3 to inactive, unmarked, and 1 goes. 2 is used: when 5 comes, 2 goes
        // back to active and 3 goes.
        let text = "fifo-second-chance";
        assert_eq!(order_after(text, 3, &[1, 2, 3, 4]), [4, 3, 2]);
        assert_eq!(order_after(text, 3, &[1, 2, 3, 4, 2]), [2, 4, 3]);
        assert_eq!(order_after(text, 3, &[1, 2, 3, 4, 2, 5]), [5, 2, 4]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("fifo-second-chance", |slots, _| {
            reference::FifoSecondChance {
                slots,
                target: 32,
                active: Vec::new(),
                inactive: Vec::new(),
            }
        });
    }
}
