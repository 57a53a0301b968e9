//! LRB, a small one: evicts, from a random sample, the block whose next use a learned forest of trees
//! predicts to be the latest.
//!
//! # Source
//! Song, Berger, Li and Lloyd, "Learning relaxed Belady for content distribution network caching", NSDI
//! 2020. The paper was not at hand; followed are its outline in later work and the description of
//! libCacheSim's LRB
//! # Picture
//! victim ← latest next use among `sample` random resident blocks ← forest ← ( labelled samples )
//! ← ( samples that wait for their block's next use )
//! # Transitions
//! each use: its time is recorded; a waiting sample of the block is labelled with the time that has passed
//! | every 16th access: a random resident block becomes a sample, unless one of it waits | a sample has
//! waited for a window: labelled with twice the window | enough labels: the forest is trained again |
//! evicted: a ghost entry keeps the times
//! # Parameters
//! sample 32: blocks in the sample for an eviction
//! window 8: accesses, as a multiple of the slots, beyond which the time of the next use makes no
//! difference
//! labels 4096: labels from which a forest is trained
//! history 2: ghost entries, as a multiple of the slots, at most 16
//! # Deviations
//! a block has seven features in place of 44: the time since its last use, the three intervals between the
//! uses before that, its number of uses, and two counts that halve after half of the slots and after four
//! times the slots, in accesses. There are 16 trees of depth 4, trained from 4,096 labels, in place of
//! LightGBM's 32 trees of 32 leaves from 131,072. The window is a parameter, where the paper tunes it. Only
//! resident blocks become samples. Until there is a forest, the LRU block of the sample is evicted. There
//! are no sizes
//! # Cost
//! O(sample) per eviction, 64 steps each, and some milliseconds to train a forest; 72 bytes per slot, about
//! 76 per ghost entry

use crate::structures::{Features, Forest, Ghosts, MissNote, Pool, Table, magnitude};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Prng, Shape, SimulatorHints, Slot,
    SpecError,
};

/// One access in this many makes a sample.
const SAMPLE_EVERY: u64 = 16;
/// Uses that are looked back on.
const USES: usize = 4;
/// A use, in counts that halve.
const ONE: u32 = 1 << 16;

/// Recorded uses of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses {
    /// Times of the latest uses, the latest first; 0 if unknown.
    times: [u64; USES],
    number: u32,
    /// Counts that halve with time, a fast and a slow one, in parts of `ONE`.
    fading: [u32; 2],
}

/// A sample that waits for its label.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    features: Features,
    since: u64,
}

impl Uses {
    pub(super) fn note(&mut self, now: u64, half_lives: [u64; 2]) {
        let since = now - self.times[0];
        for (count, half_life) in self.fading.iter_mut().zip(half_lives) {
            let halvings = (since / half_life).min(31) as u32;
            *count = (*count >> halvings).saturating_add(ONE);
        }
        self.times.rotate_right(1);
        self.times[0] = now;
        self.number = self.number.saturating_add(1);
    }

    /// Without the counts that halve.
    pub(super) fn features_plain(&self, now: u64) -> Features {
        let mut features = self.features(now);
        features[USES + 1..].fill(0);
        features
    }

    /// How often it was used.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// When it was last used.
    pub(super) fn last(&self) -> u64 {
        self.times[0]
    }

    fn features(&self, now: u64) -> Features {
        let between = |at: usize| match self.times[at] {
            0 => u8::MAX,
            before => magnitude(self.times[at - 1] - before),
        };
        [
            magnitude(now - self.times[0]),
            between(1),
            between(2),
            between(3),
            magnitude(u64::from(self.number)),
            magnitude(u64::from(self.fading[0])),
            magnitude(u64::from(self.fading[1])),
        ]
    }
}

/// The forest, its training samples, and the recorded uses of blocks.
#[derive(Debug)]
pub struct Lrb {
    sample: u32,
    window_slots: u64,
    labels_wanted: usize,
    history: f64,
    now: u64,
    window: u64,
    half_lives: [u64; 2],
    prng: Prng,
    pool: Pool,
    uses: Table<Uses>,
    names: Table<BlockId>,
    past: Ghosts<Uses>,
    found: MissNote<Uses>,
    waiting: Ghosts<Waiting>,
    labelled: Vec<(Features, f32)>,
    forest: Option<Forest>,
}

