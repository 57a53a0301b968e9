//! Locks on a file or device: one writer, or any number of readers.

use super::image_locks;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// How long to retry. The kernel releases a file that was used with io_uring a moment after its
/// process has exited or has closed it.
const TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// Takes futae's lock and QEMU's locks, which are held until the descriptor is closed. If the file
/// system has no locks on bytes, QEMU takes none either.
///
/// # Errors
///
/// Another process holds a lock, or the file system has no locks.
pub fn lock(file: &OwnedFd, read_only: bool) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        match try_lock(file, read_only) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < TIMEOUT => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// As [`lock`], without waiting. Holds nothing if it fails.
///
/// # Errors
///
/// As for [`lock`].
pub fn try_lock(file: &OwnedFd, read_only: bool) -> Result<(), Errno> {
    let how = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    flock(file, how)?;
    match image_locks::lock(file, read_only) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            flock(file, FlockOperation::Unlock)?;
            Err(Errno::WOULDBLOCK)
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_lock_that_is_let_go_of_in_time_is_taken() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || OwnedFd::from(File::open(file.path()).expect("opened"));
        let (first, second, third) = (open(), open(), open());
        lock(&first, false).expect("free");
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = thread::spawn(move || {
            sender.send(()).expect("somebody waits");
            lock(&second, true).expect("let go of");
            second
        });
        receiver.recv().expect("it runs");
        thread::sleep(4 * PAUSE);
        drop(first);
        let shared = waiting.join().expect("locked");
        lock(&third, true).expect("shared");
        drop(shared);
    }

    /// The checks that QEMU does before it opens an image for writing (the second value: for
    /// reading).
    #[test]
    fn bytes_are_locked_where_qemu_looks() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || {
            let file = File::options().read(true).write(true).open(file.path());
            OwnedFd::from(file.expect("opened"))
        };
        let held = |by: &OwnedFd| -> Vec<i64> {
            let bytes = (100..104).chain(200..204);
            let is_held = |byte: &i64| super::super::ofd::is_held_by_another(by, *byte);
            bytes
                .filter(|byte| is_held(byte).expect("OFD locks"))
                .collect()
        };
        let other = open();
        for (read_only, expected) in [
            (false, vec![100, 101, 201, 203]),
            (true, vec![100, 201, 203]),
        ] {
            let own = open();
            lock(&own, read_only).expect("free");
            assert_eq!(held(&other), expected);
            assert_eq!(held(&own), [] as [i64; 0], "its own are not in its way");
        }
        assert_eq!(held(&other), [] as [i64; 0], "gone with the descriptor");
        // A QEMU reader coexists with readers; a QEMU writer excludes all others.
        super::super::ofd::share(&other, 100).expect("taken");
        super::super::ofd::share(&other, 201).expect("taken");
        lock(&open(), true).expect("both only read");
        assert_eq!(lock(&open(), false), Err(Errno::WOULDBLOCK));
        super::super::ofd::share(&other, 101).expect("taken");
        let refused = open();
        assert_eq!(lock(&refused, true), Err(Errno::WOULDBLOCK));
        assert_eq!(
            held(&other),
            [] as [i64; 0],
            "what was refused is given back"
        );
    }

    #[test]
    fn a_lock_that_somebody_keeps_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || OwnedFd::from(File::open(file.path()).expect("opened"));
        let (first, second) = (open(), open());
        lock(&first, true).expect("free");
        assert_eq!(lock(&second, false), Err(Errno::WOULDBLOCK));
    }
}
