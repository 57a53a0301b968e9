//! Where the cache leaves results for a queue's thread, and how it wakes that thread.

use futae_engine::{IoBuf, IoError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An operation that the cache is done with.
pub(crate) struct Completion {
    /// The request's first descriptor.
    pub(crate) head: u16,
    pub(crate) result: Result<IoBuf, IoError>,
}

/// Results on their way from any thread to the queue's own. The bell is rung for a sleeper only.
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    bell: OwnedFd,
}

#[derive(Default)]
struct Inner {
    ready: Vec<Completion>,
    asleep: bool,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            inner: Mutex::default(),
            bell,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a result; called by the cache, on any thread.
    pub(crate) fn put(&self, completion: Completion) {
        let mut inner = self.lock();
        inner.ready.push(completion);
        let ring = std::mem::take(&mut inner.asleep);
        drop(inner);
        if ring {
            self.ring();
        }
    }

    /// Wakes the sleeper though there is no result.
    pub(crate) fn ring(&self) {
        // Only a full counter can refuse, and a full counter wakes the sleeper as well.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Exchanges the empty `into` for what is ready.
    pub(crate) fn take(&self, into: &mut Vec<Completion>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.lock().ready, into);
    }

    /// Announces a sleep. `false` if something is ready: do not sleep.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut inner = self.lock();
        inner.asleep = inner.ready.is_empty();
        inner.asleep
    }

    /// Ends a sleep; `rung` says that the bell was seen.
    pub(crate) fn awake(&self, rung: bool) {
        self.lock().asleep = false;
        if rung {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// What becomes readable when a sleeper should wake.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
