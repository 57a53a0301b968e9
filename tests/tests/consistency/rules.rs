//! What is demanded beyond the plain semantics of a disk, each in one place.

/// After a SIGKILL under write-back that lost acknowledged writes the first FLUSH of the volume fails, then one on each connection
/// that there was by then, and no other.
pub const FIRST_FLUSH_AFTER_LOSS_FAILS: bool = true;
