//! Translates errors of the lower kernel and of the cache for the upper kernel.

use fuser::Errno as FuseErrno;
use futae_engine::{IoError, IoErrorKind};
use rustix::io::Errno;

/// The error number of a failed request.
pub(crate) fn errno_of(error: &IoError) -> Errno {
    let known = error.os_error.map(Errno::from_raw_os_error);
    known.unwrap_or(match error.kind {
        IoErrorKind::OutOfRange => Errno::FBIG,
        IoErrorKind::ReadOnly => Errno::ROFS,
        IoErrorKind::NoSpace => Errno::NOSPC,
        IoErrorKind::Unsupported => Errno::OPNOTSUPP,
        IoErrorKind::Store | IoErrorKind::Shutdown => Errno::IO,
    })
}

pub(crate) fn fuse(errno: Errno) -> FuseErrno {
    FuseErrno::from_i32(errno.raw_os_error())
}

/// Whether the process, or the machine, has run out of descriptors.
pub(crate) fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE)
}
