//! Another order within each class: the class is chosen by cost, the block by that order.

use super::class_weights::ClassWeights;
use crate::structures::Table;
use crate::{
    Access, Admission, BlockId, Class, Departure, PolicySpec, RegisteredPolicy, Shape, Slot,
    SpecError,
};

/// One order per class. A block is in the order of its class at its last use.
pub struct Joined {
    pub class_weights: ClassWeights,
    orders: Vec<Box<dyn RegisteredPolicy>>,
    lengths: Vec<u32>,
    homes: Table<u8>,
}

impl Joined {
    pub fn new(
        class_weights: ClassWeights,
        inner: &PolicySpec,
        shape: &Shape,
    ) -> Result<Self, SpecError> {
        let orders = (0..class_weights.classes()).map(|_| crate::build(inner, shape));
        Ok(Self {
            orders: orders.collect::<Result<_, _>>()?,
            lengths: vec![0; class_weights.classes()],
            homes: Table::new(shape.slots),
            class_weights,
        })
    }

    fn home(&self, slot: Slot) -> usize {
        usize::from(self.homes.get(slot))
    }

    pub fn number_blocks(&mut self, first: u64) {
        for order in &mut self.orders {
            order.number_blocks(first);
        }
    }

    pub fn note_volumes(&mut self, firsts: &[u64]) {
        for order in &mut self.orders {
            order.note_volumes(firsts);
        }
    }

    pub fn fault(&self) -> Option<&SpecError> {
        self.orders.iter().find_map(|order| order.fault())
    }

    pub fn miss(&mut self, access: &Access) -> Admission {
        let class = self.class_weights.class_of(access.class);
        self.orders[usize::from(class)].miss(access)
    }

    pub fn insert(&mut self, slot: Slot, access: &Access) {
        let class = self.class_weights.class_of(access.class);
        self.homes.set(slot, class);
        self.lengths[usize::from(class)] += 1;
        self.orders[usize::from(class)].insert(slot, access);
    }

    pub fn hit(&mut self, slot: Slot, access: &Access) {
        let class = self.class_weights.class_of(access.class);
        if self.homes.get(slot) == class {
            self.orders[usize::from(class)].hit(slot, access);
        } else {
            self.remove(slot, Departure::Promoted);
            self.insert(slot, access);
        }
    }

    /// If the order of the chosen class declines, the newcomer is declined; next time another class
    /// is chosen.
    pub fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        let class = self.class_weights.next(|class| self.lengths[class])?;
        self.orders[class].victim(incoming)
    }

    pub fn remove(&mut self, slot: Slot, why: Departure) {
        let home = self.home(slot);
        self.lengths[home] -= 1;
        self.orders[home].remove(slot, why);
    }

    pub fn reclass(&mut self, slot: Slot, class: Class) {
        let home = self.home(slot);
        self.orders[home].reclass(slot, class);
    }

    pub fn review(&mut self) -> Option<BlockId> {
        self.orders.iter_mut().find_map(|order| order.review())
    }

    pub fn resize(&mut self, slots: u32) {
        for order in &mut self.orders {
            order.resize(slots);
        }
    }

    pub fn order(&self) -> Vec<Slot> {
        let mut left: Vec<Vec<Slot>> = self.orders.iter().map(|order| order.order()).collect();
        let mut class_weights = self.class_weights.clone();
        let mut order = Vec::new();
        while let Some(class) = class_weights.next(|class| left[class].len() as u32) {
            order.extend(left[class].pop());
        }
        order.reverse();
        order
    }

    pub fn audit(&self, resident: u32) {
        assert_eq!(self.lengths.iter().sum::<u32>(), resident);
        for (order, &length) in self.orders.iter().zip(&self.lengths) {
            order.audit(length);
        }
        self.class_weights.audit();
    }
}
