//! For what a file is opened, and what that costs.

use fuser::FileHandle;
use rustix::fs::OFlags;

/// The access rights in a handle's number.
const READS: u64 = 1;
const WRITES: u64 = 2;
/// The bits above: the user who opened it, which the kernel does not repeat on release.
const USER_SHIFT: u32 = 32;
/// Descriptors per handle: the place of the file; for reading, a direct and a buffered one; for
/// writing, these and the one that drops pages from the page cache.
const PLACE_DESCRIPTORS: u64 = 1;
const READ_DESCRIPTORS: u64 = 2;
const WRITE_DESCRIPTORS: u64 = 3;

/// The access for which a file is opened.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(super) reads: bool,
    pub(super) writes: bool,
}

impl Access {
    pub(crate) fn of(flags: i32) -> Self {
        let mode = OFlags::from_bits_retain(flags as u32) & OFlags::RWMODE;
        Self {
            reads: mode != OFlags::WRONLY,
            writes: mode != OFlags::RDONLY,
        }
    }

    pub(crate) fn writes(self) -> bool {
        self.writes
    }

    /// The handle of a file opened with this access by a user.
    pub(crate) fn handle(self, user: u32) -> FileHandle {
        let reads = if self.reads { READS } else { 0 };
        let writes = if self.writes { WRITES } else { 0 };
        FileHandle(reads | writes | u64::from(user) << USER_SHIFT)
    }

    /// The access and the user of a handle.
    pub(super) fn of_handle(handle: FileHandle) -> (Self, u32) {
        let reads = handle.0 & READS != 0;
        let writes = handle.0 & WRITES != 0;
        (Self { reads, writes }, (handle.0 >> USER_SHIFT) as u32)
    }

    pub(super) fn descriptors(self) -> u64 {
        let reads = if self.reads { READ_DESCRIPTORS } else { 0 };
        let writes = if self.writes { WRITE_DESCRIPTORS } else { 0 };
        PLACE_DESCRIPTORS + reads + writes
    }
}
