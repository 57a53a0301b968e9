//! The limit on requests in flight of all connections of one export, and its share of the server's.

use crate::fair::Part;
use crate::mailbox::Mailbox;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    queue: VecDeque<Arc<Mailbox>>,
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
        if inner.used < self.max {
            inner.used += 1;
            return true;
        }
        if !inner.queue.iter().any(|known| Arc::ptr_eq(known, mailbox)) {
            inner.queue.push_back(Arc::clone(mailbox));
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

    fn give_back_own(&self) {
        let mut inner = self.lock();
        inner.used = inner.used.saturating_sub(1);
        if let Some(next) = inner.queue.pop_front() {
            next.ring();
        }
    }
}
