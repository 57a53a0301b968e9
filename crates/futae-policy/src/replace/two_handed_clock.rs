//! Two-handed clock: the front hand clears marks; the back hand follows at a distance and evicts blocks
//! that were not used in between.
//!
//! # Source
//! The pageout daemon of 4.3BSD Reno and System V (McKusick, Leffler and others, "The design and
//! implementation of the 4.3BSD UNIX operating system").
//! # Picture
//! ring of slots: back hand → not marked: victim ... spread ... front hand → clear the mark
//! # Transitions
//! hit: marked | miss: placed where the victim was, not marked | victim: both hands advance slot by slot
//! until the back hand finds a block that is not marked
//! # Parameters
//! spread 0.25: distance of the hands as a share of the ring, rounded down; with 0 or 1 there is one hand
//! # Deviations
//! the hands move when a slot is needed, where a daemon moves them in advance; a new block is not marked
//! # Cost
//! O(1) per access, amortised; 1 byte per slot

use crate::policy::order_by_evicting;
use crate::structures::Ring;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

/// Two hands over a ring of marked slots.
#[derive(Clone, Debug)]
pub struct TwoHandedClock {
    spread: f64,
    ring: Ring,
    /// The position that the back hand looks at next.
    back: u32,
}

/// Builds the policy; its parameter is `spread`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<TwoHandedClock, SpecError> {
    Ok(TwoHandedClock {
        spread: arguments.share("spread", 0.25)?,
        ring: Ring::new(shape.slots),
        back: 0,
    })
}

impl Policy for TwoHandedClock {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.ring.insert(slot, 0);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.ring.set_mark(slot, 1);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        if self.ring.is_empty() {
            return None;
        }
        let places = self.ring.places();
        let spread = (f64::from(places) * self.spread) as u32;
        loop {
            let back = Slot(self.back % places);
            let front = Slot((back.0 + spread) % places);
            self.back = back.0 + 1;
            let goes = self.ring.has(back) && self.ring.mark(back) == 0;
            if self.ring.has(front) {
                self.ring.set_mark(front, 0);
            }
            if goes {
                return Some(back);
            }
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.ring.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.ring.len(), resident);
    }
}

impl SimulatorHints for TwoHandedClock {}

/// A fixed array of frames and two indexes.
#[cfg(test)]
mod reference {
    pub struct TwoHandedClock {
        pub slots: usize,
        pub frames: Vec<(u64, bool)>,
        pub hands: usize,
    }

    impl crate::contract::Reference for TwoHandedClock {
        fn access(&mut self, block: u64) -> bool {
            if let Some(frame) = self.frames.iter_mut().find(|frame| frame.0 == block) {
                frame.1 = true;
                return true;
            }
            if self.frames.len() < self.slots {
                self.frames.push((block, false));
                return false;
            }
            loop {
                let back = self.hands % self.slots;
                let front = (self.hands + self.slots / 4) % self.slots;
                self.hands += 1;
                let unused = !self.frames[back].1;
                self.frames[front].1 = false;
                if unused {
                    self.frames[back] = (block, false);
                    return false;
                }
            }
        }

        fn resident(&self) -> Vec<u64> {
            self.frames.iter().map(|frame| frame.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 4 slots, the front hand one ahead. 1 and 2 are marked: the hands pass 1, the front hand
        // clears 2, and the back hand takes 2 though it was used as often.
        let reads = [1, 2, 3, 4, 1, 2, 5];
        assert_eq!(order_after("two-handed-clock", 4, &reads), [5, 1, 4, 3]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("two-handed-clock", |slots, _| reference::TwoHandedClock {
            slots,
            frames: Vec::new(),
            hands: 0,
        });
    }
}
