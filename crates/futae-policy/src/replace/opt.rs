//! OPT: evicts the block whose next use is furthest in the future. Needs to know the future.
//!
//! # Source
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2),
//! 1966 (MIN).
//! # Picture
//! victim ← [ next use last, or never ... next use first ]
//! # Transitions
//! hit, miss: ordered by the next use, which the access states | miss, with bypass: not kept if every
//! resident block is used again sooner
//! # Parameters
//! bypass false: false places every missed block (demand paging, the paper's MIN); true may serve a missed
//! block without keeping it, which never misses more often
//! # Deviations
//! where the future is not known (live), every block counts as never used again
//! # Cost
//! O(log slots) per access; 20 bytes per slot

use crate::structures::Heap;
use crate::{
    Access, Admission, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};
use std::cmp::Reverse;

/// Needed latest first.
#[derive(Debug)]
pub struct Opt {
    bypass: bool,
    slots: u32,
    next_uses: Heap<Reverse<u64>>,
}

/// Builds the policy; its parameter is `bypass`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Opt, SpecError> {
    let bypass = arguments.take("bypass", "true or false", |_: &bool| true)?;
    Ok(Opt {
        bypass: bypass.unwrap_or(false),
        slots: shape.slots,
        next_uses: Heap::new(shape.slots),
    })
}

impl Policy for Opt {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        let full = self.next_uses.len() >= self.slots;
        match self.next_uses.top() {
            Some((Reverse(latest), _)) if self.bypass && full && access.next_use >= latest => {
                Admission::Bypass
            }
            _ => Admission::Admit,
        }
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.next_uses.set(slot, Reverse(access.next_use));
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.next_uses.set(slot, Reverse(access.next_use));
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.next_uses.top().map(|(_, slot)| slot)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.next_uses.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
    }

    fn order(&self) -> Vec<Slot> {
        self.next_uses.highest_first()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.next_uses.len(), resident);
    }
}

impl SimulatorHints for Opt {}

/// Searches the remaining reads at every miss.
#[cfg(test)]
mod reference {
    pub fn misses(slots: usize, bypass: bool, reads: &[u64]) -> usize {
        let mut blocks: Vec<u64> = Vec::new();
        let mut misses = 0;
        for (at, block) in reads.iter().enumerate() {
            if blocks.contains(block) {
                continue;
            }
            misses += 1;
            blocks.push(*block);
            if blocks.len() > slots {
                let next_use = |block: &u64| reads[at + 1..].iter().position(|read| read == block);
                let candidates = if bypass {
                    &blocks[..]
                } else {
                    &blocks[..slots]
                };
                let latest = candidates
                    .iter()
                    .max_by_key(|block| next_use(block).unwrap_or(usize::MAX))
                    .copied();
                blocks.retain(|&held| Some(held) != latest);
            }
        }
        misses
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::level_of;
    use crate::{Access, BlockId};
    use proptest::prelude::*;

    fn misses(text: &str, slots: u32, reads: &[u64]) -> usize {
        let mut level = level_of(text, slots, 1);
        for (at, &index) in reads.iter().enumerate() {
            let mut access = Access::read(BlockId::on_first(index));
            let next = reads[at + 1..].iter().position(|&read| read == index);
            access.next_use = next.map_or(Access::UNKNOWN, |next| (at + 1 + next) as u64);
            level.access(&access);
            level.audit();
        }
        level.counters().misses as usize
    }

    #[test]
    fn worked_example() {
        // 1 2 3: 3 must take a slot, from 2 (needed after 1); without force it is served only.
        let reads = [1, 2, 3, 1, 2];
        assert_eq!(misses("opt", 2, &reads), 4);
        assert_eq!(misses("opt(bypass=true)", 2, &reads), 3);
    }

    proptest! {
        #[test]
        fn equals_its_reference_model(
            slots in 1u32..9,
            reads in prop::collection::vec(0u64..14, 0..300),
        ) {
            let all = slots as usize;
            prop_assert_eq!(misses("opt", slots, &reads), reference::misses(all, false, &reads));
            let free = misses("opt(bypass=true)", slots, &reads);
            prop_assert_eq!(free, reference::misses(all, true, &reads));
        }
    }
}
