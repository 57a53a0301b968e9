//! ARC: recency and frequency in two lists whose shares follow what was given up too early.
//!
//! # Source
//! Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure 4.
//! # Picture
//! ( B1 names ) ← [ T1: asked for once ] ← new; hit → [ T2: more than once ] → ( B2 names )
//! # Transitions
//! hit: to the recent end of T2 | miss, name in B1: p grows, to T2 | name in B2: p shrinks, to T2
//! | miss: to T1 | victim: the oldest of T1 while T1 is larger than its target p, else of T2
//! # Parameters
//! none: p, the target for T1, tunes itself
//! # Deviations
//! none; p is a real number, as in the paper
//! # Cost
//! O(1) an access; 17 bytes a slot, about 24 a name, at most as many names as slots

use crate::furniture::{Ghosts, Noted, Queues, Table};
use crate::{Access, Admission, Arguments, BlockId, Departure, Policy, Shape, Slot, SpecError};

const T1: usize = 0;
const T2: usize = 1;

/// Where a block that missed was known from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Nowhere,
    B1,
    B2,
}

/// Two LRU lists, the names of those who left each, and a target.
#[derive(Debug)]
pub struct Arc {
    slots: u32,
    /// Target for the length of T1.
    p: f64,
    lists: Queues,
    names: Table<BlockId>,
    b1: Ghosts,
    b2: Ghosts,
    known: Noted<Known>,
    from_b2: bool,
    /// T1 fills its half of the directory alone: its oldest leaves without a name.
    forget: bool,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Arc, SpecError> {
    Ok(Arc {
        slots: shape.slots,
        p: 0.0,
        lists: Queues::new(2, shape.slots),
        names: Table::new(shape.slots),
        b1: Ghosts::new(u32::MAX),
        b2: Ghosts::new(u32::MAX),
        known: Noted::new(),
        from_b2: false,
        forget: false,
    })
}

impl Arc {
    /// The paper's four cases but for the eviction: adapts p, and keeps T1 + B1 within the number
    /// of slots and the whole directory within twice that.
    fn consult(&mut self, block: BlockId) -> Known {
        let (b1, b2) = (f64::from(self.b1.len()), f64::from(self.b2.len()));
        (self.from_b2, self.forget) = (false, false);
        if self.b1.take(block).is_some() {
            self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.slots));
            return Known::B1;
        }
        if self.b2.take(block).is_some() {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            self.from_b2 = true;
            return Known::B2;
        }
        let l1 = self.lists.len(T1) + self.b1.len();
        if l1 >= self.slots {
            if self.b1.pop_oldest().is_none() {
                self.forget = true;
            }
        } else if l1 + self.lists.len(T2) + self.b2.len() >= self.slots.saturating_mul(2) {
            self.b2.pop_oldest();
        }
        Known::Nowhere
    }

    fn t1_gives(&self) -> bool {
        let t1 = f64::from(self.lists.len(T1));
        let t1_gives = t1 > self.p || (self.from_b2 && t1 == self.p);
        (t1 >= 1.0 && (self.forget || t1_gives)) || self.lists.is_empty(T2)
    }

    /// After blocks were removed or slots taken away, the directory can be too large.
    fn trim(&mut self) {
        while self.lists.len(T1) + self.b1.len() > self.slots && !self.b1.is_empty() {
            self.b1.pop_oldest();
        }
        let total = |this: &Self| this.lists.total() + this.b1.len() + this.b2.len();
        while total(self) > self.slots.saturating_mul(2) && !self.b2.is_empty() {
            self.b2.pop_oldest();
        }
    }
}

