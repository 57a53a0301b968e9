//! Mappings of a memory file: frames as bytes, and metadata as words that are written atomically.

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

/// Bytes of a word.
pub const WORD_BYTES: usize = size_of::<u64>();

/// Words of a file, in memory that outlives the process. If a process is killed between two stores,
/// the first one persists and the second one never happens: memory survives the process.
pub struct Words(MmapRaw);

impl Words {
    /// Maps `bytes` bytes from `offset` on; both are multiples of a page and within the file.
    pub fn map(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        let map = MmapOptions::new().offset(offset).len(bytes).map_raw(file)?;
        Ok(Self(map))
    }

    /// Word `at`.
    #[inline]
    pub fn at(&self, at: usize) -> &AtomicU64 {
        #[cfg(test)]
        super::watch::seen();
        assert!(at < self.0.len() / WORD_BYTES, "a word of the mapping");
        // SAFETY: the word lies within the mapping, which starts at a page and lives as long as
        // `self`. It is only accessed as an atomic: frames are mapped on other pages, and no other
        // process has the file's lock.
        #[expect(unsafe_code, reason = "the named place for mappings of a memory file")]
        unsafe {
            AtomicU64::from_ptr(self.0.as_mut_ptr().cast::<u64>().add(at))
        }
    }
}

/// Maps the frames in `bytes` bytes from `offset` on; both are multiples of a page and within the
/// file.
pub fn frames(file: &File, offset: u64, bytes: usize) -> io::Result<MmapMut> {
    // SAFETY: only this user can access the file, and it is locked (`super::place`), so no other
    // process changes or truncates it. Within this process these pages are mapped once, and words
    // are on other pages.
    #[expect(unsafe_code, reason = "the named place for mappings of a memory file")]
    unsafe {
        MmapOptions::new().offset(offset).len(bytes).map_mut(file)
    }
}
