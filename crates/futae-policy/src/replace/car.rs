//! CAR: ARC with clocks in place of lists, so that a hit only sets a mark.
//!
//! # Source
//! Bansal and Modha, "CAR: clock with adaptive replacement", FAST 2004, figure 2.
//! # Picture
//! ( B1 ghosts ) ← [ T1: clock ] ← new; marked → [ T2: clock ] → ( B2 ghosts )
//! # Transitions
//! hit: marked | miss, in B1: p grows, to T2 | miss, in B2: p shrinks, to T2 | other miss: to T1 | victim:
//! from T1 while it has its target p or more, else from T2: the oldest block that is not marked; marked
//! ones passed on the way move to the end of T2, mark cleared
//! # Parameters
//! none; the target p of T1 adapts
//! # Deviations
//! none; p is a real number, as in the paper
//! # Cost
//! O(1) per access, amortised; 23 bytes per slot, about 28 per ghost entry, at most as many ghost entries
//! as slots

use crate::policy::order_by_evicting;
use crate::structures::{GhostLists, LogQueues, Table};
use crate::{
    Access, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 0;
const B2: usize = 1;

/// Two clocks, the names of blocks evicted from each, and a target.
#[derive(Clone, Debug)]
pub struct Car {
    slots: u32,
    /// Target for the length of T1.
    p: f64,
    clocks: LogQueues<2>,
    marked: Table<bool>,
    names: Table<BlockId>,
    /// B1 and B2.
    gone: GhostLists<2>,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Car, SpecError> {
    Ok(Car {
        slots: shape.slots,
        p: 0.0,
        clocks: LogQueues::new(shape.slots),
        marked: Table::new(shape.slots),
        names: Table::new(shape.slots),
        gone: GhostLists::default(),
    })
}

impl Car {
    fn directory(&self) -> u32 {
        self.clocks.total() + self.gone.total()
    }

    /// Adapts p if `block` left not long ago, else makes room for its name; the clock it enters.
    fn consult(&mut self, block: BlockId) -> usize {
        let (b1, b2) = (f64::from(self.gone.len(B1)), f64::from(self.gone.len(B2)));
        match self.gone.take(block) {
            Some(B1) => self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.slots)),
            Some(_) => self.p = (self.p - (b1 / b2).max(1.0)).max(0.0),
            None => {
                if self.clocks.len(T1) + self.gone.len(B1) >= self.slots {
                    self.gone.pop_oldest(B1);
                } else if self.directory() >= self.slots.saturating_mul(2) {
                    self.gone.pop_oldest(B2);
                }
                return T1;
            }
        }
        T2
    }
}

impl Policy for Car {
    fn insert(&mut self, slot: Slot, access: &Access) {
        let clock = self.consult(access.block);
        self.clocks.push_back(clock, slot);
        self.marked.set(slot, false);
        self.names.set(slot, access.block);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.marked.set(slot, true);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        loop {
            let t1 = f64::from(self.clocks.len(T1));
            let from_t1 = t1 >= self.p.max(1.0) || self.clocks.is_empty(T2);
            let oldest = self.clocks.front(if from_t1 { T1 } else { T2 })?;
            if !std::mem::take(self.marked.at(oldest)) {
                return Some(oldest);
            }
            self.clocks.remove(oldest);
            self.clocks.push_back(T2, oldest);
        }
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Evicted {
            let from_t1 = self.clocks.queue_of(slot) == T1;
            let list = if from_t1 { B1 } else { B2 };
            self.gone.push(list, self.names.get(slot));
        }
        self.clocks.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
        self.p = self.p.min(f64::from(slots));
        while self.clocks.len(T1) + self.gone.len(B1) > slots && self.gone.pop_oldest(B1) {}
        while self.directory() > slots.saturating_mul(2) && self.gone.pop_oldest(B2) {}
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.clocks.total(), resident);
        assert!(
            (0.0..=f64::from(self.slots)).contains(&self.p),
            "p out of range"
        );
        assert!(self.clocks.len(T1) + self.gone.len(B1) <= self.slots);
        assert!(self.directory() <= 2 * self.slots);
        for slot in self.clocks.iter(T1).chain(self.clocks.iter(T2)) {
            assert!(
                !self.gone.has(self.names.get(slot)),
                "resident and departed"
            );
        }
    }
}

impl SimulatorHints for Car {
    fn number_blocks(&mut self, first: u64) {
        self.gone.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.gone.glance(block)
    }
}

/// The paper's figure 2 on lists, heads first.
#[cfg(test)]
mod reference {
    #[derive(Default)]
    pub struct Car {
        pub slots: usize,
        pub p: f64,
        pub t1: Vec<(u64, bool)>,
        pub t2: Vec<(u64, bool)>,
        pub b1: Vec<u64>,
        pub b2: Vec<u64>,
    }

    impl Car {
        fn replace(&mut self) {
            loop {
                if self.t1.len() as f64 >= self.p.max(1.0) {
                    let head = self.t1.remove(0);
                    if !head.1 {
                        return self.b1.push(head.0);
                    }
                    self.t2.push((head.0, false));
                } else {
                    let head = self.t2.remove(0);
                    if !head.1 {
                        return self.b2.push(head.0);
                    }
                    self.t2.push((head.0, false));
                }
            }
        }
    }

    impl crate::contract::Reference for Car {
        fn access(&mut self, block: u64) -> bool {
            let mut resident = self.t1.iter_mut().chain(&mut self.t2);
            if let Some(held) = resident.find(|held| held.0 == block) {
                held.1 = true;
                return true;
            }
            let known = self.b1.contains(&block) || self.b2.contains(&block);
            if self.t1.len() + self.t2.len() == self.slots {
                self.replace();
                let cache = self.t1.len() + self.t2.len() + 1;
                if !known && self.t1.len() + self.b1.len() == self.slots {
                    self.b1.remove(0);
                } else if !known && cache - 1 + self.b1.len() + self.b2.len() == 2 * self.slots {
                    self.b2.remove(0);
                }
            }
            let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
            if let Some(at) = self.b1.iter().position(|&name| name == block) {
                self.p = (self.p + (b2 / b1).max(1.0)).min(self.slots as f64);
                self.b1.remove(at);
                self.t2.push((block, false));
            } else if let Some(at) = self.b2.iter().position(|&name| name == block) {
                self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
                self.b2.remove(at);
                self.t2.push((block, false));
            } else {
                self.t1.push((block, false));
            }
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.t1.iter().chain(&self.t2).map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 4 comes: 1, marked, moves to T2, and 2 goes.
        assert_eq!(order_after("car", 3, &[1, 2, 3, 1, 4]), [1, 4, 3]);
        // 2 comes back by its name in B1: p is 1, T1 has two, 3 goes, 2 joins T2.
        assert_eq!(order_after("car", 3, &[1, 2, 3, 1, 4, 2]), [2, 1, 4]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("car", |slots, _| reference::Car {
            slots,
            ..Default::default()
        });
    }
}