impl Policy for Arc {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        let known = self.consult(access.block);
        self.known.set(access.block, known);
        Admission::Admit
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let known = match self.known.take(access.block) {
            Some(known) => known,
            None => self.consult(access.block),
        };
        let list = if known == Known::Nowhere { T1 } else { T2 };
        self.lists.push_back(list, slot);
        self.names.set(slot, access.block);
        (self.from_b2, self.forget) = (false, false);
        self.trim();
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.lists.move_back(T2, slot);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.lists.front(if self.t1_gives() { T1 } else { T2 })
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Evicted {
            match self.lists.queue_of(slot) {
                T1 if self.forget => self.forget = false,
                T1 => self.b1.push(self.names.get(slot), ()),
                _ => self.b2.push(self.names.get(slot), ()),
            }
        }
        self.lists.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
        self.p = self.p.min(f64::from(slots));
        self.trim();
    }

    /// As if only new blocks came: T1 down to its target, then T2.
    fn order(&self) -> Vec<Slot> {
        let t1 = self.lists.len(T1);
        let surplus = f64::from(t1) - self.p.floor();
        let surplus = if surplus > 0.0 { surplus as usize } else { 0 };
        let mut next: Vec<Slot> = self.lists.iter(T1).take(surplus).collect();
        next.extend(self.lists.iter(T2));
        next.extend(self.lists.iter(T1).skip(surplus));
        next.reverse();
        next
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.lists.total(), resident);
        assert!(
            (0.0..=f64::from(self.slots)).contains(&self.p),
            "p out of range"
        );
        assert!(self.b1.is_empty() || self.lists.len(T1) + self.b1.len() <= self.slots);
        assert!(resident + self.b1.len() + self.b2.len() <= 2 * self.slots);
        for slot in self.lists.iter(T1).chain(self.lists.iter(T2)) {
            let name = self.names.get(slot);
            assert!(self.b1.get(name).is_none() && self.b2.get(name).is_none());
        }
    }
}

/// The paper's figure 4 on lists, oldest first.
#[cfg(test)]
mod reference {
    #[derive(Default)]
    pub struct Arc {
        pub slots: usize,
        pub p: f64,
        pub t1: Vec<u64>,
        pub t2: Vec<u64>,
        pub b1: Vec<u64>,
        pub b2: Vec<u64>,
    }

    fn take(list: &mut Vec<u64>, block: u64) -> bool {
        let at = list.iter().position(|&held| held == block);
        at.map(|at| list.remove(at)).is_some()
    }

    impl Arc {
        fn replace(&mut self, in_b2: bool) {
            let t1 = self.t1.len() as f64;
            if t1 >= 1.0 && ((in_b2 && t1 == self.p) || t1 > self.p) {
                self.b1.push(self.t1.remove(0));
            } else {
                self.b2.push(self.t2.remove(0));
            }
        }
    }

    impl crate::contract::Reference for Arc {
        fn access(&mut self, block: u64) -> bool {
            let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
            if take(&mut self.t1, block) || take(&mut self.t2, block) {
                self.t2.push(block);
                return true;
            }
            if self.b1.contains(&block) {
                let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
                self.p = (self.p + delta).min(self.slots as f64);
                self.replace(false);
                take(&mut self.b1, block);
                self.t2.push(block);
                return false;
            }
            if self.b2.contains(&block) {
                let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
                self.p = (self.p - delta).max(0.0);
                self.replace(true);
                take(&mut self.b2, block);
                self.t2.push(block);
                return false;
            }
            let l1 = self.t1.len() + self.b1.len();
            let all = l1 + self.t2.len() + self.b2.len();
            if l1 == self.slots {
                if self.t1.len() < self.slots {
                    self.b1.remove(0);
                    self.replace(false);
                } else {
                    self.t1.remove(0);
                }
            } else if all >= self.slots {
                if all == 2 * self.slots {
                    self.b2.remove(0);
                }
                self.replace(false);
            }
            self.t1.push(block);
            false
        }

        fn resident(&self) -> Vec<u64> {
            [self.t1.as_slice(), &self.t2].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 1 is used again and moves to T2; then T1 gives, as its target is 0.
        assert_eq!(order_after("arc", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        assert_eq!(order_after("arc", 3, &[1, 2, 3, 1, 4]), [1, 4, 3]);
        // 2 is asked for by name in B1: p becomes 1, 3 leaves T1 (2 > 1), 2 joins T2.
        assert_eq!(order_after("arc", 3, &[1, 2, 3, 1, 4, 2]), [4, 2, 1]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("arc", |slots, _| reference::Arc {
            slots,
            ..Default::default()
        });
    }
}
