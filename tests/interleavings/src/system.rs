//! In place of memory that the guest's kernel shares with the agent, and the host sees.

use crate::in_place::reader::RingMemory;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are written and read at once.
const WORD: usize = 8;

/// Memory of a guest: words that are neither written nor read in any order, but where `store` says so.
#[derive(Clone)]
pub struct SharedMemory(Arc<Vec<AtomicU64>>);

impl SharedMemory {
    /// Zeroes.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let words = (0..bytes / WORD).map(|_| AtomicU64::new(0));
        Self(Arc::new(words.collect()))
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> usize {
        0
    }

    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.len() * WORD
    }

    /// Writes the eight bytes at `at` after all that was written before.
    pub fn store(&self, at: usize, value: u64) {
        self.0[at / WORD].store(value, Ordering::Release);
    }

    /// Copies `from` to `at`.
    pub fn write(&self, at: usize, from: &[u8]) -> bool {
        for (word, bytes) in self.0[at / WORD..].iter().zip(from.chunks_exact(WORD)) {
            let bytes = bytes.try_into().unwrap_or_default();
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        true
    }
}

impl RingMemory for SharedMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let words = self.0.get(address as usize / WORD..).unwrap_or_default();
        for (word, bytes) in words.iter().zip(into.chunks_exact_mut(WORD)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        words.len() * WORD >= into.len()
    }
}
