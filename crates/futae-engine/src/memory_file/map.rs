//! The mappings of a memory file: frames as bytes, and beside them words, each written as a whole.

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

/// Bytes of a word.
pub const WORD_BYTES: usize = size_of::<u64>();

/// Words of a file, in memory that outlives the process. A process that is killed between two stores leaves
/// the first one done and the second one not, since nothing but the process itself is lost: its memory is not.
pub struct Words(MmapRaw);

impl Words {
    /// The words in `bytes` bytes from `offset` on, both whole pages, which the file has.
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
        // SAFETY: the word lies within the mapping, which starts at a page and lives as long as `self`. It is only ever accessed
        // as an atomic: frames have mappings of other pages, and no other process has the file's lock.
        #[expect(unsafe_code, reason = "the named place for mappings of a memory file")]
        unsafe {
            AtomicU64::from_ptr(self.0.as_mut_ptr().cast::<u64>().add(at))
        }
    }
}

/// The frames in `bytes` bytes from `offset` on, both whole pages, which the file has.
pub fn frames(file: &File, offset: u64, bytes: usize) -> io::Result<MmapMut> {
    // SAFETY: the file is this user's alone and locked (`super::place`), so no other process changes or cuts it; within this one
    // these pages are mapped once, and words are in others.
    #[expect(unsafe_code, reason = "the named place for mappings of a memory file")]
    unsafe {
        MmapOptions::new().offset(offset).len(bytes).map_mut(file)
    }
}
