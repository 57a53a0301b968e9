//! The dirty blocks of a volume: blocks with data that the store does not have yet.
//!
//! Every write has a stamp. A dirty block holds writes that no write-back carries yet, or writes
//! that a write-back under way carries, or both; it is clean when neither is left. Its data is in
//! its frame. If the block was evicted, or the cache uses no frames, its data is kept here until
//! the store has it (*unframed*).

mod ages;

use crate::{IoBuf, IoError, Request};
use ages::Ages;
use hashbrown::HashMap;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// After a failed write-back, the time before the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// While searching for a block that may be written back now, how many that may not are skipped per
/// step.
const SEARCH_BLOCKS_MAX: usize = 1024;
/// How many blocks become due per step, since the engine's lock is held meanwhile.
const AGED_BLOCKS_MAX: usize = 1024;

/// One dirty block.
#[derive(Debug, Default)]
struct Dirty {
    /// The stamp of the oldest write that no write-back carries.
    unsaved: Option<u64>,
    /// The stamp of the oldest write that a write-back under way carries.
    carried: Option<u64>,
    /// The block became too old while a write-back carried it.
    overdue: bool,
    /// The block lost its slot.
    is_evicted: bool,
    /// Its data: after it lost its slot, or from its first write on if the cache uses no frames.
    unframed: Option<IoBuf>,
    /// If the lower level is to learn of its eviction, the generation of the store under which its
    /// data came.
    evicted_under: Option<u64>,
}

impl Dirty {
    /// The stamp of the oldest write that the store does not have.
    fn oldest(&self) -> Option<u64> {
        self.carried.or(self.unsaved)
    }
}

/// A write that waits until fewer blocks are dirty.
pub struct Throttled {
    pub request: Request,
    /// Its place in the line, if it has one, which it keeps.
    pub place: Option<usize>,
}

/// A block whose oldest missing write has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The previous stamp.
    pub before: u64,
    /// The new stamp; `None` if the block is clean.
    pub after: Option<u64>,
}

impl Change {
    /// Whether a flush of all writes up to `stamp` had to wait for this block and no longer has to.
    pub fn frees(&self, stamp: u64) -> bool {
        self.before <= stamp && self.after.is_none_or(|after| after > stamp)
    }
}

/// What remains of a block that has become clean.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Its data, if it has no slot.
    pub unframed: Option<IoBuf>,
    /// If the lower level is to learn of its eviction, the generation of the store under which its
    /// data came.
    pub evicted_under: Option<u64>,
}

/// The dirty blocks of one volume, by index.
#[derive(Default)]
pub struct Dirt {
    blocks: HashMap<u64, Dirty>,
    /// All dirty blocks.
    order: BTreeSet<u64>,
    /// Dirty blocks that are neither carried nor awaiting a retry.
    waiting: BTreeSet<u64>,
    /// The subset of `waiting` that is to be written as soon as possible.
    due: BTreeSet<u64>,
    /// Blocks whose write-back failed, until it is retried.
    failed: BTreeSet<u64>,
    ages: Ages,
    stamp: u64,
    /// Writes up to this stamp are to be written as soon as possible.
    urgent: u64,
    /// Not all blocks of these writes are in `due` yet.
    is_catching_up: bool,
    /// While failed write-backs are retried: the block to continue with.
    retrying: Option<u64>,
    retry_at: Option<Instant>,
    /// Where the search for the next run begins.
    cursor: u64,
    unframed_blocks: u64,
    /// Write-backs under way, and their bytes.
    pub runs: u32,
    pub bytes_carried: u64,
    /// A failure that no flush has reported yet.
    pub error: Option<IoError>,
    /// Writes that wait until fewer blocks are dirty.
    pub throttled: VecDeque<Throttled>,
    /// Keys of the waiting flushes.
    pub flushes: Vec<usize>,
}

impl Dirt {
    /// Dirty blocks.
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Dirty blocks whose data is kept here.
    pub fn unframed_blocks(&self) -> u64 {
        self.unframed_blocks
    }

    /// Dirty blocks that a write-back carries.
    pub fn carried(&self) -> u64 {
        let rest = self.waiting.len() + self.failed.len();
        (self.blocks.len() - rest) as u64
    }

    /// Whether the last write-backs failed and await a retry.
    pub fn is_failing(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Whether some blocks will become clean without further action.
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

    /// The data of an unframed dirty block.
    pub fn unframed(&self, index: u64) -> Option<&IoBuf> {
        self.blocks.get(&index)?.unframed.as_ref()
    }

    /// The same, for writing.
    pub fn unframed_mut(&mut self, index: u64) -> Option<&mut IoBuf> {
        self.blocks.get_mut(&index)?.unframed.as_mut()
    }

    /// A block was written in the cache and not in the store.
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
        let blocks = &self.blocks;
        self.ages
            .note(now, stamp, index, blocks.len(), |index, stamp| {
                let dirty = blocks.get(&index);
                dirty.is_some_and(|dirty| dirty.unsaved == Some(stamp))
            });
    }

