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
