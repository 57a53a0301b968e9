//! QEMU's locks on images, so that QEMU's programs and futae do not use an image at the same time.
//!
//! QEMU (block/file-posix.c) assigns one byte to each permission and one to each permission that is
//! not shared. A user takes read locks on the bytes of its own permissions (100 + permission) and
//! of those it denies to others (200 + permission), then checks whether another process holds a
//! conflicting byte.

use super::ofd;
use std::io::Error;
use std::os::fd::OwnedFd;

const PERMISSIONS_AT: i64 = 100;
const UNSHARED_AT: i64 = 200;

/// QEMU's permissions by their bits, as far as they concern a file.
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// What other processes must not do: the cached data would become stale.
const UNSHARED: [i64; 2] = [WRITE, RESIZE];

/// Takes the locks, once.
///
/// # Errors
///
/// `WouldBlock`: another process holds a conflicting lock. Anything else: this file has no such
/// locks.
pub fn lock(file: &OwnedFd, read_only: bool) -> Result<(), Error> {
    let does: &[i64] = if read_only {
        &[CONSISTENT_READ]
    } else {
        &[CONSISTENT_READ, WRITE]
    };
    let own = does.iter().map(|bit| PERMISSIONS_AT + bit);
    let own: Vec<i64> = own.chain(UNSHARED.map(|bit| UNSHARED_AT + bit)).collect();
    let against = does.iter().map(|bit| UNSHARED_AT + bit);
    let mut against = against.chain(UNSHARED.map(|bit| PERMISSIONS_AT + bit));
    let taken = own.iter().try_for_each(|&byte| ofd::share(file, byte));
    let is_in_the_way = taken.and_then(|()| {
        against.try_fold(false, |is, byte| {
            Ok(is || ofd::is_held_by_another(file, byte)?)
        })
    });
    let problem = match is_in_the_way {
        Ok(false) => return Ok(()),
        Ok(true) => std::io::ErrorKind::WouldBlock.into(),
        Err(error) => error,
    };
    for byte in own {
        // Release succeeds where the acquisition did; otherwise there is nothing to release.
        let _ = ofd::release(file, byte);
    }
    Err(problem)
}
