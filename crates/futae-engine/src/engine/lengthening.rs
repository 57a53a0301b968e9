//! Volumes of a fixed size whose store another program extends while they are in use, and how long volumes can be.

use super::flights::Span;
use super::front::Engine;
use super::state::State;
use crate::{IoError, IoErrorKind, SetupError};
use futae_policy::{BlockId, VolumeId};
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Whether a volume of this size can be cached in blocks of this size.
    ///
    /// # Errors
    ///
    /// [`SetupError::Size`] if it has more blocks than there are numbers for.
    pub fn check_size(name: &str, size_bytes: u64, block_bytes: u64) -> Result<(), SetupError> {
        check_reach(size_bytes, block_bytes).map_err(|problem| {
            SetupError::Size(format!("{name}: {problem}; choose a larger --block"))
        })
    }

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

impl State {
    /// The largest number of bytes of a volume whose blocks have numbers.
    pub fn reach(&self) -> u64 {
        reach(self.block_bytes)
    }

    /// An error sentence for a volume whose last blocks would have the numbers of another volume's.
    pub fn check_reach(&self, size_bytes: u64) -> Result<(), String> {
        check_reach(size_bytes, self.block_bytes)
    }
}

/// The largest number of bytes of a volume whose blocks of this size have numbers.
fn reach(block_bytes: u64) -> u64 {
    BlockId::INDEX_LIMIT.saturating_mul(block_bytes)
}

fn check_reach(size_bytes: u64, block_bytes: u64) -> Result<(), String> {
    let reach = reach(block_bytes);
    if size_bytes <= reach {
        return Ok(());
    }
    Err(format!(
        "{size_bytes} bytes are more than the {reach} that can be cached in blocks of {block_bytes} bytes"
    ))
}
