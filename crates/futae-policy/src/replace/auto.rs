//! Auto: keeps small copies of several policies, and orders the cache by the one that hits most.
//!
//! # Source
//! Waldspurger, Saemundsson, Ahmad and Park, "Cache modeling and optimization using miniature
//! simulations", USENIX ATC 2017, sections 3 and 5 (samples by hash, the best of several); the choice
//! among policies with a margin and the hand-over are futae's own.
//! # Picture
//! each request → the order in force; a sample of the blocks → [ shadow of each candidate, names only ]
//! → hits of late → the order in force
//! # Transitions
//! hit, miss, victim: those of the order in force; a sampled block goes to every shadow, too | after a
//! period of sampled requests: counts of hits lose a quarter, and a candidate that is ahead of the
//! order in force by the margin replaces it; the new order is given the resident blocks in the old one's
//! order, so nothing is evicted
//! # Parameters
//! margin 0.01: a candidate takes over if its hit ratio of late is higher by this
//! shadow 0.01: all shadows together name this share of the slots, if that is enough
//! least 1024: a shadow has at least this many blocks, or as many as there are slots
//! # Deviations
//! the candidates are written inside, `auto(lru,arc,exclusive)`, the first is in force at the start; the
//! published tool tunes parameters of one policy. By itself: lru, mru, lfu, 2q, arc, lirs, w-tinylfu,
//! s3-fifo, sieve. Hits are judged, not costs
//! # Cost
//! O(1) an access beside a hand-over, which is O(slots); the order in force and 10 bytes a slot; a
//! shadow's block costs what a slot of its policy costs, and about 30 bytes

mod shadows;

use crate::structures::Table;
use crate::{
    Access, AccessKind, Admission, Arguments, BlockId, Class, Departure, Policy, PolicySpec,
    RegisteredPolicy, Shape, SimulatorHints, Slot, SpecError, StoreCosts,
};
use shadows::{Sampling, Shadows};
use std::collections::VecDeque;

const CANDIDATES: [&str; 9] = [
    "lru",
    "mru",
    "lfu",
    "2q",
    "arc",
    "lirs",
    "w-tinylfu",
    "s3-fifo",
    "sieve",
];

/// Changes that are remembered.
const CHANGES_MAX: usize = 64;

/// One change of the order in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Accesses before it.
    pub tick: u64,
    /// The order until then.
    pub from: String,
    /// The order from then on.
    pub to: String,
    /// Hit ratio of late of the shadow of the old order.
    pub from_ratio: f64,
    /// Hit ratio of late of the shadow of the new order.
    pub to_ratio: f64,
}

/// The order in force, and shadows of all candidates.
pub struct Auto {
    shape: Shape,
    margin: f64,
    candidates: Vec<PolicySpec>,
    chosen: usize,
    order: Box<dyn RegisteredPolicy>,
    names: Table<BlockId>,
    classes: Table<Class>,
    shadows: Shadows,
    /// First number of the blocks, if they are numbered.
    numbered: Option<u64>,
    costs: Option<StoreCosts>,
    changes: VecDeque<Change>,
}

/// Builds the policy; its parameters are `margin`, `shadow`, `least` and the candidates.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Auto, SpecError> {
    let margin = arguments.share("margin", 0.01)?;
    let sampling = Sampling {
        share: arguments.share("shadow", 0.01)?,
        least: arguments.count("least", 1024, 1)?,
    };
    let mut candidates: Vec<PolicySpec> = std::iter::from_fn(|| arguments.inner()).collect();
    if candidates.is_empty() {
        candidates.extend(CANDIDATES.map(PolicySpec::plain));
    }
    if let Some(loading) = candidates.iter().find(|it| it.needs_volume_size()) {
        return Err(SpecError::BadValue {
            policy: "auto".to_owned(),
            key: "inner".to_owned(),
            value: loading.to_string(),
            expected: "a policy that loads nothing unasked".to_owned(),
        });
    }
    Ok(Auto {
        shape: *shape,
        margin,
        chosen: 0,
        order: crate::build(&candidates[0], shape)?,
        names: Table::new(shape.slots),
        classes: Table::new(shape.slots),
        shadows: Shadows::new(sampling, &candidates, shape)?,
        candidates,
        numbered: None,
        costs: None,
        changes: VecDeque::new(),
    })
}

