//! Cost: FIFO with second chance in which blocks that are cheap to fetch again leave the active queues
//! faster.
//!
//! # Source
//! Sudo and others (Canon) 1993, multi-level FIFO with second chance (section 3.2.2).
//! # Picture
//! new → [ active of its class, FIFO ] ×4 → by weight × length, clear the mark → [ inactive, FIFO ]
//! → marked: to active of its class
//! | else victim
//! # Transitions
//! hit: marked | miss: to the end of active of its class | victim: inactive is filled to its target length,
//! each time from the class with the most credit; then blocks are taken from its front until one is not
//! marked | class changes: takes effect when the block next enters an active queue
//! # Parameters
//! local_clean 4: weight of clean blocks of a near store. Blocks with a higher weight are evicted sooner;
//! only ratios matter
//! remote_clean 3: weight of clean blocks of a far store
//! local_dirty 2: weight of blocks that must first be written to a near store
//! remote_dirty 1: weight of blocks that must first be written to a far store
//! weights: the same four as one list, `local-clean:2,remote-dirty:1`, or `measured`, live, from the
//! duration of the stores' reads and writes, 1 / (read + write if dirty), between 1/8 and 8
//! classes: names of more classes of stores, `nfs+ceph`; nfs-clean and nfs-dirty have the weights of far
//! stores unless `weights` says otherwise. Live, the names given to stores are added
//! inactive 0.333333: target length of inactive as a share of the slots (at least 32 blocks)
//! # Deviations
//! fractions of blocks are carried as credits, and lengths are sampled for every block. The paper gives no
//! weights, only the order of the classes, and best weights of 2 for clean and 4 for remote text against 1.
//! `cost(POLICY)` has no queues: POLICY orders the blocks of each class, the class with the most credit
//! gives its next victim, and a block changes its class at its next use. With one class it decides as
//! POLICY alone, so `directory(cost(exclusive))` combines protection, cost and demotion
//! # Cost
//! O(1) per access, amortised; 11 bytes per slot. With an inner policy, the cost of that policy for each
//! class, and a byte per slot

mod class_weights;
mod joined;
mod second_chance;

use crate::{
    Access, Admission, Arguments, BlockId, Class, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError, StoreCosts,
};
use class_weights::ClassWeights;
use joined::Joined;
use second_chance::SecondChance;

/// Blocks by class, and an order within each.
pub enum Cost {
    /// The published one.
    SecondChance(SecondChance),
    /// The order of another policy.
    Joined(Joined),
}

/// Builds the policy; its parameters are the weights, the classes, and either `inactive` or the order within a
/// class.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Cost, SpecError> {
    let class_weights = ClassWeights::build(arguments)?;
    match arguments.inner() {
        // There is no inactive queue then, so the parameter is unknown.
        Some(inner) => Joined::new(class_weights, &inner, shape).map(Cost::Joined),
        None => {
            let inactive_share = arguments.share("inactive", 1.0 / 3.0)?;
            let order = SecondChance::new(class_weights, inactive_share, shape);
            Ok(Cost::SecondChance(order))
        }
    }
}

impl Cost {
    fn class_weights(&mut self) -> &mut ClassWeights {
        match self {
            Self::SecondChance(order) => &mut order.class_weights,
            Self::Joined(order) => &mut order.class_weights,
        }
    }
}

