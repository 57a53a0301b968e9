//! One copy of equal blocks, across the volumes of a cache. A block whose hash is known and that is not resident is read
//! from the frame of a resident block of the same hash, its twin. Of two resident blocks that turn out to be equal the
//! older copy leaves.
//!
//! The hints ([`super::hints`]) say which block may hold some content, and may be wrong. A twin counts only if the table ([`super::table`])
//! says that it holds that content now, its frame is ready and clean, and nothing is written over it.

use super::hints::Sharing;
use super::mac::Mac;
use super::table::Verdict;
use crate::SetupError;
use crate::engine::effects::Effects;
use crate::engine::frames::Frame;
use crate::engine::front::Engine;
use crate::engine::state::State;
use futae_policy::{AccessKind, BlockId, Class, Slot, VolumeId};

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
