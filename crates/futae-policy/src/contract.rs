//! The contract test that every registered policy must pass, and the comparison of policies with
//! their reference models.

use crate::{
    Access, AccessKind, BlockId, Class, Departure, HashIndex, Index, Kind, Level, Outcome, Policy,
    PolicySpec, Prng, RegisteredPolicy, Shape, build,
};
use std::collections::BTreeMap;

/// The published procedure, written plainly: blocks by number, linear search.
pub trait Reference {
    /// Performs one access; returns whether it hit.
    fn access(&mut self, block: u64) -> bool;
    /// The resident blocks, in any order.
    fn resident(&self) -> Vec<u64>;
}

/// As [`Reference`], for a policy of a lower level.
pub trait LowerReference {
    /// The upper level reads the block; returns whether it hit.
    fn read(&mut self, block: u64) -> bool;
    /// The upper level demotes the block.
    fn demote(&mut self, block: u64);
    /// The resident blocks, in any order.
    fn resident(&self) -> Vec<u64>;
}

/// A level run by the policy that `text` names.
pub fn level_of(text: &str, slots: u32, seed: u64) -> Level<Box<dyn RegisteredPolicy>> {
    let spec: PolicySpec = text.parse().expect("a policy string");
    let policy = build(&spec, &Shape { slots, seed }).expect("a known policy");
    Level::new(policy, HashIndex::default(), slots)
}

/// The level after the given reads.
pub fn run(text: &str, slots: u32, seed: u64, reads: &[u64]) -> Level<Box<dyn RegisteredPolicy>> {
    let mut level = level_of(text, slots, seed);
    for &index in reads {
        level.access(&Access::read(BlockId::on_first(index)));
        carry_out_reviews(&mut level);
        level.audit();
    }
    level
}

/// Places at once the blocks that the policy requests itself.
pub fn carry_out_reviews<P: Policy, I: Index>(level: &mut Level<P, I>) {
    while let Some(block) = level.review() {
        level.access(&Access::of(block, AccessKind::Preload));
    }
}

/// The blocks in order after the given reads: safest first, next victim last.
pub fn order_after(text: &str, slots: u32, reads: &[u64]) -> Vec<u64> {
    run(text, slots, 1, reads)
        .order()
        .into_iter()
        .map(BlockId::index)
        .collect()
}

/// Compares a policy with its reference model: hits and residency, access by access, over uniform,
/// skewed and looping reads at many sizes.
pub fn equals_reference<R: Reference>(text: &str, make: impl Fn(usize, u64) -> R) {
    for slots in [1u32, 2, 3, 4, 5, 7, 8, 13, 16, 24] {
        for seed in 1..25u64 {
            let mut prng = Prng::new(seed.wrapping_mul(977) + u64::from(slots));
            let mut level = level_of(text, slots, seed);
            let mut model = make(slots as usize, seed);
            let blocks = 1 + prng.below(3 * u64::from(slots) + 2);
            for step in 0..1200u64 {
                let index = match seed % 3 {
                    0 => prng.below(blocks),
                    1 => {
                        let limit = 1 + prng.below(blocks);
                        prng.below(limit)
                    }
                    _ if prng.below(8) == 0 => prng.below(blocks),
                    _ => step % blocks,
                };
                let hit = matches!(
                    level.access(&Access::read(BlockId::on_first(index))),
                    Outcome::Hit(_)
                );
                let at = format!("{text}: {slots} slots, seed {seed}, step {step}, block {index}");
                carry_out_reviews(&mut level);
                assert_eq!(hit, model.access(index), "{at}");
                let mut held: Vec<u64> = level.order().into_iter().map(BlockId::index).collect();
                let mut expected = model.resident();
                held.sort_unstable();
                expected.sort_unstable();
                assert_eq!(held, expected, "{at}");
            }
        }
    }
}

/// The blocks of a level in order, safest first.
pub fn lower_order(level: &Level<Box<dyn RegisteredPolicy>>) -> Vec<u64> {
    level.order().into_iter().map(BlockId::index).collect()
}

/// As [`equals_reference`], below an LRU level that demotes its evictions, interspersed with random
/// demotions.
pub fn equals_lower_reference<R: LowerReference>(text: &str, make: impl Fn(usize, u64) -> R) {
    for slots in [1u32, 2, 3, 5, 8, 13, 24] {
        for seed in 1..25u64 {
            let mut prng = Prng::new(seed.wrapping_mul(991) + u64::from(slots));
            let mut level = level_of(text, slots, seed);
            let mut model = make(slots as usize, seed);
            let (mut above, above_slots) = (Vec::new(), prng.below(2 * u64::from(slots)) as usize);
            let blocks = 1 + prng.below(4 * u64::from(slots) + 2);
            for step in 0..1200u64 {
                let index = match seed % 3 {
                    0 => prng.below(blocks),
                    1 => {
                        let limit = 1 + prng.below(blocks);
                        prng.below(limit)
                    }
                    _ => step % blocks,
                };
                let at = format!("{text}: {slots} slots, seed {seed}, step {step}, block {index}");
                let held_above = above.iter().position(|&held| held == index);
                if let Some(place) = held_above {
                    above.remove(place);
                } else {
                    let outcome = level.access(&Access::read(BlockId::on_first(index)));
                    let hit = matches!(outcome, Outcome::Hit(_));
                    assert_eq!(hit, model.read(index), "{at}");
                }
                above.push(index);
                let is_stray = prng.below(16) == 0;
                if above.len() > above_slots || is_stray {
                    let demoted = match is_stray {
                        true => prng.below(blocks),
                        false => above.remove(0),
                    };
                    let block = BlockId::on_first(demoted);
                    level.access(&Access::of(block, AccessKind::Demotion));
                    model.demote(demoted);
                }
                level.audit();
                let mut held = lower_order(&level);
                let mut expected = model.resident();
                held.sort_unstable();
                expected.sort_unstable();
                assert_eq!(held, expected, "{at}");
            }
        }
    }
}

