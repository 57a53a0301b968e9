//! A bell: an eventfd, which a sleeping thread waits for in `poll`.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// What `poll` takes.
pub type Handle<'a> = BorrowedFd<'a>;

/// A bell, which is silent at first.
pub struct Bell(OwnedFd);

impl Bell {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Rings, until somebody hears it.
    pub fn ring(&self) {
        // The write fails only if the counter is full, and a full counter wakes the thread as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Silences it.
    pub fn hear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// What becomes readable when it rings.
    pub fn handle(&self) -> Handle<'_> {
        self.0.as_fd()
    }
}
