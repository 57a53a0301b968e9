//! A file read through a map: the kernel brings pages when they are touched, and sees by the processor's marks which
//! were used.
//!
//! The only `unsafe` here makes the map, takes it away, copies out of it, and asks which of its pages are in memory.

use anyhow::Context;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::path::Path;
use std::ptr;

/// Of the kernel.
const PAGE: usize = 4096;

/// A file, readable as memory.
pub struct Map {
    begin: *const u8,
    length: usize,
}

// SAFETY: the map is only read, for as long as it lives, which is the same from every thread.
#[expect(unsafe_code, reason = "the named place for maps")]
unsafe impl Send for Map {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "the named place for maps")]
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` of a file.
    pub fn new(file: &File, path: &Path, bytes: u64) -> anyhow::Result<Self> {
        let length = usize::try_from(bytes)?;
        // SAFETY: a new map at a place of the kernel's choice touches nothing that is there.
        #[expect(unsafe_code, reason = "the named place for maps")]
        let begin = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let begin = begin.with_context(|| format!("{}: cannot be mapped", path.display()))?;
        Ok(Self {
            begin: begin.cast_const().cast(),
            length,
        })
    }

    /// Which of its pages of 4 KiB the page cache holds (`mincore`), none of which is touched by asking.
    pub fn pages_in_memory(&self, path: &Path) -> anyhow::Result<Vec<bool>> {
        let mut pages = vec![0_u8; self.length.div_ceil(PAGE)];
        // SAFETY: the range is the map, and there is a byte for each of its pages.
        #[expect(unsafe_code, reason = "the named place for maps")]
        let result = unsafe {
            libc::mincore(
                self.begin.cast_mut().cast(),
                self.length,
                pages.as_mut_ptr(),
            )
        };
        if result != 0 {
            let error = std::io::Error::last_os_error();
            let what = format!("{}: its pages in memory cannot be told", path.display());
            return Err(anyhow::Error::new(error).context(what));
        }
        Ok(pages.into_iter().map(|page| page & 1 != 0).collect())
    }

    /// Copies what is at `offset`. A file that has been cut short ends the program (`SIGBUS`).
    ///
    /// # Panics
    ///
    /// If it is not within the map.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        let within = usize::try_from(offset).is_ok_and(|at| {
            let end = at.checked_add(buffer.len());
            end.is_some_and(|end| end <= self.length)
        });
        assert!(within, "operations are within the file");
        // SAFETY: the range is within the map, as has just been checked, and `buffer` is memory of its own. Others
        // may change the file meanwhile; the bytes are copied as they come, and nothing relies on them.
        #[expect(unsafe_code, reason = "the named place for maps")]
        unsafe {
            ptr::copy_nonoverlapping(
                self.begin.add(offset as usize),
                buffer.as_mut_ptr(),
                buffer.len(),
            );
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is this map, which nobody can read any more. One that stays does no harm.
        #[expect(unsafe_code, reason = "the named place for maps")]
        let _ = unsafe { munmap(self.begin.cast_mut().cast(), self.length) };
    }
}
