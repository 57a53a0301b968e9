//! The hash by which blocks are in a sample, or have marks.

use crate::BlockId;

/// A hash of the block, so that the sample does not depend on how blocks are numbered.
#[inline]
pub(super) fn scatter(block: BlockId, salt: u64) -> u64 {
    let name = (u64::from(block.volume().0) << 48 | block.index()) ^ salt;
    let name = (name ^ (name >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let name = (name ^ (name >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    name ^ (name >> 32)
}
