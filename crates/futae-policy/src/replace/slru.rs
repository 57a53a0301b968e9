//! Segmented LRU: a block must be hit once to be protected from those that are asked for once.
//!
//! # Source
//! Karedla, Love and Wherry, "Caching strategies to improve disk system performance", IEEE
//! Computer 27(3), 1994.
//! # Picture
//! out ← [ probationary, lru ] ← new; hit → [ protected, lru ]; too many protected: the oldest
//! back to probationary
//! # Transitions
//! hit: to the recent end of protected, whose oldest moves to the recent end of probationary if
//! protected is over its share | miss: to the recent end of probationary | victim: the oldest
//! probationary
//! # Parameters
//! protected 0.8: share of the slots for the protected segment, rounded down
//! # Deviations
//! the paper leaves the share open and finds it best between a half and nearly all
//! # libCacheSim
//! libCacheSim has four equal segments and puts a new block into the lowest that has room; the paper has two
//! # Cost
//! O(1) an access; 14 bytes a slot

use crate::structures::LogQueues;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

const PROBATION: usize = 0;
const PROTECTED: usize = 1;

/// Two LRU segments.
#[derive(Debug)]
pub struct Slru {
    share: f64,
    limit: u32,
    segments: LogQueues<2>,
}

/// Builds the policy; its parameter is `protected`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Slru, SpecError> {
    let mut policy = Slru {
        share: arguments.share("protected", 0.8)?,
        limit: 0,
        segments: LogQueues::new(shape.slots),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Slru {
    #[inline]
    fn unprotect_surplus(&mut self) {
        while self.segments.len(PROTECTED) > self.limit {
            if let Some(oldest) = self.segments.front(PROTECTED) {
                self.segments.remove(oldest);
                self.segments.push_back(PROBATION, oldest);
            }
        }
    }
}

impl Policy for Slru {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.segments.push_back(PROBATION, slot);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.segments.remove(slot);
        self.segments.push_back(PROTECTED, slot);
        self.unprotect_surplus();
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let oldest = self.segments.front(PROBATION);
        oldest.or_else(|| self.segments.front(PROTECTED))
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.segments.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.limit = (f64::from(slots) * self.share) as u32;
        self.unprotect_surplus();
    }

    fn rank(&self, slot: Slot) -> u64 {
        u64::from(self.segments.queue_of(slot) == PROTECTED)
    }

    fn order(&self) -> Vec<Slot> {
        let protected = self.segments.iter_back(PROTECTED);
        protected
            .chain(self.segments.iter_back(PROBATION))
            .collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.segments.total(), resident);
        assert!(self.segments.len(PROTECTED) <= self.limit);
    }
}

impl SimulatorHints for Slru {
    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.segments.about(PROBATION, ahead)
    }
}

/// Two lists, oldest first.
#[cfg(test)]
mod reference {
    pub struct Slru {
        pub slots: usize,
        pub probation: Vec<u64>,
        pub protected: Vec<u64>,
    }

    fn take(list: &mut Vec<u64>, block: u64) -> bool {
        let at = list.iter().position(|&held| held == block);
        at.map(|at| list.remove(at)).is_some()
    }

    impl crate::contract::Reference for Slru {
        fn access(&mut self, block: u64) -> bool {
            if take(&mut self.protected, block) || take(&mut self.probation, block) {
                self.protected.push(block);
                if self.protected.len() > self.slots * 8 / 10 {
                    self.probation.push(self.protected.remove(0));
                }
                return true;
            }
            if self.probation.len() + self.protected.len() == self.slots {
                self.probation.remove(0);
            }
            self.probation.push(block);
            false
        }

        fn resident(&self) -> Vec<u64> {
            [self.probation.as_slice(), &self.protected].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 3 slots, 2 of them protected: the third hit sends 1 back to probation, behind nobody.
        assert_eq!(order_after("slru", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        assert_eq!(order_after("slru", 3, &[1, 2, 3, 1, 2, 3]), [3, 2, 1]);
        assert_eq!(order_after("slru", 3, &[1, 2, 3, 1, 2, 4]), [2, 1, 4]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("slru", |slots, _| reference::Slru {
            slots,
            probation: Vec::new(),
            protected: Vec::new(),
        });
    }
}
