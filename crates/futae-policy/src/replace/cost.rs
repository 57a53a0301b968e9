//! Cost: FIFO with second chance in which blocks that are cheap to get back age faster.
//!
//! # Source
//! Sudo and others (Canon) 1993, multi-level FIFO with second chance (SPEC 5.2).
//! # Picture
//! new → [ active of its class, fifo ] ×4 → by weight × length, mark off → [ inactive, fifo ] →
//! marked: back to active of its class | else victim
//! # Transitions
//! hit: mark | miss: to the end of active of its class | victim: inactive is filled to its target,
//! each block from the class with most credit; then its front is looked at, until one is not
//! marked | class changes: the block moves when it next enters an active queue (SPEC 5.3d)
//! # Parameters
//! local_clean 4: weight of clean blocks of a near store; more goes sooner, only ratios count
//! remote_clean 3: weight of clean blocks of a far store
//! local_dirty 2: weight of blocks that must be written to a near store first
//! remote_dirty 1: weight of blocks that must be written to a far store first
//! weights: the same four as one list, `local-clean:2,remote-dirty:1`, or `measured`: live, from what
//! reads and writes of the stores take, 1 / (read + write if dirty), between 1/8 and 8 (SPEC 5.3f)
//! inactive 0.333333: target length of inactive as a share of the slots (at least 32 blocks)
//! # Deviations
//! shares that are no whole numbers are carried as credits (SPEC 5.3a), sampled for every block
//! (5.3b). The paper gives no weights, only the order of the classes, and best weights of 2 for
//! clean and 4 for remote text against 1
//! # Cost
//! O(1) an access, amortised; 11 bytes a slot

use super::fifo_second_chance::LEAST_INACTIVE;
use crate::furniture::{Queues, Table};
use crate::policy::order_by_evicting;
use crate::{
    Access, Arguments, BlockCost, Class, Departure, Policy, Shape, Slot, SpecError, StoreCosts,
};
use std::str::FromStr;

const CLASSES: usize = 4;
const INACTIVE: usize = CLASSES;

/// What is known of a resident block.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    referenced: bool,
    class: u8,
}

/// An active queue a class, and one inactive queue.
#[derive(Clone, Debug)]
pub struct Cost {
    weights: [f64; CLASSES],
    credits: [f64; CLASSES],
    inactive_share: f64,
    inactive_target: u32,
    /// Whether the weights follow what the stores are found to cost.
    is_measured: bool,
    queues: Queues,
    known: Table<Known>,
}

/// The classes, in the order of their queues.
const NAMES: [&str; CLASSES] = ["local-clean", "remote-clean", "local-dirty", "remote-dirty"];
/// Measured weights stay between this and its inverse.
const WEIGHT_MAX: f64 = 8.0;

/// What `weights=` says.
enum Weights {
    Measured,
    Given([Option<f64>; CLASSES]),
}

impl FromStr for Weights {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "measured" {
            return Ok(Self::Measured);
        }
        let mut given = [None; CLASSES];
        for part in text.split(',') {
            let (name, weight) = part.split_once(':').ok_or(())?;
            let class = NAMES
                .iter()
                .position(|known| *known == name.trim())
                .ok_or(())?;
            let weight: f64 = weight.trim().parse().map_err(|_| ())?;
            if !is_weight(weight) || given[class].replace(weight).is_some() {
                return Err(());
            }
        }
        Ok(Self::Given(given))
    }
}

fn is_weight(weight: f64) -> bool {
    weight > 0.0 && weight <= 1000.0
}

