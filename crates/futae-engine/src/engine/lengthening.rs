//! Volumes of a fixed size whose store was made longer, by another program, while they are in use.

use super::flights::Span;
use super::front::Engine;
use crate::IoError;
use futae_policy::VolumeId;
use std::sync::Arc;

impl Engine {
    /// Has the store look how long it is now, and the volume be as long; its size before and after. What is under way
    /// in its last block is waited for, and what is dirty there is written back first. So this must not be called by a store.
    ///
    /// # Errors
    ///
    /// The store cannot tell, or has become shorter; or its last block could not be written back. The size is then as it was.
    pub fn lengthen_volume(self: &Arc<Self>, volume: VolumeId) -> Result<(u64, u64), IoError> {
        let before = self.volume_bytes(volume);
        let store = self.lock().store(volume);
        // The range begins at the last block if that is a part of one: its frame ends where the volume ended.
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
