//! Bytes of the buffers that the engine holds for work under way: what is being read from stores (for
//! requests, notices and by itself), requests that are put together from several reads, and what is being
//! written back. Changed under the engine's lock only, and read without it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes now, and the most there ever were.
#[derive(Debug, Default)]
pub struct Account {
    held: AtomicU64,
    most: AtomicU64,
}

impl Account {
    /// This many bytes more are held.
    pub fn take(&self, bytes: u64) {
        let held = self.held() + bytes;
        self.held.store(held, Ordering::Relaxed);
        if held > self.most() {
            self.most.store(held, Ordering::Relaxed);
        }
    }

    /// This many bytes less are held.
    pub fn give(&self, bytes: u64) {
        let held = self.held().saturating_sub(bytes);
        self.held.store(held, Ordering::Relaxed);
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The most that ever were.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}