impl Policy for Cost {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        match self {
            Self::SecondChance(_) => Admission::Admit,
            Self::Joined(order) => order.miss(access),
        }
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        match self {
            Self::SecondChance(order) => order.insert(slot, access),
            Self::Joined(order) => order.insert(slot, access),
        }
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        match self {
            Self::SecondChance(order) => order.hit(slot, access),
            Self::Joined(order) => order.hit(slot, access),
        }
    }

    #[inline]
    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        match self {
            Self::SecondChance(order) => order.victim(),
            Self::Joined(order) => order.victim(incoming),
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        match self {
            Self::SecondChance(order) => order.remove(slot),
            Self::Joined(order) => order.remove(slot, why),
        }
    }

    #[inline]
    fn reclass(&mut self, slot: Slot, class: Class) {
        match self {
            Self::SecondChance(order) => order.reclass(slot, class),
            Self::Joined(order) => order.reclass(slot, class),
        }
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        self.class_weights().note_costs(costs);
    }

    fn note_volumes(&mut self, firsts: &[u64]) {
        match self {
            Self::SecondChance(_) => {}
            Self::Joined(order) => order.note_volumes(firsts),
        }
    }

    fn fault(&self) -> Option<&SpecError> {
        match self {
            Self::SecondChance(_) => None,
            Self::Joined(order) => order.fault(),
        }
    }

    fn weights(&self) -> Vec<(String, f64)> {
        match self {
            Self::SecondChance(order) => order.class_weights.weights(),
            Self::Joined(order) => order.class_weights.weights(),
        }
    }

    fn review(&mut self) -> Option<BlockId> {
        match self {
            Self::SecondChance(_) => None,
            Self::Joined(order) => order.review(),
        }
    }

    fn resize(&mut self, slots: u32) {
        match self {
            Self::SecondChance(order) => order.resize(slots),
            Self::Joined(order) => order.resize(slots),
        }
    }

    fn order(&self) -> Vec<Slot> {
        match self {
            Self::SecondChance(order) => order.order(),
            Self::Joined(order) => order.order(),
        }
    }

    fn audit(&self, resident: u32) {
        match self {
            Self::SecondChance(order) => order.audit(resident),
            Self::Joined(order) => order.audit(resident),
        }
    }
}

impl SimulatorHints for Cost {
    fn number_blocks(&mut self, first: u64) {
        match self {
            Self::SecondChance(_) => {}
            Self::Joined(order) => order.number_blocks(first),
        }
    }
}

/// The paper's figure 3 on lists of (block, class, referenced), with the same credits.
#[cfg(test)]
mod reference {
    pub struct Cost {
        pub slots: usize,
        pub target: usize,
        pub weights: [f64; 4],
        pub credits: [f64; 4],
        pub active: [Vec<(u64, usize, bool)>; 4],
        pub inactive: Vec<(u64, usize, bool)>,
    }

    impl Cost {
        pub fn new(slots: usize, target: usize, weights: [f64; 4]) -> Self {
            Self {
                slots,
                target,
                weights,
                credits: [0.0; 4],
                active: Default::default(),
                inactive: Vec::new(),
            }
        }

        fn pull(&mut self) {
            let part = |class: usize| self.weights[class] * self.active[class].len() as f64;
            let all: f64 = (0..4).map(part).sum();
            let shares: Vec<f64> = (0..4).map(|class| part(class) / all).collect();
            let mut most = 4;
            for class in (0..4).filter(|&class| !self.active[class].is_empty()) {
                self.credits[class] += shares[class];
                if most == 4 || self.credits[class] > self.credits[most] {
                    most = class;
                }
            }
            self.credits[most] -= 1.0;
            let (block, class, _) = self.active[most].remove(0);
            self.inactive.push((block, class, false));
        }

        pub fn access(&mut self, block: u64, class: usize) -> bool {
            let active = self.active.iter_mut().flatten();
            let mut resident = active.chain(&mut self.inactive);
            if let Some(held) = resident.find(|held| held.0 == block) {
                (held.1, held.2) = (class, true);
                return true;
            }
            while self.resident().len() == self.slots {
                while self.inactive.len() < self.target && self.active.iter().any(|a| !a.is_empty())
                {
                    self.pull();
                }
                let oldest = self.inactive.remove(0);
                if oldest.2 {
                    self.active[oldest.1].push(oldest);
                }
            }
            self.active[class].push((block, class, true));
            false
        }