/// Builds the policy; its parameters are `sample`, `window`, `labels` and `history`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Lrb, SpecError> {
    let sample = arguments.take("sample", "a number from 1 to 1024", |n: &u32| {
        (1..=1024).contains(n)
    })?;
    let window = arguments.take("window", "a number from 1 to 1024", |n: &u64| {
        (1..=1024).contains(n)
    })?;
    let labels = arguments.take("labels", "a number from 16 to 1000000", |n: &usize| {
        (16..=1_000_000).contains(n)
    })?;
    let history = arguments.take("history", "a number from 0 to 16", |share: &f64| {
        (0.0..=16.0).contains(share)
    })?;
    let mut policy = Lrb {
        sample: sample.unwrap_or(32),
        window_slots: window.unwrap_or(8),
        labels_wanted: labels.unwrap_or(4096),
        history: history.unwrap_or(2.0),
        now: 0,
        window: 1,
        half_lives: [1; 2],
        prng: Prng::new(shape.seed),
        pool: Pool::new(shape.slots),
        uses: Table::new(shape.slots),
        names: Table::new(shape.slots),
        past: Ghosts::new(0),
        found: MissNote::new(),
        waiting: Ghosts::new(u32::MAX),
        labelled: Vec::new(),
        forest: None,
    };
    policy.resize(shape.slots);
    Ok(policy)
}

/// The label of a block that is used again after this many accesses.
pub(super) fn label(after: u64) -> f32 {
    f32::from(magnitude(after))
}

impl Lrb {
    /// The expected time until the next use of a block.
    #[inline]
    fn lateness(&self, uses: &Uses) -> f32 {
        let features = uses.features(self.now);
        match &self.forest {
            Some(forest) => forest.predict(&features),
            None => f32::from(features[0]),
        }
    }

    /// A use of `block` begins.
    fn tick(&mut self, block: BlockId) {
        self.now += 1;
        if let Some(sample) = self.waiting.take(block) {
            self.learn(sample, self.now - sample.since);
        }
        while let Some((_, oldest)) = self.waiting.oldest()
            && self.now - oldest.since > self.window
        {
            self.waiting.pop_oldest();
            self.learn(oldest, 2 * self.window);
        }
        if self.now.is_multiple_of(SAMPLE_EVERY) {
            self.draw();
        }
    }

    fn draw(&mut self) {
        let held = self.pool.slots();
        if held.is_empty() {
            return;
        }
        let slot = held[self.prng.below(held.len() as u64) as usize];
        let name = self.names.get(slot);
        if self.waiting.get(name).is_none() {
            let features = self.uses.get(slot).features(self.now);
            let since = self.now;
            self.waiting.push(name, Waiting { features, since });
        }
    }

    fn learn(&mut self, sample: Waiting, after: u64) {
        self.labelled.push((sample.features, label(after)));
        if self.labelled.len() >= self.labels_wanted {
            self.forest = Some(Forest::learn(&self.labelled));
            self.labelled.clear();
        }
    }
}

impl Policy for Lrb {
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
        uses.note(self.now, self.half_lives);
        self.uses.set(slot, uses);
        self.names.set(slot, access.block);
        self.pool.insert(slot);
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        self.tick(access.block);
        self.uses.at(slot).note(self.now, self.half_lives);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let mut prng = self.prng.clone();
        let known = |slot| self.uses.get(slot);
        let victim = self
            .pool
            .lowest_of(self.sample, &mut prng, known, |_, uses| {
                -self.lateness(&uses)
            });
        self.prng = prng;
        victim
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        if why != Departure::Invalidated {
            self.past.push(self.names.get(slot), self.uses.get(slot));
        }
        self.pool.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        let slots = slots.max(1);
        self.window = u64::from(slots) * self.window_slots;
        self.half_lives = [u64::from(slots / 2).max(1), u64::from(slots) * 4];
        self.past
            .set_limit((f64::from(slots) * self.history) as u32);
    }

    /// Ordered by the expected next use, as if all blocks were drawn.
    fn order(&self) -> Vec<Slot> {
        let mut order = self.pool.slots().to_vec();
        let lateness = |slot: &Slot| self.lateness(&self.uses.get(*slot));
        order.sort_by(|a, b| lateness(a).total_cmp(&lateness(b)));
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.pool.slots().len(), resident as usize);
        assert!(self.labelled.len() < self.labels_wanted);
        for &slot in self.pool.slots() {
            assert!(
                self.past.get(self.names.get(slot)).is_none(),
                "resident and departed"
            );
        }
    }
}

impl SimulatorHints for Lrb {
    fn number_blocks(&mut self, first: u64) {
        self.past.number_blocks(first);
        self.waiting.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.past.glance(block) ^ self.waiting.glance(block)
    }
}

/// Lists with every use of each block, with the same lots and the same forest.
#[cfg(test)]
mod reference {
    use super::{Uses, label};
    use crate::Prng;
    use crate::structures::{Features, Forest};
    use std::collections::BTreeMap;

    pub struct Lrb {
        pub slots: usize,
        pub labels: usize,
        pub sample: usize,
        pub now: u64,
        pub prng: Prng,
        pub blocks: Vec<u64>,
        pub gone: Vec<u64>,
        /// Times of all uses since the block was last dropped from the records.
        pub uses: BTreeMap<u64, Vec<u64>>,
        pub waiting: Vec<(u64, Features, u64)>,
        pub labelled: Vec<(Features, f32)>,
        pub forest: Option<Forest>,
    }

