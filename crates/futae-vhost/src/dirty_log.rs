//! The dirty log: marks of the pages that the device wrote, for a frontend that migrates the guest.
//!
//! A page is marked after it was written. The frontend clears marks before it copies the pages, so
//! an earlier mark might be cleared before the data is written. The data of a request is marked
//! before the used ring shows the request. A server killed in between therefore leaves no answered
//! request unmarked; the request is executed again.

use std::fs::File;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, PoisonError, RwLock};
use vhost::vhost_user::message::VhostUserLog;
use vhost::vhost_user::{Error, Result};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Bytes of guest memory per bit.
const PAGE_BYTES: u64 = 4096;
/// The longest log that is mapped: enough for 32 TiB of guest memory.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the used ring before its entries: flags, and the index.
const USED_HEADER_BYTES: u64 = 4;
/// Bytes per entry of the used ring.
const USED_ENTRY_BYTES: u64 = 8;
/// Bytes per 16-bit field of the used ring.
const FIELD_BYTES: u64 = 2;

/// The log of a session, shared by its queues.
#[derive(Default)]
pub(crate) struct DirtyLog {
    is_on: AtomicBool,
    bits: RwLock<Option<MmapRegion>>,
}

impl DirtyLog {
    /// Sets the memory of the log. When this returns, no page is marked in the previous log any
    /// more.
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
        *self.bits.write().unwrap_or_else(PoisonError::into_inner) = Some(region);
        Ok(())
    }

    /// Turns logging on or off. Returns whether it was on.
    pub(crate) fn turn(&self, on: bool) -> bool {
        self.is_on.swap(on, SeqCst)
    }

    /// Whether the guest is being migrated.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    /// Marks the pages of a written range.
    pub(crate) fn mark(&self, address: u64, length: u64) {
        if length == 0 || !self.is_on.load(SeqCst) {
            return;
        }
        let bits = self.bits.read().unwrap_or_else(PoisonError::into_inner);
        let Some(bits) = bits.as_ref() else { return };
        let last = address.saturating_add(length - 1) / PAGE_BYTES;
        for page in address / PAGE_BYTES..=last {
            // The frontend does not need pages beyond the log.
            let Ok(byte) = bits.get_atomic_ref::<AtomicU8>((page / 8) as usize) else {
                return;
            };
            // A reader that sees the mark also sees the written data. Other marks in the byte stay.
            byte.fetch_or(1 << (page % 8), SeqCst);
        }
    }
}

/// Logs a queue's writes to its used ring.
pub(crate) struct UsedRingLog {
    pub(crate) log: Arc<DirtyLog>,
    /// The address under which the used ring is logged, if it is.
    pub(crate) address: Option<u64>,
    /// Entries.
    pub(crate) size: u16,
}

impl UsedRingLog {
    fn mark(&self, at: u64, length: u64) {
        if let Some(address) = self.address {
            self.log.mark(address.saturating_add(at), length);
        }
    }

    fn entries_end(&self) -> u64 {
        USED_HEADER_BYTES + USED_ENTRY_BYTES * u64::from(self.size)
    }

    /// Marks the whole ring: all of it may have been written.
    pub(crate) fn mark_all(&self) {
        self.mark(0, self.entries_end() + FIELD_BYTES);
    }

    /// An entry was added, and the index is `next` now.
    pub(crate) fn mark_entry(&self, next: u16) {
        let entry = u64::from(next.wrapping_sub(1) % self.size.max(1));
        let at = USED_HEADER_BYTES + USED_ENTRY_BYTES * entry;
        self.mark(at, USED_ENTRY_BYTES);
        self.mark(FIELD_BYTES, FIELD_BYTES);
    }

