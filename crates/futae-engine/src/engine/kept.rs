//! Memory that outlives the process ([`crate::memory_file`]): which frames may be believed after it.
//!
//! An entry of the memory file is sealed only while its block is resident in that slot, clean, all there, and nothing has been
//! sent to its store that would change it. So these make an entry open, each before what it is named for can be seen by
//! anybody:
//!
//! | | by |
//! | --- | --- |
//! | its frame is written to | `Arena::frame_mut` |
//! | its block loses its slot | `State::release` |
//! | its store gets a write of the block | `State::note_store_write`, under the lock under which that is decided |
//!
//! and these seal it, with the hash that was made where the store's operation ended: a read, a write through, a write-back that
//! leaves the block clean, and data that was handed down and verified.
//!
//! After a start, a block of an entry is `Frame::Kept` until somebody asks for it: then its content is held against the hash.

mod changed;
#[cfg(test)]
mod crash;
mod known;
mod recall;
mod seal;
mod settle;

pub use known::{Kept, KeptVolume, MemoryStatus, MemoryTrust};