impl Auto {
    /// The latest changes of the order in force, oldest first.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter()
    }

    #[inline]
    fn judge(&mut self, access: &Access) {
        if self.shadows.access(access) {
            self.reconsider(access.tick);
        }
    }

    /// Has the best candidate take over, if it is ahead by the margin.
    fn reconsider(&mut self, tick: u64) {
        let ratios = self.shadows.close_period();
        let from = self.chosen;
        let mut best = from;
        for (at, ratio) in ratios.iter().enumerate() {
            if *ratio > ratios[best] {
                best = at;
            }
        }
        if ratios[best] < ratios[from] + self.margin {
            return;
        }
        // It was built from the same string before.
        let Ok(order) = crate::build(&self.candidates[best], &self.shape) else {
            return;
        };
        let change = Change {
            tick,
            from: self.candidates[from].to_string(),
            to: self.candidates[best].to_string(),
            from_ratio: ratios[from],
            to_ratio: ratios[best],
        };
        tracing::info!(
            tick,
            from = change.from,
            to = change.to,
            from_hit_ratio = change.from_ratio,
            to_hit_ratio = change.to_ratio,
            "the order of the cache changes"
        );
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
        self.hand_over(best, order);
    }

    fn hand_over(&mut self, to: usize, order: Box<dyn RegisteredPolicy>) {
        let old = std::mem::replace(&mut self.order, order);
        self.chosen = to;
        if let Some(first) = self.numbered {
            self.order.number_blocks(first);
        }
        if let Some(costs) = &self.costs {
            self.order.note_costs(costs);
        }
        for slot in old.order().into_iter().rev() {
            let access = Access::of(self.names.get(slot), AccessKind::Preload);
            self.order
                .insert(slot, &access.classed(self.classes.get(slot)));
        }
    }
}

impl Policy for Auto {
    fn miss(&mut self, access: &Access) -> Admission {
        self.judge(access);
        self.order.miss(access)
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.names.set(slot, access.block);
        self.classes.set(slot, access.class);
        self.order.insert(slot, access);
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        if access.class != Class::NORMAL || self.classes.get(slot) != Class::NORMAL {
            self.classes.set(slot, access.class);
        }
        self.order.hit(slot, access);
        self.judge(access);
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        self.order.victim(incoming)
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.order.surplus()
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Invalidated {
            self.shadows.forget(self.names.get(slot));
        }
        self.order.remove(slot, why);
    }

    fn reclass(&mut self, slot: Slot, class: Class) {
        self.classes.set(slot, class);
        self.order.reclass(slot, class);
    }

    fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        self.classes.set(slot, access.class);
        self.order.reclass_at_once(slot, access);
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        self.costs = Some(costs.clone());
        self.order.note_costs(costs);
    }

    fn weights(&self) -> Vec<(String, f64)> {
        self.order.weights()
    }

    fn resize(&mut self, slots: u32) {
        self.shape.slots = slots;
        self.order.resize(slots);
        self.shadows.resize(slots);
    }

    fn order(&self) -> Vec<Slot> {
        self.order.order()
    }

    fn rank(&self, slot: Slot) -> u64 {
        self.order.rank(slot)
    }

    fn audit(&self, resident: u32) {
        self.order.audit(resident);
        self.shadows.audit();
    }
}

impl SimulatorHints for Auto {
    fn number_blocks(&mut self, first: u64) {
        self.numbered = Some(first);
        self.order.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.order.glance(block)
    }

    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.order.foresee(ahead)
    }
}

#[cfg(test)]
mod tests;
