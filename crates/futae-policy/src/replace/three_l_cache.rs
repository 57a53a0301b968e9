//! 3L-Cache: learned, but the forest of trees evaluates only a few candidates, and each evaluation serves
//! many evictions.
//!
//! # Source
//! Zhou, Niu, Xiong, Fang and Wang, "3L-Cache: low overhead and precise learning-based eviction policy for
//! caches", FAST 2025. The paper was not at hand; followed is what libCacheSim's 3LCache does, by its
//! objective of the object miss ratio for objects of one size, read as a description
//! # Picture
//! [ oldest ... scan position → ... newest ] → candidates → forest → heap by next use → victim
//! # Transitions
//! hit: to the newest end; the earlier prediction for it is discarded | miss: placed at the newest end |
//! each use: labels a waiting sample of the block, one in four; once blocks were evicted, a random block,
//! resident or with a ghost entry, becomes a sample unless one of it waits | victim: the candidate whose
//! next use is predicted to be the latest; until there is a forest, the oldest. When half of the candidates
//! are gone, new ones are taken: new blocks, if they are more than a share of the cache, and blocks from
//! the scan position on that were used rarely or are among the oldest. After a round the shares are adapted
//! by the origin of the victims
//! # Parameters
//! window 2: ghost entries are (window − 1) × slots; at most 16
//! labels 4096: labels from which a forest is trained
//! # Deviations
//! 16 trees of depth 4 trained from 4,096 labels (see `lrb`), in place of LightGBM's 16 trees of 32 leaves
//! from 65,536; the window is a parameter, where 3L-Cache tunes it between 2 and 6; there are no sizes
//! # Cost
//! O(log candidates) per eviction, 64 steps per candidate, and some milliseconds to train a forest; 90
//! bytes per slot, about 76 per ghost entry

use super::lrb::{Uses, label};
use crate::policy::order_by_evicting;
use crate::structures::{Features, Forest, Ghosts, Heap, MissNote, Pool, Queues, Real, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Prng, Shape, SimulatorHints, Slot,
    SpecError,
};

#[cfg(test)]
mod reference;
mod scan;

use scan::{ORDER, Scan};

/// One use in this many labels a sample, once there is a forest.
const LABEL_ONE_IN: u64 = 4;
/// Candidates for each victim.
const CANDIDATES_A_VICTIM: u32 = 2;

/// A sample that waits for its label.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    features: Features,
    since: u64,
}

/// The forest, its candidates, and the recorded uses of blocks.
#[derive(Clone, Debug)]
pub struct ThreeLCache {
    /// Oldest first.
    order: Queues,
    held: Pool,
    uses: Table<Uses>,
    names: Table<BlockId>,
    past: Ghosts<Uses>,
    found: MissNote<Uses>,
    window: f64,
    labels_wanted: usize,
    now: u64,
    prng: Prng,
    waiting: Ghosts<Waiting>,
    labelled: Vec<(Features, f32)>,
    forest: Option<Forest>,
    /// Candidates by their expected next use, latest first.
    expected: Heap<(Real, BlockId)>,
    /// Victims that these candidates still serve.
    victims_left: u32,
    scan: Scan,
    has_evicted: bool,
    /// How long blocks that were not used again were remembered: when the forest was built, and the
    /// longest since.
    forgotten_after: [u64; 2],
}

/// Builds the policy; its parameters are `window` and `labels`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<ThreeLCache, SpecError> {
    let window = arguments.take("window", "a number from 1 to 16", |window: &f64| {
        (1.0..=16.0).contains(window)
    })?;
    let labels = arguments.take("labels", "a number from 16 to 1000000", |n: &usize| {
        (16..=1_000_000).contains(n)
    })?;
    let mut policy = ThreeLCache {
        order: Queues::new(1, shape.slots),
        held: Pool::new(shape.slots),
        uses: Table::new(shape.slots),
        names: Table::new(shape.slots),
        past: Ghosts::new(0),
        found: MissNote::new(),
        window: window.unwrap_or(2.0),
        labels_wanted: labels.unwrap_or(4096),
        now: 0,
        prng: Prng::new(shape.seed),
        waiting: Ghosts::new(u32::MAX),
        labelled: Vec::new(),
        forest: None,
        expected: Heap::new(shape.slots),
        victims_left: 0,
        scan: Scan::new(shape.slots),
        has_evicted: false,
        forgotten_after: [0; 2],
    };
    policy.resize(shape.slots);
    Ok(policy)
}

/// The expected next use of a block with these features.
fn next_use(forest: &Forest, features: &Features, now: u64) -> f64 {
    // Labels are quarters of a power of two.
    now as f64 + (f64::from(forest.predict(features)) / 4.0).exp2()
}

impl ThreeLCache {
    /// A use of `block` begins.
    fn tick(&mut self, block: BlockId) {
        self.now += 1;
        if let Some(sample) = self.waiting.take(block) {
            self.learn(sample, self.now - sample.since);
        }
        if self.has_evicted {
            self.draw();
        }
    }

