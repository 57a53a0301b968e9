//! Drops data that went through the page cache, so that it is not in memory twice.
//!
//! Data that was read is dropped at once. Data that was written is dirty at first: the first advice
//! to drop it makes the kernel write it, and only later advice drops it. Ranges are therefore
//! remembered and advised several times. No request waits for this. It does not wait for the
//! kernel's writes either, since that would take a write error away from a caller that flushes.

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

/// Time between two rounds of advice.
const INTERVAL: Duration = Duration::from_millis(250);
/// Number of times that a range is advised after its last write.
const ROUNDS: u32 = 6;
/// The largest number of files that are remembered, and so kept open; and the largest fraction of
/// the process's descriptors that they may use (one in this many).
const FILES_MAX: usize = 1024;
const DESCRIPTORS_SHARE: u64 = 16;
/// The kernel drops only whole folios; this is the size of its largest in bytes.
const FOLIO_BYTES: u64 = 2 << 20;

/// Device and inode number of a file.
type FileIdentity = (u64, u64);

/// Ranges that went through the page cache and may still be there.
#[derive(Default)]
pub struct DropPageCache {
    noted: Mutex<Noted>,
    /// Number of ranges that were dropped at least once.
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
    identity: Option<FileIdentity>,
    range: Range<u64>,
    rounds: u32,
}

/// A descriptor of an open file through which its pages can be dropped. It is a read-only one if
/// possible: a file that is open for writing cannot be executed.
pub fn descriptor(file: &Arc<File>) -> Arc<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(reader) => Arc::new(reader.into()),
        Err(_) => Arc::clone(file),
    }
}

/// Advises the kernel to drop the pages of a range. Dirty and mapped pages stay. If the advice
/// fails, the pages stay until the kernel needs their memory.
pub fn drop_pages(file: &File, range: &Range<u64>) {
    let start = range.start / FOLIO_BYTES * FOLIO_BYTES;
    let end = range.end.div_ceil(FOLIO_BYTES).saturating_mul(FOLIO_BYTES);
    let length = NonZeroU64::new(end.min(i64::MAX as u64).saturating_sub(start));
    let _ = fadvise(file, start, length, Advice::DontNeed);
}

/// The number of files that may be remembered, so that users of a tree do not run out of
/// descriptors.
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
            // So the kernel starts to write it, and drops it when it needs the memory.
            return drop_pages(file, &range);
        }
        let written = Written {
            file: Arc::clone(file),
            identity: rustix::fs::fstat(file)
                .ok()
                .map(|stat| (stat.st_dev, stat.st_ino)),
            range,
            rounds: ROUNDS,
        };
        noted.files.insert(key, written);
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

    /// Whether a file is kept open to drop its pages.
    pub fn keeps(&self, file: FileIdentity) -> bool {
        let noted = self.noted();
        let mut written = noted.files.values();
        written.any(|written| written.identity == Some(file))
    }

    /// Closes a file that has no name any more, so that its space becomes free; its pages go with
    /// it.
    pub fn let_go(&self, file: FileIdentity) {
        let mut noted = self.noted();
        let gone = noted
            .files
            .extract_if(|_, written| written.identity == Some(file));
        let gone: Vec<_> = gone.collect();
        drop(noted);
        // Closing it may take long: the file system frees its space then.
        drop(gone);
    }

    /// Advises all remembered ranges. Returns false if none is left and none can be added any more.
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

    /// Number of ranges that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
