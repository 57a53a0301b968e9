//! The lock of a `--state` file, which has one user at a time.

use anyhow::anyhow;
use futae_terminal::failure::Failure;
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, major, minor};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

/// How long to retry the lock: a killed process releases it a moment after its end.
const TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// The right to save a state, until it is dropped.
///
/// A save replaces the state file, so the lock is on `FILE.lock` beside it. That file is empty and stays.
pub(super) struct StateLock {
    /// None if no lock can be had here; then a state cannot be saved, either.
    _held: Option<OwnedFd>,
}

impl StateLock {
    /// Takes the lock of the state file at `path`.
    ///
    /// # Errors
    ///
    /// Another process has it.
    pub(super) fn take(path: &Path) -> Result<Self, Failure> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
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
            Ok(file) => Ok(Self { _held: Some(file) }),
            Err(Errno::WOULDBLOCK) => {
                let holder = holder(&lock);
                let holder = holder.map_or(String::new(), |pid| format!(" (process {pid})"));
                Err(anyhow!(
                    "--state {}: another server or mount{holder} keeps its state there; stop it first, or name \
                     another file",
                    path.display()
                )
                .into())
            }
            Err(errno) => {
                warn!(
                    "--state {}: {} cannot be locked: {errno}; see that no other server or mount has the same --state",
                    path.display(),
                    lock.display()
                );
                Ok(Self { _held: None })
            }
        }
    }
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
    fn one_at_a_time_has_the_lock_and_its_process_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("state");
        let first = StateLock::take(&state).map_err(|it| it.to_string());
        let first = first.expect("free");
        let refused = StateLock::take(&state).err().expect("it is held");
        let said = refused.to_string();
        assert!(
            said.contains(&format!("--state {}", state.display())),
            "{said}"
        );
        assert!(
            said.contains(&format!("process {}", std::process::id())),
            "{said}"
        );
        drop(first);
        assert!(StateLock::take(&state).is_ok(), "free again");
        assert!(!state.exists(), "only the lock is made");
    }

    #[test]
    fn a_holder_is_found_by_the_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 08:01:12 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 08:01:123 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 08:01:12 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 10 08:01:12 0 EOF\n";
        assert_eq!(holder_of(locks, "08:01:12"), Some(9));
        assert_eq!(holder_of(locks, "08:01:1"), None);
    }
}