    /// Makes a block a sample, by lot among the resident and the remembered.
    fn draw(&mut self) {
        let (held, past) = (self.order.total(), self.past.len());
        if held + past == 0 {
            return;
        }
        let lot = self.prng.below(u64::from(held + past)) as u32;
        if lot >= held {
            // Any of them will do: the one remembered longest, whose label comes next.
            if let Some((name, uses)) = self.past.oldest() {
                self.wait(name, &uses);
            }
        } else {
            let slot = self.held.slots()[lot as usize];
            let uses = self.uses.get(slot);
            self.wait(self.names.get(slot), &uses);
        }
    }

    fn wait(&mut self, name: BlockId, uses: &Uses) {
        if self.waiting.get(name).is_none() {
            let features = uses.features_plain(self.now);
            let since = self.now;
            self.waiting.push(name, Waiting { features, since });
        }
    }

    fn learn(&mut self, sample: Waiting, after: u64) {
        if self.forest.is_some() && self.prng.below(LABEL_ONE_IN) != 0 {
            return;
        }
        self.labelled.push((sample.features, label(after)));
        if self.labelled.len() >= self.labels_wanted && self.victims_left == 0 {
            self.forest = Some(Forest::learn(&self.labelled));
            self.labelled.clear();
            self.forget_expected();
            self.forgotten_after[0] = self.forgotten_after[1];
        }
    }

    fn forget_expected(&mut self) {
        while let Some((_, slot)) = self.expected.top() {
            self.expected.remove(slot);
        }
    }

    /// Remembers a block that leaves, and learns from the one that is dropped for it.
    fn depart(&mut self, block: BlockId, uses: Uses, limit: u32) {
        if self.past.len() >= limit
            && let Some((name, old)) = self.past.pop_oldest()
            && let Some(sample) = self.waiting.take(name)
        {
            let unused = self.now - old.last();
            let after = self.forgotten_after[0] + unused;
            self.forgotten_after[1] = self.forgotten_after[1].max(unused);
            self.learn(sample, after);
        }
        self.past.push(block, uses);
    }

    fn limit(&self) -> u32 {
        (f64::from(self.scan.slots) * (self.window - 1.0)) as u32
    }

    /// Draws candidates, and asks the forest about them.
    fn rank(&mut self) {
        let Some(forest) = &self.forest else {
            return;
        };
        let (candidates, is_over) = self.scan.draw(&self.order, &self.uses);
        let answers: Vec<(Slot, (Real, BlockId))> = candidates
            .iter()
            .map(|&slot| {
                let features = self.uses.get(slot).features_plain(self.now);
                let at = next_use(forest, &features, self.now);
                (slot, (Real(-at), self.names.get(slot)))
            })
            .collect();
        if is_over {
            self.forget_expected();
        }
        for (slot, answer) in answers {
            self.expected.set(slot, answer);
        }
        self.victims_left = (candidates.len() as u32 / CANDIDATES_A_VICTIM).max(1);
    }
}

impl Policy for ThreeLCache {
    fn miss(&mut self, access: &Access) -> Admission {
        // Before the victim's name can push this one out.
        let known = self.past.take(access.block).unwrap_or_default();
        self.found.set(access.block, known);
        Admission::Admit
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        let mut uses = match self.found.take(access.block) {
            Some(known) => known,
            None => self.past.take(access.block).unwrap_or_default(),
        };
        self.tick(access.block);
        uses.note(self.now, [1; 2]);
        self.uses.set(slot, uses);
        self.names.set(slot, access.block);
        self.order.push_back(ORDER, slot);
        self.held.insert(slot);
        if self.forest.is_some() {
            self.scan.came(slot);
        }
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        self.tick(access.block);
        self.uses.at(slot).note(self.now, [1; 2]);
        self.expected.remove(slot);
        self.scan.passes(slot, &self.order);
        self.order.move_back(ORDER, slot);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        if self.forest.is_none() {
            return self.order.front(ORDER);
        }
        if self.victims_left == 0 || self.expected.is_empty() {
            self.rank();
        }
        self.expected.top().map(|(_, slot)| slot)
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        let uses = self.uses.get(slot);
        if why == Departure::Evicted {
            self.has_evicted = true;
            self.victims_left = self.victims_left.saturating_sub(1);
            self.scan.evicted(&uses);
        }
        self.expected.remove(slot);
        self.scan.passes(slot, &self.order);
        self.scan.left(slot);
        self.order.remove(slot);
        self.held.remove(slot);
        if why != Departure::Invalidated {
            self.depart(self.names.get(slot), uses, self.limit());
        }
    }

    fn resize(&mut self, slots: u32) {
        self.scan.slots = slots;
        self.past.set_limit(self.limit());
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.order.total(), resident);
        assert_eq!(self.held.slots().len(), resident as usize);
        for &slot in self.held.slots() {
            let is_departed = self.past.get(self.names.get(slot)).is_some();
            assert!(!is_departed, "resident and departed");
        }
    }
}

impl SimulatorHints for ThreeLCache {
    fn number_blocks(&mut self, first: u64) {
        self.past.number_blocks(first);
        self.waiting.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.past.glance(block) ^ self.waiting.glance(block)
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // Until there is a forest, the oldest goes.
        assert_eq!(order_after("3l-cache", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        assert_eq!(order_after("3l-cache", 3, &[1, 2, 3, 1, 4]), [4, 1, 3]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("3l-cache(labels=32)", |slots, seed| {
            reference::ThreeLCache::new(slots, seed, 32)
        });
    }
}
