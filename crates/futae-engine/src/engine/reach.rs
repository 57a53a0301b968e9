//! How long volumes can be: their blocks have numbers of a limited size.

use super::front::Engine;
use super::state::State;
use crate::SetupError;
use futae_policy::BlockId;

impl Engine {
    /// Checks that the blocks of a volume of this size, in bytes, have numbers of their own, and names the volume in the error.
    ///
    /// # Errors
    ///
    /// [`SetupError::Size`] if the volume has more blocks than there are numbers for.
    pub fn check_size(name: &str, size_bytes: u64, block_bytes: u64) -> Result<(), SetupError> {
        check_reach(size_bytes, block_bytes).map_err(|problem| {
            SetupError::Size(format!("{name}: {problem}; choose a larger --block"))
        })
    }
}

impl State {
    /// The largest number of bytes of a volume whose blocks have numbers.
    pub fn reach(&self) -> u64 {
        reach(self.block_bytes)
    }

    /// Checks that the last blocks of a volume of this size would not have the numbers of another volume's. The error is a
    /// sentence.
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
