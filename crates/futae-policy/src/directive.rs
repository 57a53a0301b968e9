//! What a level's policy tells the level below it.

use crate::BlockId;

/// Tells the level below a boundary what is to become of a block there. It accompanies the read, write or
/// demotion of the block, which comes next.
///
/// Only the simulator delivers directives: live caches send none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Which block.
    pub block: BlockId,
    /// When the block was last used, in accesses of the level above.
    pub used: u64,
    /// Whether the level below is to keep the block, not only to serve it.
    pub is_kept: bool,
}
