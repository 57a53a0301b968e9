//! Completions that the cache delivers to a connection's thread.

use futae_engine::{Asked, IoBuf, IoError};
use std::time::Instant;

/// The part of a request that is needed to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    /// Bytes that the request and its reply keep in memory.
    pub(crate) held_bytes: u64,
    /// Bytes of the volume that it carries or asks for.
    pub(crate) carried_bytes: u64,
    pub(crate) kind: TagKind,
    /// The kind under which its latency is recorded.
    pub(crate) asked: Asked,
    /// Whether its success says that data is on stable storage.
    pub(crate) is_promise: bool,
    /// When it was read from the socket.
    pub(crate) taken: Instant,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagKind {
    /// With the data read.
    Read,
    /// With these bytes, which are the complete reply including its header.
    Encoded,
    /// With success or failure.
    Plain,
    /// After a flush, since the request asked for durability.
    ThenFlush,
    /// Not at all.
    Silent,
}

/// A request that the cache has completed.
pub(crate) struct Completion {
    pub(crate) tag: Tag,
    pub(crate) result: Result<IoBuf, IoError>,
}

/// Delivers completions to a connection's thread.
pub(crate) type Mailbox = futae_engine::Mailbox<Completion>;
