//! Bytes of the buffers that the engine holds for work under way: reads from stores (for requests,
//! for notices and in the background), requests assembled from several reads, and write-backs. The
//! count changes only under the engine's lock and is read without it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The current number of bytes, and its maximum so far.
#[derive(Debug, Default)]
pub struct Account {
    held: AtomicU64,
    most: AtomicU64,
}

impl Account {
    /// Adds `bytes` held bytes.
    pub fn take(&self, bytes: u64) {
        let held = self.held() + bytes;
        self.held.store(held, Ordering::Relaxed);
        if held > self.most() {
            self.most.store(held, Ordering::Relaxed);
        }
    }

    /// Subtracts `bytes` released bytes.
    pub fn give(&self, bytes: u64) {
        let held = self.held().saturating_sub(bytes);
        self.held.store(held, Ordering::Relaxed);
    }

    /// The bytes held now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The largest number of bytes held so far.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}
