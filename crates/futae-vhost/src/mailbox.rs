//! What the cache leaves for a queue's thread.

use futae_engine::{IoBuf, IoError};

/// An operation that the cache is done with.
pub(crate) struct Completion {
    /// The request's first descriptor.
    pub(crate) head: u16,
    pub(crate) result: Result<IoBuf, IoError>,
}

/// Results for a queue's thread.
pub(crate) type Mailbox = futae_engine::Mailbox<Completion>;
