//! Volumes of a fixed size whose store another program extends while they are in use.

use super::flights::Span;
use super::front::Engine;
use crate::IoError;
use futae_policy::VolumeId;
use std::sync::Arc;

impl Engine {
    /// Asks the store for its current length and extends the volume to it; returns the size before
    /// and after. Work under way in the last block is waited for, and dirty data there is written
    /// back first, so a store must not call this function.
    ///
    /// # Errors
    ///
    /// The store cannot tell its length, has become shorter, or its last block could not be written
    /// back. The size is then unchanged.
    pub fn lengthen_volume(self: &Arc<Self>, volume: VolumeId) -> Result<(u64, u64), IoError> {
        let before = self.volume_bytes(volume);
        let store = self.lock().store(volume);
        // If the last block is partial, the range begins there: its frame ends where the volume
        // ended.
        self.change(volume, before, u64::MAX, || {
            let after = store.look_again()?;
            let mut state = self.lock();
            let block_bytes = state.block_bytes;
            state.forget_contents(&Span {
                volume,
                offset: before / block_bytes * block_bytes,
                length: block_bytes,
            });
            state.volumes[usize::from(volume.0)].size_bytes = after;
            Ok((before, after))
        })?
    }
}
