//! Where the cache leaves results for a connection's thread, and how it wakes that thread.

use futae_engine::{IoBuf, IoError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What must be known of a request to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    /// Bytes that the request and its reply keep in memory.
    pub(crate) held_bytes: u64,
    pub(crate) kind: TagKind,
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

/// Results on their way from any thread to the connection's own.
///
/// Most are left by the connection's own thread while it submits, so leaving one costs an
/// uncontended lock; the bell, a system call, is rung only for a sleeper.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn completion(cookie: u64) -> Completion {
        let tag = Tag {
            cookie,
            offset: 0,
            held_bytes: 0,
            kind: TagKind::Plain,
        };
        Completion {
            tag,
            result: Ok(IoBuf::new(0)),
        }
    }

    fn rings(mailbox: &Mailbox) -> bool {
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
        mailbox.put(completion(1));
        assert!(!rings(&mailbox), "nobody sleeps");
        assert!(!mailbox.may_sleep(), "something is ready");
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken.len(), 1);
        assert!(mailbox.may_sleep());
        mailbox.put(completion(2));
        mailbox.put(completion(3));
        assert!(rings(&mailbox));
        mailbox.awake(true);
        assert!(!rings(&mailbox), "the bell was answered");
        taken.clear();
        mailbox.take(&mut taken);
        assert_eq!(
            taken.iter().map(|done| done.tag.cookie).collect::<Vec<_>>(),
            [2, 3]
        );
    }
}
