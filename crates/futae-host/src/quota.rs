//! How many requests the connections of one export may have under way together.

use crate::mailbox::Mailbox;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The quota of one export.
pub(crate) struct Quota {
    max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    used: usize,
    queue: VecDeque<Arc<Mailbox>>,
}

impl Quota {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one; if there is none, the mailbox is rung when it should try again.
    pub(crate) fn take(&self, mailbox: &Arc<Mailbox>) -> bool {
        let mut inner = self.lock();
        if inner.used < self.max {
            inner.used += 1;
            return true;
        }
        if !inner.queue.iter().any(|known| Arc::ptr_eq(known, mailbox)) {
            inner.queue.push_back(Arc::clone(mailbox));
        }
        false
    }

    /// Gives one back.
    pub(crate) fn give_back(&self) {
        let mut inner = self.lock();
        inner.used = inner.used.saturating_sub(1);
        if let Some(next) = inner.queue.pop_front() {
            next.ring();
        }
    }
}
