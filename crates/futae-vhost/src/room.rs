//! Limits on the requests under way.

use rustix::fd::BorrowedFd;
use std::time::Duration;

/// Limits the requests of one queue. All methods are called by the queue's thread.
pub trait Room: Send {
    /// Takes room for one request that carries or asks for `carried_bytes`, and holds `held_bytes` of
    /// memory. If there is none, the bell rings when to try again.
    fn take(&mut self, carried_bytes: u64, held_bytes: u64) -> bool;
    /// Frees the room of one request.
    fn give_back(&mut self, held_bytes: u64);
    /// After [`Self::take`] refused: the time after which to try again even if the bell does not
    /// ring; `None` if only the bell matters.
    fn wait(&self) -> Option<Duration> {
        None
    }
    /// Releases unused room, since the queue is about to sleep.
    fn rest(&mut self);
    /// No request waits for room: others need not wait behind this queue.
    fn withdraw(&mut self) {}
    /// The descriptor that becomes readable when to try again; `None` if [`Self::take`] never
    /// refuses.
    fn bell(&self) -> Option<BorrowedFd<'_>>;
    /// Resets the bell after it has rung.
    fn heard(&self);
}

/// No limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boundless;

impl Room for Boundless {
    fn take(&mut self, _carried_bytes: u64, _held_bytes: u64) -> bool {
        true
    }

    fn give_back(&mut self, _held_bytes: u64) {}

    fn rest(&mut self) {}

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn heard(&self) {}
}
