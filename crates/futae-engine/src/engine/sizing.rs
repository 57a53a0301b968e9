//! How many slots a cache has: what it was told, less what it gives way to.

use super::{Engine, SHRINK_STEP_BLOCKS, check_memory};
use crate::SetupError;
use std::sync::{Arc, PoisonError};

/// Of the slots that a cache was told to have, at least one in so many stays whatever is set aside.
const KEPT_SHARE: u32 = 2;

/// What a cache was told.
#[derive(Debug)]
pub struct Sizing {
    /// Slots that it is to have.
    pub capacity_blocks: u32,
    /// Slots that it gives up to memory that is used beside it.
    pub aside_blocks: u32,
}

impl Sizing {
    /// The slots that are left.
    fn left(&self) -> u32 {
        let kept = self.capacity_blocks.div_ceil(KEPT_SHARE);
        self.capacity_blocks
            .saturating_sub(self.aside_blocks)
            .max(kept)
    }
}

impl Engine {
    /// Changes the number of slots. Evicted blocks are handed down as always; the memory of
    /// their frames goes back to the kernel.
    pub fn resize(self: &Arc<Self>, capacity_blocks: u32) -> Result<(), SetupError> {
        if capacity_blocks == 0 {
            return Err(SetupError::Size(
                "a cache has at least one block".to_owned(),
            ));
        }
        check_memory(u64::from(capacity_blocks) * self.block_bytes)?;
        self.lock().arena.reserve(capacity_blocks)?;
        self.fit(|sizing| sizing.capacity_blocks = capacity_blocks);
        Ok(())
    }

    /// The size that it was told to have, in bytes.
    pub fn wanted_bytes(&self) -> u64 {
        let sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        u64::from(sizing.capacity_blocks) * self.block_bytes
    }

    /// Has the cache give way to so many bytes that are used beside it for what it caches, so that both together
    /// stay within its size; at least half of it stays. As with [`resize`](Self::resize), frames go back to the
    /// kernel.
    pub fn set_aside(self: &Arc<Self>, bytes: u64) {
        let blocks = bytes.div_ceil(self.block_bytes);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.fit(|sizing| sizing.aside_blocks = blocks);
    }

    /// One at a time: what was said last counts.
    fn fit(self: &Arc<Self>, change: impl FnOnce(&mut Sizing)) {
        let mut sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = sizing.left();
        change(&mut sizing);
        let left = sizing.left();
        if left == before {
            return;
        }
        while !self.act(|state, effects| state.resize_step(left, SHRINK_STEP_BLOCKS, effects)) {
            self.state.give_way();
        }
    }
}
