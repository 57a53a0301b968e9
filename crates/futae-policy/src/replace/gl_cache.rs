//! GL-Cache: learns the utility of groups of blocks that were written together, and merges the least useful
//! groups.
//!
//! # Source
//! Yang, Mao, Yue and Rashmi, "GL-Cache: group-level learning for efficient and high-performance caching",
//! FAST 2023. The paper was not at hand; followed are its abstract and what the first author's program does
//! (GLCache in libCacheSim, with the type `learned`), read as a description
//! # Picture
//! [ segment ... segment ... open segment ] ← new
//! | adjacent segments, the least useful first: the most recent blocks → one segment, the others
//! → ( to be evicted ) → victim
//! # Transitions
//! hit: counts for its segment | hit of a block to be evicted: written to the open segment | miss: written
//! to the open segment | victim: the first block to be evicted; if there is none, the segment of the lowest
//! expected utility is merged with those written after it | every `train` accesses: a forest is trained
//! from the last snapshot of all segments and from the uses of their blocks since, resident or evicted, and
//! a new snapshot is taken | before there is a forest: segments are merged in turn
//! # Parameters
//! blocks 100: blocks per segment
//! segments 64: least number of segments in the cache; segments have fewer blocks if there are too few
//! slots for that
//! merge 2: segments that are merged into one
//! rank 0.02: the share of all segments that one ranking serves
//! train 4: accesses from one snapshot to the next, as a multiple of the slots; at least 256 accesses
//! # Deviations
//! from libCacheSim: blocks are evicted one by one, as room is needed, in place of the rest of the merged
//! segments at once; a block that is requested before that stays. Time is counted in accesses, in place of
//! seconds, so the rate of requests is no feature; there are no sizes, so their mean is none either. The
//! forest is trained by accesses, in place of daily. It has 16 trees of depth 4 (see `lrb`), in place of up
//! to 20 of XGBoost. A block counts once for its segment's utility, from the snapshot on, as libCacheSim's
//! description says; its code counts every hit of a resident block, and begins again when the segment is
//! evicted. Small caches have smaller segments
//! # Cost
//! O(1) per access, but one access in `train` times the slots visits every slot and trains a forest: some
//! milliseconds in a small cache, more than 100 in one of a million slots, during which a live cache
//! answers nothing. A merge takes 64 steps per segment and is needed once in `blocks` evictions; 45 bytes
//! per slot, and about 32 per block evicted since the snapshot

use crate::policy::order_by_evicting;
use crate::structures::{Queues, Table};
use crate::{
    Access, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};

mod learner;
#[cfg(test)]
mod reference;
mod segments;

use learner::{Learner, ROWS_MAX};
use segments::{Segment, Segments};

/// The queue of blocks that leave.
const LEAVING: usize = 0;
/// The number of the segment of a block that leaves.
const NONE: u32 = u32::MAX;
/// Accesses from one snapshot to the next at least, so that small caches do not learn all the time.
const TRAIN_LEAST: u64 = 256;

/// A resident block.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    block: BlockId,
    last: u64,
    segment: u32,
    /// Whether it has been requested since its segment was created.
    is_requested: bool,
}

/// The segments, in the order in which they were ranked last.
#[derive(Clone, Debug, Default)]
struct Ranking {
    /// The least useful first, with the time of creation, by which a segment that was merged since
    /// is recognised.
    segments: Vec<(u32, u64)>,
    next: usize,
}

/// Segments of blocks, and the forest that ranks them.
#[derive(Clone, Debug)]
pub struct GlCache {
    size_most: u32,
    segments_least: u32,
    merge: usize,
    rank_share: f64,
    train_slots: u64,
    /// Blocks of a segment.
    size: u32,
    now: u64,
    held: Table<Held>,
    segments: Segments,
    leaving: Queues,
    learner: Learner,
    ranking: Ranking,
    /// Where merging in turn continues; `None`: with the first.
    turn: Option<u32>,
    slots: u32,
    /// Blocks written in this period of as many accesses as there are slots.
    written: u64,
    /// Blocks written per access in the last such period, in 255ths.
    writes: u8,
}

