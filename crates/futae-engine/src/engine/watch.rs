//! What is known of a store while no client has its volume open; see the module `foreign`.

use crate::StoreStamp;
use std::sync::{Arc, Mutex};

/// What is known of a volume's store while nobody uses the volume.
#[derive(Default)]
pub struct Watch {
    /// Operations of the cache that have changed the store.
    pub writes: u64,
    /// The store's stamp after so many of them.
    pub noted: Option<(u64, StoreStamp)>,
    /// The store has no stamps.
    pub is_unstamped: bool,
    /// Held while the first client looks: others that come at the same time wait for what it finds.
    pub looking: Arc<Mutex<()>>,
}

impl Watch {
    /// The cache changes the store.
    pub fn note_write(&mut self) {
        self.writes += 1;
    }
}
