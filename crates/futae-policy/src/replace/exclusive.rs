//! Exclusive lower cache: keeps what the level above evicted, not what it holds.
//!
//! # Source
//! Sugimoto and Yamaguchi 2015, section 4.1, figures 9 to 11; the same rule as DEMOTE of Wong and Wilkes
//! 2002, except that blocks hit by reads are evicted first.
//! # Picture
//! victim ← HEAD [ just served upwards | demoted first ... demoted last ] TAIL ← demotion
//! # Transitions
//! hit: to HEAD, because the level above has the block now | miss: served, not kept | demotion, notice:
//! placed at TAIL, or moved to TAIL if resident | victim: HEAD
//! # Parameters
//! keep_served false: keep a missed block, too, at HEAD, in place of a block served before or in a free
//! slot, until a notice says that the level above evicted it; for levels above that report evictions
//! without demoting. If the level above sends neither notices nor demotions, this is `mru`, whose hit ratio
//! on uniform reads is L ÷ D whatever the level above holds. `exclusive(POLICY)` orders the demoted blocks
//! by another policy
//! # Deviations
//! none for the default order `lru`. Only demotions enter it, so it is first in, first out by the time of
//! demotion (figures 9 to 11)
//! # Cost
//! O(1) per access and 9 bytes per slot, plus the cost of the inner policy

use crate::structures::{Queues, prefetch};
use crate::{
    Access, Admission, Arguments, BlockId, Class, Departure, Kind, Policy, PolicySpec,
    RegisteredPolicy, Shape, SimulatorHints, Slot, SpecError, StoreCosts,
};

const SERVED: usize = 0;

/// Blocks served upwards go first; demoted blocks are kept in the order of an inner policy.
pub struct Exclusive {
    /// Blocks that the level above was given and holds too, latest first: a stack of victims.
    served: Queues,
    is_served: Vec<bool>,
    /// The order of the demoted blocks.
    demoted: Box<dyn RegisteredPolicy>,
    /// Whether missed blocks are kept as first victims.
    keeps_served: bool,
    slots: u32,
    resident: u32,
}

/// Builds the policy; its parameter is `keep_served`, its argument the inner policy, `lru` unless written.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Exclusive, SpecError> {
    let inner = arguments
        .inner()
        .unwrap_or_else(|| PolicySpec::of(Kind::lru));
    let keeps_served = arguments.take("keep_served", "true or false", |_: &bool| true)?;
    Ok(Exclusive {
        keeps_served: keeps_served.unwrap_or(false),
        slots: shape.slots,
        resident: 0,
        served: Queues::new(1, shape.slots),
        is_served: Vec::new(),
        demoted: crate::build(&inner, shape)?,
    })
}

impl Policy for Exclusive {
    fn miss(&mut self, access: &Access) -> Admission {
        if access.kind.is_demand() {
            // Never by evicting a demoted block.
            let has_place = self.resident < self.slots || self.served.len(SERVED) > 0;
            if self.keeps_served && has_place {
                Admission::Admit
            } else {
                Admission::Bypass
            }
        } else {
            self.demoted.miss(access)
        }
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        if self.is_served.len() <= slot.i() {
            self.is_served.resize(slot.i() + 1, false);
        }
        self.resident += 1;
        self.is_served[slot.i()] = access.kind.is_demand();
        if self.is_served[slot.i()] {
            self.served.push_front(SERVED, slot);
        } else {
            self.demoted.insert(slot, access);
        }
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        match (access.kind.is_demand(), self.is_served[slot.i()]) {
            (true, true) => {
                self.served.remove(slot);
                self.served.push_front(SERVED, slot);
            }
            (true, false) => {
                self.demoted.hand_up(slot, access);
                self.is_served[slot.i()] = true;
                self.served.push_front(SERVED, slot);
            }
            (false, true) => {
                self.served.remove(slot);
                self.is_served[slot.i()] = false;
                self.demoted.insert(slot, access);
            }
            (false, false) => self.demoted.hit(slot, access),
        }
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        self.served
            .front(SERVED)
            .or_else(|| self.demoted.victim(incoming))
    }

    fn surplus(&mut self) -> Option<Slot> {
        let served = self.served.front(SERVED);
        served.or_else(|| self.demoted.surplus())
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        self.resident -= 1;
        if std::mem::take(&mut self.is_served[slot.i()]) {
            self.served.remove(slot);
        } else {
            self.demoted.remove(slot, why);
        }
    }

    fn reclass(&mut self, slot: Slot, class: Class) {
        if !self.is_served[slot.i()] {
            self.demoted.reclass(slot, class);
        }
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        self.demoted.note_costs(costs);
    }

    fn note_volumes(&mut self, firsts: &[u64]) {
        self.demoted.note_volumes(firsts);
    }

    fn fault(&self) -> Option<&SpecError> {
        self.demoted.fault()
    }

    fn weights(&self) -> Vec<(String, f64)> {
        self.demoted.weights()
    }

    fn review(&mut self) -> Option<BlockId> {
        self.demoted.review()
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
        self.demoted.resize(slots);
    }

    fn rank(&self, slot: Slot) -> u64 {
        if self.is_served[slot.i()] {
            return 0;
        }
        1 + self.demoted.rank(slot)
    }

    fn order(&self) -> Vec<Slot> {
        let mut order = self.demoted.order();
        order.extend(self.served.iter_back(SERVED));
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(resident, self.resident);
        let served = self.served.len(SERVED);
        assert!(
            self.served
                .iter(SERVED)
                .all(|slot| self.is_served[slot.i()])
        );
        self.demoted.audit(resident - served);
    }
}

