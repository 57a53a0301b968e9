//! The policies that commands use where the user names none.

use futae_policy::Kind;

/// Of a mount: the cache near the application.
pub const MOUNT_POLICY: &str = Kind::lru.name();

/// Of a server: it fills from what the caches above evict, and keeps what it serves, too.
pub const SERVE_POLICY: &str = Kind::exclusive.name();

/// Of a miss-ratio curve: the policy whose curve one pass gives at every size.
pub const CURVE_POLICY: &str = Kind::lru.name();

/// Of the demonstration: the lower caches that it compares, below [`MOUNT_POLICY`].
pub const DEMO_POLICIES: [Kind; 2] = [Kind::lru, Kind::exclusive];
