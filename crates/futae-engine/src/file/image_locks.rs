//! QEMU's locks on images, so that QEMU's programs and this one keep out of each other's images.
//!
//! QEMU (block/file-posix.c) has one byte for each permission and one for each permission that is not shared. A user
//! takes locks for reading on the bytes of what it does (100 + permission) and of what others must not do (200 +
//! permission), then looks whether another has a byte against it.

use super::ofd;
use std::io::Error;
use std::os::fd::OwnedFd;

const PERMISSIONS_AT: i64 = 100;
const UNSHARED_AT: i64 = 200;

/// QEMU's permissions by their bits, as far as they concern a file.
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// What others must not do: what the cache holds would no longer be true.
const UNSHARED: [i64; 2] = [WRITE, RESIZE];

/// Takes the locks, once.
///
/// # Errors
///
/// `WouldBlock`: another user is in the way. Anything else: there are no such locks here.
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
        // Where taking it worked, giving it back does; elsewhere there is nothing to give back.
        let _ = ofd::release(file, byte);
    }
    Err(problem)
}
