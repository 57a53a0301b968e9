//! Volumes of a fixed size that leave a cache which goes on, and the numbers that they leave.

use super::front::Engine;
use super::state::State;
use super::volume::Volume;
use crate::{IoError, IoErrorKind, SetupError};
use futae_policy::VolumeId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause between two looks at what is still under way.
const PAUSE: Duration = Duration::from_millis(2);

impl Engine {
    /// Whether decisions are logged.
    pub fn logs_decisions(&self) -> bool {
        self.lock().log.is_some()
    }

    /// Takes a volume of a fixed size out, and its blocks. Its clients are gone, and a flush of it has ended well. Its
    /// number is given to another. Waits for what the cache itself has under way there, for `patience` at most.
    ///
    /// # Errors
    ///
    /// Something is dirty that the store does not have, or the store does not answer. The volume is then as before.
    pub fn take_out_volume(
        self: &Arc<Self>,
        volume: VolumeId,
        patience: Duration,
    ) -> Result<(), IoError> {
        let begun = Instant::now();
        loop {
            if self.has_dirty(volume) {
                let message = "it was written to after it was flushed";
                return Err(IoError::new(IoErrorKind::Store, message));
            }
            if self.act(|state, effects| state.give_up(volume, effects)) {
                return Ok(());
            }
            // Either a step was full, or somebody has to answer first.
            if begun.elapsed() > patience {
                let message = "its store does not answer";
                return Err(IoError::new(IoErrorKind::Store, message));
            }
            if self.has_under_way(volume) {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn has_under_way(&self, volume: VolumeId) -> bool {
        self.lock().has_under_way(volume)
    }
}

impl State {
    /// Gives a volume a number, one that is free if there is one. What was known of the content of another volume of this
    /// number is never believed of this one.
    pub fn place_volume(&mut self, mut volume: Volume) -> Result<VolumeId, SetupError> {
        if let Some(free) = self.free_volumes.pop() {
            let place = &mut self.volumes[usize::from(free.0)];
            volume.era = place.era + 1;
            *place = volume;
            return Ok(free);
        }
        let next = u16::try_from(self.volumes.len()).ok();
        let next = next.filter(|&id| id < u16::MAX);
        let next = next.ok_or(SetupError::TooManyVolumes)?;
        self.volumes.push(volume);
        Ok(VolumeId(next))
    }
}
