//! Completions that the cache delivers to a queue's thread.

use futae_engine::{IoBuf, IoError};

/// An operation that the cache has completed.
pub(crate) struct Completion {
    /// The request's first descriptor.
    pub(crate) head: u16,
    pub(crate) result: Result<IoBuf, IoError>,
}

/// Delivers completions to a queue's thread.
pub(crate) type Mailbox = futae_engine::Mailbox<Completion>;
