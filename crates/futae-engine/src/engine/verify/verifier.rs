//! The state of a cache that verifies demotions.

use super::hints::Sharing;
use super::options::Verification;
use super::table::Table;

/// The hash table, and its options.
pub struct Verifier {
    pub table: Table,
    pub options: Verification,
    /// Hints for equal blocks, if they are held once.
    pub sharing: Option<Sharing>,
}
