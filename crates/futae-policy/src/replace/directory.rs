//! Directory priority: blocks of designated directories are in a protected pool, from which normal blocks
//! evict nothing.
//!
//! # Source
//! Kotoge and others, c. 2006, directory-priority buffer cache (section 2).
//! # Picture
//! victim ← [ normal pool ]; only when that is empty: victim ← [ protected pool ]
//! # Transitions
//! hit: moves to the pool of its class, then as that pool's policy decides | miss: placed in the pool of
//! its class | designated: moves at its next use, or at once | designation withdrawn: normal at once, by
//! the time of its last use
//! # Parameters
//! max_protected 1: share of the slots that the protected pool may take; beyond it, the pool's own next
//! victim becomes normal, by the time of its last use
//! # Deviations
//! max_protected is not in the paper (1 is the paper). `directory(POLICY)` orders both pools by another
//! policy than LRU; each is built for the number of slots of the whole cache
//! # Cost
//! that of the two pools, which together have each slot once, and O(log slots) for a block that is no
//! longer protected; 13 bytes per slot besides

use crate::structures::{Heap, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Class, Departure, Kind, Policy, PolicySpec,
    RegisteredPolicy, Shape, SimulatorHints, Slot, SpecError, StoreCosts,
};

/// The queue of a resident slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Home {
    #[default]
    Normal,
    Protected,
    /// Normal, but no longer protected and not used since: beside the normal pool.
    Released,
}

/// Two pools, and the released blocks by time of last use.
pub struct Directory {
    max_protected: f64,
    protected_limit: u32,
    normal: Box<dyn RegisteredPolicy>,
    protected: Box<dyn RegisteredPolicy>,
    released: Heap<u64>,
    normal_count: u32,
    protected_count: u32,
    homes: Table<Home>,
    last_uses: Table<u64>,
}

/// Builds the policy; its parameters are the order inside the pools, `lru` unless written, and
/// `max_protected`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Directory, SpecError> {
    let max_protected = arguments.share("max_protected", 1.0)?;
    let inner = arguments
        .inner()
        .unwrap_or_else(|| PolicySpec::of(Kind::lru));
    let mut policy = Directory {
        max_protected,
        protected_limit: 0,
        normal: crate::build(&inner, shape)?,
        protected: crate::build(&inner, shape)?,
        released: Heap::new(0),
        normal_count: 0,
        protected_count: 0,
        homes: Table::new(shape.slots),
        last_uses: Table::new(shape.slots),
    };
    policy.derive(shape.slots);
    Ok(policy)
}

impl Directory {
    fn derive(&mut self, slots: u32) {
        self.protected_limit = (f64::from(slots) * self.max_protected) as u32;
    }

    fn pool(&mut self, class: Class) -> &mut dyn Policy {
        if self.is_protected(class) {
            &mut *self.protected
        } else {
            &mut *self.normal
        }
    }

    fn is_protected(&self, class: Class) -> bool {
        class.has(Class::PROTECTED) && self.protected_limit > 0
    }

    /// Keeps the protected pool within its share; whether it can take one more.
    fn make_room_for_protected(&mut self, access: &Access) -> bool {
        if self.protected_count < self.protected_limit {
            return true;
        }
        let surplus = self.protected.victim(access);
        if let Some(surplus) = surplus {
            self.release(surplus);
        }
        surplus.is_some()
    }

    fn enter(&mut self, slot: Slot, access: &Access) {
        if self.is_protected(access.class) && self.make_room_for_protected(access) {
            self.protected.insert(slot, access);
            self.protected_count += 1;
            self.homes.set(slot, Home::Protected);
        } else {
            self.normal.insert(slot, access);
            self.normal_count += 1;
            self.homes.set(slot, Home::Normal);
        }
    }

    fn leave(&mut self, slot: Slot, why: Departure) {
        match self.homes.get(slot) {
            Home::Normal => {
                self.normal.remove(slot, why);
                self.normal_count -= 1;
            }
            Home::Protected => {
                self.protected.remove(slot, why);
                self.protected_count -= 1;
            }
            Home::Released => self.released.remove(slot),
        }
    }

    /// Makes a protected block normal, at the position of its last use.
    fn release(&mut self, slot: Slot) {
        self.leave(slot, Departure::Promoted);
        self.homes.set(slot, Home::Released);
        self.released.set(slot, self.last_uses.get(slot));
    }
}

