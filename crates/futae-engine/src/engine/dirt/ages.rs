//! When the blocks of a volume became dirty.

use std::collections::VecDeque;
use std::time::Instant;

/// A queue, oldest first, of instant, stamp and block. An entry can outlive the dirtiness of its
/// block, so its reader checks whether the block has been dirty since that stamp.
#[derive(Default)]
pub struct Ages(VecDeque<(Instant, u64, u64)>);

impl Ages {
    /// Number of stale entries that may remain beyond twice the number of dirty blocks.
    pub const SPARE: usize = 4096;

    /// Entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Block `index`, one of `dirty` dirty blocks, became dirty. `is_current` says whether a block
    /// has been dirty since a stamp.
    pub fn note(
        &mut self,
        now: Instant,
        stamp: u64,
        index: u64,
        dirty: usize,
        is_current: impl Fn(u64, u64) -> bool,
    ) {
        self.0.push_back((now, stamp, index));
        if self.len() > 2 * dirty + Self::SPARE {
            self.0.retain(|&(_, stamp, index)| is_current(index, stamp));
        }
    }

    /// The oldest entry.
    pub fn oldest(&self) -> Option<(Instant, u64, u64)> {
        self.0.front().copied()
    }

    /// Removes the oldest entry.
    pub fn take_oldest(&mut self) {
        self.0.pop_front();
    }

    /// Removes the oldest entry and returns its stamp and its block, unless its stamp is above
    /// `stamp`.
    pub fn take_up_to(&mut self, stamp: u64) -> Option<(u64, u64)> {
        let &(_, of, index) = self.0.front().filter(|(_, of, _)| *of <= stamp)?;
        self.0.pop_front();
        Some((of, index))
    }

    /// Called when no block is dirty any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
