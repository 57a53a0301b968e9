//! In place of the ring of evicted pages, and of the kernel's programs that write it.

use crate::PAGE_BYTES;
use crate::in_place::reader::RingMemory;
use crate::system::SharedMemory;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use std::io;

/// Pages of the table, which are the first of the guest's memory.
pub const TABLE_PAGES: u64 = 2;

/// The ring: of each page one word, which stands for all of it.
#[derive(Clone)]
pub struct Ring {
    pages: Arc<Vec<AtomicU64>>,
    consumer: Arc<AtomicU64>,
}

impl Ring {
    /// A ring of zeroes.
    #[must_use]
    pub fn zeroed(pages: usize) -> Self {
        Self {
            pages: Arc::new((0..pages).map(|_| AtomicU64::new(0)).collect()),
            consumer: Arc::new(AtomicU64::new(0)),
        }
    }

    /// The ring's pages lie behind the table's.
    ///
    /// # Errors
    ///
    /// None.
    pub fn pages(&self) -> io::Result<Vec<u64>> {
        Ok((TABLE_PAGES..).take(self.pages.len()).collect())
    }

    /// Gives the place of all records before `end` back to the kernel.
    pub fn release(&self, end: u64) {
        self.consumer.store(end, Ordering::Release);
    }

    /// The kernel writes a page, if there is a place for it.
    pub fn copy(&self, position: u64, content: u64) -> bool {
        let bytes = self.pages.len() as u64 * PAGE_BYTES;
        if position + PAGE_BYTES > self.consumer.load(Ordering::Acquire) + bytes {
            return false;
        }
        // It takes a lock before it writes.
        fence(Ordering::AcqRel);
        let page = position / PAGE_BYTES % self.pages.len() as u64;
        self.pages[page as usize].store(content, Ordering::Relaxed);
        true
    }
}

/// What the host sees: the table, and the ring behind it.
pub struct Seen {
    /// The table.
    pub table: SharedMemory,
    /// The ring.
    pub ring: Ring,
}

impl RingMemory for Seen {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let Some(page) = (address / PAGE_BYTES).checked_sub(TABLE_PAGES) else {
            return self.table.read(address, into);
        };
        let Some(page) = self.ring.pages.get(page as usize) else {
            return false;
        };
        let content = page.load(Ordering::Relaxed).to_le_bytes();
        into.chunks_exact_mut(8)
            .for_each(|word| word.copy_from_slice(&content));
        true
    }
}
