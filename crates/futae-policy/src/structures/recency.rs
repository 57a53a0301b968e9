//! Slots in order of their last use.

use super::{Chain, LogQueues};
use crate::Slot;

/// Up to so many slots the links of a list, 8 bytes each, stay in a processor's second cache.
const LINKED_MAX: u32 = 1 << 17;
const ONLY: usize = 0;

/// One queue that slots enter at the back. A few slots are a linked circle, which needs fewer instructions, and many slots are a
/// log, which touches fewer cache lines. At most 14 bytes per slot.
#[derive(Clone, Debug)]
pub enum Recency {
    /// Few slots.
    Linked(Chain),
    /// Many slots.
    Log(LogQueues),
}

impl Recency {
    /// An empty queue, with room for `slots` slots; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        if slots <= LINKED_MAX {
            Self::Linked(Chain::new(slots))
        } else {
            Self::Log(LogQueues::new(slots))
        }
    }

    /// Slots in the queue.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Self::Linked(order) => order.len(),
            Self::Log(order) => order.len(ONLY),
        }
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first slot.
    #[inline]
    #[must_use]
    pub fn front(&self) -> Option<Slot> {
        match self {
            Self::Linked(order) => order.front(),
            Self::Log(order) => order.front(ONLY),
        }
    }

    /// Appends `slot`, which must not be in the queue.
    #[inline]
    pub fn push_back(&mut self, slot: Slot) {
        match self {
            Self::Linked(order) => order.push_back(slot),
            Self::Log(order) => order.push_back(ONLY, slot),
        }
    }

    /// Moves `slot`, which must be in the queue, to the back.
    #[inline]
    pub fn move_back(&mut self, slot: Slot) {
        match self {
            Self::Linked(order) => order.move_back(slot),
            Self::Log(order) => order.move_back(ONLY, slot),
        }
    }

    /// Removes `slot`, which must be in the queue.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        match self {
            Self::Linked(order) => order.remove(slot),
            Self::Log(order) => order.remove(slot),
        }
    }

    /// The slots, back to front.
    pub fn iter_back(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        match self {
            Self::Linked(order) => Box::new(order.iter_back()),
            Self::Log(order) => Box::new(order.iter_back(ONLY)),
        }
    }

    /// Roughly the slot `ahead` places behind the first, as [`LogQueues::about`]; `None` if looking ahead has no benefit.
    #[inline]
    #[must_use]
    pub fn about(&self, ahead: u32) -> Option<Slot> {
        match self {
            Self::Linked(_) => None,
            Self::Log(order) => order.about(ONLY, ahead),
        }
    }

    /// Stores the first slots in `slots`, in order, and returns their number; 0 if looking ahead has no benefit.
    #[inline]
    pub fn first(&self, slots: &mut [Slot]) -> usize {
        match self {
            Self::Linked(_) => 0,
            Self::Log(order) => order.first(ONLY, slots),
        }
    }

    /// Prefetches what a move of `slot`, which may be any number, will need.
    #[inline]
    pub fn approach(&self, slot: Slot) {
        match self {
            Self::Linked(order) => order.approach(slot),
            Self::Log(order) => order.approach(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;
    use std::collections::VecDeque;

    #[test]
    fn both_kinds_are_plain_deques() {
        for mut order in [Recency::new(50), Recency::new(LINKED_MAX + 1)] {
            let mut plain: VecDeque<u32> = VecDeque::new();
            let mut random = Prng::new(5);
            for _ in 0..5000 {
                let slot = random.below(50) as u32;
                let is_there = plain.contains(&slot);
                match random.below(6) {
                    0 if is_there => order.remove(Slot(slot)),
                    _ if is_there => order.move_back(Slot(slot)),
                    _ => order.push_back(Slot(slot)),
                }
                let is_removed = is_there && !order.iter_back().any(|held| held.0 == slot);
                plain.retain(|&held| held != slot);
                if !is_removed {
                    plain.push_back(slot);
                }
                let held: Vec<u32> = order.iter_back().map(|slot| slot.0).collect();
                assert_eq!(held, plain.iter().rev().copied().collect::<Vec<_>>());
                assert_eq!(order.front().map(|slot| slot.0), plain.front().copied());
                assert_eq!(order.len() as usize, plain.len());
                let mut first = [Slot(0); 8];
                let found = order.first(&mut first);
                let begin: Vec<u32> = first[..found].iter().map(|slot| slot.0).collect();
                assert!(plain.iter().zip(&begin).all(|(held, found)| held == found));
            }
        }
    }
}
