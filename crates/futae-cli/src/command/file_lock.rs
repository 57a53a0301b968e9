//! Locks on files that one process at a time has the use of.

use futae_engine::{LockHolder, lock_holder};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
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
        let file = rustix::fs::open(&lock, flags, mode).map_err(NotLocked::Impossible)?;
        // Earlier versions let others open it.
        let _ = fchmod(&file, mode);
        match patiently(&file) {
            Ok(()) => Ok(Self { _held: file }),
            Err(Errno::WOULDBLOCK) => Err(NotLocked::Held(holder(&file))),
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

/// Takes the lock of a file that is open, and that nothing replaces, until it is closed.
///
/// # Errors
///
/// As of [`FileLock::take`].
pub fn lock_itself(file: &File) -> Result<(), NotLocked> {
    patiently(file).map_err(|errno| match errno {
        Errno::WOULDBLOCK => {
            let same = file.try_clone().map(OwnedFd::from);
            NotLocked::Held(same.ok().and_then(|same| holder(&same)))
        }
        errno => NotLocked::Impossible(errno),
    })
}

/// The holder of a lock in a message, behind what it is: ` (process 4711)`.
pub fn shown(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |process| format!(" (process {process})"))
}

fn patiently(file: impl AsFd) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < TIMEOUT => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn holder(file: &OwnedFd) -> Option<u32> {
    lock_holder(file).map(|holder| match holder {
        LockHolder::This => std::process::id(),
        LockHolder::Other { process, .. } => process,
    })
}