/// Builds the policy; its parameters are the four weights and `inactive`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Cost, SpecError> {
    let mut weight = |key, default: f64| {
        let weight = arguments.take(key, "a number above 0, up to 1000", |weight: &f64| {
            is_weight(*weight)
        })?;
        Ok(weight.unwrap_or(default))
    };
    let mut weights = [
        weight("local_clean", 4.0)?,
        weight("remote_clean", 3.0)?,
        weight("local_dirty", 2.0)?,
        weight("remote_dirty", 1.0)?,
    ];
    let expected = "`measured`, or a list such as local-clean:2,remote-clean:1 of the classes \
                    local-clean, remote-clean, local-dirty, remote-dirty";
    let listed = arguments.take("weights", expected, |_: &Weights| true)?;
    if let Some(Weights::Given(given)) = &listed {
        for (weight, given) in weights.iter_mut().zip(given) {
            *weight = given.unwrap_or(*weight);
        }
    }
    let mut policy = Cost {
        weights,
        credits: [0.0; CLASSES],
        inactive_share: arguments.share("inactive", 1.0 / 3.0)?,
        inactive_target: LEAST_INACTIVE,
        is_measured: matches!(listed, Some(Weights::Measured)),
        queues: Queues::new(CLASSES + 1, shape.slots),
        known: Table::new(shape.slots),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

/// The active queue of a class: local clean, remote clean, local dirty, remote dirty.
fn level_of(class: Class) -> u8 {
    u8::from(class.has(Class::REMOTE)) + 2 * u8::from(class.has(Class::DIRTY))
}

/// Each class's 1 / (read, and write if dirty), against the geometric mean of those known.
fn weights_of(costs: &StoreCosts) -> [f64; CLASSES] {
    let clean = |cost: Option<BlockCost>| cost.map(|cost| 1.0 / cost.read_micros.max(0.01));
    let dirty = |cost: Option<BlockCost>| {
        cost.map(|cost| 1.0 / (cost.read_micros + cost.write_micros).max(0.01))
    };
    let (near, far) = (costs.local, costs.remote);
    let raw = [clean(near), clean(far), dirty(near), dirty(far)];
    let known: Vec<f64> = raw.iter().flatten().map(|weight| weight.ln()).collect();
    let mean = (known.iter().sum::<f64>() / known.len().max(1) as f64).exp();
    raw.map(|weight| {
        weight.map_or(1.0, |weight| {
            (weight / mean).clamp(1.0 / WEIGHT_MAX, WEIGHT_MAX)
        })
    })
}

impl Cost {
    /// The class that gives the next block to inactive; all classes are credited their shares.
    fn next_class(&mut self) -> Option<usize> {
        let parts = std::array::from_fn::<f64, CLASSES, _>(|class| {
            self.weights[class] * f64::from(self.queues.len(class))
        });
        let all: f64 = parts.iter().sum();
        let mut next: Option<usize> = None;
        for (class, part) in parts.iter().enumerate() {
            if self.queues.is_empty(class) {
                continue;
            }
            self.credits[class] += part / all;
            if next.is_none_or(|next| self.credits[class] > self.credits[next]) {
                next = Some(class);
            }
        }
        self.credits[next?] -= 1.0;
        next
    }

    fn refill(&mut self) {
        while self.queues.len(INACTIVE) < self.inactive_target {
            let Some(oldest) = self.next_class().and_then(|class| self.queues.front(class)) else {
                return;
            };
            self.known.at(oldest).referenced = false;
            self.queues.remove(oldest);
            self.queues.push_back(INACTIVE, oldest);
        }
    }
}

impl Policy for Cost {
    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let class = level_of(access.class);
        self.queues.push_back(usize::from(class), slot);
        let known = Known {
            referenced: true,
            class,
        };
        self.known.set(slot, known);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let class = level_of(access.class);
        let known = Known {
            referenced: true,
            class,
        };
        self.known.set(slot, known);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        loop {
            self.refill();
            let oldest = self.queues.front(INACTIVE)?;
            let known = self.known.get(oldest);
            if !known.referenced {
                return Some(oldest);
            }
            self.queues.remove(oldest);
            self.queues.push_back(usize::from(known.class), oldest);
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.queues.remove(slot);
    }

    #[inline]
    fn reclass(&mut self, slot: Slot, class: Class) {
        self.known.at(slot).class = level_of(class);
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        if self.is_measured {
            self.weights = weights_of(costs);
        }
    }

    fn weights(&self) -> Vec<(&'static str, f64)> {
        NAMES.into_iter().zip(self.weights).collect()
    }

    fn resize(&mut self, slots: u32) {
        let share = (f64::from(slots) * self.inactive_share) as u32;
        self.inactive_target = share.max(LEAST_INACTIVE);
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        assert!(
            self.credits
                .iter()
                .all(|credit| credit.abs() < CLASSES as f64)
        );
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
    use super::{CLASSES, Cost, reference};
    use crate::contract::{equals_reference, level_of};
    use crate::{
        Access, Arguments, BlockCost, BlockId, Class, Outcome, Policy, PolicySpec, Shape, Slot,
        StoreCosts,
    };
    use proptest::prelude::*;

    const OF: [Class; 2] = [Class::NORMAL, Class::REMOTE];

    fn policy(text: &str, slots: u32) -> Cost {
        let spec: PolicySpec = text.parse().expect("valid");
        let shape = Shape { slots, seed: 1 };
        super::build(&mut Arguments::new(&spec), &shape).expect("valid")
    }

    /// 96 local clean blocks of weight 4 and 96 remote clean ones of weight 3: at first every
    /// seventh block comes from the far class, three times of seven.
    #[test]
    fn worked_example() {
        let mut cost = policy("cost", 192);
        for slot in 0..192 {
            let read = Access::read(BlockId::on_first(u64::from(slot)));
            cost.insert(Slot(slot), &read.classed(OF[slot as usize % 2]));
        }
        let classes: Vec<usize> = (0..7).filter_map(|_| cost.next_class()).collect();
        assert_eq!(classes, [0, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn weights_are_read_as_one_list() {
        let given = policy(
            "cost(weights=local-clean:2, remote-dirty:0.5,inactive=0.2)",
            64,
        );
        assert_eq!(given.weights, [2.0, 3.0, 2.0, 0.5]);
        assert_eq!(given.inactive_share, 0.2);
        for text in [
            "far:1",
            "local-clean",
            "local-clean:0",
            "local-clean:1,local-clean:2",
        ] {
            let spec: PolicySpec = format!("cost(weights={text})")
                .parse()
                .expect("well formed");
            let shape = Shape { slots: 64, seed: 1 };
            let built = super::build(&mut Arguments::new(&spec), &shape);
            let error = built.expect_err(text).to_string();
            assert!(error.contains("measured"), "{error}");
        }
    }

    #[test]
    fn measured_weights_follow_the_costs_and_are_bounded() {
        let cost = |read_micros, write_micros| BlockCost {
            read_micros,
            write_micros,
        };
        let mut measured = policy("cost(weights=measured)", 64);
        measured.note_costs(&StoreCosts {
            local: Some(cost(100.0, 100.0)),
            remote: Some(cost(400.0, 400.0)),
        });
        // 1/100, 1/400, 1/200, 1/800: each is a half, or a quarter, of another.
        let expected = [8f64.sqrt(), 0.5f64.sqrt(), 2f64.sqrt(), 0.125f64.sqrt()];
        for (weight, expected) in measured.weights.iter().zip(expected) {
            assert!((weight - expected).abs() < 1e-9, "{:?}", measured.weights);
        }
        measured.note_costs(&StoreCosts {
            local: Some(cost(10.0, 10.0)),
            remote: Some(cost(20_000.0, 20_000.0)),
        });
        assert_eq!(measured.weights, [8.0, 0.125, 8.0, 0.125]);
        measured.note_costs(&StoreCosts {
            local: Some(cost(10.0, 0.0)),
            remote: None,
        });
        let is_one = |weight: &f64| (weight - 1.0).abs() < 1e-9;
        assert!(
            measured.weights.iter().all(is_one),
            "{:?}",
            measured.weights
        );
        let mut by_hand = policy("cost", 64);
        by_hand.note_costs(&StoreCosts::default());
        assert_eq!(by_hand.weights, [4.0, 3.0, 2.0, 1.0]);
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

    /// SPEC 5.4: in the long run the classes give in proportion to weight × length.
    #[test]
    fn the_classes_give_by_weight_and_length() {
        let mut cost = policy("cost(local_clean=5,remote_clean=2)", 300);
        for slot in 0..300 {
            let class = OF[usize::from(slot < 100)];
            let read = Access::read(BlockId::on_first(u64::from(slot)));
            cost.insert(Slot(slot), &read.classed(class));
        }
        let mut given = [0u32; CLASSES];
        for _ in 0..600 {
            given[cost.next_class().expect("not empty")] += 1;
        }
        // 5 × 200 against 2 × 100.
        assert_eq!(given, [500, 100, 0, 0]);
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
    }
}
