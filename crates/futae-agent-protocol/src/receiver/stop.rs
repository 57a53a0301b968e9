//! The end, for threads that wait for something else.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A descriptor that becomes readable when all is to end, and stays so.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// One that nobody has told yet.
    ///
    /// # Errors
    ///
    /// If there can be no more descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC)?.into())
    }

    /// Tells every copy.
    pub fn tell(&self) {
        // It can fail only if it has been told for ever.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Forgets that it was told: for one that wakes a thread up and ends nothing.
    pub(super) fn clear(&self) {
        if self.has_come() {
            let _ = rustix::io::read(&*self.0, &mut [0; 8]);
        }
    }

    /// Whether it was told.
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.within(Duration::ZERO)
    }

    /// Waits; whether it was told within `time`.
    #[must_use]
    pub fn within(&self, time: Duration) -> bool {
        let time = Timespec::try_from(time).unwrap_or_default();
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0)
    }
}

impl From<OwnedFd> for Stop {
    /// Of a descriptor that becomes readable at the end.
    fn from(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_hears_of_the_end_and_goes_on_hearing() {
        let stop = Stop::new().expect("a descriptor");
        let copy = stop.clone();
        assert!(!copy.within(Duration::from_millis(1)));
        stop.tell();
        assert!(copy.has_come() && copy.has_come() && stop.has_come());
    }
}