    /// The device wrote when the guest should notify it: the field behind the entries with
    /// `has_event_index`, otherwise the flags.
    pub(crate) fn mark_wish(&self, has_event_index: bool) {
        let at = if has_event_index {
            self.entries_end()
        } else {
            0
        };
        self.mark(at, FIELD_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::sync::Barrier;

    /// Bytes of a log of 1,024 pages, and where it begins in its file.
    const BYTES: u64 = 128;
    const OFFSET: u64 = 4096;

    fn file() -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(OFFSET + BYTES).expect("room");
        file
    }

    /// Gives it to the log.
    fn give(log: &DirtyLog, file: &File) {
        let file = file.try_clone().expect("a descriptor");
        let set = log.set(&VhostUserLog::new(BYTES, OFFSET), file);
        set.expect("it is long enough");
    }

    fn marked(file: &File) -> Vec<u64> {
        let mut bytes = [0; BYTES as usize];
        file.read_exact_at(&mut bytes, OFFSET).expect("a log");
        let is_marked = |page: &u64| bytes[(page / 8) as usize] & 1 << (page % 8) != 0;
        (0..8 * BYTES).filter(is_marked).collect()
    }

    #[test]
    fn every_page_of_a_range_is_marked_and_no_other() {
        let (log, file) = (DirtyLog::default(), file());
        give(&log, &file);
        log.mark(0, 4096);
        assert!(marked(&file).is_empty(), "it is not on");
        log.turn(true);
        log.mark(4096, 0);
        assert!(marked(&file).is_empty(), "nothing was written");
        log.mark(3 * 4096 + 4095, 2);
        log.mark(8 * 4096, 4096);
        log.mark(1023 * 4096, 8 * 4096);
        log.mark(u64::MAX - 1, 8);
        assert_eq!(marked(&file), [3, 4, 8, 1023], "and nothing beyond its end");
        log.turn(false);
        log.mark(20 * 4096, 1);
        assert_eq!(marked(&file), [3, 4, 8, 1023]);
    }

    #[test]
    fn a_log_that_was_exchanged_gets_no_marks_any_more() {
        let (log, first, second) = (DirtyLog::default(), file(), file());
        log.turn(true);
        log.mark(0, 1); // no log to mark
        give(&log, &first);
        log.mark(4096, 1);
        give(&log, &second);
        log.mark(2 * 4096, 1);
        assert_eq!((marked(&first), marked(&second)), (vec![1], vec![2]));
    }

    #[test]
    fn a_log_that_is_longer_than_its_file_is_refused() {
        let (log, file) = (DirtyLog::default(), file());
        for (bytes, offset) in [
            (BYTES + 1, OFFSET),
            (BYTES, u64::MAX - 4095),
            (u64::MAX, OFFSET),
            (LOG_BYTES_MAX + 1, 0),
        ] {
            let given = file.try_clone().expect("a descriptor");
            let refused = log.set(&VhostUserLog::new(bytes, offset), given);
            assert!(refused.is_err(), "{bytes} bytes at {offset}");
        }
    }

    #[test]
    fn marks_of_several_queues_in_one_byte_all_stay() {
        for _ in 0..50 {
            let (log, file) = (DirtyLog::default(), file());
            give(&log, &file);
            log.turn(true);
            // Marks in the same byte, set concurrently.
            let together = Barrier::new(8);
            std::thread::scope(|scope| {
                for queue in 0..8 {
                    let (log, together) = (&log, &together);
                    scope.spawn(move || {
                        for page in 0..BYTES {
                            together.wait();
                            log.mark((8 * page + queue) * 4096, 1);
                        }
                    });
                }
            });
            assert_eq!(marked(&file).len() as u64, 8 * BYTES);
        }
    }

    #[test]
    fn of_a_used_ring_what_was_written_is_marked() {
        let (log, file) = (Arc::new(DirtyLog::default()), file());
        give(&log, &file);
        log.turn(true);
        let mut ring = UsedRingLog {
            log: Arc::clone(&log),
            address: Some(10 * 4096),
            size: 1024,
        };
        // The ring has 8,198 bytes: entry 511 spans two pages, and the event field is in a third.
        ring.mark_entry(1);
        assert_eq!(marked(&file), [10]);
        ring.mark_entry(512);
        assert_eq!(marked(&file), [10, 11]);
        ring.mark_wish(true);
        assert_eq!(marked(&file), [10, 11, 12]);
        ring.address = Some(20 * 4096);
        ring.mark_wish(false);
        assert_eq!(marked(&file), [10, 11, 12, 20]);
        ring.mark_entry(0); // entry 1,023, behind which the index wrapped
        assert_eq!(marked(&file), [10, 11, 12, 20, 21, 22]);
        ring.address = Some(30 * 4096);
        ring.mark_all();
        assert_eq!(marked(&file), [10, 11, 12, 20, 21, 22, 30, 31, 32]);
        ring.address = None;
        ring.mark_all();
        assert_eq!(marked(&file).len(), 9);
    }
}
