//! What a cache that verifies keeps.

use super::options::Verification;
use super::share::Sharing;
use super::table::Table;

/// The hashes, and how they are used.
pub struct Verifier {
    pub table: Table,
    pub options: Verification,
    /// Where equal blocks are held once.
    pub sharing: Option<Sharing>,
}
