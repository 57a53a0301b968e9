//! The state of the request that begins at a descriptor.

use crate::chain::Chain;
use crate::request::{Action, Status};
use futae_engine::Asked;
use std::time::Instant;
use vm_memory::GuestAddress;

/// A request, or a free place for one.
pub(crate) struct Slot {
    pub(crate) chain: Chain,
    /// The address of its status byte.
    pub(crate) status_at: GuestAddress,
    /// Number of its operations in the cache; 0 if there is no request.
    pub(crate) parts: u32,
    /// The first error of an operation.
    pub(crate) error: Option<Status>,
    /// A flush comes after its operations, if they succeed.
    pub(crate) then_flush: bool,
    /// The kind under which its latency is recorded.
    pub(crate) asked: Asked,
    /// When it was taken from the ring.
    pub(crate) taken: Instant,
    /// Bytes of memory that it holds.
    pub(crate) held_bytes: u64,
    /// Bytes that it carries or asks for.
    pub(crate) carried_bytes: u64,
    /// Whether the cache answered it at once.
    pub(crate) is_hit: bool,
}

impl Slot {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            chain: Chain::default(),
            status_at: GuestAddress::default(),
            parts: 0,
            error: None,
            then_flush: false,
            asked: Asked::Other,
            taken: now,
            held_bytes: 0,
            carried_bytes: 0,
            is_hit: false,
        }
    }
}

/// The kind under which an action's latency is recorded.
pub(crate) fn asked(action: Result<&Action, &Status>) -> Asked {
    match action {
        Ok(Action::Read { .. }) => Asked::Read,
        Ok(Action::Write { .. }) => Asked::Write,
        Ok(Action::Flush) => Asked::Flush,
        Ok(Action::Ranges { discards: true, .. }) => Asked::Trim,
        Ok(Action::Ranges { .. }) => Asked::Zero,
        Ok(Action::Id) | Err(_) => Asked::Other,
    }
}
