//! Work that takes the lock more than once. An operation on many blocks decides on at most
//! [`STEP_BLOCKS`] of them while it holds the lock. The rest is left in the effects; the same
//! thread continues with it after other threads have had the lock. If a request needs exclusive
//! access (a write to its range, say), tables in the state provide it between the steps, not the
//! lock.

/// The largest number of blocks decided while the lock is held once.
pub const STEP_BLOCKS: u64 = 1024;
/// The same limit in bytes, which may be copied; at least one block.
pub const STEP_BYTES: u64 = 4 << 20;

/// Progress of the current step.
#[derive(Debug)]
pub struct Steps {
    /// The largest number of blocks per step.
    pub most: u64,
    decided: u64,
    is_full: bool,
    /// Blocks of the longest step so far.
    pub longest: u64,
}

impl Steps {
    /// Steps over blocks of `block_bytes` bytes.
    pub fn new(block_bytes: u64) -> Self {
        Self {
            most: (STEP_BYTES / block_bytes).clamp(1, STEP_BLOCKS),
            decided: 0,
            is_full: false,
            longest: 0,
        }
    }

    /// The largest number of blocks per step.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Begins a step.
    pub fn begin(&mut self) {
        self.decided = 0;
        self.is_full = false;
    }

    /// Counts decided blocks.
    #[inline]
    pub fn count(&mut self, blocks: u64) {
        self.decided += blocks;
    }

    /// The number of blocks that this step may still decide.
    pub fn left(&self) -> u64 {
        if self.is_full {
            return 0;
        }
        self.most.saturating_sub(self.decided)
    }

    /// Whether a request for this many blocks may begin in this step: one that fits, or any as the
    /// first.
    pub fn has_room_for(&self, blocks: u64) -> bool {
        !self.is_full && (self.decided == 0 || blocks <= self.left())
    }

    /// Work was left for a later step: everything that follows stays behind it.
    pub fn fill(&mut self) {
        self.is_full = true;
    }

    /// Ends the step.
    pub fn end(&mut self) {
        self.longest = self.longest.max(self.decided);
    }
}