impl Policy for Directory {
    fn miss(&mut self, access: &Access) -> Admission {
        self.pool(access.class).miss(access)
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.last_uses.set(slot, access.tick);
        self.enter(slot, access);
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        self.last_uses.set(slot, access.tick);
        match (self.homes.get(slot), self.is_protected(access.class)) {
            (Home::Normal, false) => self.normal.hit(slot, access),
            (Home::Protected, true) => self.protected.hit(slot, access),
            _ => {
                self.leave(slot, Departure::Promoted);
                self.enter(slot, access);
            }
        }
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        let released = self.released.top();
        if self.normal_count == 0 {
            let released = released.map(|(_, slot)| slot);
            return released.or_else(|| self.protected.victim(incoming));
        }
        let normal = self.normal.victim(incoming);
        match (normal, released) {
            (Some(normal), Some((used, _))) if self.last_uses.get(normal) < used => Some(normal),
            (_, Some((_, slot))) => Some(slot),
            (normal, None) => normal,
        }
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        self.leave(slot, why);
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        self.normal.note_costs(costs);
        self.protected.note_costs(costs);
    }

    fn note_volumes(&mut self, firsts: &[u64]) {
        self.normal.note_volumes(firsts);
        self.protected.note_volumes(firsts);
    }

    fn fault(&self) -> Option<&SpecError> {
        self.normal.fault().or_else(|| self.protected.fault())
    }

    fn weights(&self) -> Vec<(String, f64)> {
        self.normal.weights()
    }

    fn reclass(&mut self, slot: Slot, class: Class) {
        match self.homes.get(slot) {
            Home::Protected if !self.is_protected(class) => self.release(slot),
            Home::Protected => self.protected.reclass(slot, class),
            Home::Normal => self.normal.reclass(slot, class),
            Home::Released => {}
        }
    }

    fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        let moves = self.homes.get(slot) != Home::Protected && self.is_protected(access.class);
        if moves {
            self.leave(slot, Departure::Promoted);
            self.enter(slot, access);
        } else {
            self.reclass(slot, access.class);
        }
    }

    fn review(&mut self) -> Option<BlockId> {
        self.normal.review().or_else(|| self.protected.review())
    }

    fn resize(&mut self, slots: u32) {
        self.normal.resize(slots);
        self.protected.resize(slots);
        self.derive(slots);
        let surplus = self.protected_count.saturating_sub(self.protected_limit);
        for slot in self
            .protected
            .order()
            .into_iter()
            .rev()
            .take(surplus as usize)
        {
            self.release(slot);
        }
    }

    fn rank(&self, slot: Slot) -> u64 {
        match self.homes.get(slot) {
            Home::Protected => 1 + self.protected.rank(slot),
            // Ordered by the time of the last use.
            Home::Normal | Home::Released => 0,
        }
    }

    fn order(&self) -> Vec<Slot> {
        let mut order = self.protected.order();
        let mut released = self.released.highest_first();
        let mut normal = self.normal.order();
        let mut next = Vec::new();
        loop {
            let from = match (normal.last(), released.last()) {
                (Some(&slot), Some(&other))
                    if self.last_uses.get(slot) < self.last_uses.get(other) =>
                {
                    &mut normal
                }
                (Some(_), None) => &mut normal,
                _ => &mut released,
            };
            let Some(slot) = from.pop() else { break };
            next.push(slot);
        }
        order.extend(next.into_iter().rev());
        order
    }

    fn audit(&self, resident: u32) {
        let pools = self.normal_count + self.protected_count;
        assert_eq!(pools + self.released.len(), resident);
        assert!(self.protected_count <= self.protected_limit);
        self.normal.audit(self.normal_count);
        self.protected.audit(self.protected_count);
    }
}

impl SimulatorHints for Directory {
    fn number_blocks(&mut self, first: u64) {
        self.normal.number_blocks(first);
        self.protected.number_blocks(first);
    }
}

/// The paper's two pools as lists of (time of last use, block), sorted before they are used.
#[cfg(test)]
mod reference {
    #[derive(Default)]
    pub struct Directory {
        pub slots: usize,
        pub now: u64,
        pub normal: Vec<(u64, u64)>,
        pub protected: Vec<(u64, u64)>,
    }

    impl Directory {
        pub fn access(&mut self, block: u64, priority: bool) -> bool {
            self.now += 1;
            let held = self.normal.len() + self.protected.len();
            self.normal.retain(|held| held.1 != block);
            self.protected.retain(|held| held.1 != block);
            let hit = self.normal.len() + self.protected.len() < held;
            if !hit && held == self.slots {
                self.normal.sort_unstable();
                self.protected.sort_unstable();
                if self.normal.is_empty() {
                    self.protected.remove(0);
                } else {
                    self.normal.remove(0);
                }
            }
            let pool = if priority {
                &mut self.protected
            } else {
                &mut self.normal
            };
            pool.push((self.now, block));
            hit
        }