    impl Lrb {
        fn features(&self, block: u64) -> Features {
            let mut known = Uses::default();
            let slots = self.slots as u64;
            for &at in &self.uses[&block] {
                known.note(at, [(slots / 2).max(1), slots * 4]);
            }
            known.features(self.now)
        }

        fn lateness(&self, block: u64) -> f32 {
            let features = self.features(block);
            let forest = self.forest.as_ref();
            forest.map_or(f32::from(features[0]), |forest| forest.predict(&features))
        }

        fn learn(&mut self, features: Features, after: u64) {
            self.labelled.push((features, label(after)));
            if self.labelled.len() == self.labels {
                self.forest = Some(Forest::learn(&std::mem::take(&mut self.labelled)));
            }
        }

        fn evict(&mut self) {
            let held = self.blocks.len();
            let drawn: Vec<u64> = if held <= self.sample {
                self.blocks.clone()
            } else {
                let mut draw = || self.blocks[self.prng.below(held as u64) as usize];
                (0..self.sample).map(|_| draw()).collect()
            };
            let mut latest = drawn[0];
            for &block in &drawn {
                if self.lateness(block) > self.lateness(latest) {
                    latest = block;
                }
            }
            let at = self.blocks.iter().position(|&held| held == latest);
            self.blocks.swap_remove(at.expect("drawn"));
            self.gone.push(latest);
            if self.gone.len() > 2 * self.slots {
                let forgotten = self.gone.remove(0);
                self.uses.remove(&forgotten);
            }
        }

        fn tick(&mut self, block: u64) {
            self.now += 1;
            let window = 8 * self.slots as u64;
            if let Some(at) = self.waiting.iter().position(|sample| sample.0 == block) {
                let (_, features, since) = self.waiting.remove(at);
                self.learn(features, self.now - since);
            }
            while let Some(&(_, features, since)) = self.waiting.first()
                && self.now - since > window
            {
                self.waiting.remove(0);
                self.learn(features, 2 * window);
            }
            if self.now.is_multiple_of(16) && !self.blocks.is_empty() {
                let drawn = self.blocks[self.prng.below(self.blocks.len() as u64) as usize];
                if self.waiting.iter().all(|sample| sample.0 != drawn) {
                    let features = self.features(drawn);
                    self.waiting.push((drawn, features, self.now));
                }
            }
        }
    }

    impl crate::contract::Reference for Lrb {
        fn access(&mut self, block: u64) -> bool {
            let hit = self.blocks.contains(&block);
            if !hit {
                self.gone.retain(|&name| name != block);
                if self.blocks.len() == self.slots {
                    self.evict();
                }
            }
            self.tick(block);
            self.uses.entry(block).or_default().push(self.now);
            if !hit {
                self.blocks.push(block);
            }
            hit
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::Prng;
    use crate::contract::{equals_reference, order_after, run};
    use std::collections::BTreeMap;

    #[test]
    fn worked_example() {
        // Without a forest the least recent of those drawn goes, and 3 slots are drawn all.
        assert_eq!(order_after("lrb", 3, &[1, 2, 3, 1, 4]), [4, 1, 3]);
    }

    /// Blocks below 40 come again every 40 accesses, every second access is for a block that never comes again: which
    /// of them was used last says nothing, how often they were used says all.
    #[test]
    fn learns_who_comes_again() {
        let reads: Vec<u64> = (0..100_000u64)
            .map(|at| if at % 2 == 0 { at / 2 % 40 } else { 1000 + at })
            .collect();
        let hits = |text| run_without_audits(text, &reads);
        assert!(hits("lru") == 0 && hits("lrb(labels=512)") > 40_000);
    }

    fn run_without_audits(text: &str, reads: &[u64]) -> u64 {
        let mut level = crate::contract::level_of(text, 50, 1);
        for &index in reads {
            level.access(&crate::Access::read(crate::BlockId::on_first(index)));
        }
        level.counters().hits
    }

    #[test]
    fn the_same_seed_decides_alike() {
        let reads: Vec<u64> = (0..3000u64).map(|at| at * at % 97 % 61).collect();
        let order = |seed| run("lrb(labels=64,sample=4)", 20, seed, &reads).order();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn equals_its_reference_model() {
        // Few slots are all drawn, many are not.
        equals_reference("lrb(labels=64,sample=3)", |slots, seed| reference::Lrb {
            slots,
            labels: 64,
            sample: 3,
            now: 0,
            prng: Prng::new(seed),
            blocks: Vec::new(),
            gone: Vec::new(),
            uses: BTreeMap::new(),
            waiting: Vec::new(),
            labelled: Vec::new(),
            forest: None,
        });
    }
}
