//! Attributes of lower files in FUSE's format, and stamps that detect changed files.

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{FileType as LowerType, Stat};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The recommended read size: every read is a request to this process.
const GOOD_READ_BYTES: u32 = 128 << 10;

/// Distinguishes states of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// Shows its time of change in place of another.
    pub(crate) fn show_modified(&self, stat: &mut Stat) {
        let (seconds, nanos) = self.modified;
        stat.st_mtime = seconds;
        stat.st_mtime_nsec = nanos as _;
    }

    /// Whether only attributes have changed since `before`.
    pub(crate) fn has_contents_of(&self, before: &Self) -> bool {
        (self.size, self.modified) == (before.size, before.modified)
    }
}

/// The kind of a lower file.
pub(crate) fn kind_of(kind: LowerType) -> FileType {
    match kind {
        LowerType::Directory => FileType::Directory,
        LowerType::Symlink => FileType::Symlink,
        LowerType::Fifo => FileType::NamedPipe,
        LowerType::Socket => FileType::Socket,
        LowerType::CharacterDevice => FileType::CharDevice,
        LowerType::BlockDevice => FileType::BlockDevice,
        LowerType::RegularFile | LowerType::Unknown => FileType::RegularFile,
    }
}

/// The kind of the file with these attributes.
pub(crate) fn kind_in(stat: &Stat) -> FileType {
    kind_of(LowerType::from_raw_mode(stat.st_mode))
}

/// `stat` in FUSE's format; `inode` is the number of the file in the mount.
pub(crate) fn attributes(stat: &Stat, inode: u64) -> FileAttr {
    let kind = LowerType::from_raw_mode(stat.st_mode);
    FileAttr {
        ino: INodeNo(inode),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec as u32),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as u32),
        crtime: UNIX_EPOCH,
        kind: kind_of(kind),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: encode_device(stat.st_rdev),
        blksize: (stat.st_blksize as u32).max(GOOD_READ_BYTES),
        flags: 0,
    }
}

/// A file of which only the kind is known; `inode` as for [`attributes`].
pub(crate) fn without_attributes(inode: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: GOOD_READ_BYTES,
        flags: 0,
    }
}

fn time(seconds: i64, nanos: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    time.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(nanos.into())
}

/// Seconds and nanoseconds since 1970, the seconds rounded down, of a time that the kernel sets. Of a time before 1970, fuser
/// subtracts the nanoseconds, which are to be added.
pub(crate) fn time_to_set(time: SystemTime) -> (i64, i64) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, i64::from(after.subsec_nanos())),
        Err(before) => {
            let before = before.duration();
            let seconds = -(before.as_secs() as i64);
            (seconds, i64::from(before.subsec_nanos()))
        }
    }
}

/// A device number in FUSE's format: 32 bits, as Linux's `new_encode_dev`.
fn encode_device(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The reverse.
pub(crate) fn decode_device(encoded: u32) -> u64 {
    let major = (encoded >> 8) & 0xfff;
    let minor = (encoded & 0xff) | ((encoded >> 12) & 0x000f_ff00);
    rustix::fs::makedev(major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_times_survive_the_way_there_and_back() {
        for (major, minor) in [(1, 3), (8, 255), (259, 70_000), (0, 0)] {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(decode_device(encode_device(device)), device);
        }
        for (seconds, nanos) in [
            (0i64, 0u32),
            (1, 5),
            (-1, 999_999_999),
            (-5, 0),
            (1 << 33, 1),
        ] {
            // As fuser gives what the kernel sets.
            let set = match u64::try_from(seconds) {
                Ok(seconds) => UNIX_EPOCH + Duration::new(seconds, nanos),
                Err(_) => UNIX_EPOCH - Duration::new(seconds.unsigned_abs(), nanos),
            };
            assert_eq!(time_to_set(set), (seconds, i64::from(nanos)));
        }
        assert_eq!(time(-1, 999_999_999), UNIX_EPOCH - Duration::from_nanos(1));
    }
}
