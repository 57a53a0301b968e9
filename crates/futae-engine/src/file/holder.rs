//! The holder of a lock on a file, for messages: of an image, and of any other file that one process at a time uses.

use rustix::fs::{major, minor};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Who holds a lock on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// This process, which has it open a second time.
    This,
    /// Another process.
    Other {
        /// Its name.
        name: String,
        /// Its number.
        process: u32,
    },
}

/// Why a file cannot be locked.
pub(super) fn in_use(file: &OwnedFd) -> String {
    match lock_holder(file) {
        Some(LockHolder::This) => {
            "is in use by this process already; name it once, several clients may use it".to_owned()
        }
        Some(LockHolder::Other { name, process }) => {
            format!("is in use by another process: {name} ({process}); stop that one first")
        }
        None => "is in use by another process; stop that one first".to_owned(),
    }
}

/// Who holds a lock on the same file, if this process may see it.
///
/// A `stat` of what another process has open can wait without end, such as for a FUSE server that does not answer. What procfs
/// itself says of a descriptor and of its locks does not wait for file systems.
#[must_use]
pub fn lock_holder(file: &OwnedFd) -> Option<LockHolder> {
    let place = place(file)?;
    let this = std::process::id();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fdinfo")) else {
            continue; // Another user's process, or one that has exited.
        };
        let mut about = descriptors
            .flatten()
            .filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok());
        if !about.any(|about| has_lock(&about, &place)) {
            continue;
        }
        if id == this {
            return Some(LockHolder::This);
        }
        let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        return Some(LockHolder::Other {
            name: comm.trim().chars().filter(|c| !c.is_control()).collect(),
            process: id,
        });
    }
    None
}

/// The file as locks name it: `08:01:1234`, its device in two hexadecimal numbers and its inode. Some file systems (btrfs,
/// overlayfs) tell others to `stat`.
fn place(file: &OwnedFd) -> Option<String> {
    let stat = rustix::fs::fstat(file.as_fd()).ok()?;
    let about = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let about = fs::read_to_string(about).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let device = field(&about, "mnt_id").and_then(|mount| device_of(&mounts, mount));
    let (major, minor) = device.unwrap_or((major(stat.st_dev), minor(stat.st_dev)));
    // Linux before 5.14 does not tell it.
    let inode = field(&about, "ino").and_then(|inode| inode.parse().ok());
    let inode = inode.unwrap_or(stat.st_ino);
    Some(format!("{major:02x}:{minor:02x}:{inode}"))
}

/// A field of what procfs says of a descriptor.
fn field<'a>(about: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = about.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| *key == name)?;
    Some(value.trim())
}

/// The device of a mount in the text of `mountinfo`, such as `36 35 98:0 / /mnt rw - ext4 /dev/root rw`.
fn device_of(mounts: &str, mount: &str) -> Option<(u32, u32)> {
    let mut mounts = mounts.lines().map(str::split_whitespace);
    let mut words = mounts.find_map(|mut words| (words.next() == Some(mount)).then_some(words))?;
    let (major, minor) = words.nth(1)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a descriptor has a lock on the file at `place`: `lock: 1: FLOCK ADVISORY WRITE 359 08:01:1234 0 EOF`.
fn has_lock(about: &str, place: &str) -> bool {
    let mut locks = about.lines().filter(|line| line.starts_with("lock:"));
    locks.any(|lock| lock.split_whitespace().any(|word| word == place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::File;

    #[test]
    fn a_lock_of_this_process_is_found_by_its_file() {
        let [file, other] = [(); 2].map(|()| tempfile::NamedTempFile::new().expect("a file"));
        let open = || OwnedFd::from(File::open(file.path()).expect("opened"));
        let (first, second) = (open(), open());
        assert!(lock_holder(&second).is_none(), "nobody locked it");
        let elsewhere = OwnedFd::from(File::open(other.path()).expect("opened"));
        flock(&elsewhere, FlockOperation::NonBlockingLockExclusive).expect("free");
        assert!(lock_holder(&second).is_none(), "another file is locked");
        flock(&first, FlockOperation::NonBlockingLockExclusive).expect("free");
        assert_eq!(lock_holder(&second), Some(LockHolder::This));
    }

    #[test]
    fn the_device_is_that_of_the_mount() {
        let mounts = "36 35 98:0 /mnt1 / rw shared:1 - ext4 /dev/root rw\n360 35 0:35 / /b rw - btrfs /dev/b rw\n";
        assert_eq!(device_of(mounts, "36"), Some((98, 0)));
        assert_eq!(device_of(mounts, "360"), Some((0, 35)));
        assert_eq!(device_of(mounts, "3"), None);
        assert_eq!(field("pos:\t0\nmnt_id:\t36\nino:\t9\n", "ino"), Some("9"));
        let about = "pos:\t0\nlock:\t1: OFDLCK ADVISORY READ -1 00:23:9 100 100\n";
        assert!(has_lock(about, "00:23:9") && !has_lock(about, "00:23:91"));
    }
}
