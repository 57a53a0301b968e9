//! The published order: an active queue a class, and one inactive queue, with second chances.

use super::super::fifo_second_chance::LEAST_INACTIVE;
use super::class_weights::ClassWeights;
use crate::structures::{Queues, Table};
use crate::{Access, Class, Shape, Slot};

/// What is known of a resident block.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    referenced: bool,
    class: u8,
}

/// An active queue a class, and one inactive queue, which is the last.
#[derive(Clone, Debug)]
pub struct SecondChance {
    pub class_weights: ClassWeights,
    inactive_share: f64,
    inactive_target: u32,
    inactive: usize,
    queues: Queues,
    known: Table<Known>,
}

impl SecondChance {
    pub fn new(class_weights: ClassWeights, inactive_share: f64, shape: &Shape) -> Self {
        let inactive = class_weights.classes();
        let mut order = Self {
            class_weights,
            inactive_share,
            inactive_target: LEAST_INACTIVE,
            inactive,
            queues: Queues::new(inactive + 1, shape.slots),
            known: Table::new(shape.slots),
        };
        order.resize(shape.slots);
        order
    }

    /// The class whose turn it is to give a block to inactive.
    pub(super) fn next_class(&mut self) -> Option<usize> {
        self.class_weights.next(|class| self.queues.len(class))
    }

    fn refill(&mut self) {
        while self.queues.len(self.inactive) < self.inactive_target {
            let Some(oldest) = self.next_class().and_then(|class| self.queues.front(class)) else {
                return;
            };
            self.known.at(oldest).referenced = false;
            self.queues.remove(oldest);
            self.queues.push_back(self.inactive, oldest);
        }
    }

    fn know(&mut self, slot: Slot, access: &Access) -> u8 {
        let class = self.class_weights.class_of(access.class);
        let known = Known {
            referenced: true,
            class,
        };
        self.known.set(slot, known);
        class
    }

    #[inline]
    pub fn insert(&mut self, slot: Slot, access: &Access) {
        let class = self.know(slot, access);
        self.queues.push_back(usize::from(class), slot);
    }

    #[inline]
    pub fn hit(&mut self, slot: Slot, access: &Access) {
        self.know(slot, access);
    }

    #[inline]
    pub fn victim(&mut self) -> Option<Slot> {
        loop {
            self.refill();
            let oldest = self.queues.front(self.inactive)?;
            let known = self.known.get(oldest);
            if !known.referenced {
                return Some(oldest);
            }
            self.queues.remove(oldest);
            self.queues.push_back(usize::from(known.class), oldest);
        }
    }

    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        self.queues.remove(slot);
    }

    #[inline]
    pub fn reclass(&mut self, slot: Slot, class: Class) {
        self.known.at(slot).class = self.class_weights.class_of(class);
    }

    pub fn resize(&mut self, slots: u32) {
        let share = (f64::from(slots) * self.inactive_share) as u32;
        self.inactive_target = share.max(LEAST_INACTIVE);
    }

    pub fn order(&self) -> Vec<Slot> {
        let mut copy = self.clone();
        let mut order = Vec::new();
        while let Some(slot) = copy.victim() {
            copy.remove(slot);
            order.push(slot);
        }
        order.reverse();
        order
    }

    pub fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        self.class_weights.audit();
    }
}

#[cfg(test)]
mod tests {
    use super::SecondChance;
    use crate::replace::cost::class_weights::ClassWeights;
    use crate::{Access, Arguments, BlockId, PolicySpec, Shape, Slot};

    /// Second chance (Sudo and others 1993, section 3.2.1): what was used while it was inactive is not given up before it has passed active again.
    #[test]
    fn no_referenced_block_goes_without_passing_active_again() {
        let spec = PolicySpec::plain("cost");
        let class_weights = ClassWeights::build(&mut Arguments::new(&spec)).expect("valid");
        let mut order = SecondChance::new(class_weights, 0.0, &Shape { slots: 40, seed: 1 });
        let read = |slot: u32| Access::read(BlockId::on_first(slot.into()));
        for slot in 0..40 {
            order.insert(Slot(slot), &read(slot));
        }
        let mut gone = Vec::new();
        for _ in 0..40 {
            let slot = order.victim().expect("there is one");
            if slot == Slot(0) {
                // The first 32 are inactive now.
                for used in [3, 20, 35] {
                    order.hit(Slot(used), &read(used));
                }
            }
            order.remove(slot);
            gone.push(slot.0);
            if gone.len() == 4 {
                assert_eq!(
                    order.queues.queue_of(Slot(3)),
                    0,
                    "active, with its mark off"
                );
            }
        }
        // 35 was active when it was used, and its mark came off on its way.
        let mut expected: Vec<u32> = (0..40).filter(|slot| ![3, 20].contains(slot)).collect();
        expected.extend([3, 20]);
        assert_eq!(gone, expected);
    }
}
