//! A sample of the blocks that a running cache is asked for, in the order in which they are decided, for a curve that is kept
//! beside the cache: all requests for a block are in it, or none.
//!
//! The sample has a room of fixed size, which its reader empties. What does not fit is counted, not kept.

use futae_policy::{VolumeId, mixed};
use std::ops::Range;

/// Blocks that the room has space for: 1 MiB of them.
const ROOM: usize = 1 << 16;

/// What was sampled since the sample was last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledPart {
    /// Blocks that were asked for: the volume, and the block's number in it.
    pub blocks: Vec<(VolumeId, u64)>,
    /// Those for which there was no room.
    pub lost: u64,
}

impl SampledPart {
    /// Blocks that a part has room for.
    pub const BLOCKS_MAX: usize = ROOM;

    /// Nothing yet, with room for all that is kept.
    pub(super) fn with_room() -> Self {
        Self {
            blocks: Vec::with_capacity(ROOM),
            lost: 0,
        }
    }
}

/// A sample that is being taken.
pub struct Sampling {
    /// A block is in the sample if its hash is at most this.
    most: u64,
    part: SampledPart,
}

impl Sampling {
    /// One that begins now, of the part `share` of all blocks.
    pub fn new(share: f64) -> Self {
        Self {
            most: (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64,
            part: SampledPart::with_room(),
        }
    }

    /// Adds those of the blocks of a request that are in the sample.
    pub fn add(&mut self, volume: VolumeId, blocks: Range<u64>) {
        for index in blocks {
            if mixed(u64::from(volume.0) << 48 ^ index) > self.most {
                continue;
            }
            if self.part.blocks.len() < ROOM {
                self.part.blocks.push((volume, index));
            } else {
                self.part.lost += 1;
            }
        }
    }

    /// What was sampled since the last time, exchanged for `empty`.
    pub fn exchange(&mut self, empty: SampledPart) -> SampledPart {
        std::mem::replace(&mut self.part, empty)
    }
}
