//! A mailbox in which results wait for the thread that submitted requests, and its wake-up.

use crate::bell::{Bell, Handle};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use std::io;

/// Delivers results from any thread to the one that submitted the requests.
///
/// Most results come from that thread itself while it submits, so delivery costs an uncontended
/// lock. The bell, a system call, is rung only for a sleeping thread.
pub struct Mailbox<T> {
    inner: Mutex<Inner<T>>,
    bell: Bell,
}

struct Inner<T> {
    ready: Vec<T>,
    asleep: bool,
}

impl<T> Mailbox<T> {
    /// An empty mailbox.
    ///
    /// # Errors
    ///
    /// No descriptor is available for the bell.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            inner: Mutex::new(Inner {
                ready: Vec::new(),
                asleep: false,
            }),
            bell: Bell::new()?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a result; the cache calls this on any thread.
    pub fn put(&self, completion: T) {
        let mut inner = self.lock();
        inner.ready.push(completion);
        let ring = std::mem::take(&mut inner.asleep);
        drop(inner);
        if ring {
            self.ring();
        }
    }

    /// Wakes the sleeping thread without a result.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Exchanges the empty `into` for the delivered results.
    pub fn take(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.lock().ready, into);
    }

    /// Announces a sleep. Returns `false` if a result has been delivered: the thread must not
    /// sleep.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        let mut inner = self.lock();
        inner.asleep = inner.ready.is_empty();
        inner.asleep
    }

    /// Ends a sleep; `rung` says that the bell was readable.
    pub fn awake(&self, rung: bool) {
        self.lock().asleep = false;
        if rung {
            self.bell.hear();
        }
    }

    /// The descriptor that becomes readable when the sleeping thread is to wake.
    #[must_use]
    pub fn bell(&self) -> Handle<'_> {
        self.bell.handle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn rings(mailbox: &Mailbox<u32>) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(mailbox.bell(), PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .expect("poll")
            > 0
    }

    #[test]
    fn the_bell_rings_for_a_sleeper_only_and_once() {
        let mailbox = Mailbox::new().expect("eventfd");
        mailbox.put(1);
        assert!(!rings(&mailbox), "nobody sleeps");
        assert!(!mailbox.may_sleep(), "something is ready");
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken.len(), 1);
        assert!(mailbox.may_sleep());
        mailbox.put(2);
        mailbox.put(3);
        assert!(rings(&mailbox));
        mailbox.awake(true);
        assert!(!rings(&mailbox), "the bell was answered");
        taken.clear();
        mailbox.take(&mut taken);
        assert_eq!(taken, [2, 3]);
    }
}
