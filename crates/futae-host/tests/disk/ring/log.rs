//! A dirty log, as a hypervisor keeps it while it migrates a guest.

use super::failed;
use super::place::MEMORY_BYTES;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::SeqCst;
use vhost::VhostUserDirtyLogRegion;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Bytes of guest memory that one bit stands for.
pub const PAGE_BYTES: u64 = 4096;
const BYTES: u64 = (MEMORY_BYTES / PAGE_BYTES).div_ceil(8);

/// A bit for each page of the guest's memory.
pub struct Log {
    file: File,
    bits: MmapRegion,
}

impl Log {
    /// One without marks.
    ///
    /// # Errors
    ///
    /// The kernel has no memory for it.
    pub fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("futae-test-log", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, BYTES)?;
        let offset = FileOffset::new(file.try_clone()?, 0);
        let bits = MmapRegion::from_file(offset, BYTES as usize).map_err(failed)?;
        Ok(Self { file, bits })
    }

    pub(super) fn region(&self) -> VhostUserDirtyLogRegion {
        VhostUserDirtyLogRegion {
            mmap_size: BYTES,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    fn pages(&self, look: impl Fn(&AtomicU8) -> u8) -> BTreeSet<u64> {
        let mut pages = BTreeSet::new();
        for at in 0..BYTES {
            let byte = self.bits.get_atomic_ref::<AtomicU8>(at as usize);
            let byte = look(byte.expect("it is in the log"));
            pages.extend(
                (0..8)
                    .filter(|bit| byte & 1 << bit != 0)
                    .map(|bit| 8 * at + bit),
            );
        }
        pages
    }

    /// Pages that are marked.
    #[must_use]
    pub fn marked(&self) -> BTreeSet<u64> {
        self.pages(|byte| byte.load(SeqCst))
    }

    /// The same, and their marks are gone: they are to be copied now.
    #[must_use]
    pub fn take(&self) -> BTreeSet<u64> {
        self.pages(|byte| byte.swap(0, SeqCst))
    }
}
