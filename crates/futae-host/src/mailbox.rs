//! What the cache leaves for a connection's thread.

use futae_engine::{Asked, IoBuf, IoError};
use std::time::Instant;

/// What must be known of a request to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    /// Bytes that the request and its reply keep in memory.
    pub(crate) held_bytes: u64,
    pub(crate) kind: TagKind,
    /// What its latency is counted as.
    pub(crate) asked: Asked,
    /// When it was taken from the socket.
    pub(crate) taken: Instant,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagKind {
    /// With the data that were read.
    Read,
    /// With the bytes that are the result, header and all.
    Encoded,
    /// With success or failure.
    Plain,
    /// Not yet: a flush comes first, since the request wanted to be durable.
    ThenFlush,
    /// Not at all.
    Silent,
}

/// A request that the cache is done with.
pub(crate) struct Completion {
    pub(crate) tag: Tag,
    pub(crate) result: Result<IoBuf, IoError>,
}

/// Results for a connection's thread.
pub(crate) type Mailbox = futae_engine::Mailbox<Completion>;
