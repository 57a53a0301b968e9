//! Long buffers, each in a mapping of its own. The heap keeps what long buffers leave when they are
//! dropped in another order or on another thread than they were made, and a cache that is to stay
//! within its size cannot afford that; a mapping goes back to the kernel. A few are kept, since new
//! ones have to be faulted in.

use memmap2::MmapMut;
use std::sync::{Mutex, PoisonError};

/// Bytes of all mappings that are kept, at most.
pub const SPARE_BYTES_MAX: usize = 8 << 20;

static SPARES: Mutex<Vec<MmapMut>> = Mutex::new(Vec::new());

/// Whole pages of anonymous memory.
pub struct Mapped(Option<MmapMut>);

impl Mapped {
    /// At least `bytes` bytes with any content; `None` for none, or if the kernel has no more.
    pub fn new(bytes: usize) -> Option<Self> {
        let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |map: &MmapMut| (bytes..=2 * bytes).contains(&map.len());
        if let Some(at) = spares.iter().rposition(fits) {
            return Some(Self(Some(spares.swap_remove(at))));
        }
        drop(spares);
        Self::zeroed(bytes)
    }

    /// The same, all zeroes.
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
        // Older ones go first, or lengths that nobody asks for any more would stay for ever.
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
        // What is unmapped is unmapped without the lock.
        drop(spares);
    }
}

#[cfg(test)]
pub fn spare_bytes() -> usize {
    let spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
    spares.iter().map(|map| map.len()).sum()
}
