//! Descriptors that this process has from the one that started it.
#![expect(unsafe_code, reason = "a descriptor is a number until it is owned")]

use rustix::fd::{FromRawFd, OwnedFd};
use std::io;

/// The descriptors that systemd passes, with their names. To be called once: afterwards they belong to the caller.
///
/// # Errors
///
/// LISTEN_FDS says something that is no number, or names a descriptor that is not open.
pub(crate) fn inherited() -> io::Result<Vec<(OwnedFd, String)>> {
    let passed = sd_notify::listen_fds_with_names()?;
    let owned = passed.map(|(number, name)| {
        // SAFETY: it is open, since it was just marked close-on-exec, and LISTEN_PID says that it was passed to this process for
        // it to use. The only caller keeps what this returns for the life of the process and calls once, so nobody else owns it.
        (unsafe { OwnedFd::from_raw_fd(number) }, name)
    });
    Ok(owned.collect())
}
