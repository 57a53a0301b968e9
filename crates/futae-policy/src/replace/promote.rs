//! PROMOTE, one level of it: keeps some of the blocks that pass upwards, at random, and hands some of those
//! that are hit to the level above.
//!
//! # Source
//! Gill, "On multi-level exclusive caching: offline optimality and why promotions are better than
//! demotions", FAST 2008, section 4 (PROMOTE-LRU, figures 4 and 5)
//! # Picture
//! victim ← [ LRU end ... MRU end ] ← miss, kept at random; hit → at random: promoted, the next victim
//! | MRU end
//! # Transitions
//! miss: at random passed upwards and not kept, else placed at the MRU end | hit: at random promoted, the
//! next victim, because the level above has it now; else to the MRU end | demotion, notice: not kept,
//! because PROMOTE needs none; of a resident block: as a hit without promotion
//! # Parameters
//! promote 0.5: the probability that a block is promoted, the paper's probPromote; it begins with the upper
//! level's share of all slots, and is never higher
//! # Deviations
//! the paper needs both levels. Each answer says whether a lower level has kept the block, and then the
//! level above does not keep it; and the level above reports how long blocks stay in it, by which the
//! probability adapts until they stay equally long in both. Here the levels exchange neither of these. The
//! level above keeps what it reads in any case, so a block that is kept below is in both for a time, and
//! the probability stays as it is set. What remains is the random choice, which needs no demotions. A
//! promoted block stays until its slot is needed, at no cost
//! # Cost
//! O(1) per access; 9 bytes per slot

use crate::structures::Queues;
use crate::{
    Access, AccessKind, Admission, Arguments, Departure, Policy, Prng, Shape, SimulatorHints, Slot,
    SpecError,
};

const PROMOTED: usize = 0;
const ORDER: usize = 1;

/// An LRU that admits a fraction of the missed blocks.
#[derive(Debug)]
pub struct Promote {
    chance: f64,
    prng: Prng,
    /// Promoted blocks, and the others, next victim in front.
    queues: Queues,
}

/// Builds the policy; its parameter is `promote`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Promote, SpecError> {
    Ok(Promote {
        chance: arguments.share("promote", 0.5)?,
        prng: Prng::new(shape.seed),
        queues: Queues::new(2, shape.slots),
    })
}

impl Promote {
    fn is_promoted(&mut self) -> bool {
        self.prng.unit() < self.chance
    }
}

impl Policy for Promote {
    fn miss(&mut self, access: &Access) -> Admission {
        // What this cache held before a restart has passed the lot already.
        let was_here = access.kind == AccessKind::Preload;
        if was_here || (access.kind.is_demand() && !self.is_promoted()) {
            Admission::Admit
        } else {
            Admission::Bypass
        }
    }

    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.queues.push_back(ORDER, slot);
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        if access.kind.is_demand() && self.is_promoted() {
            self.queues.remove(slot);
            self.queues.push_front(PROMOTED, slot);
        } else {
            self.queues.move_back(ORDER, slot);
        }
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let promoted = self.queues.front(PROMOTED);
        promoted.or_else(|| self.queues.front(ORDER))
    }

    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.queues.remove(slot);
    }

    fn rank(&self, slot: Slot) -> u64 {
        self.queues.queue_of(slot) as u64
    }

    fn order(&self) -> Vec<Slot> {
        let mut order: Vec<Slot> = self.queues.iter_back(ORDER).collect();
        order.extend(self.queues.iter_back(PROMOTED));
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
    }
}

impl SimulatorHints for Promote {}

/// Two lists, next victim first, with the same lots.
#[cfg(test)]
mod reference {
    use crate::Prng;

    pub struct Promote {
        pub slots: usize,
        pub chance: f64,
        pub prng: Prng,
        pub promoted: Vec<u64>,
        pub kept: Vec<u64>,
    }

    impl crate::contract::LowerReference for Promote {
        fn read(&mut self, block: u64) -> bool {
            let is_promoted = self.prng.unit() < self.chance;
            let was_held = self.resident().contains(&block);
            self.promoted.retain(|&held| held != block);
            self.kept.retain(|&held| held != block);
            if was_held && is_promoted {
                self.promoted.insert(0, block);
            } else if was_held || !is_promoted {
                if self.promoted.len() + self.kept.len() == self.slots {
                    let has_promoted = !self.promoted.is_empty();
                    let list = if has_promoted {
                        &mut self.promoted
                    } else {
                        &mut self.kept
                    };
                    list.remove(0);
                }
                self.kept.push(block);
            }
            was_held
        }

        fn demote(&mut self, block: u64) {
            if self.resident().contains(&block) {
                self.promoted.retain(|&held| held != block);
                self.kept.retain(|&held| held != block);
                self.kept.push(block);
            }
        }

        fn resident(&self) -> Vec<u64> {
            [self.promoted.as_slice(), &self.kept].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::Prng;
    use crate::contract::{equals_lower_reference, order_after, run};

    #[test]
    fn worked_example() {
        // Nothing is promoted: an LRU. Everything is: nothing is kept.
        let text = "promote(promote=0)";
        assert_eq!(order_after(text, 2, &[1, 2, 1, 3]), [3, 1]);
        assert!(order_after("promote(promote=1)", 2, &[1, 2, 1, 3]).is_empty());
        // The first lots of seed 1 are 0.70, 0.52, 0.57 and 0.39: with a chance of 0.55 the read of 1 is kept, that of 2
        // is promoted, and that of 3 is kept. The hit on 1 is promoted: it goes next.
        let text = "promote(promote=0.55)";
        assert_eq!(order_after(text, 2, &[1, 2, 3]), [3, 1]);
        assert_eq!(order_after(text, 2, &[1, 2, 3, 1]), [3, 1]);
        assert_eq!(order_after(text, 3, &[1, 2, 3, 3]), [1, 3]);
    }

    #[test]
    fn the_lot_decides_how_much_is_kept() {
        let reads: Vec<u64> = (0..10_000).collect();
        let kept = run("promote(promote=0.3)", 10_000, 1, &reads).resident();
        assert!((6800..7200).contains(&kept), "{kept}");
    }

    #[test]
    fn equals_its_reference_model() {
        equals_lower_reference("promote", |slots, seed| reference::Promote {
            slots,
            chance: 0.5,
            prng: Prng::new(seed),
            promoted: Vec::new(),
            kept: Vec::new(),
        });
    }
}
