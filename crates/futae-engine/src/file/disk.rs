//! The I/O context that files share.

use super::drop_page_cache::{self, DropPageCache};
use super::io::Io;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The I/O context of many files: one ring, or one set of threads, for all of them.
#[derive(Clone)]
pub struct FileIo(pub(super) Arc<Disk>);

/// What the files share.
pub struct Disk {
    pub io: Io,
    pub page_cache: Arc<DropPageCache>,
    /// Bytes that went through the page cache.
    pub buffered_bytes: AtomicU64,
}

impl FileIo {
    /// io_uring, or threads where the kernel refuses it.
    #[must_use]
    pub fn new() -> Self {
        Self::by(Io::new())
    }

    pub(super) fn by(io: Io) -> Self {
        Self(Arc::new(Disk {
            io,
            page_cache: Arc::default(),
            buffered_bytes: AtomicU64::new(0),
        }))
    }

    /// The kind of I/O, for reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.io.name()
    }

    /// A range of a file was changed without its store, and may be in the page cache: it is dropped
    /// from there soon.
    pub fn drop_page_cache(&self, file: File, range: Range<u64>) {
        let file = drop_page_cache::descriptor(&Arc::new(file));
        self.0.page_cache.note(&file, range);
    }

    /// Whether a file, by device and inode number, is kept open until its pages have been dropped.
    #[must_use]
    pub fn keeps_open(&self, device: u64, inode: u64) -> bool {
        self.0.page_cache.keeps((device, inode))
    }

    /// A file, by device and inode number, has no name any more and is not used: it is not kept
    /// open either.
    pub fn let_go(&self, device: u64, inode: u64) {
        self.0.page_cache.let_go((device, inode));
    }

    /// Bytes that went through the page cache.
    #[must_use]
    pub fn bytes_through_page_cache(&self) -> u64 {
        self.0.buffered_bytes.load(Ordering::Relaxed)
    }

    /// Number of ranges that were written through the page cache and dropped from it.
    #[must_use]
    pub fn ranges_swept(&self) -> u64 {
        self.0.page_cache.dropped()
    }
}

impl Default for FileIo {
    fn default() -> Self {
        Self::new()
    }
}
