//! Long buffers, each in a mapping of its own. The heap keeps the space of long buffers that are
//! dropped in another order, or on another thread, than they were allocated; a cache that must stay
//! within its size cannot afford that. A mapping is returned to the kernel. A few mappings are kept
//! for reuse, since the pages of a new one have to be faulted in.

use memmap2::MmapMut;
use std::sync::{Mutex, PoisonError};

/// The largest number of bytes in all kept mappings together.
pub const SPARE_BYTES_MAX: usize = 8 << 20;

static SPARES: Mutex<Vec<MmapMut>> = Mutex::new(Vec::new());

/// Whole pages of anonymous memory.
pub struct Mapped(Option<MmapMut>);

impl Mapped {
    /// A buffer of at least `bytes` bytes with any content; `None` if `bytes` is 0 or the kernel
    /// has no memory.
    pub fn new(bytes: usize) -> Option<Self> {
        let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
        // What is longer than the buffer is memory that no limit counts.
        let fits = |map: &MmapMut| (bytes..=bytes + bytes / 8).contains(&map.len());
        if let Some(at) = spares.iter().rposition(fits) {
            return Some(Self(Some(spares.swap_remove(at))));
        }
        drop(spares);
        Self::zeroed(bytes)
    }

    /// The same, filled with zeroes.
    pub fn zeroed(bytes: usize) -> Option<Self> {
        let map = (bytes > 0).then(|| MmapMut::map_anon(bytes));
        map.and_then(Result::ok).map(|map| Self(Some(map)))
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Some(map) = self.0.take() else { return };
        let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest go first; otherwise buffers of lengths that are no longer used would stay for
        // ever.
        let mut kept: usize = spares.iter().map(|map| map.len()).sum();
        let mut gone = Vec::new();
        while kept + map.len() > SPARE_BYTES_MAX && !spares.is_empty() {
            let oldest = spares.remove(0);
            kept -= oldest.len();
            gone.push(oldest);
        }
        if kept + map.len() <= SPARE_BYTES_MAX {
            spares.push(map);
        } else {
            gone.push(map);
        }
        // Unmapping happens without the lock.
        drop(spares);
    }
}

#[cfg(test)]
pub fn spare_bytes() -> usize {
    let spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
    spares.iter().map(|map| map.len()).sum()
}
