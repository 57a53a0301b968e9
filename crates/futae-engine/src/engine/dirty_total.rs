//! The dirty blocks of all volumes together: their number, their volumes, and the limit.

use super::options::WriteBackOptions;
use std::collections::BTreeSet;
use std::time::Duration;

/// The dirty blocks of all volumes together, and their limit.
pub struct WriteBack {
    options: WriteBackOptions,
    /// Number of dirty blocks at which writers wait.
    pub dirty_max_blocks: u64,
    /// Dirty blocks now.
    pub dirty_blocks: u64,
    /// Numbers of the volumes with dirty blocks or waiting writes, and of some that had them.
    /// Thousands of other volumes may exist.
    pub busy: BTreeSet<u16>,
}

impl WriteBack {
    /// Starts without dirty blocks.
    pub fn new(options: WriteBackOptions, capacity_blocks: u32) -> Self {
        let mut new = Self {
            options,
            dirty_max_blocks: 0,
            dirty_blocks: 0,
            busy: BTreeSet::new(),
        };
        new.resize(capacity_blocks);
        new
    }

    /// The longest time that a block may be dirty.
    pub fn age_max(&self) -> Duration {
        self.options.dirty_age_max
    }

    /// The size of the cache has changed.
    pub fn resize(&mut self, capacity_blocks: u32) {
        let share = f64::from(capacity_blocks) * self.options.dirty_max;
        self.dirty_max_blocks = (share as u64).max(1);
    }

    /// The first busy volume with this number or a higher one.
    pub fn next_busy(&self, from: u16) -> Option<u16> {
        self.busy.range(from..).next().copied()
    }

    /// Number of dirty blocks above which write-back begins.
    pub fn low(&self) -> u64 {
        self.dirty_max_blocks / 2
    }
}

/// Whether a write can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The cache can keep the write.
    Enough,
    /// The cache can keep the write when fewer blocks are dirty.
    Later,
    /// The write must go to the store.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_share(dirty_max: f64, capacity_blocks: u32) -> WriteBack {
        let dirty_age_max = Duration::from_secs(7);
        let options = WriteBackOptions {
            dirty_max,
            dirty_age_max,
        };
        WriteBack::new(options, capacity_blocks)
    }

    #[test]
    fn the_limit_is_a_share_of_the_cache_and_follows_its_size() {
        let mut dirty = with_share(0.25, 100);
        assert_eq!((dirty.dirty_max_blocks, dirty.low()), (25, 12));
        dirty.resize(1000);
        assert_eq!((dirty.dirty_max_blocks, dirty.low()), (250, 125));
        dirty.resize(3);
        assert_eq!(
            (dirty.dirty_max_blocks, dirty.low()),
            (1, 0),
            "a write must be able to go on"
        );
        assert_eq!(dirty.age_max(), Duration::from_secs(7));
    }

    #[test]
    fn the_busy_volumes_are_found_in_the_order_of_their_numbers() {
        let mut dirty = with_share(0.5, 8);
        assert_eq!(dirty.next_busy(0), None);
        dirty.busy.extend([9, 2, u16::MAX]);
        assert_eq!(dirty.next_busy(0), Some(2));
        assert_eq!(dirty.next_busy(2), Some(2));
        assert_eq!(dirty.next_busy(3), Some(9));
        assert_eq!(dirty.next_busy(10), Some(u16::MAX));
    }
}
