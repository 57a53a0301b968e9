//! 2Q: a block enters the main queue if it is requested again after its eviction from a small FIFO queue.
//!
//! # Source
//! Johnson and Shasha, "2Q: a low overhead high performance buffer management replacement algorithm", VLDB
//! 1994, the full version.
//! # Picture
//! new → [ A1in, FIFO ] → ghost entry in ( A1out ), requested again → [ Am, LRU ] → evicted
//! # Transitions
//! hit in Am: to its MRU end | hit in A1in: stays | miss, in A1out: to Am | other miss: to A1in | victim:
//! the oldest of A1in while A1in is longer than k_in, else the LRU block of Am
//! # Parameters
//! k_in 0.25: share of the slots that A1in keeps, rounded down, at least 1
//! k_out 0.5: ghost entries in A1out as a share of the slots, rounded down, at least 1
//! # Deviations
//! none. libCacheSim limits Am to the rest of the slots even while the cache is filling
//! # Cost
//! O(1) per access; 22 bytes per slot, about 28 per ghost entry

use crate::structures::{Ghosts, LogQueues, MissNote, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

const A1_IN: usize = 0;
const A_M: usize = 1;

/// First-time blocks in a FIFO queue of their own; returning blocks in LRU order.
#[derive(Debug)]
pub struct TwoQ {
    k_in: f64,
    k_out: f64,
    /// Slots that A1in keeps.
    a1_in_limit: u32,
    queues: LogQueues<2>,
    a1_out: Ghosts,
    names: Table<BlockId>,
    /// Whether A1out had the name of the last missed block.
    was_in_a1_out: MissNote<bool>,
}

/// Builds the policy; its parameters are `k_in` and `k_out`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<TwoQ, SpecError> {
    let mut policy = TwoQ {
        k_in: arguments.share("k_in", 0.25)?,
        k_out: arguments.share("k_out", 0.5)?,
        a1_in_limit: 1,
        queues: LogQueues::new(shape.slots),
        a1_out: Ghosts::new(1),
        names: Table::new(shape.slots),
        was_in_a1_out: MissNote::new(),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Policy for TwoQ {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        let named = self.a1_out.take(access.block).is_some();
        self.was_in_a1_out.set(access.block, named);
        Admission::Admit
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let named = self
            .was_in_a1_out
            .take(access.block)
            .unwrap_or_else(|| self.a1_out.take(access.block).is_some());
        self.queues.push_back(if named { A_M } else { A1_IN }, slot);
        self.names.set(slot, access.block);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if self.queues.queue_of(slot) == A_M {
            self.queues.move_back(A_M, slot);
        }
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let from_a1_in = self.queues.len(A1_IN) > self.a1_in_limit || self.queues.is_empty(A_M);
        self.queues.front(if from_a1_in { A1_IN } else { A_M })
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Evicted && self.queues.queue_of(slot) == A1_IN {
            self.a1_out.push(self.names.get(slot), ());
        }
        self.queues.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.a1_in_limit = ((f64::from(slots) * self.k_in) as u32).max(1);
        let names = ((f64::from(slots) * self.k_out) as u32).max(1);
        self.a1_out.set_limit(names);
    }

    fn order(&self) -> Vec<Slot> {
        let surplus = self.queues.len(A1_IN).saturating_sub(self.a1_in_limit) as usize;
        let mut next: Vec<Slot> = self.queues.iter(A1_IN).take(surplus).collect();
        next.extend(self.queues.iter(A_M));
        next.extend(self.queues.iter(A1_IN).skip(surplus));
        next.reverse();
        next
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        for slot in self.queues.iter(A1_IN).chain(self.queues.iter(A_M)) {
            assert!(
                self.a1_out.get(self.names.get(slot)).is_none(),
                "resident and departed"
            );
        }
    }
}

impl SimulatorHints for TwoQ {
    fn number_blocks(&mut self, first: u64) {
        self.a1_out.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.a1_out.glance(block)
    }

    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.queues.about(A1_IN, ahead)
    }
}

/// The paper's procedure: a page is moved, then `reclaim_for` makes room.
#[cfg(test)]
mod reference {
    pub struct TwoQ {
        pub slots: usize,
        pub a1_in: Vec<u64>,
        pub a1_out: Vec<u64>,
        pub a_m: Vec<u64>,
    }

    impl TwoQ {
        fn reclaim(&mut self) {
            if self.a1_in.len() + self.a_m.len() < self.slots {
                return;
            }
            if self.a1_in.len() > (self.slots / 4).max(1) || self.a_m.is_empty() {
                self.a1_out.push(self.a1_in.remove(0));
                if self.a1_out.len() > (self.slots / 2).max(1) {
                    self.a1_out.remove(0);
                }
            } else {
                self.a_m.remove(0);
            }
        }
    }

    impl crate::contract::Reference for TwoQ {
        fn access(&mut self, block: u64) -> bool {
            if let Some(at) = self.a_m.iter().position(|&held| held == block) {
                self.a_m.remove(at);
                self.a_m.push(block);
                true
            } else if let Some(at) = self.a1_out.iter().position(|&name| name == block) {
                self.a1_out.remove(at);
                self.reclaim();
                self.a_m.push(block);
                false
            } else if self.a1_in.contains(&block) {
                true
            } else {
                self.reclaim();
                self.a1_in.push(block);
                false
            }
        }

        fn resident(&self) -> Vec<u64> {
            [self.a1_in.as_slice(), &self.a_m].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after, run};
    use crate::{Access, BlockId, Departure};

    #[test]
    fn worked_example() {
        // 4 slots: A1in keeps 1, A1out has 2 names.
        assert_eq!(order_after("2q", 4, &[1, 2, 3, 4]), [4, 3, 2, 1]);
        assert_eq!(
            order_after("2q", 4, &[1, 2, 3, 4, 1]),
            [4, 3, 2, 1],
            "a hit in A1in stays"
        );
        // 5 pushes 1 out; 1 comes back by name into Am and pushes 2 out.
        assert_eq!(order_after("2q", 4, &[1, 2, 3, 4, 5, 1]), [5, 1, 4, 3]);
        assert_eq!(
            order_after("2q", 4, &[1, 2, 3, 4, 5, 1, 6, 7]),
            [7, 1, 6, 5]
        );
    }

    #[test]
    fn a_promoted_block_leaves_no_name() {
        let mut level = run("2q", 2, 1, &[1, 2]);
        level.remove(BlockId::on_first(1), Departure::Promoted);
        level.access(&Access::read(BlockId::on_first(1)));
        level.access(&Access::read(BlockId::on_first(3)));
        let order: Vec<u64> = level.order().into_iter().map(BlockId::index).collect();
        assert_eq!(order, [3, 1], "all in A1in: a hit would have kept 1 in Am");
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("2q", |slots, _| reference::TwoQ {
            slots,
            a1_in: Vec::new(),
            a1_out: Vec::new(),
            a_m: Vec::new(),
        });
    }
}