        pub fn undesignate(&mut self, block: u64) {
            let moved = self.protected.iter().find(|held| held.1 == block).copied();
            self.protected.retain(|held| held.1 != block);
            self.normal.extend(moved);
        }

        /// Protected pool before normal pool, each by last use, latest first.
        pub fn order(&mut self) -> Vec<u64> {
            self.normal.sort_unstable();
            self.protected.sort_unstable();
            let all = self.normal.iter().chain(&self.protected);
            all.rev().map(|held| held.1).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::level_of;
    use crate::{Access, BlockId, Class, Kind, Level, Outcome, RegisteredPolicy};
    use proptest::prelude::*;

    fn access(level: &mut Level<Box<dyn RegisteredPolicy>>, index: u64, priority: bool) -> bool {
        let class = if priority {
            Class::PROTECTED
        } else {
            Class::NORMAL
        };
        let read = Access::read(BlockId::on_first(index)).classed(class);
        matches!(level.access(&read), Outcome::Hit(_))
    }

    fn order(level: &Level<Box<dyn RegisteredPolicy>>) -> Vec<u64> {
        level.order().into_iter().map(BlockId::index).collect()
    }

    #[test]
    fn worked_example() {
        let mut level = level_of("directory", 3, 1);
        for (index, priority) in [(1, true), (2, false), (3, false), (4, true)] {
            access(&mut level, index, priority);
        }
        assert_eq!(
            order(&level),
            [4, 1, 3],
            "2, the oldest normal block, made room"
        );
        access(&mut level, 5, true);
        access(&mut level, 6, false);
        assert_eq!(order(&level), [5, 4, 6], "all protected: their oldest goes");
        access(&mut level, 7, true);
        assert_eq!(order(&level), [7, 5, 4], "and the normal block goes again");
        level.reclass(BlockId::on_first(5), Class::NORMAL);
        level.reclass(BlockId::on_first(4), Class::NORMAL);
        access(&mut level, 8, false);
        assert_eq!(order(&level), [7, 8, 5], "released blocks go by last use");
    }

    #[test]
    fn designated_at_once_they_move_before_their_next_use() {
        let mut level = level_of("directory", 4, 1);
        for index in [1, 2, 3, 4] {
            access(&mut level, index, false);
        }
        for index in [1, 2] {
            level.reclass_at_once(BlockId::on_first(index), Class::PROTECTED);
            level.audit();
        }
        assert_eq!(order(&level), [2, 1, 4, 3]);
        access(&mut level, 5, false);
        level.reclass_at_once(BlockId::on_first(1), Class::NORMAL);
        assert_eq!(order(&level), [2, 5, 4, 1], "and back, by last use");
    }

    /// The experiment of the paper at a hundredth: case 3 keeps what is designated.
    #[test]
    fn a_loop_over_normal_files_does_not_push_out_protected_ones() {
        let mut level = level_of("directory", 10, 1);
        let mut round = || {
            for index in 100..160 {
                access(&mut level, index, false);
            }
            (0..10)
                .filter(|&index| access(&mut level, index, true))
                .count()
        };
        assert_eq!(round(), 0);
        // The first normal block of a round takes a protected slot, as there is no other,
        // and the block that lost it takes it back.
        assert_eq!([round(), round()], [9, 9]);
    }

    proptest! {
        #[test]
        fn equals_its_reference_model(
            slots in 1u32..9,
            steps in prop::collection::vec((0u64..16, 0u8..8), 0..500),
        ) {
            let mut level = level_of("directory", slots, 1);
            let mut model = reference::Directory { slots: slots as usize, ..Default::default() };
            for (index, what) in steps {
                if what == 0 {
                    level.reclass(BlockId::on_first(index), Class::NORMAL);
                    model.undesignate(index);
                } else {
                    let hit = access(&mut level, index, what > 4);
                    prop_assert_eq!(hit, model.access(index, what > 4));
                }
                level.audit();
                prop_assert_eq!(order(&level), model.order());
            }
        }

        /// Any policy can order the pools, and the protected share is kept.
        #[test]
        fn any_inner_order_obeys_the_contract(
            inner in prop::sample::select(Kind::ALL),
            steps in prop::collection::vec((0u64..24, 0u8..8), 0..300),
        ) {
            let text = format!("directory({},max_protected=0.5)", inner.name());
            let mut level = level_of(&text, 6, 1);
            for (index, what) in steps {
                match what {
                    0 => level.reclass(BlockId::on_first(index), Class::NORMAL),
                    1 => drop(level.resize(1 + index as u32 % 8)),
                    _ => drop(access(&mut level, index, what > 4)),
                }
                level.audit();
            }
        }
    }
}