    /// A dirty block has lost its slot; `data` is the content of its frame.
    pub fn evict(&mut self, index: u64, data: IoBuf, evicted_under: Option<u64>) {
        let Some(dirty) = self.blocks.get_mut(&index) else {
            return;
        };
        self.unframed_blocks += u64::from(dirty.unframed.is_none());
        dirty.unframed = Some(data);
        self.lose_slot(index, evicted_under);
    }

    /// An unframed dirty block has lost its slot.
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

    /// The data of an unframed dirty block; `new` makes it if there is none yet.
    pub fn hold(&mut self, index: u64, new: impl FnOnce() -> IoBuf) -> Option<&mut IoBuf> {
        let dirty = self.blocks.get_mut(&index)?;
        self.unframed_blocks += u64::from(dirty.unframed.is_none());
        Some(dirty.unframed.get_or_insert_with(new))
    }

    /// An unframed dirty block has a slot again.
    pub fn regain_slot(&mut self, index: u64) {
        if let Some(dirty) = self.blocks.get_mut(&index) {
            dirty.is_evicted = false;
            dirty.evicted_under = None;
        }
    }

    /// A dirty block has a slot again. Returns its data.
    pub fn adopt(&mut self, index: u64) -> Option<IoBuf> {
        let dirty = self.blocks.get_mut(&index)?;
        let data = dirty.unframed.take()?;
        dirty.is_evicted = false;
        dirty.evicted_under = None;
        self.unframed_blocks -= 1;
        Some(data)
    }

    /// All dirty blocks, failed ones included, are to be written as soon as possible. They become
    /// due in steps, by [`catch_up`](Self::catch_up).
    pub fn hurry(&mut self) {
        self.urgent = self.stamp;
        self.is_catching_up = true;
        self.try_again();
    }

    fn try_again(&mut self) {
        self.retry_at = None;
        self.retrying = Some(0);
    }

    /// Whether some blocks that are to be written as soon as possible are not due yet.
    pub fn is_behind(&self) -> bool {
        self.is_catching_up || self.retrying.is_some()
    }

    /// Makes more urgent blocks due; looks at no more than `most` blocks. Returns how many it has
    /// looked at.
    pub fn catch_up(&mut self, most: u64) -> u64 {
        let mut looked = 0;
        while looked < most
            && let Some(from) = self.retrying
        {
            // In ascending order, so that a block that fails again meanwhile is not retried at
            // once.
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
            // A carried block that was written since becomes due when its write-back ends.
            match self.ages.take_up_to(self.urgent) {
                Some((stamp, index)) => {
                    looked += 1;
                    if self.is_waiting_since(index, stamp) {
                        self.due.insert(index);
                    }
                }
                None => self.is_catching_up = false,
            }
        }
        looked
    }

    fn is_waiting_since(&self, index: u64, stamp: u64) -> bool {
        let dirty = self.blocks.get(&index);
        dirty.is_some_and(|dirty| dirty.unsaved == Some(stamp)) && self.waiting.contains(&index)
    }

    /// Makes blocks due that have been dirty for longer than `age_max`. Looks at a bounded number
    /// of them; returns whether that was all.
    pub fn age(&mut self, now: Instant, age_max: Duration) -> bool {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.try_again();
        }
        for _ in 0..AGED_BLOCKS_MAX {
            let Some((since, stamp, index)) = self.ages.oldest() else {
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
            self.ages.take_oldest();
        }
        false
    }

    /// The next run of adjacent blocks to write, in ascending order from the end of the last run.
    /// It holds due blocks and waiting ones directly behind them, or any waiting blocks if `press`
    /// is set. `is_free` says whether a block may be written now. At most `blocks_max` blocks.
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
            // When the work under way on these blocks ends, the search is repeated.
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

    /// A write-back of a block has succeeded: the store has the data that it carried.
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

    /// A write-back of a block has failed: the block is as dirty as before. It counts as written
    /// just now, since its waiters got the error.
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

    /// The store has all data of the block, or does not need it. No write-back carries it.
    pub fn settle(&mut self, index: u64) -> Option<(Change, Cleaned)> {
        let before = self.blocks.get(&index)?.oldest()?;
        let after = None;
        let cleaned = self.take(index)?;
        Some((Change { before, after }, cleaned))
    }

    fn take(&mut self, index: u64) -> Option<Cleaned> {
        let Dirty {
            unframed,
            evicted_under,
            ..
        } = self.blocks.remove(&index)?;
        self.order.remove(&index);
        self.waiting.remove(&index);
        self.due.remove(&index);
        self.failed.remove(&index);
        self.unframed_blocks -= u64::from(unframed.is_some());
        if self.blocks.is_empty() {
            self.ages.clear();
            self.is_catching_up = false;
            self.retrying = None;
        }
        Some(Cleaned {
            unframed,
            evicted_under,
        })
    }

    /// Panics unless the sets are consistent. For tests.
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
        let unframed = self
            .blocks
            .values()
            .filter(|dirty| dirty.unframed.is_some());
        assert_eq!(
            unframed.count() as u64,
            self.unframed_blocks,
            "unframed blocks are miscounted"
        );
    }
}

#[cfg(test)]
mod tests;