/// Builds the policy; its parameters are `blocks`, `segments`, `merge`, `rank` and `train`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<GlCache, SpecError> {
    let blocks = arguments.take("blocks", "a number from 1 to 100000", |n: &u32| {
        (1..=100_000).contains(n)
    })?;
    let segments = arguments.take("segments", "a number from 1 to 100000", |n: &u32| {
        (1..=100_000).contains(n)
    })?;
    let merge = arguments.take("merge", "a number from 2 to 100", |n: &usize| {
        (2..=100).contains(n)
    })?;
    let rank = arguments.take("rank", "a number above 0, at most 1", |share: &f64| {
        *share > 0.0 && *share <= 1.0
    })?;
    let train = arguments.take("train", "a number from 1 to 1024", |n: &u64| {
        (1..=1024).contains(n)
    })?;
    let mut policy = GlCache {
        size_most: blocks.unwrap_or(100),
        segments_least: segments.unwrap_or(64),
        merge: merge.unwrap_or(2),
        rank_share: rank.unwrap_or(0.02),
        train_slots: train.unwrap_or(4),
        size: 1,
        now: 0,
        held: Table::new(shape.slots),
        segments: Segments::new(),
        leaving: Queues::new(1, shape.slots),
        learner: Learner::new(shape.slots),
        ranking: Ranking::default(),
        turn: None,
        slots: 1,
        written: 0,
        writes: 0,
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl GlCache {
    /// An access is over.
    fn tick(&mut self) {
        if self.now.is_multiple_of(u64::from(self.slots)) {
            self.writes = (255 * self.written / u64::from(self.slots)).min(255) as u8;
            self.written = 0;
        }
        let interval = (u64::from(self.slots) * self.train_slots).max(TRAIN_LEAST);
        if let Some(since) = self.learner.since()
            && self.now - since > interval
        {
            self.learner.learn();
            self.snapshot();
            self.ranking = Ranking::default();
        }
    }

    /// Notes every segment, except the one that is being written.
    fn snapshot(&mut self) {
        let written = self.segments.len().saturating_sub(1) as usize;
        let all = self.segments.iter().take(written);
        let some = all.step_by(written.div_ceil(ROWS_MAX).max(1));
        let rows = some.map(|at| {
            let segment = self.segments.get(at);
            (segment.features(self.now), segment.blocks.as_slice())
        });
        self.learner.snapshot(self.now, rows);
    }

    /// Writes a block to the last segment.
    fn write(&mut self, slot: Slot, block: BlockId) {
        self.written += 1;
        let is_open = |at: &u32| (self.segments.get(*at).blocks.len() as u32) < self.size;
        let segment = match self.segments.last().filter(is_open) {
            Some(open) => open,
            None => {
                if let Some(full) = self.segments.last() {
                    self.segments.at(full).writes = self.writes;
                }
                self.segments.open(self.now)
            }
        };
        self.segments.at(segment).blocks.push(slot);
        let last = self.now;
        self.held.set(
            slot,
            Held {
                block,
                last,
                segment,
                is_requested: false,
            },
        );
    }

    /// Chooses blocks to leave: at least one, if any is resident.
    fn make_room(&mut self) {
        if self.learner.since().is_none() {
            self.snapshot();
        }
        let chosen = match self.learner.forest {
            Some(_) => self.least_useful(),
            None => self.next_in_turn(),
        };
        match chosen {
            Some(segments) => self.merge(&segments),
            None => {
                // There are too few to merge.
                let ranked = self
                    .ranking
                    .segments
                    .first()
                    .filter(|at| self.is_ranked(at));
                let worst = ranked.map(|at| at.0).or(self.segments.first());
                if let Some(worst) = worst {
                    let gone = self.close(worst);
                    gone.blocks.iter().for_each(|&slot| self.leave(slot));
                }
                self.ranking = Ranking::default();
            }
        }
    }

    fn leave(&mut self, slot: Slot) {
        self.held.at(slot).segment = NONE;
        self.leaving.push_back(LEAVING, slot);
    }

    fn close(&mut self, segment: u32) -> Segment {
        if self.turn == Some(segment) {
            self.turn = self.segments.after(segment);
        }
        self.segments.close(segment)
    }

    fn next_in_turn(&mut self) -> Option<Vec<u32>> {
        let from = |first: Option<u32>| self.segments.written_from(first?, self.merge);
        let chosen = from(self.turn).or_else(|| from(self.segments.first()))?;
        self.turn = chosen.last().and_then(|&last| self.segments.after(last));
        Some(chosen)
    }

    fn is_ranked(&self, (segment, created): &(u32, u64)) -> bool {
        let segment = self.segments.get(*segment);
        !segment.blocks.is_empty() && segment.created == *created
    }

    /// The least useful segment, and those to merge it with.
    fn least_useful(&mut self) -> Option<Vec<u32>> {
        let served = self.ranking.segments.len() as f64 * self.rank_share;
        if self.ranking.next as f64 >= served {
            self.rank();
        }
        while let Some(at) = self.ranking.segments.get(self.ranking.next).copied() {
            self.ranking.next += 1;
            if self.is_ranked(&at)
                && let Some(chosen) = self.segments.written_from(at.0, self.merge)
            {
                return Some(chosen);
            }
        }
        None
    }

    fn rank(&mut self) {
        let Some(forest) = &self.learner.forest else {
            return;
        };
        let written = self.segments.len().saturating_sub(1) as usize;
        let all = self.segments.iter().take(written);
        let mut ranked: Vec<(f64, u64, u32)> = all
            .map(|at| {
                let segment = self.segments.get(at);
                let utility = f64::from(forest.predict(&segment.features(self.now)));
                // By room: a segment of few blocks frees little.
                let blocks = segment.blocks.len() as f64;
                let utility = match utility > 0.0 {
                    true => utility / blocks,
                    false => utility * blocks,
                };
                (utility, segment.created, at)
            })
            .collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let segments = ranked.iter().map(|&(_, created, at)| (at, created));
        self.ranking = Ranking {
            segments: segments.collect(),
            next: 0,
        };
    }

    /// Makes one segment of several, of the blocks used last. The others leave.
    fn merge(&mut self, segments: &[u32]) {
        let [first, others @ ..] = segments else {
            return;
        };
        let mut blocks = std::mem::take(&mut self.segments.at(*first).blocks);
        let mut writes = u32::from(self.segments.get(*first).writes);
        for &other in others {
            let gone = self.close(other);
            writes += u32::from(gone.writes);
            blocks.extend(gone.blocks);
        }
        let kept = (blocks.len() / segments.len()).clamp(1, self.size as usize);
        let mut uses: Vec<u64> = blocks.iter().map(|&at| self.held.get(at).last).collect();
        let place = uses.len() - kept;
        let oldest_kept = *uses.select_nth_unstable(place).1;
        let mut merged = Segment {
            created: self.now,
            writes: (writes / segments.len() as u32) as u8,
            ..Segment::default()
        };
        for slot in blocks {
            if self.held.get(slot).last >= oldest_kept {
                let held = self.held.at(slot);
                (held.segment, held.is_requested) = (*first, false);
                merged.blocks.push(slot);
            } else {
                self.leave(slot);
            }
        }
        *self.segments.at(*first) = merged;
    }
}

impl Policy for GlCache {
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.now += 1;
        self.learner.missed(access.block, self.now);
        self.write(slot, access.block);
        self.tick();
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        self.now += 1;
        self.learner.used(slot, self.now);
        if self.held.get(slot).segment == NONE {
            self.leaving.remove(slot);
            self.write(slot, access.block);
        } else {
            let held = self.held.at(slot);
            held.last = self.now;
            let is_first = !std::mem::replace(&mut held.is_requested, true);
            let segment = self.segments.at(held.segment);
            segment.requests += 1;
            segment.requested += u32::from(is_first);
        }
        self.tick();
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        if self.leaving.is_empty(LEAVING) {
            self.make_room();
        }
        self.leaving.front(LEAVING)
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        let Held { block, segment, .. } = self.held.get(slot);
        if segment == NONE {
            self.leaving.remove(slot);
        } else {
            let blocks = &mut self.segments.at(segment).blocks;
            blocks.retain(|&other| other != slot);
            if blocks.is_empty() {
                self.close(segment);
            }
        }
        let is_remembered = why != Departure::Invalidated;
        self.learner.left(slot, block, is_remembered);
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots.max(1);
        self.size = (self.slots / self.segments_least).clamp(1, self.size_most);
        self.learner.skipped = self.size / self.merge as u32;
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        let mut held = self.leaving.len(LEAVING);
        for at in self.segments.iter() {
            let segment = self.segments.get(at);
            assert!(!segment.blocks.is_empty(), "an empty segment");
            for &slot in &segment.blocks {
                assert_eq!(self.held.get(slot).segment, at, "another's block");
            }
            held += segment.blocks.len() as u32;
        }
        assert_eq!(held, resident);
    }
}

