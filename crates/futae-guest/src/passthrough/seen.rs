//! What was seen last of a lower file's contents, by which changes past the mount are told from our
//! own.
//!
//! With write-back the file has two times of change: when somebody wrote to it, which programs see,
//! and when the cache got round to it, which nobody should. So the first is set below when a write is
//! kept, and put back when the cache has written.

use super::lock::locked;
use super::place::stat_of;
use super::stat::Stamp;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Writes so close to each other have one time, as with the kernel's own clock for files.
const SAME_TIME: Duration = Duration::from_millis(4);

struct Last {
    stamp: Stamp,
    /// When a write that was kept was last given its time.
    touched: Option<Instant>,
}

/// What is known of a lower file's contents.
pub(crate) struct Seen {
    /// Whether written blocks are kept, so that the file is written later than it should seem.
    writes_back: bool,
    last: Mutex<Last>,
    /// Writes of users under way.
    writes: AtomicU32,
    /// Writes below under way; only counted with write-back.
    writes_below: AtomicU32,
    /// Somebody else has changed the file, and the cache has not been told yet.
    is_foreign: AtomicBool,
}

impl Seen {
    pub(crate) fn new(place: &OwnedFd, writes_back: bool) -> Result<Self, Errno> {
        Ok(Self {
            writes_back,
            last: Mutex::new(Last {
                stamp: stamp_of(place)?,
                touched: None,
            }),
            writes: AtomicU32::new(0),
            writes_below: AtomicU32::new(0),
            is_foreign: AtomicBool::new(false),
        })
    }

    /// Whether the file is not as it was seen last, and it was not us.
    pub(crate) fn is_changed(&self, place: &OwnedFd) -> Result<bool, Errno> {
        let last = locked(&self.last);
        let is_ours = self.writes_below.load(Ordering::Acquire) > 0;
        let differs = !is_ours && stamp_of(place)? != last.stamp;
        Ok(differs || self.is_foreign.load(Ordering::Acquire))
    }

    /// Whether that what somebody has just seen is something else than what is known, while nobody
    /// writes.
    pub(crate) fn differs(&self, seen: &Stamp) -> bool {
        let is_quiet = self.writes.load(Ordering::Acquire) == 0
            && self.writes_below.load(Ordering::Acquire) == 0;
        is_quiet && *seen != locked(&self.last).stamp
    }

    /// The cache knows the file as it is now.
    pub(crate) fn look(&self, place: &OwnedFd) -> Result<(), Errno> {
        let mut last = locked(&self.last);
        last.stamp = stamp_of(place)?;
        self.is_foreign.store(false, Ordering::Release);
        Ok(())
    }

    /// Our own change of attributes: what was known of the contents stays true.
    pub(crate) fn attributes_changed(&self, place: &OwnedFd, times_were_set: bool) {
        let mut last = locked(&self.last);
        if let Ok(now) = stamp_of(place)
            && (now.has_contents_of(&last.stamp) || (times_were_set && now.size == last.stamp.size))
        {
            last.stamp = now;
        }
    }

    /// Somebody writes.
    pub(crate) fn begin_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Somebody has written, to the file or to the cache.
    pub(crate) fn end_write(&self, place: Option<&OwnedFd>, is_done: bool) {
        let mut last = locked(&self.last);
        self.writes.fetch_sub(1, Ordering::AcqRel);
        let Some((place, mut now)) = place.and_then(|it| Some((it, stamp_of(it).ok()?))) else {
            return;
        };
        let was_kept = self.writes_back && is_done && now.modified == last.stamp.modified;
        let is_fresh = last.touched.is_some_and(|at| at.elapsed() < SAME_TIME);
        if was_kept && !is_fresh {
            set_modified(place, (0, UTIME_NOW));
            last.touched = Some(Instant::now());
            now = stamp_of(place).unwrap_or(now);
        }
        if !self.is_foreign.load(Ordering::Acquire) {
            last.stamp = now;
        }
    }

    /// The cache begins to write to the file.
    pub(crate) fn begin_below(&self, place: &OwnedFd) {
        if !self.writes_back {
            return;
        }
        let last = locked(&self.last);
        let is_first = self.writes_below.fetch_add(1, Ordering::AcqRel) == 0;
        let is_alone = is_first && self.writes.load(Ordering::Acquire) == 0;
        if is_alone && stamp_of(place).is_ok_and(|now| now != last.stamp) {
            self.is_foreign.store(true, Ordering::Release);
        }
    }

    /// The cache has written to the file. Unless somebody writes just now, that is not when it was
    /// changed.
    pub(crate) fn end_below(&self, place: &OwnedFd) {
        if !self.writes_back {
            return;
        }
        let mut last = locked(&self.last);
        self.writes_below.fetch_sub(1, Ordering::AcqRel);
        if self.is_foreign.load(Ordering::Acquire) {
            return;
        }
        if self.writes.load(Ordering::Acquire) == 0 {
            set_modified(place, last.stamp.modified);
        }
        if let Ok(now) = stamp_of(place) {
            last.stamp = now;
        }
    }
}

fn stamp_of(place: &OwnedFd) -> Result<Stamp, Errno> {
    Ok(Stamp::of(&stat_of(place)?))
}

fn set_modified(place: &OwnedFd, (tv_sec, tv_nsec): (i64, i64)) {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
    // Only the owner and root may; for others a file is changed when the cache writes it.
    let _ = rustix::fs::utimensat(place, "", &times, AtFlags::EMPTY_PATH);
}
