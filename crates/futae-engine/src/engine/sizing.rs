//! How many slots a cache has: what it was told, less what it gives way to.

use super::steps::STEP_BLOCKS;
use super::{Engine, EngineOptions, WriteBackOptions};
use crate::SetupError;
use std::sync::{Arc, PoisonError};

/// The smallest block in bytes: one page.
const BLOCK_BYTES_MIN: u64 = 4 << 10;
/// The largest block in bytes.
const BLOCK_BYTES_MAX: u64 = 256 << 20;
/// Blocks that one step of a shrink lets go at most, so that requests are not held up.
const SHRINK_STEP_BLOCKS: u32 = STEP_BLOCKS as u32;
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
    /// Changes the number of slots. The level below hears of evicted blocks as always; the memory of
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

/// Whether a cache can be set up so.
pub fn check_sizes(options: &EngineOptions) -> Result<(), SetupError> {
    let block = options.block_bytes;
    if !block.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block) {
        let message =
            format!("a block of {block} bytes: choose a power of two from 4 KiB to 256 MiB");
        return Err(SetupError::Size(message));
    }
    if options.capacity_blocks == 0 {
        let message = format!("a cache smaller than one block of {block} bytes holds nothing");
        return Err(SetupError::Size(message));
    }
    if let Some(how) = &options.write_back {
        if block > WriteBackOptions::BLOCK_BYTES_MAX {
            let message = format!(
                "blocks of {block} bytes are loaded in pieces and cannot be written back; choose \
                 blocks of 1MiB at most, or write-through"
            );
            return Err(SetupError::Size(message));
        }
        if !(how.dirty_max > 0.0 && how.dirty_max <= 1.0) {
            let message = "the share of the cache that may be dirty is above 0 and at most 100 %";
            return Err(SetupError::Size(message.to_owned()));
        }
    }
    check_memory(u64::from(options.capacity_blocks) * block)
}

fn check_memory(bytes: u64) -> Result<(), SetupError> {
    let memory = rustix::system::sysinfo();
    let total = memory
        .totalram
        .saturating_mul(u64::from(memory.mem_unit).max(1));
    if bytes > total {
        let message = format!(
            "a cache of {bytes} bytes does not fit in this machine's {total} bytes of memory"
        );
        return Err(SetupError::Size(message));
    }
    Ok(())
}
