//! Which feeds a server has.

use futae_control::Access;
use std::path::PathBuf;

/// The socket on which the agent of one guest reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedOptions {
    /// The exports that are the guest's disks, at least one. An export is in one feed only.
    pub exports: Vec<String>,
    /// The path of the socket.
    pub path: PathBuf,
    /// Who may connect.
    pub access: Access,
}

impl FeedOptions {
    /// Whether this export is one of the guest's disks.
    #[must_use]
    pub fn has(&self, export: &str) -> bool {
        self.exports.iter().any(|name| name == export)
    }
}

/// Where samples from a feed are relayed: to `futae balance`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayOptions {
    /// An export of the feed.
    pub export: String,
    /// A unix socket on which the allocator listens.
    pub path: PathBuf,
}
