//! What has to go through the page cache leaves it again soon: else the same data is in memory twice.
//!
//! What was read is dropped at once. What was written is dirty at first: the advice to drop it makes
//! the kernel write it, and only advice after that drops it. So ranges are kept in mind and advised
//! several times. No request waits for it, and it takes no write error away from a caller that flushes, as it
//! would be if this waited for the kernel's writes.

use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two pieces of advice on a range.
const INTERVAL: Duration = Duration::from_millis(250);
/// How often a range is advised after it was written last.
const ROUNDS: u32 = 6;
/// Files that are kept in mind, and so open, at most; and of the descriptors that this process may
/// have, one in how many.
const FILES_MAX: usize = 1024;
const DESCRIPTORS_SHARE: u64 = 16;
/// The kernel drops whole folios; its largest have this many bytes.
const FOLIO_BYTES: u64 = 2 << 20;

/// What went through the page cache and may still be there.
#[derive(Default)]
pub struct DropPageCache {
    noted: Mutex<Noted>,
    /// Ranges that have been dropped once at least.
    dropped: AtomicU64,
}

#[derive(Default)]
struct Noted {
    /// By the address of the file.
    files: HashMap<usize, Written>,
    has_thread: bool,
}

struct Written {
    file: Arc<File>,
    range: Range<u64>,
    rounds: u32,
}

/// A descriptor of an open file by which its pages can be dropped. It is one for reading, if that is
/// allowed: while a file is open for writing it cannot be run as a program.
pub fn descriptor(file: &Arc<File>) -> Arc<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(reader) => Arc::new(reader.into()),
        Err(_) => Arc::clone(file),
    }
}

/// Has the kernel drop the pages of a range, but those that are dirty or mapped. Only advice: where it fails,
/// they stay until the kernel needs their memory.
pub fn drop_pages(file: &File, range: &Range<u64>) {
    let start = range.start / FOLIO_BYTES * FOLIO_BYTES;
    let end = range.end.div_ceil(FOLIO_BYTES).saturating_mul(FOLIO_BYTES);
    let length = NonZeroU64::new(end.min(i64::MAX as u64).saturating_sub(start));
    let _ = fadvise(file, start, length, Advice::DontNeed);
}

/// How many files may be kept in mind, so that users of a tree do not run out of descriptors for it.
fn files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let share = limit.map_or(FILES_MAX as u64, |limit| limit / DESCRIPTORS_SHARE);
    usize::try_from(share).map_or(FILES_MAX, |share| share.min(FILES_MAX))
}

impl DropPageCache {
    /// A range was written through the page cache; `file` is its [`descriptor`].
    pub fn note(self: &Arc<Self>, file: &Arc<File>, range: Range<u64>) {
        let mut noted = self.noted();
        let key = Arc::as_ptr(file) as usize;
        if let Some(known) = noted.files.get_mut(&key) {
            let (start, end) = (known.range.start, known.range.end);
            known.range = start.min(range.start)..end.max(range.end);
            known.rounds = ROUNDS;
            return;
        }
        if noted.files.len() >= files_max() {
            drop(noted);
            // So it is on its way to the disk, and gone once the kernel wants the memory.
            return drop_pages(file, &range);
        }
        let file = Arc::clone(file);
        let rounds = ROUNDS;
        noted.files.insert(
            key,
            Written {
                file,
                range,
                rounds,
            },
        );
        if std::mem::replace(&mut noted.has_thread, true) {
            return;
        }
        drop(noted);
        let dropping = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("futae-pages".to_owned());
        let started = thread.spawn(move || {
            loop {
                std::thread::sleep(INTERVAL);
                if !dropping.upgrade().is_some_and(|dropping| dropping.round()) {
                    return;
                }
            }
        });
        if started.is_err() {
            self.noted().has_thread = false;
        }
    }

    /// Advises on all that is noted; false if there is nothing left, and nobody comes again.
    fn round(&self) -> bool {
        let mut due = Vec::new();
        let mut noted = self.noted();
        noted.files.retain(|_, written| {
            due.push((Arc::clone(&written.file), written.range.clone()));
            if written.rounds == ROUNDS {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            written.rounds -= 1;
            written.rounds > 0
        });
        noted.has_thread = !noted.files.is_empty();
        let goes_on = noted.has_thread;
        drop(noted);
        for (file, range) in due {
            drop_pages(&file, &range);
        }
        goes_on
    }

    /// Ranges that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
