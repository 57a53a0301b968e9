//! Which blocks of a volume have data that its store does not have yet.
//!
//! Every write has a stamp. A block that is dirty holds writes that nobody carries to the store
//! yet, or that a write-back under way carries, or both; it is clean when neither is left. Its
//! data is in its frame, or, if it was evicted or the cache uses no frames, kept here until the store has it.

use crate::{IoBuf, IoError, Request};
use hashbrown::HashMap;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long to leave a store alone that has refused a write-back.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Blocks that may not be written back now which are passed over at a time in search of one that may.
const SEARCH_BLOCKS_MAX: usize = 1024;
/// Blocks that become due at a time, since the engine's lock is held meanwhile.
const AGED_BLOCKS_MAX: usize = 1024;
/// Ages of blocks that are clean again, kept beyond twice the dirty ones.
const AGES_SPARE: usize = 4096;

/// One dirty block.
#[derive(Debug, Default)]
struct Dirty {
    /// The stamp of the oldest write that nobody carries.
    unsaved: Option<u64>,
    /// The stamp of the oldest write that a write-back under way carries.
    carried: Option<u64>,
    /// Became too old while it was being carried.
    overdue: bool,
    /// Lost its slot.
    is_evicted: bool,
    /// Its data, once it has no slot, or from its first write on where the cache uses no frames.
    evicted_data: Option<IoBuf>,
    /// Whether the level below is to be told of its eviction, and under which generation of its
    /// store the data came.
    evicted_under: Option<u64>,
}

impl Dirty {
    /// The stamp of the oldest write that the store does not have.
    fn oldest(&self) -> Option<u64> {
        self.carried.or(self.unsaved)
    }
}

/// A block whose oldest missing write has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The stamp before.
    pub before: u64,
    /// The stamp now; none if the block is clean.
    pub after: Option<u64>,
}

impl Change {
    /// Whether a flush of everything up to `stamp` had to wait for it, and has not any more.
    pub fn frees(&self, stamp: u64) -> bool {
        self.before <= stamp && self.after.is_none_or(|after| after > stamp)
    }
}

/// What is left of a block that is clean now.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Its data, if it has no slot.
    pub evicted_data: Option<IoBuf>,
    /// Whether the level below is to be told of its eviction, and under which generation of its
    /// store the data came.
    pub evicted_under: Option<u64>,
}

/// The dirty blocks of one volume, by index.
#[derive(Default)]
pub struct Dirt {
    blocks: HashMap<u64, Dirty>,
    /// All of them.
    order: BTreeSet<u64>,
    /// Dirty, not carried, and not left alone after a failure.
    waiting: BTreeSet<u64>,
    /// Those of them that are to be written as soon as may be.
    due: BTreeSet<u64>,
    /// Those whose write-back failed, until it is tried again.
    failed: BTreeSet<u64>,
    /// When blocks became dirty, oldest first, with the stamp of then.
    ages: VecDeque<(Instant, u64, u64)>,
    stamp: u64,
    /// Writes up to this stamp are not to wait.
    urgent: u64,
    /// Not all of their blocks are among those that are due yet.
    is_catching_up: bool,
    /// Where to go on with those whose write-back failed, while they are being tried again.
    retrying: Option<u64>,
    retry_at: Option<Instant>,
    /// Where the next run begins to be looked for.
    cursor: u64,
    evicted_dirty: u64,
    /// Write-backs under way, and their bytes.
    pub runs: u32,
    pub bytes_carried: u64,
    /// A failure that no flush has been told of.
    pub error: Option<IoError>,
    /// Writes that wait for others to become clean.
    pub throttled: VecDeque<Request>,
    /// Flushes that wait, by key.
    pub flushes: Vec<usize>,
}

impl Dirt {
    /// Dirty blocks.
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Dirty blocks whose data is here.
    pub fn evicted_dirty(&self) -> u64 {
        self.evicted_dirty
    }

    /// Dirty blocks that are on their way to the store.
    pub fn carried(&self) -> u64 {
        let rest = self.waiting.len() + self.failed.len();
        (self.blocks.len() - rest) as u64
    }

