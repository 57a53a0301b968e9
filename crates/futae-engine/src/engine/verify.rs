//! Verification of demotions: demoted data enters the cache only if it is what the cache last
//! served, or last received, for that block. The cache checks this with a keyed hash ([`mac`]) of
//! each block that a store read returned or that was written whole, kept in a bounded table
//! ([`table`]). Hashes are computed without the engine's lock, where a store operation ends and
//! where data arrives.
//!
//! Entries are valid for these reasons. A read from a store that fills whole blocks and a write of
//! the same blocks never run at the same time ([`super::under_way`]). An entry is made when the
//! read or the write ends, under the same acquisition of the lock; a write that ends without an
//! entry of its own removes the old one. While a write is under way nothing is compared. A kept
//! write has no entry until the store has it. If other programs may have changed a store
//! ([`crate::Store::generation`]), all its entries become unreachable, since the place of an entry
//! depends on the generation.
//!
//! The unit is the cache's block: a demotion of a part of a block is refused.

mod admit;
mod hints;
mod mac;
mod macs;
mod options;
mod share;
mod state;
mod table;
mod tally;
mod verifier;

pub use mac::{Keys, Mac};
pub use macs::Macs;
pub use options::{OnRefusal, Verification};
pub use table::Verdict;
pub use tally::{DemotionStatus, DemotionTally};
pub use verifier::Verifier;
