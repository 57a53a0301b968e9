//! Locks on files that one process at a time has the use of.

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, major, minor};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long to retry a lock: a killed process releases it a moment after its end.
const TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// The use of a file, until it is dropped.
///
/// The file may be replaced meanwhile, so the lock is on `FILE.lock` beside it. That file is empty and stays.
pub struct FileLock {
    _held: OwnedFd,
}

/// Why there is no lock.
pub enum NotLocked {
    /// Another process has it: this one, if the kernel tells.
    Held(Option<u32>),
    /// None can be had here.
    Impossible(Errno),
}

impl FileLock {
    /// Takes the lock of the file at `path`.
    ///
    /// # Errors
    ///
    /// Another process has it, or it cannot be had.
    pub fn take(path: &Path) -> Result<Self, NotLocked> {
        let lock = Self::beside(path);
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A lock can be taken by all who can open the file.
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = rustix::fs::open(&lock, flags, mode);
        let taken = opened.and_then(|file| {
            // Earlier versions let others open it.
            let _ = fchmod(&file, mode);
            patiently(&file).map(|()| file)
        });
        match taken {
            Ok(held) => Ok(Self { _held: held }),
            Err(Errno::WOULDBLOCK) => Err(NotLocked::Held(holder(&lock))),
            Err(errno) => Err(NotLocked::Impossible(errno)),
        }
    }

    /// The file that is locked in the place of the one at `path`.
    pub fn beside(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(".lock");
        name.into()
    }
}

/// The holder of a lock in a message, behind what it is: ` (process 4711)`.
pub fn shown(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |process| format!(" (process {process})"))
}

fn patiently(file: &OwnedFd) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < TIMEOUT => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// The process that took the lock on a file, if it runs and the kernel tells.
fn holder(lock: &Path) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let stat = fstat(rustix::fs::open(lock, flags, Mode::empty()).ok()?).ok()?;
    let (device, inode) = (stat.st_dev, stat.st_ino);
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_of(&locks, &place)?;
    Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
}

/// The process of the lock on a file in the text of `/proc/locks`, such as
/// `3: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`.
fn holder_of(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, of, ..] = words[..] else {
            return None;
        };
        pid.parse().ok().filter(|_| of == place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_found_by_the_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 08:01:12 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 08:01:123 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 08:01:12 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 10 08:01:12 0 EOF\n";
        assert_eq!(holder_of(locks, "08:01:12"), Some(9));
        assert_eq!(holder_of(locks, "08:01:1"), None);
    }
}
