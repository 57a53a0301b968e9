//! The last known state of a lower file's contents, which distinguishes changes by other programs
//! from those of this mount.
//!
//! With write-back a file has two times of change: that of a user's write, which programs should
//! see, and that of the write-back, which they should not. The first is therefore set on the lower
//! file when a write is kept, and restored after the write-back; until then it is shown in place of the second.

use super::place::stat_of;
use super::stat::Stamp;
use crate::lock::locked;
use rustix::fs::{AtFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Writes within this interval share one time, as with the kernel's own clock for files.
const SAME_TIME: Duration = Duration::from_millis(4);

struct Last {
    stamp: Stamp,
    /// When a kept write last set the time.
    touched: Option<Instant>,
}

/// The last known state of a lower file's contents.
pub(crate) struct Seen {
    /// Whether writes are kept, so that the file is written later than its time should say.
    writes_back: bool,
    last: Mutex<Last>,
    /// Number of users' writes under way.
    writes: AtomicU32,
    /// Number of writes to the lower file under way; only counted with write-back.
    writes_below: AtomicU32,
    /// Another program has changed the file, and the cache has not been informed yet.
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

    /// Whether another program has changed the file since its last known state. A user's write through the cache that is under
    /// way explains other times, and a larger size; nothing explains a smaller one.
    pub(crate) fn is_changed(&self, place: &OwnedFd) -> Result<bool, Errno> {
        let last = locked(&self.last);
        let is_ours = self.writes_below.load(Ordering::Acquire) > 0;
        let goes_through = !self.writes_back && self.writes.load(Ordering::Acquire) > 0;
        let differs = !is_ours && {
            let now = stamp_of(place)?;
            if goes_through {
                now.size < last.stamp.size
            } else {
                now != last.stamp
            }
        };
        Ok(differs || self.is_foreign.load(Ordering::Acquire))
    }

    /// Whether the file can have the time of a write-back.
    pub(crate) fn writes_back(&self) -> bool {
        self.writes_back
    }

    /// The attributes of the file as programs are to see them.
    pub(crate) fn stat(&self, place: &OwnedFd) -> Result<Stat, Errno> {
        if !self.writes_back {
            return stat_of(place);
        }
        // Held throughout: the time of a write-back is there until its end has put the other one back.
        let last = locked(&self.last);
        let mut stat = stat_of(place)?;
        let is_ours = self.writes_below.load(Ordering::Acquire) > 0;
        if is_ours && !self.is_foreign.load(Ordering::Acquire) {
            last.stamp.show_modified(&mut stat);
        }
        Ok(stat)
    }

    /// Whether a stamp just read differs from the known one while no write is under way, or another program's change is known.
    pub(crate) fn differs(&self, seen: &Stamp) -> bool {
        let is_foreign = self.is_foreign.load(Ordering::Acquire);
        self.is_quiet() && (is_foreign || *seen != locked(&self.last).stamp)
    }

    /// Whether no write is under way, whose changes could not be told from those of other programs.
    fn is_quiet(&self) -> bool {
        self.writes.load(Ordering::Acquire) == 0 && self.writes_below.load(Ordering::Acquire) == 0
    }

    /// Whether the file differs from its last known state while no write is under way.
    pub(crate) fn differs_now(&self, place: &OwnedFd) -> bool {
        stamp_of(place).is_ok_and(|now| self.differs(&now))
    }

    /// Records the current state of the file as known to the cache.
    pub(crate) fn look(&self, place: &OwnedFd) -> Result<(), Errno> {
        let mut last = locked(&self.last);
        last.stamp = stamp_of(place)?;
        last.touched = None;
        self.is_foreign.store(false, Ordering::Release);
        Ok(())
    }

    /// futae is about to change attributes. What another program has changed before would look like that change.
    pub(crate) fn attributes_will_change(&self, place: &OwnedFd) {
        let last = locked(&self.last);
        if self.is_quiet() && stamp_of(place).is_ok_and(|now| now != last.stamp) {
            self.is_foreign.store(true, Ordering::Release);
        }
    }

    /// futae's own change of attributes: the contents are unchanged.
    pub(crate) fn attributes_changed(&self, place: &OwnedFd, times_were_set: bool) {
        let mut last = locked(&self.last);
        if times_were_set {
            // The next write does not have this time.
            last.touched = None;
        }
        if let Ok(now) = stamp_of(place)
            && (now.has_contents_of(&last.stamp) || (times_were_set && now.size == last.stamp.size))
        {
            last.stamp = now;
        }
    }

    /// A user's write begins.
    pub(crate) fn begin_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// A user's write has ended, to the file or to the cache.
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

    /// The cache has written to the file. Unless a user's write is under way, restores the earlier
    /// time of change.
    pub(crate) fn end_below(&self, place: &OwnedFd) {
        if !self.writes_back {
            return;
        }
        let mut last = locked(&self.last);
        let is_last = self.writes_below.fetch_sub(1, Ordering::AcqRel) == 1;
        if self.is_foreign.load(Ordering::Acquire) {
            return;
        }
        let modified = last.stamp.modified;
        let restores = self.writes.load(Ordering::Acquire) == 0;
        if restores {
            set_modified(place, modified);
        }
        if let Ok(now) = stamp_of(place) {
            last.stamp = now;
            if restores && !is_last {
                // Another write to the file may have set its time since.
                last.stamp.modified = modified;
            }
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
    // Only the owner and root may set times; for others the time of the write-back stays.
    let _ = rustix::fs::utimensat(place, "", &times, AtFlags::EMPTY_PATH);
}

#[cfg(test)]
mod tests {
    use super::{Seen, Stamp};
    use rustix::fs::{Mode, OFlags};
    use std::fs::File;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::fs::FileExt;

    /// Enough that each of the two threads is interrupted in the middle of the other's work.
    const WRITE_BACKS: usize = 20_000;

    /// A file, and its place.
    fn lower() -> (File, OwnedFd) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("made longer");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let place = rustix::fs::open(path, OFlags::PATH, Mode::empty()).expect("opened");
        (file, place)
    }

    #[test]
    fn a_write_under_way_explains_other_times_but_not_a_smaller_size() {
        let (below, place) = lower();
        let seen = Seen::new(&place, false).expect("a stamp");
        let is_changed = || seen.is_changed(&place).expect("attributes");
        // As what a write changes.
        let (mut time, mut writes) = (std::time::UNIX_EPOCH, 0);
        let mut write = |offset| {
            below.write_all_at(&[1], offset).expect("written");
            writes += 1;
            time += std::time::Duration::from_secs(writes);
            below.set_modified(time).expect("set");
        };
        seen.begin_write();
        write(0);
        assert!(!is_changed(), "the write changed the time");
        write(4096);
        assert!(!is_changed(), "the write changed the size");
        below.set_len(100).expect("cut");
        assert!(is_changed(), "the write does not cut the file");
        write(5000);
        seen.end_write(Some(&place), true);
        assert!(!is_changed());
        write(0);
        assert!(is_changed(), "no write is under way");
    }

    #[test]
    fn a_change_of_attributes_does_not_hide_what_others_have_changed() {
        let (file, place) = lower();
        for writes_back in [false, true] {
            let seen = Seen::new(&place, writes_back).expect("a stamp");
            let mut time = std::time::UNIX_EPOCH;
            let mut touch = || {
                seen.attributes_will_change(&place);
                time += std::time::Duration::from_secs(1);
                file.set_modified(time).expect("set");
                seen.attributes_changed(&place, true);
                seen.is_changed(&place).expect("attributes")
            };
            assert!(!touch(), "only by this");
            // As another program does.
            file.write_all_at(&[1], 0).expect("written");
            file.set_modified(std::time::SystemTime::now())
                .expect("set");
            assert!(touch() && seen.differs_now(&place));
            seen.look(&place).expect("attributes");
            assert!(!touch());
        }
    }

    #[test]
    fn a_kept_write_has_its_own_time_after_a_time_was_set() {
        let (file, place) = lower();
        let seen = Seen::new(&place, true).expect("a stamp");
        let write = || {
            seen.begin_write();
            seen.end_write(Some(&place), true);
        };
        let long_ago = std::time::UNIX_EPOCH;
        // Often enough that the writes of a round are within the interval in which writes share a time.
        for _ in 0..100 {
            write();
            file.set_modified(long_ago).expect("set");
            seen.attributes_changed(&place, true);
            write();
            let metadata = file.metadata().expect("there");
            assert_ne!(metadata.modified().expect("a time"), long_ago);
        }
    }

    #[test]
    fn the_time_of_a_write_back_is_never_shown() {
        let (below, place) = lower();
        let seen = Seen::new(&place, true).expect("a stamp");
        let shown = || Stamp::of(&seen.stat(&place).expect("attributes")).modified;
        let first = shown();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                for _ in 0..WRITE_BACKS {
                    seen.begin_below(&place);
                    below.write_all_at(&[1], 0).expect("written");
                    seen.end_below(&place);
                }
            });
            while !writing.is_finished() {
                assert_eq!(shown(), first);
            }
        });
        assert_eq!(shown(), first);
    }
}