impl SimulatorHints for GlCache {
    fn number_blocks(&mut self, first: u64) {
        self.learner.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.learner.glance(block)
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{Reference, equals_reference, level_of, order_after};
    use crate::{Access, BlockId, Outcome, Prng};

    /// Segments of two blocks; until there is a forest, they are merged in turn.
    #[test]
    fn worked_example() {
        let after = |reads: &[u64]| order_after("gl-cache(segments=4)", 8, reads);
        // Of segments 1 2 and 3 4 the blocks used last stay, 1 and 4; then of 5 6 and 7 8 the blocks 7
        // and 8, and of 1 4 and 7 8 the blocks 1 and 8. Those are then too few to merge.
        let filled = [1, 2, 3, 4, 5, 6, 7, 8, 1];
        let read_9 = [filled.as_slice(), &[9]].concat();
        assert_eq!(after(&read_9), [9, 8, 1, 7, 4, 6, 5, 3]);
        // Block 3 is about to leave when it is read again: it is written behind 9.
        let read_3 = [filled.as_slice(), &[9, 3]].concat();
        assert_eq!(after(&read_3), [3, 9, 8, 1, 7, 4, 6, 5]);
    }

    /// 50 blocks that are read twice at once and come again in every round, then 100 that are read once: the
    /// segments of the former are requested before they are old, which only the forest knows to be worth something.
    #[test]
    fn learns_which_segments_are_used_again() {
        let round = |at: u64| {
            let again = (0..50u64).flat_map(|block| [block, block]);
            again.chain((0..100).map(move |block| 1000 + 100 * at + block))
        };
        let reads: Vec<u64> = (0..500).flat_map(round).collect();
        let hits = |text| {
            let mut level = level_of(text, 100, 1);
            for &index in &reads {
                level.access(&Access::read(BlockId::on_first(index)));
            }
            level.counters().hits
        };
        assert!(hits("lru") == 500 * 50 && hits("gl-cache") > 500 * 75);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("gl-cache", |slots, _| {
            reference::GlCache::new(slots, 1, 2, 4)
        });
        // Segments of up to six blocks.
        let text = "gl-cache(segments=4,merge=3,train=2)";
        equals_reference(text, |slots, _| {
            reference::GlCache::new(slots, (slots / 4).max(1), 3, 2)
        });
    }

    /// Enough segments, of more than one block, that the forest's trees ask questions.
    #[test]
    fn equals_its_reference_model_when_segments_differ() {
        let slots = 80;
        for seed in 1..9u64 {
            let text = "gl-cache(segments=27,train=3)";
            let mut level = level_of(text, slots, seed);
            let mut model = reference::GlCache::new(80, 2, 2, 3);
            let mut prng = Prng::new(seed);
            for step in 0..6000u64 {
                let below = 1 + prng.below(200);
                let index = match step / 150 % 2 {
                    0 => prng.below(below),
                    _ => 1000 + step % (seed * 60),
                };
                let read = Access::read(BlockId::on_first(index));
                let hit = matches!(level.access(&read), Outcome::Hit(_));
                assert_eq!(hit, model.access(index), "seed {seed}, step {step}");
            }
        }
    }
}
