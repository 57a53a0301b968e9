//! Names of blocks, volumes and slots.

use serde::{Deserialize, Serialize};

/// One addressable run of blocks (a disk image, a device, a file), as a small number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct VolumeId(pub u16);

/// A block of a volume: the unit of caching.
///
/// The volume is kept in the upper 16 bits and the block's index on the volume in the lower 48,
/// so that 4 KiB blocks reach 1 EiB on each of 65,536 volumes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct BlockId(u64);

impl BlockId {
    /// The number of blocks that a volume can have.
    pub const INDEX_LIMIT: u64 = 1 << 48;

    /// A block that no store contains.
    pub(crate) const LAST: Self = Self(u64::MAX);

    /// The block at `index` (in blocks) of `volume`.
    #[inline]
    pub fn new(volume: VolumeId, index: u64) -> Self {
        debug_assert!(index < Self::INDEX_LIMIT);
        Self(u64::from(volume.0) << 48 | index)
    }

    /// A block of volume 0, for uses with a single volume.
    #[inline]
    pub fn on_first(index: u64) -> Self {
        Self::new(VolumeId(0), index)
    }

    /// The volume that the block is on.
    #[inline]
    pub fn volume(self) -> VolumeId {
        VolumeId((self.0 >> 48) as u16)
    }

    /// Volume and index as one number: the volume in the upper 16 bits.
    #[inline]
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The block's index on its volume, in blocks.
    #[inline]
    pub fn index(self) -> u64 {
        self.0 & (Self::INDEX_LIMIT - 1)
    }
}

/// A place in a cache, `0..capacity`. Live, slot *i* is frame *i* of the memory arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot as an array index.
    #[inline]
    pub fn i(self) -> usize {
        self.0 as usize
    }
}
