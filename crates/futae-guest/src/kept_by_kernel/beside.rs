//! How much of the cache is needed beside the pages.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How much of the cache is not used for pages.
#[derive(Default)]
pub(super) struct Beside {
    aside_bytes: AtomicU64,
    /// The most pages that were there since the last look.
    pages: AtomicU64,
}

impl Beside {
    /// So many pages are there.
    pub(super) fn note(&self, pages: u64) {
        self.pages.fetch_max(pages, Relaxed);
    }

    /// The most pages that were noted since the last call.
    pub(super) fn most_pages(&self) -> u64 {
        self.pages.swap(0, Relaxed)
    }

    /// The cache is to be smaller by this.
    pub(super) fn set_aside(&self, bytes: u64) {
        self.aside_bytes.store(bytes, Relaxed);
    }

    /// What the cache is to be smaller by.
    pub(super) fn aside_bytes(&self) -> u64 {
        self.aside_bytes.load(Relaxed)
    }
}
