//! Work that takes the lock more than once. Whatever touches many blocks decides on at most
//! [`STEP_BLOCKS`] of them while it holds the lock; the rest is left in the effects, and the same
//! thread goes on with it after others have had the lock. What a request must be alone for (a write and
//! its range, say) is kept by tables in the state meanwhile, not by the lock.

/// Blocks that are decided on at most while the lock is held once.
pub const STEP_BLOCKS: u64 = 1024;
/// The same in bytes, which may be copied; one block at least.
pub const STEP_BYTES: u64 = 4 << 20;

/// How far the present step is.
#[derive(Debug)]
pub struct Steps {
    /// Blocks of a step at most.
    pub most: u64,
    decided: u64,
    is_full: bool,
    /// Blocks of the longest step so far.
    pub longest: u64,
}

impl Steps {
    /// Steps over blocks of this many bytes.
    pub fn new(block_bytes: u64) -> Self {
        Self {
            most: (STEP_BYTES / block_bytes).clamp(1, STEP_BLOCKS),
            decided: 0,
            is_full: false,
            longest: 0,
        }
    }

    /// Blocks of a step at most.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// A step begins.
    pub fn begin(&mut self) {
        self.decided = 0;
        self.is_full = false;
    }

    /// This many blocks were decided on.
    #[inline]
    pub fn count(&mut self, blocks: u64) {
        self.decided += blocks;
    }

    /// Blocks that may still be decided on.
    pub fn left(&self) -> u64 {
        if self.is_full {
            return 0;
        }
        self.most.saturating_sub(self.decided)
    }

    /// Whether a request for this many blocks may begin in this step: one that fits, or any if it is the first.
    pub fn has_room_for(&self, blocks: u64) -> bool {
        !self.is_full && (self.decided == 0 || blocks <= self.left())
    }

    /// Something has been left for later, and all that follows it is to stay behind it.
    pub fn fill(&mut self) {
        self.is_full = true;
    }

    /// It ends.
    pub fn end(&mut self) {
        self.longest = self.longest.max(self.decided);
    }
}
