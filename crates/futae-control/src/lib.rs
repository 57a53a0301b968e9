//! Orders to a running cache: one JSON line in, one JSON line out, over a unix socket.
//!
//! | line | answer |
//! | --- | --- |
//! | `{"command":NAME}`, with the command's arguments as further members | an object |
//! | anything else, and whatever cannot be done | `{"error":SENTENCE}` |
//!
//! Several lines may follow one another on a connection. Which commands there are is said by the
//! program that listens ([`Orders`]); every cache offers `status`, most `resize`, `policy`, and
//! `record`, `recorded` and `end-record`.
//!
//! Nothing here knows NBD or FUSE.

mod accept;
mod access;
mod cache;
mod client;
mod orders;
mod policy;
mod recording;
mod server;
mod socket;

pub use accept::accept_until;
pub use access::Access;
pub use cache::{EngineReport, ResizeOrder, check_cache_bytes, check_memory_bytes, resize};
pub use client::{AskError, ask, ask_for, ask_for_within, ask_within, connect_within};
pub use orders::{NoArguments, Orders};
pub use policy::{PolicyOrder, PolicyTerms, change_policy, lives_without_evictions};
pub use recording::RecordingPart;
pub use server::Control;
pub use socket::{SocketError, UnixSocket};
