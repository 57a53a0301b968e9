//! A connection as a client of its export's cache.

use futae_engine::{ClientId, Engine};
use futae_policy::VolumeId;
use std::sync::Arc;

/// A client of the cache, joined while this value lives.
pub(crate) struct Guest {
    engine: Arc<Engine>,
    volume: VolumeId,
    pub(crate) client: ClientId,
}

impl Guest {
    pub(crate) fn join(engine: Arc<Engine>, volume: VolumeId) -> Self {
        Self {
            client: engine.join(volume),
            engine,
            volume,
        }
    }

    /// Whether the client has yet to learn of a failed flush.
    pub(crate) fn is_owed_failure(&self) -> bool {
        self.engine.owes_failure(self.volume, self.client)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.engine.leave(self.volume, self.client);
    }
}
