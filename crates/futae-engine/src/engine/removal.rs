//! Removal of fixed-size volumes from a running cache, and the reuse of their numbers.

use super::front::Engine;
use super::state::State;
use super::volume::Volume;
use crate::{IoError, IoErrorKind, SetupError};
use futae_policy::VolumeId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause between two checks for work under way.
const PAUSE: Duration = Duration::from_millis(2);

impl Engine {
    /// Whether decisions are logged.
    pub fn logs_decisions(&self) -> bool {
        self.lock().log.is_some()
    }

    /// Removes a fixed-size volume and its blocks. Its clients must have left, and a flush of it
    /// must have succeeded. Its number is reused. Waits at most `timeout` for work that the cache
    /// itself has under way in the volume.
    ///
    /// # Errors
    ///
    /// A block is dirty, or the store does not answer. The volume is then unchanged.
    pub fn take_out_volume(
        self: &Arc<Self>,
        volume: VolumeId,
        timeout: Duration,
    ) -> Result<(), IoError> {
        let begun = Instant::now();
        loop {
            // A failed write-back that no flush has reported lost nothing if its blocks are clean now.
            if self.lock().dirt(volume).len() > 0 {
                let message = "it was written to after it was flushed";
                return Err(IoError::new(IoErrorKind::Store, message));
            }
            if self.act(|state, effects| state.give_up(volume, effects)) {
                return Ok(());
            }
            // Either the step was full, or an operation has to end first.
            if begun.elapsed() > timeout {
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
    /// Gives a volume a number, reusing a free one if possible. Hashes of the number's previous
    /// volume are never believed of this one, nor its recorded requests taken for requests of this one.
    pub fn place_volume(&mut self, mut volume: Volume) -> Result<VolumeId, SetupError> {
        if let Some(free) = self.take_free_number() {
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
    /// A number that no volume has, and of which no recorded request waits for the reader.
    fn take_free_number(&mut self) -> Option<VolumeId> {
        let recording = self.recording.as_deref();
        let is_named = |free: &VolumeId| recording.is_some_and(|it| it.has_of(*free));
        let at = self.free_volumes.iter().rposition(|free| !is_named(free))?;
        Some(self.free_volumes.remove(at))
    }
}
