//! The limit on requests in flight of all connections of one export, and its share of the server's.

use crate::fair::Part;
use crate::mailbox::Mailbox;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing::info;

/// The quota of one export.
pub(crate) struct Quota {
    export: String,
    max: usize,
    /// Its share of the server's limit, if there is one.
    part: Option<Part>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    used: usize,
    /// Connections and queues of disks that wait for a place; those that have left are dead.
    queue: VecDeque<Weak<Mailbox>>,
    /// When exhaustion of the quota was last logged.
    said: Option<Instant>,
}

/// Shortest time between two log lines about the same quota.
const SILENCE: Duration = Duration::from_secs(60);

impl Quota {
    pub(crate) fn new(export: &str, max: usize, part: Option<Part>) -> Self {
        Self {
            export: export.to_owned(),
            max: max.max(1),
            part,
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one place. If there is none, the mailbox is rung when the caller should try again.
    pub(crate) fn take(&self, mailbox: &Arc<Mailbox>) -> bool {
        let has_room = |part: &Part| part.take(mailbox);
        if !self.take_own(mailbox) {
            return false;
        }
        let is_taken = self.part.as_ref().is_none_or(has_room);
        if !is_taken {
            self.give_back_own();
        }
        is_taken
    }

    /// Its share of the server's limit.
    pub(crate) fn part(&self) -> Option<&Part> {
        self.part.as_ref()
    }

    fn take_own(&self, mailbox: &Arc<Mailbox>) -> bool {
        let mut inner = self.lock();
        let is_it = |known: &Weak<Mailbox>| known.as_ptr() == Arc::as_ptr(mailbox);
        if inner.used < self.max {
            inner.used += 1;
            // It no longer waits, so the next free place is for another.
            if let Some(at) = inner.queue.iter().position(is_it) {
                inner.queue.remove(at);
            }
            return true;
        }
        if !inner.queue.iter().any(is_it) {
            inner.queue.retain(|known| known.strong_count() > 0);
            inner.queue.push_back(Arc::downgrade(mailbox));
        }
        if inner.said.is_none_or(|said| said.elapsed() >= SILENCE) {
            inner.said = Some(Instant::now());
            let Self { export, max, .. } = self;
            info!(
                export,
                "export {export}: its clients have {max} requests under way, as many as they may; others of theirs wait \
                 (requests=N of the export)"
            );
        }
        false
    }

    /// Frees one place.
    pub(crate) fn give_back(&self) {
        if let Some(part) = &self.part {
            part.give_back();
        }
        self.give_back_own();
    }

    /// One that may have been rung will not try again: a free place is for the next. `mailbox` is its own, if that still
    /// exists.
    pub(crate) fn leave(&self, mailbox: Option<&Arc<Mailbox>>) {
        if let Some(part) = &self.part {
            part.leave(mailbox);
        }
        let mut inner = self.lock();
        if let Some(mailbox) = mailbox {
            inner
                .queue
                .retain(|known| known.as_ptr() != Arc::as_ptr(mailbox));
        }
        if inner.used < self.max {
            inner.ring();
        }
    }

    fn give_back_own(&self) {
        let mut inner = self.lock();
        inner.used = inner.used.saturating_sub(1);
        inner.ring();
    }
}

impl Inner {
    /// Rings the first waiter that still exists. Rings all waiters if no request is under way, since no later completion
    /// would ring them, and the first may not need the place any more.
    fn ring(&mut self) {
        while let Some(next) = self.queue.pop_front() {
            let Some(next) = next.upgrade() else { continue };
            next.ring();
            if self.used > 0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new().expect("an eventfd"))
    }

    /// Whether it was rung since the last question.
    fn was_rung(mailbox: &Mailbox) -> bool {
        let mut bell = [PollFd::from_borrowed_fd(mailbox.bell(), PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let rings = poll(&mut bell, Some(&at_once)).expect("poll") > 0;
        mailbox.awake(rings);
        rings
    }

    #[test]
    fn nobody_waits_behind_one_who_is_gone() {
        let quota = Quota::new("a", 2, None);
        let (holder, gone, here) = (mailbox(), mailbox(), mailbox());
        assert!(quota.take(&holder) && quota.take(&holder));
        assert!(!quota.take(&gone) && !quota.take(&here));
        drop(gone);
        quota.give_back();
        assert!(was_rung(&here), "the place is for the one who is there");
        assert!(quota.take(&here) && !quota.take(&holder));
        // One that was rung and leaves passes that on.
        let patient = mailbox();
        assert!(!quota.take(&patient));
        quota.give_back();
        assert!(was_rung(&holder) && !was_rung(&patient));
        drop(holder);
        quota.leave(None);
        assert!(was_rung(&patient), "nobody else would");
    }

    #[test]
    fn one_who_has_left_keeps_no_descriptor() {
        let quota = Quota::new("a", 1, None);
        assert!(quota.take(&mailbox()));
        for _ in 0..1000 {
            let leaves = mailbox();
            assert!(!quota.take(&leaves));
            let left = Arc::downgrade(&leaves);
            drop(leaves);
            assert!(left.upgrade().is_none(), "nobody else keeps it");
        }
        assert_eq!(quota.lock().queue.len(), 1, "nor its entry in the queue");
    }

    #[test]
    fn all_are_rung_once_no_request_is_under_way() {
        let quota = Quota::new("a", 2, None);
        let (holder, first) = (mailbox(), mailbox());
        let (second, third) = (mailbox(), mailbox());
        assert!(quota.take(&holder) && quota.take(&holder));
        assert!(!quota.take(&first) && !quota.take(&second) && !quota.take(&third));
        quota.give_back();
        assert!(was_rung(&first) && !was_rung(&second), "one for one place");
        // It does not try again, for it waits for something else meanwhile.
        quota.give_back();
        assert!(was_rung(&second) && was_rung(&third), "nobody else would");
    }

    #[test]
    fn one_who_has_a_place_is_not_rung_in_the_place_of_another() {
        let quota = Quota::new("a", 2, None);
        let (holder, quick, patient) = (mailbox(), mailbox(), mailbox());
        assert!(quota.take(&holder) && quota.take(&holder));
        assert!(!quota.take(&holder) && !quota.take(&quick) && !quota.take(&patient));
        quota.give_back();
        assert!(was_rung(&holder));
        assert!(quota.take(&quick), "it comes first, without being rung");
        quota.give_back();
        assert!(was_rung(&patient) && !was_rung(&quick));
    }
}
