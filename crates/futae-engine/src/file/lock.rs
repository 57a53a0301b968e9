//! One user of a file or device at a time, or any number that only read.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// How long to try. The kernel lets go of a file that was used with io_uring a moment after its
/// process has ended or has closed it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// Takes the lock until the descriptor is closed.
///
/// # Errors
///
/// Somebody else has it, or the file system has no locks.
pub fn lock(file: &OwnedFd, read_only: bool) -> Result<(), Errno> {
    let how = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let begun = Instant::now();
    loop {
        match flock(file, how) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => thread::sleep(PAUSE),
            done => return done,
        }
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

    #[test]
    fn a_lock_that_somebody_keeps_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || OwnedFd::from(File::open(file.path()).expect("opened"));
        let (first, second) = (open(), open());
        lock(&first, true).expect("free");
        assert_eq!(lock(&second, false), Err(Errno::WOULDBLOCK));
    }
}
