//! A sample of the blocks requested from a running cache, in the order of their decisions, for a
//! miss-ratio curve computed beside the cache. All requests for a block are in the sample, or none.
//!
//! The sample has a buffer of fixed size, which its reader empties. Blocks that do not fit are
//! counted and dropped.

use futae_policy::{VolumeId, mixed};
use std::ops::Range;

/// Blocks that the buffer can hold: 1 MiB of them.
const ROOM: usize = 1 << 16;

/// The blocks sampled since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledPart {
    /// The requested blocks: the volume, and the block's index in it.
    pub blocks: Vec<(VolumeId, u64)>,
    /// The number of blocks that did not fit into the buffer.
    pub lost: u64,
}

impl SampledPart {
    /// The largest number of blocks in a part.
    pub const BLOCKS_MAX: usize = ROOM;

    /// An empty part with a buffer of full size.
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
    /// A sample that begins now, of the fraction `share` of all blocks.
    pub fn new(share: f64) -> Self {
        Self {
            most: (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64,
            part: SampledPart::with_room(),
        }
    }

    /// Adds the sampled blocks of a request.
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

    /// Exchanges the blocks sampled since the last call for `empty`.
    pub fn exchange(&mut self, empty: SampledPart) -> SampledPart {
        std::mem::replace(&mut self.part, empty)
    }
}
