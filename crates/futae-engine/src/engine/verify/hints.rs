//! Hints which block may hold some content. A hint may be wrong.

use super::mac::Mac;
use crate::SetupError;
use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_slice_box;
use futae_policy::{BlockId, VolumeId};

/// Hints per set. With twice as many hints as blocks, one set in 250 is too small when all blocks
/// differ.
const WAYS: usize = 16;
const INDEX_BITS: u32 = 48;

/// Blocks last seen with some content, the latest first.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
struct Set {
    /// Tags of the contents; 0 means no hint.
    tags: [u32; WAYS],
    blocks: [u64; WAYS],
}

/// Hints which block may hold some content, in sets. A full set drops its oldest hint.
pub struct Sharing {
    sets: Box<[Set]>,
    /// Reads answered from an equal block.
    pub equal_reads: u64,
    /// Copies dropped because an equal block was resident.
    pub equal_dropped: u64,
}

impl Sharing {
    /// Hints for a cache of `blocks`: twice as many, of 12 bytes each.
    pub fn new(blocks: u32) -> Result<Self, SetupError> {
        let wanted = (blocks as usize).saturating_mul(2).div_ceil(WAYS).max(1);
        let problem = |()| SetupError::Size(format!("no memory for hints of {blocks} blocks"));
        Ok(Self {
            sets: try_zeroed_slice_box(wanted).map_err(problem)?,
            equal_reads: 0,
            equal_dropped: 0,
        })
    }

    /// Memory of the hints in bytes.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.sets) as u64
    }

    fn set_of(&mut self, mac: Mac) -> (&mut Set, u32) {
        let (chooser, tag) = mac.halves();
        let at = (u128::from(chooser) * self.sets.len() as u128) >> 64;
        (&mut self.sets[at as usize], (tag as u32).max(1))
    }

    /// `block` holds content with this hash.
    pub fn note(&mut self, mac: Mac, block: BlockId) {
        let (set, tag) = self.set_of(mac);
        let known = set.tags.iter().position(|&other| other == tag);
        let way = known.unwrap_or(WAYS - 1);
        set.tags[..=way].rotate_right(1);
        set.blocks[..=way].rotate_right(1);
        set.tags[0] = tag;
        set.blocks[0] = u64::from(block.volume().0) << INDEX_BITS | block.index();
    }

    /// The block last recorded with this hash, unless the hint was dropped.
    pub fn find(&mut self, mac: Mac) -> Option<BlockId> {
        let (set, tag) = self.set_of(mac);
        let way = set.tags.iter().position(|&other| other == tag)?;
        let block = set.blocks[way];
        let volume = VolumeId((block >> INDEX_BITS) as u16);
        Some(BlockId::new(volume, block & ((1 << INDEX_BITS) - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::verify::mac::Keys;

    #[test]
    fn the_latest_hints_of_a_set_are_found() {
        let keys = Keys::draw().expect("keys");
        let mut sharing = Sharing::new(1).expect("hints");
        assert_eq!(sharing.bytes(), 16 * 12);
        let mac = |number: u64| keys.mac(&number.to_le_bytes());
        let block = |number| BlockId::new(VolumeId(number as u16), 7 * number);
        assert_eq!(sharing.find(mac(0)), None);
        (0..16).for_each(|number| sharing.note(mac(number), block(number)));
        (0..16).for_each(|number| assert_eq!(sharing.find(mac(number)), Some(block(number))));
        sharing.note(mac(1), block(99));
        assert_eq!(sharing.find(mac(1)), Some(block(99)), "noted again");
        sharing.note(mac(16), block(16));
        assert_eq!(sharing.find(mac(0)), None, "the oldest is gone");
        assert_eq!(sharing.find(mac(16)), Some(block(16)));
    }

    #[test]
    fn most_hints_that_fit_are_found() {
        let keys = Keys::draw().expect("keys");
        let mut sharing = Sharing::new(2000).expect("hints");
        assert_eq!(sharing.bytes(), 2 * 2000 * 12, "what the manual says");
        let mac = |number: u64| keys.mac(&number.to_le_bytes());
        (0..2000).for_each(|number| sharing.note(mac(number), BlockId::on_first(number)));
        let is_found = |&number: &u64| sharing.find(mac(number)).is_some();
        let found = (0..2000).filter(is_found).count();
        assert!(found > 1980, "{found} of 2000");
    }
}
