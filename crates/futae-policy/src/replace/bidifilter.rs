//! BiDiFilter, its lower level: keeps a demoted block only if it was requested more often than the block
//! that it would replace.
//!
//! # Source
//! Eytan and Friedman, "Multilevel bidirectional cache filter", arXiv 2206.13367, 2022. Only its abstract
//! and introduction were at hand; followed is the authors' program (github.com/ohadeytan/caffeine,
//! BidiTinyLfuPolicy)
//! # Picture
//! victim ← [ promoted, latest first ] then [ probationary, LRU ]
//! ← demotion, if requested more often than the LRU block there;
//! hit, requested more often than the last demoted block → promoted; other hit → [ protected, LRU ]
//! # Transitions
//! read, write: counted in a sketch | hit, count above that of the last demoted block: promoted, the next
//! victim, because the level above has it now | other hit: to protected; if that is over its share, its LRU
//! block moves to probationary | miss: served, not kept | demotion, notice: placed if there is a free slot
//! or a promoted block, or if its count is above that of the LRU block of probationary, which is then
//! evicted | demotion of a promoted block: to probationary
//! # Parameters
//! protected 0.8: share of the slots for the protected segment, rounded down (as in the authors' program)
//! # Deviations
//! the paper's filter decides for both levels with one sketch. Here this level decides alone: its sketch
//! counts the requests that reach it, so hits above are not counted. To decide on a promotion, the paper
//! compares a block with the upper level's next victim; here the last demoted block stands for that victim.
//! The level above keeps what it reads in any case. So a block that is not promoted is in both levels for a
//! time, and its demotion then finds it here. The window and the veterans of the paper's upper level would
//! be a policy of that level
//! # Cost
//! O(1) per access; 17 bytes per slot and 8 to 16 for the sketch

