//! Restores the content of an earlier level.

use super::Level;
use crate::{Access, AccessKind, BlockId, Class, Index, Policy, Slot};

impl<P: Policy, I: Index> Level<P, I> {
    /// Puts blocks into the slots that they had in another level, the next victim first; this level
    /// must be new and empty. The policy gets them by accesses of `kind`, as in
    /// [`change_policy`](Self::change_policy); nothing is counted. There must be no more of them
    /// than slots. Returns for each whether it was placed: a repeated slot or block is not.
    pub fn restore(&mut self, blocks: &[(Slot, BlockId, Class)], kind: AccessKind) -> Vec<bool> {
        assert!(self.classes.is_empty(), "a level that was used");
        assert!(blocks.len() <= self.capacity as usize, "more than slots");
        let used = blocks.iter().map(|(slot, ..)| slot.i() + 1).max();
        let used = used.unwrap_or(0);
        self.classes = vec![Class::NORMAL; used];
        let mut is_taken = vec![false; used];
        let mut placed = Vec::with_capacity(blocks.len());
        for &(slot, block, class) in blocks {
            let is_free = !is_taken[slot.i()] && self.index.get(block).is_none();
            placed.push(is_free);
            if !is_free {
                continue;
            }
            is_taken[slot.i()] = true;
            self.index.insert(block, slot);
            self.resident += 1;
            self.set_class(slot, class);
            let mut access = Access::of(block, kind).classed(class);
            access.tick = self.tick;
            // The block is resident, whether or not the policy would admit it.
            self.policy.miss(&access);
            self.policy.insert(slot, &access);
        }
        let free = (0..used).rev().filter(|&slot| !is_taken[slot]);
        self.free = free.map(|slot| Slot(slot as u32)).collect();
        placed
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Access, AccessKind, BlockId, Class, HashIndex, Kind, Level, PolicySpec, Shape, Slot,
    };

    #[test]
    fn every_policy_takes_up_what_another_level_left_and_goes_on() {
        for &kind in Kind::ALL {
            let spec = PolicySpec::of(kind);
            let shape = Shape { slots: 8, seed: 3 };
            let Ok(policy) = crate::build(&spec, &shape) else {
                continue;
            };
            let mut level = Level::new(policy, HashIndex::default(), 8);
            let of = |slot, block| (Slot(slot), BlockId::on_first(block), Class::NORMAL);
            let left = [
                of(6, 60),
                of(1, 10),
                of(3, 30),
                of(3, 31),
                of(4, 10),
                of(0, 0),
            ];
            let placed = level.restore(&left, spec.handover_kind());
            assert_eq!(placed, [true, true, true, false, false, true], "{spec}");
            level.audit();
            assert_eq!((level.resident(), level.counters().requests), (4, 0));
            for (slot, block) in [(6, 60), (1, 10), (3, 30), (0, 0)] {
                assert_eq!(level.find(BlockId::on_first(block)), Some(Slot(slot)));
            }
            for block in 0..200 {
                level.access(&Access::of(BlockId::on_first(block % 23), AccessKind::Read));
                level.audit();
            }
        }
    }

    #[test]
    fn the_order_is_that_of_the_list() {
        let shape = Shape { slots: 4, seed: 1 };
        let policy = crate::build(&PolicySpec::of(Kind::lru), &shape).expect("plain");
        let mut level = Level::new(policy, HashIndex::default(), 4);
        let left = [3, 1, 2].map(|n| (Slot(n as u32), BlockId::on_first(n), Class::NORMAL));
        level.restore(&left, AccessKind::Read);
        assert_eq!(level.order(), [2, 1, 3].map(BlockId::on_first));
    }
}
