//! Counters of a connection's queues.

use std::sync::atomic::AtomicU64;

/// Counters, which only grow.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Requests that were taken from queues.
    pub requests: AtomicU64,
    /// Batches in which they were passed to the cache.
    pub batches: AtomicU64,
    /// Requests that were answered.
    pub replies: AtomicU64,
    /// Times that a guest was notified.
    pub notifications: AtomicU64,
    /// Requests that were answered with an error before the cache saw them.
    pub refused: AtomicU64,
}
