//! ARC: two lists, for recency and for frequency; requests for blocks that were evicted recently change the
//! size of each.
//!
//! # Source
//! Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure 4.
//! # Picture
//! ( B1 ghosts ) ← [ T1: requested once ] ← new; hit → [ T2: requested more than once ] → ( B2 ghosts )
//! # Transitions
//! hit: to the MRU end of T2 | miss, in B1: p grows, to T2 | miss, in B2: p shrinks, to T2 | other miss: to
//! T1 | victim: the LRU block of T1 while T1 is larger than its target p, else of T2
//! # Parameters
//! none; the target p of T1 adapts
//! # Deviations
//! none; p is a real number, as in the paper
//! # Cost
//! O(1) per access; 22 bytes per slot, about 28 per ghost entry, at most as many ghost entries as slots

use crate::structures::{GhostLists, LogQueues, MissNote, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 0;
const B2: usize = 1;

/// Two LRU lists, the names of blocks evicted from each, and a target.
#[derive(Debug)]
pub struct Arc {
    slots: u32,
    /// Target for the length of T1.
    p: f64,
    lists: LogQueues<2>,
    names: Table<BlockId>,
    /// B1 and B2.
    gone: GhostLists<2>,
    /// The list for the block that missed last.
    list: MissNote<usize>,
    from_b2: bool,
    /// T1 fills its half of the directory alone: its oldest block leaves without a name.
    forget: bool,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Arc, SpecError> {
    Ok(Arc {
        slots: shape.slots,
        p: 0.0,
        lists: LogQueues::new(shape.slots),
        names: Table::new(shape.slots),
        gone: GhostLists::default(),
        list: MissNote::new(),
        from_b2: false,
        forget: false,
    })
}

impl Arc {
    /// The paper's four cases but for the eviction: adapts p, and keeps T1 + B1 within the number
    /// of slots and the whole directory within twice that. The list for `block`.
    fn consult(&mut self, block: BlockId) -> usize {
        let (b1, b2) = (f64::from(self.gone.len(B1)), f64::from(self.gone.len(B2)));
        (self.from_b2, self.forget) = (false, false);
        match self.gone.take(block) {
            Some(B1) => self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.slots)),
            Some(_) => {
                self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
                self.from_b2 = true;
            }
            None => {
                let l1 = self.lists.len(T1) + self.gone.len(B1);
                if l1 >= self.slots {
                    self.forget = !self.gone.pop_oldest(B1);
                } else if self.directory() >= self.slots.saturating_mul(2) {
                    self.gone.pop_oldest(B2);
                }
                return T1;
            }
        }
        T2
    }

    fn directory(&self) -> u32 {
        self.lists.total() + self.gone.total()
    }

    fn t1_gives(&self) -> bool {
        let t1 = f64::from(self.lists.len(T1));
        let t1_gives = t1 > self.p || (self.from_b2 && t1 == self.p);
        (t1 >= 1.0 && (self.forget || t1_gives)) || self.lists.is_empty(T2)
    }

    /// After blocks were removed or slots taken away, the directory can be too large.
    fn trim(&mut self) {
        while self.lists.len(T1) + self.gone.len(B1) > self.slots && self.gone.pop_oldest(B1) {}
        while self.directory() > self.slots.saturating_mul(2) && self.gone.pop_oldest(B2) {}
    }
}

impl Policy for Arc {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        let list = self.consult(access.block);
        self.list.set(access.block, list);
        Admission::Admit
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let list = match self.list.take(access.block) {
            Some(list) => list,
            None => self.consult(access.block),
        };
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
                T1 => self.gone.push(B1, self.names.get(slot)),
                _ => self.gone.push(B2, self.names.get(slot)),
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
        assert!(self.gone.is_empty(B1) || self.lists.len(T1) + self.gone.len(B1) <= self.slots);
        assert!(self.directory() <= 2 * self.slots);
        for slot in self.lists.iter(T1).chain(self.lists.iter(T2)) {
            assert!(
                !self.gone.has(self.names.get(slot)),
                "resident and departed"
            );
        }
    }
}

impl SimulatorHints for Arc {
    fn number_blocks(&mut self, first: u64) {
        self.gone.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.gone.glance(block)
    }

    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        let t1_gives = self.t1_gives();
        let slot = self.lists.about(if t1_gives { T1 } else { T2 }, ahead)?;
        let full = self.lists.len(T1) + self.gone.len(B1) >= self.slots;
        let forgets = if full { B1 } else { B2 };
        self.gone.foresee(self.names.get(slot), forgets, ahead);
        Some(slot)
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
