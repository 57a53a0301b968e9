//! Memory that outlives the process ([`crate::memory_file`]): which of its frames the next process
//! may trust.
//!
//! An entry of the memory file is sealed only while its block is resident in that slot and clean,
//! its frame is complete, and no operation sent to its store would change it. Each of these events
//! opens the entry, before any thread can see its effect:
//!
//! | event | by |
//! | --- | --- |
//! | the frame is written to | `Arena::frame_mut` |
//! | the block loses its slot | `State::release` |
//! | the store gets a write of the block | `State::note_store_write`, under the lock that covers the decision |
//!
//! These events seal it, with the hash that was computed where the store operation ended: a read, a
//! write-through, a write-back that leaves the block clean, and a verified demotion.
//!
//! After a start, the block of a sealed entry is `Frame::Kept` until its first request; then its
//! content is compared with the hash.

mod changed;
#[cfg(test)]
mod crash;
mod known;
mod recall;
mod seal;
mod settle;

pub use known::{Kept, KeptVolume, MemoryStatus, MemoryTrust};
