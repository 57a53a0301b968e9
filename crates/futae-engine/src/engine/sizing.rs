//! The number of slots of a cache: the configured number less the slots set aside.

use super::options::{EngineOptions, WriteBackOptions};
use super::world::World;
use crate::SetupError;

/// The smallest block in bytes: one page.
const BLOCK_BYTES_MIN: u64 = 4 << 10;
/// The largest block in bytes.
const BLOCK_BYTES_MAX: u64 = 256 << 20;
/// At least one in this many of the configured slots remains, however much is set aside.
const KEPT_SHARE: u32 = 2;

/// The configured and the reserved slots.
#[derive(Debug)]
pub struct Sizing {
    /// The configured number of slots.
    pub capacity_blocks: u32,
    /// Slots set aside for memory that is used beside the cache.
    pub aside_blocks: u32,
    /// Slots set aside for memory that the keeper of the blocks needs beside them.
    pub keeper_blocks: u32,
}

impl Sizing {
    /// The slots that remain.
    pub fn left(&self) -> u32 {
        let kept = self.capacity_blocks.div_ceil(KEPT_SHARE);
        self.capacity_blocks
            .saturating_sub(self.aside_blocks)
            .saturating_sub(self.keeper_blocks)
            .max(kept)
    }
}

/// Checks the sizes in the options.
pub fn check_sizes(options: &EngineOptions, world: &dyn World) -> Result<(), SetupError> {
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
    check_memory(u64::from(options.capacity_blocks) * block, world)
}

/// Checks that the machine has this much memory.
pub fn check_memory(bytes: u64, world: &dyn World) -> Result<(), SetupError> {
    let total = world.memory_bytes();
    if bytes > total {
        let message = format!(
            "a cache of {bytes} bytes does not fit in this machine's {total} bytes of memory"
        );
        return Err(SetupError::Size(message));
    }
    Ok(())
}
