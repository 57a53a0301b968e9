//! Verified, not believed: data that is handed down enters the cache only if it is what the cache last
//! served, or was last given, for that block. The cache knows this by a keyed hash ([`mac`]) of each block
//! that a store read brought or that was written whole, in a bounded table ([`table`]). Hashes are made
//! without the engine's lock, where a store operation ends and where data comes in.
//!
//! What makes an entry true: a read from a store that fills whole blocks and a write of the same blocks never
//! run at the same time ([`super::under_way`]). An entry is made when the read or the write is over, still
//! under the lock under which it is over; a write that is over without an entry of its own removes the old
//! one; and while a write is under way nothing is compared. A kept write has no entry until the store has it.
//! A store that may have been changed by others ([`crate::Store::generation`]) makes all its entries
//! unfindable, since the generation is part of what places an entry.
//!
//! The unit is the cache's block: a hand-down of a part of a block is refused.

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
pub use tally::{HandDownTally, HandedDownStatus};
pub use verifier::Verifier;