/// Checks the contract between the level and the policy. Residency and classes equal those of a
/// plain map under reads, writes, demotions, notices, removals, class changes and resizes. The
/// victim is the one that `order` names, if a miss does not change the policy's choice. No audit
/// fails.
pub fn check(kind: Kind) {
    for seed in 1..40u64 {
        Run::new(kind, seed).go_on(3000);
    }
}

/// A level beside a plain map, under random operations.
pub struct Run {
    level: Level<Box<dyn RegisteredPolicy>>,
    model: BTreeMap<BlockId, Class>,
    prng: Prng,
    seed: u64,
    requests: u64,
    hits: u64,
}

impl Run {
    /// An empty level of 1 to 16 slots.
    pub fn new(kind: Kind, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let capacity = 1 + prng.below(16) as u32;
        Self {
            level: level_of(kind.name(), capacity, seed),
            model: BTreeMap::new(),
            prng,
            seed,
            requests: 0,
            hits: 0,
        }
    }

    /// Changes the level's policy, and checks that the set of resident blocks stays the same.
    pub fn change_policy(&mut self, kind: Kind) {
        let spec = PolicySpec::of(kind);
        let shape = Shape {
            slots: self.level.capacity(),
            seed: self.seed,
        };
        let policy = build(&spec, &shape).expect("needs no parameters");
        self.level.change_policy(policy, spec.handover_kind());
        self.compare();
    }

    /// Performs this many random operations and checks each.
    pub fn go_on(&mut self, operations: u32) {
        for _ in 0..operations {
            let block = BlockId::on_first(self.prng.below(48));
            let class =
                [Class::NORMAL, Class::PROTECTED, Class::REMOTE][self.prng.below(3) as usize];
            match self.prng.below(40) {
                0 => {
                    let why =
                        [Departure::Promoted, Departure::Invalidated][self.prng.below(2) as usize];
                    let gone = self.level.remove(block, why).map(|victim| victim.class);
                    assert_eq!(gone, self.model.remove(&block));
                }
                1 => {
                    self.level.reclass(block, class);
                    if let Some(held) = self.model.get_mut(&block) {
                        *held = class;
                    }
                }
                2 => {
                    let capacity = 1 + self.prng.below(16) as u32;
                    for victim in self.level.resize(capacity) {
                        assert_eq!(self.model.remove(&victim.block), Some(victim.class));
                    }
                }
                n => {
                    let is_demand = !(3..=PRELOAD).contains(&n);
                    self.requests += u64::from(is_demand);
                    self.hits += u64::from(is_demand && self.model.contains_key(&block));
                    step(&mut self.level, &mut self.model, block, class, n);
                }
            }
            while let Some(block) = self.level.review() {
                step(&mut self.level, &mut self.model, block, class, PRELOAD);
            }
            self.compare();
        }
        let counters = self.level.counters();
        let expected = (self.requests, self.hits);
        assert_eq!((counters.requests, counters.hits), expected);
        assert_eq!(counters.misses, self.requests - self.hits);
        assert!(counters.admissions >= counters.evictions);
    }

    fn compare(&self) {
        assert_eq!(self.level.resident() as usize, self.model.len());
        for (block, class) in &self.model {
            let slot = self.level.find(*block).expect("resident in the model");
            assert_eq!(
                (self.level.block_in(slot), self.level.class_in(slot)),
                (*block, *class)
            );
        }
        self.level.audit();
    }
}

const PRELOAD: u64 = 7;

fn step(
    level: &mut Level<Box<dyn RegisteredPolicy>>,
    model: &mut BTreeMap<BlockId, Class>,
    block: BlockId,
    class: Class,
    n: u64,
) {
    let kind = match n {
        3..=5 => AccessKind::Demotion,
        6 => AccessKind::Notice,
        PRELOAD => AccessKind::Preload,
        8..=12 => AccessKind::Write,
        _ => AccessKind::Read,
    };
    let before = level.resident();
    match level.access(&Access::of(block, kind).classed(class)) {
        Outcome::Hit(_) => {
            *model.get_mut(&block).expect("a hit is resident") = class;
        }
        Outcome::Admitted { evicted, slot } => {
            assert_eq!(level.find(block), Some(slot));
            assert!(
                evicted.is_none() || before == level.capacity(),
                "evicted while not full"
            );
            if let Some(victim) = evicted {
                assert_eq!(model.remove(&victim.block), Some(victim.class));
            }
            assert!(
                model.insert(block, class).is_none(),
                "admitted though resident"
            );
        }
        Outcome::Bypassed => assert!(!model.contains_key(&block)),
    }
}
