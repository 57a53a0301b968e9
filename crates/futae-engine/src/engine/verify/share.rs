//! One copy of equal blocks, across the volumes of a cache. A block whose hash is known and that is not resident is read
//! from the frame of a resident block of the same hash, its twin. Of two resident blocks that turn out to be equal the
//! older copy leaves.
//!
//! The hints say which block may hold some content, and may be wrong. A twin counts only if the table ([`super::table`])
//! says that it holds that content now, its frame is ready and clean, and nothing is written over it.

use super::mac::Mac;
use super::table::Verdict;
use crate::SetupError;
use crate::engine::effects::Effects;
use crate::engine::frames::Frame;
use crate::engine::front::Engine;
use crate::engine::state::State;
use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_slice_box;
use futae_policy::{AccessKind, BlockId, Class, Slot, VolumeId};

/// Hints of a set. With twice as many hints as blocks one set in 250 is too small when all blocks differ.
const WAYS: usize = 16;
const INDEX_BITS: u32 = 48;

/// Blocks that were last seen to hold some content, the latest first.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
struct Set {
    /// Of the contents; 0 is no hint.
    tags: [u32; WAYS],
    blocks: [u64; WAYS],
}

/// Which block may hold some content. Sets of hints, the oldest of which goes when its set is full.
pub struct Sharing {
    sets: Box<[Set]>,
    /// Reads of blocks that were answered by their twins.
    pub equal_reads: u64,
    /// Copies that left since there was another.
    pub equal_dropped: u64,
}

impl Sharing {
    /// Hints for a cache of `blocks`, twice as many, 12 bytes each.
    fn new(blocks: u32) -> Result<Self, SetupError> {
        let wanted = (blocks as usize)
            .saturating_mul(3)
            .div_ceil(2 * WAYS)
            .max(1);
        let problem = |()| SetupError::Size(format!("no memory for hints of {blocks} blocks"));
        Ok(Self {
            sets: try_zeroed_slice_box(wanted).map_err(problem)?,
            equal_reads: 0,
            equal_dropped: 0,
        })
    }

    /// Bytes of memory of the hints.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.sets) as u64
    }

    fn set_of(&mut self, mac: Mac) -> (&mut Set, u32) {
        let (chooser, tag) = mac.halves();
        let at = (u128::from(chooser) * self.sets.len() as u128) >> 64;
        (&mut self.sets[at as usize], (tag as u32).max(1))
    }

    fn note(&mut self, mac: Mac, block: BlockId) {
        let (set, tag) = self.set_of(mac);
        let known = set.tags.iter().position(|&other| other == tag);
        let way = known.unwrap_or(WAYS - 1);
        set.tags[..=way].rotate_right(1);
        set.blocks[..=way].rotate_right(1);
        set.tags[0] = tag;
        set.blocks[0] = u64::from(block.volume().0) << INDEX_BITS | block.index();
    }

    fn find(&mut self, mac: Mac) -> Option<BlockId> {
        let (set, tag) = self.set_of(mac);
        let way = set.tags.iter().position(|&other| other == tag)?;
        let block = set.blocks[way];
        let volume = VolumeId((block >> INDEX_BITS) as u16);
        Some(BlockId::new(volume, block & ((1 << INDEX_BITS) - 1)))
    }
}

impl Engine {
    /// From now on blocks of equal hashes are held once, across volumes, and a read of a block that is not resident
    /// may be answered by another volume's block. Call it after [`verify_hand_downs`](Self::verify_hand_downs), and before
    /// the first request.
    ///
    /// A client can tell from the time of its first read after an eviction whether another volume of this cache holds
    /// the same content.
    ///
    /// # Errors
    ///
    /// Nothing is verified, so no hashes are known, or there is no memory for the hints.
    pub fn share_equal(&self) -> Result<(), SetupError> {
        let mut state = self.lock();
        let blocks = state.level.capacity();
        let Some(verifier) = &mut state.verifier else {
            let message = "equal blocks are found by their hashes, and none are kept";
            return Err(SetupError::Size(message.to_owned()));
        };
        verifier.sharing = Some(Sharing::new(blocks)?);
        Ok(())
    }
}

impl State {
    /// The resident block that holds what `block` holds, which is not resident, and its slot.
    pub fn twin_of(&mut self, block: BlockId) -> Option<(BlockId, Slot)> {
        self.verifier.as_ref()?.sharing.as_ref()?;
        if self.level.find(block).is_some() || self.evicted_data(block).is_some() {
            return None;
        }
        let mac = self.known(block)?;
        self.twin_with(block, mac)
    }

    /// The resident block other than `block` that holds content of this hash, and its slot.
    pub fn twin_with(&mut self, block: BlockId, mac: Mac) -> Option<(BlockId, Slot)> {
        let twin = self.verifier.as_mut()?.sharing.as_mut()?.find(mac)?;
        let slot = self.level.find(twin).filter(|_| twin != block)?;
        let span = self.block_span(twin);
        let is_still = self.frames.get(slot) == Frame::Ready
            && !self.is_dirty(twin)
            && self.under_way.write_over(&span).is_none();
        let is_like = span.length == self.block_span(block).length;
        let is_equal = is_still && is_like && self.check(twin, Some(mac)) == Verdict::Same;
        is_equal.then_some((twin, slot))
    }

    /// Puts the twin before the policy in the place of a block of `volume`, whose access it is.
    pub fn touch_twin(
        &mut self,
        twin: BlockId,
        volume: VolumeId,
        kind: AccessKind,
        effects: &mut Effects,
    ) {
        self.offer_counted(twin, kind, Class::NORMAL, volume, effects);
        if let Some(sharing) = self.sharing() {
            sharing.equal_reads += u64::from(kind == AccessKind::Read);
        }
    }

    /// `block` is known to hold content of this hash from now on: another resident block that holds it leaves.
    pub fn hold_once(&mut self, block: BlockId, mac: Mac) {
        if self.sharing().is_none() || self.level.find(block).is_none() {
            return;
        }
        let twin = self.twin_with(block, mac);
        if let Some((twin, _)) = twin {
            self.invalidate(twin);
        }
        if let Some(sharing) = self.sharing() {
            sharing.equal_dropped += u64::from(twin.is_some());
            sharing.note(mac, block);
        }
    }

    fn sharing(&mut self) -> Option<&mut Sharing> {
        self.verifier.as_mut()?.sharing.as_mut()
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
}
