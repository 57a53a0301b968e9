//! Marks of the pages that the device wrote, for a frontend that migrates the guest.

use std::fs::File;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, PoisonError, RwLock};
use vhost::vhost_user::message::VhostUserLog;
use vhost::vhost_user::{Error, Result};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Bytes of guest memory that one bit stands for.
const PAGE_BYTES: u64 = 4096;
/// The longest log that is mapped: enough for 32 TiB of guest memory.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// The log of a session, which its queues share.
#[derive(Default)]
pub(crate) struct DirtyLog {
    is_on: AtomicBool,
    bits: RwLock<Option<Arc<MmapRegion>>>,
}

impl DirtyLog {
    /// Takes the memory of the log.
    pub(crate) fn set(&self, log: &VhostUserLog, file: File) -> Result<()> {
        let failed = |error: String| Error::ReqHandlerError(std::io::Error::other(error));
        let file_bytes = file.metadata().map_err(Error::ReqHandlerError)?.len();
        let end = log.mmap_offset.checked_add(log.mmap_size);
        if log.mmap_size > LOG_BYTES_MAX || end.is_none_or(|end| end > file_bytes) {
            return Err(failed("the dirty log is too long for its file".to_owned()));
        }
        let offset = FileOffset::new(file, log.mmap_offset);
        let region = MmapRegion::from_file(offset, log.mmap_size as usize);
        let region = region.map_err(|error| failed(error.to_string()))?;
        *self.bits.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(region));
        Ok(())
    }

    /// Begins or ends logging.
    pub(crate) fn turn(&self, on: bool) {
        self.is_on.store(on, SeqCst);
    }

    /// Marks the pages of a range, which was written.
    pub(crate) fn mark(&self, address: u64, length: u64) {
        if length == 0 || !self.is_on.load(SeqCst) {
            return;
        }
        let bits = self.bits.read().unwrap_or_else(PoisonError::into_inner);
        let Some(bits) = bits.as_ref() else { return };
        let last = address.saturating_add(length - 1) / PAGE_BYTES;
        for page in address / PAGE_BYTES..=last {
            // What is beyond the log is beyond what the frontend wants to know.
            let Ok(byte) = bits.get_atomic_ref::<AtomicU8>((page / 8) as usize) else {
                return;
            };
            byte.fetch_or(1 << (page % 8), Relaxed);
        }
        std::sync::atomic::fence(SeqCst);
    }
}
