//! Room for requests: how much may be under way.

use rustix::fd::BorrowedFd;
use std::time::Duration;

/// What bounds the requests of one queue. All its methods are called by the queue's thread.
pub trait Room: Send {
    /// Takes room for one request that keeps `bytes` in memory. If there is none, the bell rings when to try again.
    fn take(&mut self, bytes: u64) -> bool;
    /// Gives the room of one request back.
    fn give_back(&mut self, bytes: u64);
    /// After [`Self::take`] refused: when to try again though no bell rings, if so.
    fn wait(&self) -> Option<Duration> {
        None
    }
    /// Gives back what is not needed, since the queue is about to sleep.
    fn rest(&mut self);
    /// What becomes readable when to try again; none if [`Self::take`] never refuses.
    fn bell(&self) -> Option<BorrowedFd<'_>>;
    /// Silences the bell, which has rung.
    fn heard(&self);
}

/// Room without a bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boundless;

impl Room for Boundless {
    fn take(&mut self, _bytes: u64) -> bool {
        true
    }

    fn give_back(&mut self, _bytes: u64) {}

    fn rest(&mut self) {}

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn heard(&self) {}
}
