//! Places of files: descriptors that lead to them, whatever their names are.

use rustix::fs::{AtFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Device and inode number: the identity of a file, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Key {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// The name of the file's volume: in a recording no two files have the same, and after a restart each has the same as before.
impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, inode } = *self;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        write!(formatter, "file-{major}:{minor}-{inode}")
    }
}

/// The path through which the file of a descriptor can be opened again.
pub(crate) fn magic(place: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

/// `fstat`, also for `O_PATH` descriptors.
pub(crate) fn stat_of(place: &OwnedFd) -> Result<Stat, Errno> {
    rustix::fs::statat(place, "", AtFlags::EMPTY_PATH)
}

/// Whether the file at a place has lost its last name.
pub(super) fn is_nameless(place: Option<&Arc<OwnedFd>>) -> bool {
    let stat = place.and_then(|place| stat_of(place).ok());
    stat.is_some_and(|stat| stat.st_nlink == 0)
}

/// The same, as far as the kernel knows it: no file server is asked.
pub(super) fn is_known_nameless(place: &OwnedFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(place, "", flags, StatxFlags::NLINK);
    stat.is_ok_and(|stat| stat.stx_nlink == 0)
}