impl SimulatorHints for Exclusive {
    fn number_blocks(&mut self, first: u64) {
        self.demoted.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.demoted.glance(block)
    }

    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.demoted.foresee(ahead)
    }

    #[inline]
    fn foresee_all(&self, victims: &mut [Slot]) -> usize {
        self.demoted.foresee_all(victims)
    }

    #[inline]
    fn approach(&self, slot: Slot) {
        prefetch(&self.is_served, slot.i());
        self.served.approach(slot);
        self.demoted.approach(slot);
    }
}

/// One list, as the paper draws it: HEAD first.
#[cfg(test)]
mod reference {
    pub struct Exclusive {
        pub slots: usize,
        pub list: Vec<u64>,
    }

    impl Exclusive {
        fn take(&mut self, block: u64) -> bool {
            let at = self.list.iter().position(|&held| held == block);
            at.map(|at| self.list.remove(at)).is_some()
        }

        pub fn read(&mut self, block: u64) -> bool {
            let hit = self.take(block);
            if hit {
                self.list.insert(0, block);
            }
            hit
        }

        pub fn demote(&mut self, block: u64) {
            if !self.take(block) && self.list.len() == self.slots {
                self.list.remove(0);
            }
            self.list.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::level_of;
    use crate::{Access, AccessKind, BlockId, Kind, Outcome};
    use proptest::prelude::*;

    fn block(index: u64) -> BlockId {
        BlockId::on_first(index)
    }

    fn demotion(index: u64) -> Access {
        Access::of(block(index), AccessKind::Demotion)
    }

    fn head_to_tail(level: &crate::Level<Box<dyn crate::RegisteredPolicy>>) -> Vec<u64> {
        level
            .order()
            .into_iter()
            .rev()
            .map(BlockId::index)
            .collect()
    }

    /// Figures 9 to 11 of the paper: G is hit and becomes the next victim; the next demotion
    /// takes its place; a miss changes nothing but what the demotion after it does.
    #[test]
    fn worked_example() {
        let mut level = level_of("exclusive", 3, 1);
        for index in [7, 9, 11] {
            level.access(&demotion(index));
        }
        assert_eq!(head_to_tail(&level), [7, 9, 11]);
        assert!(matches!(
            level.access(&Access::read(block(9))),
            Outcome::Hit(_)
        ));
        assert_eq!(head_to_tail(&level), [9, 7, 11]);
        level.access(&demotion(20));
        assert_eq!(
            head_to_tail(&level),
            [7, 11, 20],
            "the block just served goes first"
        );
        assert_eq!(level.access(&Access::read(block(30))), Outcome::Bypassed);
        assert_eq!(head_to_tail(&level), [7, 11, 20], "a miss is not kept");
        level.access(&demotion(21));
        assert_eq!(
            head_to_tail(&level),
            [11, 20, 21],
            "then the block demoted first"
        );
        level.access(&demotion(11));
        assert_eq!(head_to_tail(&level), [20, 21, 11], "demoted again: safest");
    }

    /// With `keep_served` a miss takes the place of what was served last, never of what was demoted, and
    /// a notice finds it.
    #[test]
    fn served_blocks_wait_for_their_notice() {
        let mut level = level_of("exclusive(keep_served=true)", 3, 1);
        let notice = |index| Access::of(block(index), AccessKind::Notice);
        for index in [1, 2, 3, 4] {
            level.access(&Access::read(block(index)));
        }
        assert_eq!(head_to_tail(&level), [4, 2, 1], "like mru, so far");
        assert!(matches!(level.access(&notice(1)), Outcome::Hit(_)));
        assert_eq!(head_to_tail(&level), [4, 2, 1]);
        level.access(&notice(9));
        assert_eq!(
            head_to_tail(&level),
            [2, 1, 9],
            "in place of the block just served"
        );
        level.access(&notice(2));
        assert_eq!(level.access(&Access::read(block(5))), Outcome::Bypassed);
        assert_eq!(
            head_to_tail(&level),
            [1, 9, 2],
            "no served block to replace"
        );
    }

    /// Without notices it equals `mru`.
    #[test]
    fn without_notices_it_is_mru() {
        let mut prng = crate::Prng::new(3);
        let mut blind = level_of("exclusive(keep_served=true)", 8, 1);
        let mut mru = level_of("mru", 8, 1);
        for _ in 0..3000 {
            let access = Access::read(block(prng.below(20)));
            let hit = |outcome: Outcome| matches!(outcome, Outcome::Hit(_));
            assert_eq!(hit(blind.access(&access)), hit(mru.access(&access)));
        }
    }

    proptest! {
        #[test]
        fn equals_its_reference_model(
            slots in 1u32..12,
            steps in prop::collection::vec((0u64..24, 0u8..3), 0..600),
        ) {
            let mut level = level_of("exclusive", slots, 1);
            let mut model = reference::Exclusive { slots: slots as usize, list: Vec::new() };
            for (index, what) in steps {
                if what == 0 {
                    level.access(&demotion(index));
                    model.demote(index);
                } else {
                    let hit = matches!(level.access(&Access::read(block(index))), Outcome::Hit(_));
                    prop_assert_eq!(hit, model.read(index));
                }
                level.audit();
                prop_assert_eq!(head_to_tail(&level), model.list.clone());
            }
        }

        /// Any policy can order the demoted blocks.
        #[test]
        fn any_inner_order_obeys_the_contract(
            inner in prop::sample::select(Kind::ALL),
            steps in prop::collection::vec((0u64..24, 0u8..3), 0..300),
        ) {
            let mut level = level_of(&format!("exclusive({})", inner.name()), 5, 1);
            for (index, what) in steps {
                let access = if what == 0 { demotion(index) } else { Access::read(block(index)) };
                level.access(&access);
                level.audit();
            }
        }
    }
}
