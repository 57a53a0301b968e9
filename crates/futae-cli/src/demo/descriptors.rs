//! Descriptors of one thread alone.
#![expect(unsafe_code, reason = "no library makes this system call safe")]

use std::io;

/// The first descriptor that is not standard input, output or error.
const FIRST: libc::c_uint = 3;

/// Gives the calling thread a table of descriptors of its own, which holds standard input, output and error only.
///
/// A thread that reads from a mount of its own process needs it. If the process is killed while the thread waits for an
/// answer, the kernel ends the thread only after the mount's connection, and the connection only after the last table that
/// holds it.
///
/// # Errors
///
/// The kernel is older than Linux 5.9, or has no memory.
pub fn leave_all() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_UNSHARE.cast_signed();
    // SAFETY: the flag makes the kernel copy the table first, so no descriptor of another thread is closed. The caller
    // begins with this call and owns none.
    let result = unsafe { libc::close_range(FIRST, libc::c_uint::MAX, flags) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