use crate::structures::{Queues, Sketch, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

const PROMOTED: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Demoted blocks in two segments, promoted ones before them, and a sketch that decides on
/// admission.
#[derive(Debug)]
pub struct BidiFilter {
    share: f64,
    slots: u32,
    protected_limit: u32,
    queues: Queues,
    names: Table<BlockId>,
    sketch: Sketch,
    /// The block that the upper level evicted last.
    demoted_last: Option<BlockId>,
}

/// Builds the policy; its parameter is `protected`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<BidiFilter, SpecError> {
    let mut policy = BidiFilter {
        share: arguments.share("protected", 0.8)?,
        slots: 0,
        protected_limit: 0,
        queues: Queues::new(3, shape.slots),
        names: Table::new(shape.slots),
        sketch: Sketch::new(shape.slots),
        demoted_last: None,
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl BidiFilter {
    fn observe(&mut self, access: &Access) {
        if access.kind.is_demand() {
            self.sketch.count(access.block);
        } else {
            self.demoted_last = Some(access.block);
        }
    }

    fn is_promoted(&self, block: BlockId) -> bool {
        self.demoted_last
            .is_none_or(|last| self.sketch.estimate(block) > self.sketch.estimate(last))
    }

    fn unprotect_surplus(&mut self) {
        while self.queues.len(PROTECTED) > self.protected_limit
            && let Some(oldest) = self.queues.front(PROTECTED)
        {
            self.queues.move_back(PROBATION, oldest);
        }
    }

    /// The victim, were every newcomer let in.
    fn oldest(&self) -> Option<Slot> {
        let promoted = self.queues.front(PROMOTED);
        promoted
            .or_else(|| self.queues.front(PROBATION))
            .or_else(|| self.queues.front(PROTECTED))
    }
}

impl Policy for BidiFilter {
    fn miss(&mut self, access: &Access) -> Admission {
        self.observe(access);
        if access.kind.is_demand() {
            Admission::Bypass
        } else {
            Admission::Admit
        }
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.names.set(slot, access.block);
        self.queues.push_back(PROBATION, slot);
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        let is_promoted = access.kind.is_demand() && {
            self.observe(access);
            self.is_promoted(access.block)
        };
        if is_promoted {
            self.queues.remove(slot);
            self.queues.push_front(PROMOTED, slot);
        } else if access.kind.is_demand() {
            self.queues.move_back(PROTECTED, slot);
            self.unprotect_surplus();
        } else {
            self.observe(access);
            let segment = self.queues.queue_of(slot).max(PROBATION);
            self.queues.move_back(segment, slot);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        let oldest = self.oldest()?;
        let uses = |block| self.sketch.estimate(block);
        let is_let_in = self.queues.queue_of(oldest) == PROMOTED
            || uses(incoming.block) > uses(self.names.get(oldest));
        is_let_in.then_some(oldest)
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.oldest()
    }

    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.queues.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        if slots != self.slots {
            self.sketch = Sketch::new(slots);
        }
        self.slots = slots;
        self.protected_limit = (f64::from(slots) * self.share) as u32;
        self.unprotect_surplus();
    }

    fn rank(&self, slot: Slot) -> u64 {
        self.queues.queue_of(slot) as u64
    }

    fn order(&self) -> Vec<Slot> {
        [PROTECTED, PROBATION, PROMOTED]
            .into_iter()
            .flat_map(|queue| self.queues.iter_back(queue))
            .collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        assert!(self.queues.len(PROTECTED) <= self.protected_limit);
    }
}

impl SimulatorHints for BidiFilter {
    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.sketch.estimate(block)
    }
}

/// Three lists, oldest first but for the promoted, with the same sketch.
#[cfg(test)]
mod reference {
    use crate::BlockId;
    use crate::structures::Sketch;

    pub struct BidiFilter {
        pub slots: usize,
        pub promoted: Vec<u64>,
        pub probation: Vec<u64>,
        pub protected: Vec<u64>,
        pub sketch: Sketch,
        pub last: Option<u64>,
    }

    fn take(list: &mut Vec<u64>, block: u64) -> bool {
        let at = list.iter().position(|&held| held == block);
        at.map(|at| list.remove(at)).is_some()
    }

    impl BidiFilter {
        pub fn new(slots: usize) -> Self {
            Self {
                slots,
                promoted: Vec::new(),
                probation: Vec::new(),
                protected: Vec::new(),
                sketch: Sketch::new(slots as u32),
                last: None,
            }
        }

        fn uses(&self, block: u64) -> u32 {
            self.sketch.estimate(BlockId::on_first(block))
        }
    }

    impl crate::contract::LowerReference for BidiFilter {
        fn read(&mut self, block: u64) -> bool {
            self.sketch.count(BlockId::on_first(block));
            let held = take(&mut self.promoted, block)
                || take(&mut self.probation, block)
                || take(&mut self.protected, block);
            if !held {
                return false;
            }
            let bar = self.last.map(|last| self.uses(last));
            if bar.is_none_or(|bar| self.uses(block) > bar) {
                self.promoted.insert(0, block);
                return true;
            }
            self.protected.push(block);
            if self.protected.len() > self.slots * 8 / 10 {
                self.probation.push(self.protected.remove(0));
            }
            true
        }

        fn demote(&mut self, block: u64) {
            self.last = Some(block);
            if take(&mut self.protected, block) {
                return self.protected.push(block);
            }
            if take(&mut self.promoted, block) || take(&mut self.probation, block) {
                return self.probation.push(block);
            }
            if self.resident().len() == self.slots {
                if self.promoted.is_empty() {
                    let list = match self.probation.is_empty() {
                        true => &self.protected,
                        false => &self.probation,
                    };
                    if self.uses(block) <= self.uses(list[0]) {
                        return;
                    }
                    let victim = list[0];
                    let _ = take(&mut self.probation, victim) || take(&mut self.protected, victim);
                } else {
                    self.promoted.remove(0);
                }
            }
            self.probation.push(block);
        }

        fn resident(&self) -> Vec<u64> {
            [self.promoted.as_slice(), &self.probation, &self.protected].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_lower_reference, level_of, lower_order};
    use crate::{Access, AccessKind, BlockId, Outcome};

    #[test]
    fn worked_example() {
        let mut level = level_of("bidifilter", 2, 1);
        let block = BlockId::on_first;
        let mut read = |index| level.access(&Access::read(block(index)));
        assert!(matches!(read(1), Outcome::Bypassed), "misses are not kept");
        read(2);
        read(2);
        read(3);
        let mut demote = |index| level.access(&Access::of(block(index), AccessKind::Demotion));
        demote(1);
        demote(2);
        // 3 was asked for as often as 1, the oldest: it does not come in.
        assert!(matches!(demote(3), Outcome::Bypassed));
        assert_eq!(lower_order(&level), [2, 1]);
        // Asked for a second time it does, and 1 goes.
        level.access(&Access::read(block(3)));
        level.access(&Access::of(block(3), AccessKind::Demotion));
        assert_eq!(lower_order(&level), [3, 2]);
        // 2, asked for three times now, is promoted, since 3, demoted last, was asked for twice: the next victim.
        level.access(&Access::read(block(2)));
        assert_eq!(lower_order(&level), [3, 2]);
        level.access(&Access::of(block(9), AccessKind::Demotion));
        assert_eq!(lower_order(&level), [9, 3]);
        // It comes back, asked for three times, and 3, the oldest, goes.
        level.access(&Access::of(block(2), AccessKind::Demotion));
        assert_eq!(lower_order(&level), [2, 9]);
        // 9 is asked for once, and 2, which was demoted last, three times: 9 stays, protected.
        level.access(&Access::read(block(9)));
        assert_eq!(lower_order(&level), [9, 2]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_lower_reference("bidifilter", |slots, _| reference::BidiFilter::new(slots));
    }
}
