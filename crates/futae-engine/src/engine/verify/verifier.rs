//! What a cache that verifies keeps.

use super::options::Verification;
use super::table::Table;

/// The hashes, and how they are used.
pub struct Verifier {
    pub table: Table,
    pub options: Verification,
}
