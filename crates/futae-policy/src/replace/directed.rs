//! Directed: keeps what the level above tells it to keep; the lower level of ULC.
//!
//! # Source
//! Jiang and Zhang, "ULC: a file block placement and replacement protocol to effectively exploit
//! hierarchical locality in multi-level buffer caches", ICDCS 2004: a server's part, for one client (see
//! `ulc`)
//! # Picture
//! victim ← [ not to be kept | oldest use ... latest use ] ← what the level above says to keep
//! # Transitions
//! read, write or demotion of a block to be kept: placed by the time of its last use, which the level above
//! states | of another block: not kept; if it is resident, the next victim | victim: of the blocks not to
//! be kept the one that is so for longest, else the one with the oldest use
//! # Parameters
//! none
//! # Deviations
//! a block that is not to be kept is evicted when its slot is needed. Without a level above that directs,
//! this is `lru`
//! # Cost
//! O(log n) per access; 24 bytes per slot

use crate::structures::Heap;
use crate::{
    Access, Admission, Arguments, Departure, Directive, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

/// Blocks by what the level above says of them.
#[derive(Clone, Debug)]
pub struct Directed {
    /// The next victim on top: blocks not to be kept by the time when that was said, then others by
    /// their last use.
    order: Heap<(bool, u64)>,
    told: Option<Directive>,
    /// Accesses of this level.
    now: u64,
    /// The latest use of any block.
    latest: u64,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Directed, SpecError> {
    Ok(Directed {
        order: Heap::new(shape.slots),
        told: None,
        now: 0,
        latest: 0,
    })
}

impl Directed {
    /// Whether the block of an access is to be kept, and when it was used.
    fn told(&self, access: &Access) -> (bool, u64) {
        let told = self.told.filter(|told| told.block == access.block);
        told.map_or((true, self.latest + 1), |told| (told.is_kept, told.used))
    }

    fn place(&mut self, slot: Slot, access: &Access) {
        self.now += 1;
        let (is_kept, used) = self.told(access);
        self.told = None;
        if is_kept {
            self.latest = self.latest.max(used);
            self.order.set(slot, (true, used));
        } else {
            self.order.set(slot, (false, self.now));
        }
    }
}

impl Policy for Directed {
    fn direct(&mut self, directive: &Directive) {
        self.told = Some(*directive);
    }

    fn miss(&mut self, access: &Access) -> Admission {
        match self.told(access) {
            (true, _) => Admission::Admit,
            (false, _) => Admission::Bypass,
        }
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.place(slot, access);
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        self.place(slot, access);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.order.top().map(|(_, slot)| slot)
    }

    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.order.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        let mut all = self.order.clone();
        let mut order = Vec::new();
        while let Some((_, slot)) = all.top() {
            all.remove(slot);
            order.push(slot);
        }
        order.reverse();
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.order.len(), resident);
    }
}

impl SimulatorHints for Directed {}

/// Blocks with the last use that counts, in any order, and those not to be kept.
#[cfg(test)]
mod reference {
    pub struct Directed {
        pub slots: usize,
        /// Block, whether it is to be kept, and the time that orders it among its like.
        pub blocks: Vec<(u64, bool, u64)>,
        pub now: u64,
    }

    impl Directed {
        /// An access with a directive; returns whether it hit.
        pub fn told(&mut self, block: u64, is_kept: bool, used: u64) -> bool {
            self.now += 1;
            let held = self.blocks.iter().position(|held| held.0 == block);
            let hit = held.map(|at| self.blocks.remove(at)).is_some();
            if is_kept && self.blocks.len() == self.slots {
                let mut worst = 0;
                for (at, other) in self.blocks.iter().enumerate() {
                    if (other.1, other.2) < (self.blocks[worst].1, self.blocks[worst].2) {
                        worst = at;
                    }
                }
                self.blocks.remove(worst);
            }
            if is_kept || hit {
                let time = if is_kept { used } else { self.now };
                self.blocks.push((block, is_kept, time));
            }
            hit
        }
    }

    impl crate::contract::Reference for Directed {
        fn access(&mut self, block: u64) -> bool {
            self.told(block, true, self.now + 1)
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|block| block.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference::Directed;
    use crate::contract::{Reference, equals_reference, level_of, lower_order, order_after};
    use crate::{Access, BlockId, Directive, Outcome, Prng};

    fn model(slots: usize) -> Directed {
        Directed {
            slots,
            blocks: Vec::new(),
            now: 0,
        }
    }

    #[test]
    fn worked_example() {
        assert_eq!(order_after("directed", 3, &[1, 2, 3, 1, 4]), [4, 1, 3]);
        let mut level = level_of("directed", 3, 1);
        let mut read = |index, is_kept, used| {
            let block = BlockId::on_first(index);
            level.direct(&Directive {
                block,
                used,
                is_kept,
            });
            level.access(&Access::read(block));
            lower_order(&level)
        };
        assert_eq!(read(1, true, 10), [1]);
        // Demoted: it was used before 1.
        assert_eq!(read(2, true, 4), [1, 2]);
        assert_eq!(read(3, false, 11), [1, 2], "only served");
        assert_eq!(read(4, true, 12), [4, 1, 2]);
        // The level above has 1 now.
        assert_eq!(read(1, false, 13), [4, 2, 1]);
        assert_eq!(read(5, true, 3), [4, 2, 5]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("directed", |slots, _| model(slots));
        for slots in [1u32, 2, 5, 13] {
            let mut prng = Prng::new(u64::from(slots));
            let (mut level, mut model) = (level_of("directed", slots, 1), model(slots as usize));
            for step in 1..5000u64 {
                let index = prng.below(3 * u64::from(slots));
                // Times of last uses differ.
                let (is_kept, used) = (
                    prng.below(3) > 0,
                    10 * step - 10 * prng.below(step) + step % 7,
                );
                let block = BlockId::on_first(index);
                level.direct(&Directive {
                    block,
                    used: used * 5000 + step,
                    is_kept,
                });
                let hit = matches!(level.access(&Access::read(block)), Outcome::Hit(_));
                assert_eq!(
                    hit,
                    model.told(index, is_kept, used * 5000 + step),
                    "step {step}"
                );
                let (mut held, mut expected) = (lower_order(&level), model.resident());
                held.sort_unstable();
                expected.sort_unstable();
                assert_eq!(held, expected, "{slots} slots, step {step}");
            }
        }
    }
}
