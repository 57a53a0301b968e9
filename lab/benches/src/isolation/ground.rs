//! Where the server, its peers and the attackers meet.

use std::path::{Path, PathBuf};

/// Bytes of the attackers' volume, which is sparse.
pub const HOSTILE_BYTES: u64 = 8 << 30;

/// The places of one server.
pub struct Ground {
    pub socket: PathBuf,
    pub feed: PathBuf,
    pub store: PathBuf,
}

impl Ground {
    /// Those of the server of this attack.
    pub fn of(attack: &str, directory: &Path) -> Self {
        let place = |what: &str| directory.join(format!("{attack}.{what}"));
        Self {
            socket: place("sock"),
            feed: place("feed"),
            store: place("store"),
        }
    }
}
