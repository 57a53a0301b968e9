//! Clock: a hand passes over the blocks; a block that was used since the hand last passed is kept for
//! another round.
//!
//! # Source
//! Corbató, "A paging experiment with the Multics system", 1968; with more than one bit, the generalised
//! clock of Smith, ACM TODS 3(3), 1978.
//! # Picture
//! ring of slots, each with a mark; hand → mark > 0: mark − 1, next slot | mark = 0: victim
//! # Transitions
//! hit: mark + 1 | miss: placed where the victim was, with mark 0, behind the hand
//! # Parameters
//! bits 1: width of a mark in bits, 1 to 6
//! # Deviations
//! a new block has mark 0: its first use is the miss itself. A block that fills a slot which the hand did
//! not free stays where that slot is, not behind the hand
//! # Cost
//! O(1) per access, amortised; 1 byte per slot

use crate::structures::Ring;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

/// One hand over a ring of marked slots.
#[derive(Debug)]
pub struct Clock {
    ring: Ring,
    /// The position that the hand looks at next.
    hand: u32,
    most: u8,
}

/// Builds the policy; its parameter is `bits`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Clock, SpecError> {
    let bits = arguments.take("bits", "1 to 6", |bits: &u8| (1..=6).contains(bits))?;
    Ok(Clock {
        ring: Ring::new(shape.slots),
        hand: 0,
        most: (1 << bits.unwrap_or(1)) - 1,
    })
}

impl Policy for Clock {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.ring.insert(slot, 0);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let mark = self.ring.mark(slot);
        if mark < self.most {
            self.ring.set_mark(slot, mark + 1);
        }
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        loop {
            let slot = self.ring.at_or_after(self.hand)?;
            self.hand = slot.0 + 1;
            match self.ring.mark(slot) {
                0 => return Some(slot),
                mark => self.ring.set_mark(slot, mark - 1),
            }
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.ring.remove(slot);
    }

    /// The hand takes the unmarked in its first round, those with a mark of one in its second.
    fn order(&self) -> Vec<Slot> {
        let mut next: Vec<Slot> = self.ring.iter_from(self.hand).collect();
        next.sort_by_key(|&slot| self.ring.mark(slot));
        next.reverse();
        next
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.ring.len(), resident);
        let marks = self.ring.iter_from(0).map(|slot| self.ring.mark(slot));
        assert!(marks.max().unwrap_or(0) <= self.most);
    }
}

impl SimulatorHints for Clock {}

/// A queue: the front goes to the back as long as it is marked.
#[cfg(test)]
mod reference {
    pub struct Clock {
        pub slots: usize,
        pub most: u8,
        pub blocks: Vec<(u64, u8)>,
    }

    impl crate::contract::Reference for Clock {
        fn access(&mut self, block: u64) -> bool {
            if let Some(held) = self.blocks.iter_mut().find(|held| held.0 == block) {
                held.1 = (held.1 + 1).min(self.most);
                return true;
            }
            while self.blocks.len() == self.slots {
                let (front, mark) = self.blocks.remove(0);
                if mark > 0 {
                    self.blocks.push((front, mark - 1));
                }
            }
            self.blocks.push((block, 0));
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        assert_eq!(order_after("clock", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        // The hand spares 1, takes 2; 4 stands in its place behind the hand, which is at 3.
        assert_eq!(order_after("clock", 3, &[1, 2, 3, 1, 4]), [4, 1, 3]);
    }

    #[test]
    fn equals_its_reference_model() {
        for bits in 1..=3 {
            equals_reference(&format!("clock(bits={bits})"), |slots, _| {
                reference::Clock {
                    slots,
                    most: (1 << bits) - 1,
                    blocks: Vec::new(),
                }
            });
        }
    }
}
