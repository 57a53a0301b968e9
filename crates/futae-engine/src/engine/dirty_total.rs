//! What is dirty of all volumes together: how much, of which of them, and when that is too much.

use super::options::WriteBackOptions;
use std::collections::BTreeSet;
use std::time::Duration;

/// What is dirty of all volumes together, and how much of it may be.
pub struct WriteBack {
    options: WriteBackOptions,
    /// Dirty blocks at which writers wait.
    pub dirty_max_blocks: u64,
    /// Dirty blocks now.
    pub dirty_blocks: u64,
    /// Volumes with dirty blocks or writes that wait, by number, and some that had them: there may
    /// be thousands of others.
    pub busy: BTreeSet<u16>,
}

impl WriteBack {
    /// Nothing is dirty yet.
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

    /// How long a block may be dirty.
    pub fn age_max(&self) -> Duration {
        self.options.dirty_age_max
    }

    /// The cache has another size.
    pub fn resize(&mut self, capacity_blocks: u32) {
        let share = f64::from(capacity_blocks) * self.options.dirty_max;
        self.dirty_max_blocks = (share as u64).max(1);
    }

    /// The first volume from this number on that is busy.
    pub fn next_busy(&self, from: u16) -> Option<u16> {
        self.busy.range(from..).next().copied()
    }

    /// Dirty blocks above which some are written back.
    pub fn low(&self) -> u64 {
        self.dirty_max_blocks / 2
    }
}

/// Whether a write can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It can.
    Enough,
    /// When less is dirty.
    Later,
    /// It has to go through.
    None,
}