    /// Whether the last write-backs failed and are to be tried again later.
    pub fn is_failing(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Whether some blocks will be clean sooner or later without anybody's doing.
    pub fn moves(&self) -> bool {
        self.blocks.len() > self.failed.len()
    }

    /// The newest stamp.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Whether a block is dirty.
    pub fn has(&self, index: u64) -> bool {
        self.blocks.contains_key(&index)
    }

    /// How many blocks of a range are dirty.
    pub fn count(&self, range: Range<u64>) -> u64 {
        self.order.range(range).count() as u64
    }

    /// The first dirty blocks of a range, ascending, at most `most`.
    pub fn within(&self, range: Range<u64>, most: u64) -> Vec<u64> {
        if range.is_empty() {
            return Vec::new();
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.order.range(range).take(most).copied().collect()
    }

    /// The data of a dirty block that is in no frame.
    pub fn evicted_data(&self, index: u64) -> Option<&IoBuf> {
        self.blocks.get(&index)?.evicted_data.as_ref()
    }

    /// The same, to write to.
    pub fn evicted_data_mut(&mut self, index: u64) -> Option<&mut IoBuf> {
        self.blocks.get_mut(&index)?.evicted_data.as_mut()
    }

    /// A block was written, here and not in the store.
    pub fn mark(&mut self, index: u64, now: Instant) {
        self.stamp += 1;
        let stamp = self.stamp;
        let dirty = self.blocks.entry(index).or_default();
        if dirty.unsaved.is_some() {
            return;
        }
        self.order.insert(index);
        dirty.unsaved = Some(stamp);
        if dirty.carried.is_none() {
            self.waiting.insert(index);
        }
        self.ages.push_back((now, stamp, index));
        if self.ages.len() > 2 * self.blocks.len() + AGES_SPARE {
            let blocks = &self.blocks;
            self.ages.retain(|(_, stamp, index)| {
                let dirty = blocks.get(index);
                dirty.is_some_and(|dirty| dirty.unsaved == Some(*stamp))
            });
        }
    }

    /// A dirty block has lost its slot: `data` is what the frame held.
    pub fn evict(&mut self, index: u64, data: IoBuf, evicted_under: Option<u64>) {
        let Some(dirty) = self.blocks.get_mut(&index) else {
            return;
        };
        self.evicted_dirty += u64::from(dirty.evicted_data.is_none());
        dirty.evicted_data = Some(data);
        self.lose_slot(index, evicted_under);
    }

    /// A dirty block whose data is here has lost its slot.
    pub fn lose_slot(&mut self, index: u64, evicted_under: Option<u64>) {
        let Some(dirty) = self.blocks.get_mut(&index) else {
            return;
        };
        dirty.is_evicted = true;
        dirty.evicted_under = evicted_under;
        if self.waiting.contains(&index) {
            self.due.insert(index);
        }
    }

    /// The data of a dirty block that has no frame, made by `new` if there is none yet.
    pub fn hold(&mut self, index: u64, new: impl FnOnce() -> IoBuf) -> Option<&mut IoBuf> {
        let dirty = self.blocks.get_mut(&index)?;
        self.evicted_dirty += u64::from(dirty.evicted_data.is_none());
        Some(dirty.evicted_data.get_or_insert_with(new))
    }

    /// A dirty block whose data is here has a slot again.
    pub fn regain_slot(&mut self, index: u64) {
        if let Some(dirty) = self.blocks.get_mut(&index) {
            dirty.is_evicted = false;
            dirty.evicted_under = None;
        }
    }

    /// A dirty block has a slot again: its data.
    pub fn adopt(&mut self, index: u64) -> Option<IoBuf> {
        let dirty = self.blocks.get_mut(&index)?;
        let data = dirty.evicted_data.take()?;
        dirty.is_evicted = false;
        dirty.evicted_under = None;
        self.evicted_dirty -= 1;
        Some(data)
    }

    /// Everything that is dirty now is to be written as soon as may be, what failed before too. It becomes
    /// due by [`catch_up`](Self::catch_up), however much it is.
    pub fn hurry(&mut self) {
        self.urgent = self.stamp;
        self.is_catching_up = true;
        self.try_again();
    }

    fn try_again(&mut self) {
        self.retry_at = None;
        self.retrying = Some(0);
    }

    /// Whether some of what is to be written as soon as may be is not due yet.
    pub fn is_behind(&self) -> bool {
        self.is_catching_up || self.retrying.is_some()
    }

    /// Makes some more blocks due of those that are to be written as soon as may be; looks at `most` at
    /// most. Returns how many it has looked at.
    pub fn catch_up(&mut self, most: u64) -> u64 {
        let mut looked = 0;
        while looked < most
            && let Some(from) = self.retrying
        {
            // Upwards, so that what fails again meanwhile is left alone for a while.
            let next = self.failed.range(from..).next().copied();
            self.retrying = next.map(|index| index + 1);
            if let Some(index) = next {
                looked += 1;
                self.failed.remove(&index);
                self.waiting.insert(index);
                self.due.insert(index);
            }
        }
        while looked < most && self.is_catching_up {
            // What is carried and was written since becomes due when that is over.
            match self.ages.front() {
                Some(&(_, stamp, index)) if stamp <= self.urgent => {
                    looked += 1;
                    self.ages.pop_front();
                    if self.is_waiting_since(index, stamp) {
                        self.due.insert(index);
                    }
                }
                _ => self.is_catching_up = false,
            }
        }
        looked
    }

    fn is_waiting_since(&self, index: u64, stamp: u64) -> bool {
        let dirty = self.blocks.get(&index);
        dirty.is_some_and(|dirty| dirty.unsaved == Some(stamp)) && self.waiting.contains(&index)
    }

    /// Time has passed: what has been dirty for longer than `age_max` is due. Goes through this many of
    /// them only at a time; whether that is all.
    pub fn age(&mut self, now: Instant, age_max: Duration) -> bool {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.try_again();
        }
        for _ in 0..AGED_BLOCKS_MAX {
            let Some(&(since, stamp, index)) = self.ages.front() else {
                return true;
            };
            let is_old = now.saturating_duration_since(since) >= age_max;
            let dirty = self.blocks.get_mut(&index);
            let dirty = dirty.filter(|dirty| dirty.unsaved == Some(stamp));
            if dirty.is_some() && !is_old {
                return true;
            }
            if let Some(dirty) = dirty {
                dirty.overdue = true;
                if self.waiting.contains(&index) {
                    self.due.insert(index);
                }
            }
            self.ages.pop_front();
        }
        false
    }

    /// Blocks in a row that are to be written next, in ascending order from where the last were:
    /// those that are due, and what is waiting right behind them; any that wait if `press`.
    /// `is_free` says whether a block may be written now. At most `blocks_max`.
    pub fn next_run(
        &mut self,
        press: bool,
        blocks_max: u64,
        is_free: impl Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        let set = if !self.due.is_empty() {
            &self.due
        } else if press {
            &self.waiting
        } else {
            return None;
        };
        let ahead = set.range(self.cursor..).chain(set.range(..self.cursor));
        let (mut first, mut taken) = (None, None);
        for &index in ahead.take(SEARCH_BLOCKS_MAX) {
            if is_free(index) {
                first = Some(index);
                break;
            }
            taken = Some(index);
        }
        let Some(first) = first else {
            // The end of what is under way on these comes by here, and looks further.
            self.cursor = taken.map_or(self.cursor, |taken| taken + 1);
            return None;
        };
        let mut end = first + 1;
        while end - first < blocks_max && self.waiting.contains(&end) && is_free(end) {
            end += 1;
        }
        self.cursor = end;
        Some(first..end)
    }

    /// A write-back of a block begins.
    pub fn carry(&mut self, index: u64) {
        self.waiting.remove(&index);
        self.due.remove(&index);
        if let Some(dirty) = self.blocks.get_mut(&index) {
            dirty.carried = dirty.unsaved.take();
            dirty.overdue = false;
        }
    }

    /// A write-back of a block is over, and the store has what it carried.
    pub fn saved(&mut self, index: u64) -> Option<(Change, Option<Cleaned>)> {
        let dirty = self.blocks.get_mut(&index)?;
        let before = dirty.carried.take()?;
        let after = dirty.unsaved;
        if after.is_none() {
            let cleaned = self.take(index);
            return Some((Change { before, after }, cleaned));
        }
        self.waiting.insert(index);
        let is_urgent = after.is_some_and(|stamp| stamp <= self.urgent);
        if is_urgent || dirty.overdue || dirty.is_evicted {
            self.due.insert(index);
        }
        Some((Change { before, after }, None))
    }

    /// A write-back of a block failed: it is dirty as before, and counts as written just now,
    /// since its waiters have been told.
    pub fn fail(&mut self, index: u64, now: Instant) -> Option<Change> {
        self.stamp += 1;
        let after = Some(self.stamp);
        let dirty = self.blocks.get_mut(&index)?;
        let before = dirty.carried.take()?;
        dirty.unsaved = after;
        self.failed.insert(index);
        self.retry_at = Some(now + RETRY_INTERVAL);
        Some(Change { before, after })
    }

    /// The store has, or need not have, all that a block holds. Nothing carries it.
    pub fn settle(&mut self, index: u64) -> Option<(Change, Cleaned)> {
        let before = self.blocks.get(&index)?.oldest()?;
        let after = None;
        let cleaned = self.take(index)?;
        Some((Change { before, after }, cleaned))
    }

    fn take(&mut self, index: u64) -> Option<Cleaned> {
        let Dirty {
            evicted_data,
            evicted_under,
            ..
        } = self.blocks.remove(&index)?;
        self.order.remove(&index);
        self.waiting.remove(&index);
        self.due.remove(&index);
        self.failed.remove(&index);
        self.evicted_dirty -= u64::from(evicted_data.is_some());
        if self.blocks.is_empty() {
            self.ages.clear();
            self.is_catching_up = false;
            self.retrying = None;
        }
        Some(Cleaned {
            evicted_data,
            evicted_under,
        })
    }

    /// Panics unless the sets fit together. For tests.
    pub fn audit(&self) {
        for (index, dirty) in &self.blocks {
            let places = [
                dirty.carried.is_some(),
                self.waiting.contains(index),
                self.failed.contains(index),
            ];
            let count = places.iter().filter(|&&place| place).count();
            assert_eq!(count, 1, "block {index} is in {count} places");
            assert!(
                dirty.oldest().is_some(),
                "block {index} is dirty of nothing"
            );
        }
        assert_eq!(
            self.order.len(),
            self.blocks.len(),
            "dirty blocks out of order"
        );
        let known = |set: &BTreeSet<u64>| set.iter().all(|index| self.has(*index));
        assert!(known(&self.waiting) && known(&self.failed), "clean blocks");
        assert!(self.due.is_subset(&self.waiting), "due and not waiting");
        let evicted = self
            .blocks
            .values()
            .filter(|dirty| dirty.evicted_data.is_some());
        assert_eq!(
            evicted.count() as u64,
            self.evicted_dirty,
            "evicted blocks are miscounted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(30);

    fn marked(indexes: &[u64]) -> (Dirt, Instant) {
        let (mut dirt, now) = (Dirt::default(), Instant::now());
        for &index in indexes {
            dirt.mark(index, now);
        }
        dirt.audit();
        (dirt, now)
    }

    #[test]
    fn runs_are_ascending_merged_and_go_round() {
        let (mut dirt, _) = marked(&[9, 3, 4, 5, 20, 6]);
        let mut runs = Vec::new();
        assert_eq!(dirt.next_run(false, 3, |_| true), None, "nothing is due");
        while let Some(run) = dirt.next_run(true, 3, |_| true) {
            run.clone().for_each(|index| dirt.carry(index));
            runs.push(run);
        }
        assert_eq!(runs, [3..6, 6..7, 9..10, 20..21]);
        dirt.audit();
        dirt.mark(1, Instant::now());
        assert_eq!(dirt.next_run(true, 3, |index| index != 1), None);
        assert_eq!(dirt.next_run(true, 3, |_| true), Some(1..2), "round again");
    }

    #[test]
    fn many_old_blocks_become_due_some_at_a_time() {
        let (mut dirt, now) = marked(&(0..2500).collect::<Vec<_>>());
        let mut steps = Vec::new();
        while !dirt.age(now + AGE, AGE) {
            steps.push(dirt.due.len());
        }
        assert_eq!((steps, dirt.due.len()), (vec![1024, 2048], 2500));
    }

    #[test]
    fn all_that_is_hurried_becomes_due_some_at_a_time() {
        let (mut dirt, now) = marked(&(0..2500).rev().collect::<Vec<_>>());
        for index in 0..700 {
            dirt.carry(index);
            dirt.fail(index, now).expect("carried");
        }
        dirt.carry(2000);
        dirt.mark(2000, now);
        dirt.hurry();
        assert_eq!(dirt.due.len(), 0, "nothing yet");
        dirt.mark(3000, now);
        assert_eq!(dirt.catch_up(600), 600);
        dirt.carry(7);
        dirt.fail(7, now).expect("carried");
        let mut looked = Vec::new();
        while dirt.is_behind() {
            looked.push(dirt.catch_up(1024));
            dirt.audit();
        }
        // Marks of blocks that failed are old ones, and are passed over.
        assert_eq!(looked.iter().sum::<u64>(), 100 + 2500 + 1, "{looked:?}");
        assert!(looked.iter().all(|&blocks| blocks <= 1024), "{looked:?}");
        assert!(dirt.is_failing() && !dirt.due.contains(&7), "failed again");
        assert!(!dirt.due.contains(&3000), "written after the flush came");
        assert!(!dirt.due.contains(&2000), "on its way");
        drop(dirt.saved(2000));
        assert!(dirt.due.contains(&2000), "written before the flush came");
        assert_eq!(dirt.due.len(), 2500 - 1);
    }

    #[test]
    fn a_search_for_what_may_be_written_is_bounded_and_goes_on() {
        let (mut dirt, _) = marked(&(0..3000).collect::<Vec<_>>());
        let looked = std::cell::Cell::new(0);
        let is_free = |index| {
            looked.set(looked.get() + 1);
            index >= 2500
        };
        assert_eq!(dirt.next_run(true, 9, is_free), None);
        assert_eq!(looked.get(), SEARCH_BLOCKS_MAX);
        assert_eq!(dirt.next_run(true, 9, is_free), None);
        assert_eq!(dirt.next_run(true, 9, is_free), Some(2500..2509));
    }

    #[test]
    fn a_block_written_while_it_is_carried_stays_dirty() {
        let (mut dirt, now) = marked(&[7]);
        dirt.carry(7);
        dirt.mark(7, now);
        let (change, cleaned) = dirt.saved(7).expect("carried");
        assert!(cleaned.is_none() && dirt.has(7));
        assert!(change.frees(1) && !change.frees(2));
        dirt.carry(7);
        let (change, cleaned) = dirt.saved(7).expect("carried");
        assert!(cleaned.is_some() && change.frees(2) && !dirt.has(7));
        dirt.audit();
    }

    #[test]
    fn what_is_hurried_while_it_is_carried_is_carried_again_at_once() {
        let (mut dirt, now) = marked(&[7]);
        dirt.carry(7);
        dirt.mark(7, now);
        dirt.hurry();
        dirt.catch_up(9);
        assert_eq!(dirt.next_run(false, 9, |_| true), None);
        drop(dirt.saved(7));
        assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..8));
    }

    #[test]
    fn ages_of_clean_blocks_are_forgotten() {
        let (mut dirt, now) = marked(&[1]);
        for _ in 0..3 * AGES_SPARE {
            dirt.mark(7, now);
            drop(dirt.settle(7));
        }
        assert!(dirt.ages.len() <= AGES_SPARE + 4);
        dirt.age(now + AGE, AGE);
        assert_eq!(dirt.next_run(false, 9, |_| true), Some(1..2));
    }

    #[test]
    fn a_failure_keeps_the_block_and_is_tried_again_later() {
        let (mut dirt, now) = marked(&[7, 8]);
        dirt.carry(7);
        let change = dirt.fail(7, now).expect("carried");
        assert!(change.frees(2), "who waited is told");
        assert!(dirt.has(7) && dirt.is_failing());
        assert_eq!(dirt.next_run(true, 9, |_| true), Some(8..9));
        dirt.age(now + RETRY_INTERVAL, AGE);
        assert_eq!(dirt.catch_up(9), 1);
        assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..9));
        dirt.audit();
    }

    #[test]
    fn blocks_become_due_by_age() {
        let (mut dirt, now) = marked(&[7]);
        dirt.mark(9, now + AGE / 2);
        dirt.age(now + AGE, AGE);
        assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..8));
        dirt.carry(7);
        assert_eq!(dirt.next_run(false, 9, |_| true), None);
        dirt.mark(7, now + AGE);
        dirt.age(now + 2 * AGE, AGE);
        dirt.audit();
        assert_eq!(dirt.next_run(false, 9, |_| true), Some(9..10));
        dirt.carry(9);
        drop(dirt.saved(7));
        let again = dirt.next_run(false, 9, |_| true);
        assert_eq!(again, Some(7..8), "too old while it was carried");
    }

    #[test]
    fn evicted_data_is_kept_until_the_store_has_it() {
        let (mut dirt, _) = marked(&[7]);
        dirt.evict(7, IoBuf::copy_of(&[1]), Some(4));
        assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..8), "at once");
        dirt.carry(7);
        assert_eq!(dirt.evicted_data(7).expect("kept").as_slice(), [1]);
        let (_, cleaned) = dirt.saved(7).expect("carried");
        let cleaned = cleaned.expect("clean");
        assert!(cleaned.evicted_under == Some(4) && cleaned.evicted_data.is_some());
        assert_eq!(dirt.evicted_dirty(), 0);
        let (mut dirt, _) = marked(&[7]);
        dirt.evict(7, IoBuf::copy_of(&[1]), Some(4));
        assert!(dirt.adopt(7).is_some() && dirt.adopt(7).is_none());
        assert!(dirt.settle(7).expect("dirty").1.evicted_under.is_none());
        dirt.audit();
    }
}
