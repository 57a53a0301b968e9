//! The handle of a file that stays open after its program has closed it.

use crate::lock::locked;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle that its program has closed. Its user remains charged.
pub(super) struct KeptHandle {
    /// Closes it.
    pub(super) end: Box<dyn FnOnce() + Send + Sync>,
    /// Has another thread look whether it can be closed, since some data was written to the lower file. Not the thread
    /// that calls this, which may be the one that ends the other writes.
    pub(super) written: Box<dyn Fn() + Send + Sync>,
}

/// The handle of a file that is kept open, if any. One is enough to keep the lower file open.
#[derive(Default)]
pub(crate) struct KeptOpen {
    handle: Mutex<Option<KeptHandle>>,
    /// A thread will look whether the data has been written.
    is_queued: AtomicBool,
}

impl KeptOpen {
    /// Keeps a handle. Returns false if there is one already.
    pub(super) fn keep(&self, handle: KeptHandle) -> bool {
        let mut kept = locked(&self.handle);
        let is_first = kept.is_none();
        kept.get_or_insert(handle);
        is_first
    }

    /// Takes the handle. The condition cannot be outdated by a file that is closed meanwhile: that
    /// waits to learn whether there is a handle.
    pub(super) fn take_if(&self, may: impl FnOnce() -> bool) -> Option<KeptHandle> {
        let mut kept = locked(&self.handle);
        if kept.is_some() && may() {
            kept.take()
        } else {
            None
        }
    }

    pub(super) fn is_some(&self) -> bool {
        locked(&self.handle).is_some()
    }

    /// Whether any of this number of users is not the handle that is kept open.
    pub(super) fn leaves_any(&self, users: impl FnOnce() -> u32) -> bool {
        let kept = locked(&self.handle);
        users() > u32::from(kept.is_some())
    }

    /// Some data was written to the lower file. To be called once the cache knows it.
    pub(super) fn note_written(&self) {
        if let Some(kept) = &*locked(&self.handle)
            && !self.is_queued.swap(true, Ordering::AcqRel)
        {
            (kept.written)();
        }
    }

    /// The thread that was asked to look does so: what is written from now on asks for another look.
    pub(super) fn looks(&self) {
        self.is_queued.store(false, Ordering::Release);
    }
}