        pub fn resident(&self) -> Vec<u64> {
            let all = self.active.iter().flatten().chain(&self.inactive);
            all.map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fifo_second_chance;
    use super::class_weights::ClassWeights;
    use super::reference;
    use super::second_chance::SecondChance;
    use crate::contract::{carry_out_reviews, equals_reference, level_of};
    use crate::{
        Access, AccessKind, Arguments, BlockId, Class, Departure, Kind, Level, Outcome, PolicySpec,
        Prng, RegisteredPolicy, Shape, Slot,
    };
    use proptest::prelude::*;

    const OF: [Class; 2] = [Class::NORMAL, Class::REMOTE];

    fn second_chance(text: &str, slots: u32) -> SecondChance {
        let spec: PolicySpec = text.parse().expect("valid");
        let class_weights = ClassWeights::build(&mut Arguments::new(&spec)).expect("valid");
        SecondChance::new(class_weights, 1.0 / 3.0, &Shape { slots, seed: 1 })
    }

    /// 96 local clean blocks of weight 4 and 96 remote clean ones of weight 3: at first every
    /// seventh block comes from the far class, three times of seven.
    #[test]
    fn worked_example() {
        let mut cost = second_chance("cost", 192);
        for slot in 0..192 {
            let read = Access::read(BlockId::on_first(u64::from(slot)));
            cost.insert(Slot(slot), &read.classed(OF[slot as usize % 2]));
        }
        let classes: Vec<usize> = (0..7).filter_map(|_| cost.next_class()).collect();
        assert_eq!(classes, [0, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn with_one_class_equals_fifo_with_second_chance() {
        use fifo_second_chance::reference::FifoSecondChance;
        equals_reference("cost", |slots, _| FifoSecondChance {
            slots,
            target: 32,
            active: Vec::new(),
            inactive: Vec::new(),
        });
    }

    /// Section 3.2.2, figure 3: in the long run the classes give in proportion to weight × length.
    #[test]
    fn the_classes_give_by_weight_and_length() {
        let mut cost = second_chance("cost(local_clean=5,remote_clean=2)", 300);
        for slot in 0..300 {
            let class = OF[usize::from(slot < 100)];
            let read = Access::read(BlockId::on_first(u64::from(slot)));
            cost.insert(Slot(slot), &read.classed(class));
        }
        let mut given = [0u32; 4];
        for _ in 0..600 {
            given[cost.next_class().expect("not empty")] += 1;
        }
        // 5 × 200 against 2 × 100.
        assert_eq!(given, [500, 100, 0, 0]);
    }

    /// Four demoted blocks a class, of near and far stores in turn, at weights 3 and 1. A near block that is
    /// read goes first of its class, and three of four victims are near.
    #[test]
    fn joined_with_demotion_the_class_is_chosen_first_and_then_the_block() {
        let mut level = level_of("cost(exclusive,local_clean=3,remote_clean=1)", 8, 1);
        let demotion = |index: u64| {
            let demoted = Access::of(BlockId::on_first(index), AccessKind::Demotion);
            demoted.classed(OF[index as usize % 2])
        };
        for index in 0..8 {
            level.access(&demotion(index));
        }
        level.access(&Access::read(BlockId::on_first(4)));
        let mut evicted = |index| match level.access(&demotion(index)) {
            Outcome::Admitted { evicted, .. } => evicted.map(|victim| victim.block.index()),
            other => panic!("{other:?}"),
        };
        // Near blocks are even, far ones odd. Newcomers are near, demoted last and so the safest.
        assert_eq!(evicted(10), Some(4), "near, and just read");
        assert_eq!(evicted(12), Some(0), "near, and demoted first");
        assert_eq!(evicted(14), Some(1), "far, and demoted first");
        assert_eq!(evicted(16), Some(2));
    }

    /// What directory, cost and exclusive decide together on blocks of one class, none of them protected.
    #[test]
    fn with_one_class_and_nothing_protected_the_joined_rules_are_the_inner_policy() {
        for inner in [
            "exclusive",
            "exclusive(keep_served=true)",
            "exclusive(lfu)",
            "lru",
            "arc",
            "random",
        ] {
            for around in ["cost(INNER)", "directory(cost(INNER))", "directory(INNER)"] {
                let joined = around.replace("INNER", inner);
                for seed in 1..20 {
                    same_decisions(&joined, inner, seed);
                }
            }
        }
    }

    fn same_decisions(one: &str, other: &str, seed: u64) {
        let mut prng = Prng::new(seed);
        let slots = 1 + prng.below(20) as u32;
        let mut levels = [one, other].map(|text| level_of(text, slots, seed));
        for step in 0..1500 {
            let block = BlockId::on_first(prng.below(3 * u64::from(slots)));
            let what = prng.below(30);
            let resized = 1 + prng.below(20) as u32;
            let [joined, alone] =
                levels
                    .each_mut()
                    .map(|level: &mut Level<Box<dyn RegisteredPolicy>>| {
                        let kind = match what {
                            0 => {
                                let gone = level.resize(resized);
                                return format!("{gone:?}");
                            }
                            1 => {
                                return format!(
                                    "{:?}",
                                    level.remove(block, Departure::Invalidated)
                                );
                            }
                            2..=12 => AccessKind::Demotion,
                            13 => AccessKind::Notice,
                            14..=17 => AccessKind::Write,
                            _ => AccessKind::Read,
                        };
                        let outcome = level.access(&Access::of(block, kind));
                        carry_out_reviews(level);
                        level.audit();
                        format!("{outcome:?}")
                    });
            assert_eq!(joined, alone, "{one} and {other}, seed {seed}, step {step}");
        }
        assert_eq!(
            levels[0].order(),
            levels[1].order(),
            "{one} and {other}, seed {seed}"
        );
    }

    proptest! {
        #[test]
        fn equals_its_reference_model(
            slots in 1u32..60,
            steps in prop::collection::vec((0u64..80, 0usize..4), 0..900),
        ) {
            let mut level = level_of("cost(inactive=0,local_clean=2.5)", slots, 1);
            let mut model = reference::Cost::new(slots as usize, 32, [2.5, 3.0, 2.0, 1.0]);
            for (index, class) in steps {
                let mut marks = OF[class % 2];
                if class > 1 {
                    marks = marks.with(Class::DIRTY);
                }
                let block = BlockId::on_first(index);
                // A dirty block stays dirty until it is written.
                let clean = level.find(block).map(|slot| level.class_in(slot).without(Class::DIRTY));
                if let Some(clean) = clean {
                    level.reclass(block, clean);
                }
                let outcome = level.access(&Access::read(block).classed(marks));
                prop_assert_eq!(matches!(outcome, Outcome::Hit(_)), model.access(index, class));
                let mut held: Vec<u64> = level.order().into_iter().map(BlockId::index).collect();
                let mut expected = model.resident();
                held.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(held, expected);
            }
        }

        /// Any policy can order the blocks of a class, and a shrink takes what would have gone next.
        #[test]
        fn any_inner_order_obeys_the_contract(
            inner in prop::sample::select(Kind::ALL),
            steps in prop::collection::vec((0u64..24, 0u8..9, 0usize..4), 0..300),
        ) {
            let mut level = level_of(&format!("cost({},classes=nfs)", inner.name()), 6, 1);
            for (index, what, class) in steps {
                let class = [Class::NORMAL, Class::REMOTE, Class::DIRTY, Class::of_store(1)][class];
                let block = BlockId::on_first(index);
                match what {
                    0 => level.reclass(block, class),
                    1 => drop(level.resize(1 + index as u32 % 8)),
                    2 => drop(level.access(&Access::of(block, AccessKind::Demotion).classed(class))),
                    _ => drop(level.access(&Access::read(block).classed(class))),
                }
                level.audit();
            }
        }
    }
}
