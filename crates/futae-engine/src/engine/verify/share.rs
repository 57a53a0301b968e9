//! One copy of equal blocks, across the volumes of a cache. A read of a block that is not resident,
//! and whose hash is known, is answered from the frame of a resident block with the same hash, its
//! twin. Of two resident blocks that are found to be equal, the older copy is dropped.
//!
//! The hints ([`super::hints`]) say which block may hold some content, and may be wrong. A twin is
//! used only if the table ([`super::table`]) says that it holds that content now, its frame is
//! ready and clean, and no write to it is under way.

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
    /// Enables sharing: blocks with equal hashes are held once, across volumes, and a read of a
    /// block that is not resident may be answered from another volume's block. Call it after
    /// [`verify_demotions`](Self::verify_demotions), and before the first request.
    ///
    /// A client can infer from the latency of its first read after an eviction whether another
    /// volume of this cache holds the same content.
    ///
    /// # Errors
    ///
    /// Demotions are not verified, so no hashes are known, or there is no memory for the hints.
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
    /// A resident block with the same content as `block`, which is not resident, and its slot.
    pub fn twin_of(&mut self, block: BlockId) -> Option<(BlockId, Slot)> {
        self.verifier.as_ref()?.sharing.as_ref()?;
        if self.level.find(block).is_some() || self.unframed(block).is_some() {
            return None;
        }
        let mac = self.known(block)?;
        self.twin_with(block, mac)
    }

    /// A resident block other than `block` whose content has this hash, and its slot.
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

    /// Offers the twin to the policy instead of a block of `volume`, which is charged with the
    /// access.
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

    /// `block` is now known to hold content with this hash: another resident block with that
    /// content is dropped.
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
