//! Volumes of a fixed size whose store another program extends while they are in use.

use super::flights::Span;
use super::front::Engine;
use crate::{IoError, IoErrorKind};
use futae_policy::VolumeId;
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Asks the store for its current length and extends the volume to it; returns the size before
    /// and after. Work under way in the last block is waited for, at most for `timeout`, and dirty data there is written
    /// back first, so a store must not call this function.
    ///
    /// # Errors
    ///
    /// The store cannot tell its length, has become shorter, or does not answer, or its last block could not be written
    /// back. The size is then unchanged.
    pub fn lengthen_volume(
        self: &Arc<Self>,
        volume: VolumeId,
        timeout: Duration,
    ) -> Result<(u64, u64), IoError> {
        let before = self.volume_bytes(volume);
        let store = self.lock().store(volume);
        // If the last block is partial, the range begins there: its frame ends where the volume
        // ended.
        self.change_within(volume, (before, u64::MAX), timeout, || {
            let after = store.look_again()?;
            let mut state = self.lock();
            let reached = state.check_reach(after);
            reached.map_err(|problem| IoError::new(IoErrorKind::Unsupported, problem))?;
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
