//! A client of a volume, while it is connected.

use super::front::Engine;
use crate::ClientId;
use futae_policy::VolumeId;
use std::sync::Arc;

/// A client of a volume of a cache. It has joined, and leaves when this value is dropped.
pub struct JoinedClient {
    engine: Arc<Engine>,
    volume: VolumeId,
    id: ClientId,
}

impl JoinedClient {
    /// Joins as a new client.
    #[must_use]
    pub fn join(engine: &Arc<Engine>, volume: VolumeId) -> Self {
        Self {
            engine: Arc::clone(engine),
            volume,
            id: engine.join(volume),
        }
    }

    /// The cache.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Whether it has yet to learn of a failed flush.
    #[must_use]
    pub fn is_owed_failure(&self) -> bool {
        self.engine.owes_failure(self.volume, self.id)
    }
}

impl Drop for JoinedClient {
    fn drop(&mut self) {
        self.engine.leave(self.volume, self.id);
        // Without the clock a later change by another program is not seen.
        let _ = self.engine.see_to_clock();
    }
}
