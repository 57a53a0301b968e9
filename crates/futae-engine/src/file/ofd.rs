//! Locks on single bytes of a file that belong to its open file description, as QEMU takes them on
//! images.
//!
//! `unsafe` here: `fcntl` with a structure has no safe interface. It reads and writes one `struct
//! flock` during the call.

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};

/// Takes a read lock on one byte. The lock is released when the last descriptor of the open file is
/// closed.
///
/// # Errors
///
/// Another process holds the byte's write lock, or the file has no such locks.
pub fn share(file: &OwnedFd, byte: i64) -> Result<(), Error> {
    control(file, libc::F_OFD_SETLK, &mut of(libc::F_RDLCK, byte))
}

/// Whether another open file holds any lock on a byte.
///
/// # Errors
///
/// The file has no such locks.
pub fn is_held_by_another(file: &OwnedFd, byte: i64) -> Result<bool, Error> {
    let mut probe = of(libc::F_WRLCK, byte);
    control(file, libc::F_OFD_GETLK, &mut probe)?;
    Ok(i32::from(probe.l_type) != libc::F_UNLCK)
}

/// Releases the lock on a byte.
///
/// # Errors
///
/// The file has no such locks.
pub fn release(file: &OwnedFd, byte: i64) -> Result<(), Error> {
    control(file, libc::F_OFD_SETLK, &mut of(libc::F_UNLCK, byte))
}

fn of(kind: i32, byte: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        // Required to be 0 for these locks.
        l_pid: 0,
    }
}

fn control(file: &OwnedFd, command: libc::c_int, lock: &mut libc::flock) -> Result<(), Error> {
    // SAFETY: the descriptor is open, since `file` owns it. Both commands take a pointer to a
    // `struct flock`, which is valid and not accessed by other code until the call returns.
    #[expect(unsafe_code, reason = "the named place for OFD locks")]
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if done == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}
