//! SIEVE: a queue that is never reordered, and a hand that moves from old to new over it.
//!
//! # Source
//! Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1.
//! # Picture
//! [ oldest ... hand → ... newest ] ← new; visited: clear, go on | not visited: victim
//! # Transitions
//! hit: visited | miss: in at the newest end, not visited; after the newest the hand goes to the
//! oldest
//! # Parameters
//! none
//! # Deviations
//! none
//! # Cost
//! O(1) an access, amortised; nothing but a mark on a hit; 15 bytes a slot

use crate::furniture::{Lines, Table};
use crate::{Access, Arguments, Departure, Policy, Shape, Slot, SpecError};

const ORDER: usize = 0;

/// A hand over a queue in order of arrival.
#[derive(Debug)]
pub struct Sieve {
    order: Lines,
    visited: Table<bool>,
    /// Where the hand stands; nowhere means at the oldest.
    hand: Option<Slot>,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Sieve, SpecError> {
    Ok(Sieve {
        order: Lines::new(shape.slots),
        visited: Table::new(shape.slots),
        hand: None,
    })
}

impl Policy for Sieve {
    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        match self.hand {
            Some(hand) => self.order.about_after(hand, ahead),
            None => self.order.about(ORDER, ahead),
        }
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.order.push_back(ORDER, slot);
        self.visited.set(slot, false);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.visited.set(slot, true);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let mut at = self.hand.or_else(|| self.order.front(ORDER))?;
        while std::mem::take(self.visited.at(at)) {
            at = self.order.after(at).or_else(|| self.order.front(ORDER))?;
        }
        self.hand = Some(at);
        Some(at)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        if self.hand == Some(slot) {
            self.hand = self.order.after(slot);
        }
        self.order.remove(slot);
    }

    /// The hand takes who is not visited in its first round, all others in its second.
    fn order(&self) -> Vec<Slot> {
        let mut next: Vec<Slot> = self.order.iter(ORDER).collect();
        let hand = next.iter().position(|&slot| Some(slot) == self.hand);
        next.rotate_left(hand.unwrap_or(0));
        next.sort_by_key(|&slot| self.visited.get(slot));
        next.reverse();
        next
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.order.len(ORDER), resident);
        let mut slots = self.order.iter(ORDER);
        assert!(self.hand.is_none_or(|hand| slots.any(|slot| slot == hand)));
    }
}

/// The paper's algorithm on a list, newest first, with the hand as an index.
#[cfg(test)]
mod reference {
    pub struct Sieve {
        pub slots: usize,
        pub blocks: Vec<(u64, bool)>,
        pub hand: Option<usize>,
    }

    impl crate::contract::Reference for Sieve {
        fn access(&mut self, block: u64) -> bool {
            if let Some(held) = self.blocks.iter_mut().find(|held| held.0 == block) {
                held.1 = true;
                return true;
            }
            if self.blocks.len() == self.slots {
                let tail = self.blocks.len() - 1;
                let mut at = self.hand.unwrap_or(tail);
                while self.blocks[at].1 {
                    self.blocks[at].1 = false;
                    at = at.checked_sub(1).unwrap_or(tail);
                }
                self.blocks.remove(at);
                self.hand = at.checked_sub(1);
            }
            self.blocks.insert(0, (block, false));
            self.hand = self.hand.map(|hand| hand + 1);
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
        assert_eq!(order_after("sieve", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        // The hand spares 1 and takes 2; it stands at 3, the next victim, though 1 is older.
        assert_eq!(order_after("sieve", 3, &[1, 2, 3, 1, 4]), [1, 4, 3]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("sieve", |slots, _| reference::Sieve {
            slots,
            blocks: Vec::new(),
            hand: None,
        });
    }
}
